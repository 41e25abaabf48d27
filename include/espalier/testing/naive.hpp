// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// A second meaning of every op, which shares no code with `op_info::evaluate` and `interpret`.
#include <espalier/testing/naive/equations.hpp>
