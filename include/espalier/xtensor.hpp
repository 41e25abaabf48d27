// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// Arrays of devices from and to xtensor's; needs xtensor.
#include <espalier/tensor/run/io/xtensor.hpp>
