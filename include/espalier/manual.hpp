// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Code by hand: parts of a program that are written for one shard. Include it beside espalier.hpp or core.hpp.

// First, so that a message about a mistake need not list the way here.
#include <espalier/tensor/core/ops/reasons/manual.hpp>

#include <espalier/tensor/core/program/manual.hpp>
