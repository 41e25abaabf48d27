// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The layers, losses and helpers that example models share.
#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/nn/initialise.hpp>
#include <espalier/tensor/core/nn/losses.hpp>
#include <espalier/tensor/core/nn/mlp.hpp>
#include <espalier/tensor/core/nn/norm.hpp>
#include <espalier/tensor/core/nn/optimizers.hpp>
