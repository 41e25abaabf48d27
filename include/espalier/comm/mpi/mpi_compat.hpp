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

#include <espalier/base/dtype.hpp>

#include <mpi.h>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#else
#include <thread>
#endif

#include <cstdint>
#include <initializer_list>

namespace espalier::comm::detail {

// Predefined handles are casts of integers (MPICH) or of object addresses (Open MPI) inside macros of C headers: named
// once here, so that no cast of theirs is expanded, and warned about, in code of ours.
inline MPI_Comm all_ranks() { return MPI_COMM_WORLD; }
inline MPI_Request no_request() { return MPI_REQUEST_NULL; }
inline MPI_Datatype bytes_type() { return MPI_BYTE; }
inline MPI_Errhandler errors_return() { return MPI_ERRORS_RETURN; }
inline MPI_Datatype library_type_of_words() { return MPI_INT64_T; }
inline MPI_Datatype no_type() { return MPI_DATATYPE_NULL; }
inline MPI_Op no_operation() { return MPI_OP_NULL; }
inline MPI_Status* ignored_status() { return MPI_STATUS_IGNORE; }
inline const void* in_place() { return MPI_IN_PLACE; }

inline bool mpi_has_begun() {
  int begun = 0;
  MPI_Initialized(&begun);
  return begun != 0;
}
inline bool mpi_has_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

/// The library's name of a type, or none (what is for storage only).
inline MPI_Datatype library_type(dtype type) {
  const std::int64_t bytes = size_of(type);
  switch (facts_of(type).format) {
    case number_format::binary: return bytes == 4 ? MPI_FLOAT : bytes == 8 ? MPI_DOUBLE : MPI_DATATYPE_NULL;
    case number_format::brain: return MPI_DATATYPE_NULL;
    case number_format::integer:
      return bytes == 1 ? MPI_INT8_T : bytes == 2 ? MPI_INT16_T : bytes == 4 ? MPI_INT32_T : MPI_INT64_T;
    case number_format::natural:
      return bytes == 1 ? MPI_UINT8_T : bytes == 2 ? MPI_UINT16_T : bytes == 4 ? MPI_UINT32_T : MPI_UINT64_T;
    case number_format::truth: return MPI_CXX_BOOL;
  }
  return MPI_DATATYPE_NULL;
}
inline MPI_Op library_operation(dtype type, reduction kind) {
  switch (kind) {
    case reduction::sum: return MPI_SUM;
    case reduction::prod: return MPI_PROD;
    case reduction::max: return type == dtype::boolean ? MPI_LOR : MPI_MAX;
    case reduction::min: return type == dtype::boolean ? MPI_LAND : MPI_MIN;
  }
  return MPI_OP_NULL;
}

/// Whether an operation is MPI's own: not made for all types. The user's are.
inline bool is_predefined(MPI_Op operation) {
  for (const MPI_Op known : {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR,
                             MPI_BXOR, MPI_MAXLOC, MPI_MINLOC, MPI_REPLACE, MPI_NO_OP}) {
    if (operation == known) return true;
  }
  return false;
}

/// Processors of this machine, not only those this rank is bound to: launchers bind each rank to one.
inline int machine_processors() {
#if defined(_SC_NPROCESSORS_ONLN)
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
#else
  return static_cast<int>(std::thread::hardware_concurrency());
#endif
}

}  // namespace espalier::comm::detail
