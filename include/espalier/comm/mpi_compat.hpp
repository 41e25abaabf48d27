// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Every third-party name of this layer comes through here. Open MPI's deprecated C++ bindings are not wanted.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <mpi.h>

#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>
#include <boost/mpi/exception.hpp>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include <thread>

namespace espalier::comm::detail {

// Predefined handles are casts of integers (MPICH) or of object addresses (Open MPI) inside macros of C headers: named
// once here, so that no cast of theirs is expanded, and warned about, in code of ours.
inline MPI_Request no_request() { return MPI_REQUEST_NULL; }
inline MPI_Datatype bytes_type() { return MPI_BYTE; }
inline MPI_Errhandler errors_return() { return MPI_ERRORS_RETURN; }

/// Processors of this machine, not only those this rank is bound to: launchers bind each rank to one.
inline int machine_processors() {
#if defined(_SC_NPROCESSORS_ONLN)
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
#else
  return static_cast<int>(std::thread::hardware_concurrency());
#endif
}

}  // namespace espalier::comm::detail
