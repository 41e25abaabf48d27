// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The life of MPI in this process, for code that begins it or ends it.
#include <espalier/comm/mpi/mpi_compat.hpp>
#include <espalier/comm/mpi/mpi_session.hpp>
#include <espalier/comm/mpi_handle.hpp>
#include <espalier/comm/termination.hpp>

namespace espalier::comm {

using detail::announce_termination;
using detail::mpi_session;

/// Whether MPI has begun and has not ended yet.
[[nodiscard]] inline bool mpi_is_running() { return detail::mpi_has_begun() && !detail::mpi_has_ended(); }

/// All ranks that were started. @pre `mpi_is_running()`
[[nodiscard]] inline mpi_handle every_rank() { return mpi_handle(detail::all_ranks()); }

}  // namespace espalier::comm
