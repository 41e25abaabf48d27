// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The compile-time half: everything up to a partitioned and planned program. Needs C++20 and Boost.Hana only.
// First, so that a message about a mistake need not list the way here.
#include <espalier/tensor/core/diagnostics/failure.hpp>
#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/ops/reasons.hpp>

#include <espalier/tensor/core/graph/called_from.hpp>
#include <espalier/tensor/core/mesh/joint_mesh.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/budget.hpp>
#include <espalier/tensor/core/program/explicit_mode.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/shape/tensor.hpp>
#include <espalier/tensor/core/sharding/annotation.hpp>
