// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Everything for training inside programs: all optimizers, schedules, functions of trees, averages, loss scaling and
/// gradients in parts. Each has a header of its own; `espalier.hpp` brings AdamW and SGD. Functions of trees of arrays
/// are in tensor/run/execute/array_trees.hpp.
#include <espalier/tensor/core/nn/accumulate.hpp>
#include <espalier/tensor/core/nn/averages.hpp>
#include <espalier/tensor/core/nn/loss_scale.hpp>
#include <espalier/tensor/core/nn/optimizers.hpp>
#include <espalier/tensor/core/nn/optimizers/adafactor.hpp>
#include <espalier/tensor/core/nn/optimizers/lion.hpp>
#include <espalier/tensor/core/nn/optimizers/muon.hpp>
#include <espalier/tensor/core/nn/schedules.hpp>
#include <espalier/tensor/core/nn/trees.hpp>
