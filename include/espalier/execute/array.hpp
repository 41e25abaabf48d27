// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
#include <espalier/tensor/run/execute/array.hpp>  // this path goes with 0.2
