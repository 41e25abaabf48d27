// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Everything: the compile-time half, the executor with its kernels, both kinds of communicator, xtensor at the border.
/// MPI is used when the target espalier::mpi is linked (it defines ESPALIER_USE_MPI).
#include <espalier/core.hpp>
#include <espalier/execute/gather.hpp>
#include <espalier/execute/guard.hpp>
#include <espalier/execute/runner.hpp>
#include <espalier/io/checkpoint.hpp>
#include <espalier/io/xtensor.hpp>
#include <espalier/nn/nn.hpp>
#include <espalier/program/budget.hpp>
#include <espalier/report/explain.hpp>
