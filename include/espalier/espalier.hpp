// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// What nearly every program needs: the compile-time half, what models share, the executor with its kernels, both kinds
/// of communicator, `explain`. MPI is used when the target espalier::mpi is linked (it defines ESPALIER_USE_MPI).
///
/// Files (`espalier/io/checkpoint.hpp`), new layouts at run time (`espalier/execute/reshard.hpp`), xtensor
/// (`espalier/io/xtensor.hpp`), collectives for any MPI program
/// (`espalier/comm.hpp`) and pipelines (`espalier/pipeline.hpp`) have headers of their own.
// First, so that a message about a mistake need not list the way here.
#include <espalier/diagnostics/other_spellings.hpp>
#include <espalier/graph/tree.hpp>
#include <espalier/ops/reasons.hpp>

#include <espalier/core.hpp>
#include <espalier/diagnostics/not_included.hpp>
#include <espalier/execute/copy.hpp>
#include <espalier/execute/gather.hpp>
#include <espalier/execute/guard.hpp>
#include <espalier/execute/replicas.hpp>
#include <espalier/execute/runner.hpp>
#include <espalier/nn/nn.hpp>
#include <espalier/program/budget.hpp>
#include <espalier/report/explain.hpp>
