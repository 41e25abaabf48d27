// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Everything for training inside programs: all optimizers, schedules, functions of trees, averages, loss scaling and
/// gradients in parts. Each has a header of its own; `espalier.hpp` brings AdamW and SGD. Functions of trees of arrays
/// are in nn/array_trees.hpp.
#include <espalier/nn/accumulate.hpp>
#include <espalier/nn/averages.hpp>
#include <espalier/nn/loss_scale.hpp>
#include <espalier/nn/optimizers.hpp>
#include <espalier/nn/optimizers/adafactor.hpp>
#include <espalier/nn/optimizers/lion.hpp>
#include <espalier/nn/optimizers/muon.hpp>
#include <espalier/nn/schedules.hpp>
#include <espalier/nn/trees.hpp>
