// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The compile-time half: everything up to a partitioned and planned program. Needs C++20 and Boost.Hana only.
// First, so that a message about a mistake need not list the way here.
#include <espalier/diagnostics/failure.hpp>
#include <espalier/graph/tree.hpp>
#include <espalier/ops/reasons.hpp>

#include <espalier/graph/called_from.hpp>
#include <espalier/mesh/mesh.hpp>
#include <espalier/ops/ops.hpp>
#include <espalier/program/budget.hpp>
#include <espalier/program/program.hpp>
#include <espalier/shape/tensor.hpp>
#include <espalier/sharding/annotation.hpp>
