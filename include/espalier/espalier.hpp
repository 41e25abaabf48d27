// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The headers that nearly every program needs: the compile-time half, the parts that models share, the executor with
/// its kernels, both kinds of communicator, `explain`. MPI is used when the target espalier::mpi is linked (it defines
/// ESPALIER_USE_MPI).
///
/// Files (`espalier/io.hpp`), new layouts at run time
/// (`espalier/runner.hpp`), xtensor
/// (`espalier/xtensor.hpp`), collectives for any MPI program
/// (`espalier/comm.hpp`) and pipelines (`espalier/pipeline.hpp`) have headers of their own.
// First, so that a message about a mistake need not list the way here.
#include <espalier/tensor/core/diagnostics/other_spellings.hpp>
#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/ops/reasons.hpp>

#include <espalier/core.hpp>
#include <espalier/tensor/core/diagnostics/not_included.hpp>
#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/core/nn/not_included.hpp>
#include <espalier/tensor/core/program/budget.hpp>
#include <espalier/tensor/run/execute/copy.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/guard.hpp>
#include <espalier/tensor/run/execute/replicas.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/report/explain.hpp>
