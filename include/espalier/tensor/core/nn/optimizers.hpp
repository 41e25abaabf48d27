// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// AdamW and SGD, which `espalier.hpp` brings. Every other optimizer has a header of its own in nn/optimizers/, and
/// `espalier/nn.hpp` brings all of them.
#include <espalier/tensor/core/nn/optimizers/adamw.hpp>
#include <espalier/tensor/core/nn/optimizers/sgd.hpp>
