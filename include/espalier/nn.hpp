// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The headers for models: layers, attention, losses, initial values, every optimizer, and training inside programs.
#include <espalier/tensor/core/graph/named_leaves.hpp>
#include <espalier/tensor/core/nn/layers.hpp>
#include <espalier/tensor/core/nn/leaves.hpp>
#include <espalier/tensor/core/nn/mixed.hpp>
#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/core/nn/training.hpp>
