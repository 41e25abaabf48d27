// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// Files: checkpoints, safetensors, and data sets read by rows. xtensor is in `espalier/xtensor.hpp`.
#include <espalier/tensor/run/io/checkpoint.hpp>
#include <espalier/tensor/run/io/dataset.hpp>
#include <espalier/tensor/run/io/error.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>
