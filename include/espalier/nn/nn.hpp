// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// What example models share.
#include <espalier/nn/attention.hpp>
#include <espalier/nn/initialise.hpp>
#include <espalier/nn/losses.hpp>
#include <espalier/nn/mlp.hpp>
#include <espalier/nn/norm.hpp>
#include <espalier/nn/optimizers.hpp>
