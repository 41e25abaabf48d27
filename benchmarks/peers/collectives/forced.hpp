// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "cells.hpp"

#include <cstdlib>
#include <string>
#include <vector>

/// Open MPI's algorithms, each forced: its component `tuned` reads them when a communicator is made.
namespace collective_cells {

/// Lets algorithms be forced. Open MPI's choice stays what it is as long as none is.
/// @pre before MPI_Init
inline void allow_forced_algorithms() { ::setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 1); }

struct forced_algorithm {
  std::string name;
  MPI_Comm communicator = MPI_COMM_NULL;
};

/// A number among the library's control variables, or -1 where there is no such variable.
class control_variable {
 public:
  explicit control_variable(const std::string& name) {
    if (MPI_T_cvar_get_index(name.c_str(), &index_) != MPI_SUCCESS) index_ = -1;
    if (index_ < 0) return;
    int length = 0;
    int help = 0;
    int verbosity = 0;
    int bind = 0;
    int scope = 0;
    MPI_Datatype type{};
    MPI_T_cvar_get_info(index_, nullptr, &length, &verbosity, &type, &values_, nullptr, &help, &bind, &scope);
    int count = 0;
    if (MPI_T_cvar_handle_alloc(index_, nullptr, &handle_, &count) != MPI_SUCCESS) index_ = -1;
  }
  [[nodiscard]] bool exists() const { return index_ >= 0; }
  void set(int value) { MPI_T_cvar_write(handle_, &value); }
  [[nodiscard]] MPI_T_enum values() const { return values_; }

 private:
  int index_ = -1;
  MPI_T_cvar_handle handle_{};
  MPI_T_enum values_{};
};

/// All algorithms that the library has for a collective, the one that it finds best itself excluded; empty for other
/// MPI libraries than Open MPI. Collective.
inline std::vector<forced_algorithm> forced_algorithms(kind what, MPI_Comm communicator) {
  constexpr std::array<const char*, 8> there{"bcast",          "reduce", "allreduce", "allgather",
                                             "reduce_scatter", "gather", "scatter",   "alltoall"};
  std::vector<forced_algorithm> found;
  int provided = 0;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  const std::string name = std::string("coll_tuned_") + there[static_cast<std::size_t>(what)] + "_algorithm";
  control_variable chosen(name);
  control_variable segment(name + "_segmentsize");
  if (!chosen.exists()) return found;
  int count = 0;
  int length = 0;
  MPI_T_enum_get_info(chosen.values(), &count, nullptr, &length);
  for (int item = 0; item < count; ++item) {
    std::array<char, 128> text{};
    length = static_cast<int>(text.size());
    int value = 0;
    MPI_T_enum_get_item(chosen.values(), item, &value, text.data(), &length);
    if (value == 0) continue;  // "ignore"
    const std::string own = text.data();
    // Without segments a segmented algorithm is another one. A mebibyte is what the library takes itself.
    const bool in_segments = own.find("segmented") != std::string::npos || own.find("pipeline") != std::string::npos;
    if (segment.exists()) segment.set(in_segments ? 1 << 20 : 0);
    chosen.set(value);
    forced_algorithm made{"Open MPI " + own, MPI_COMM_NULL};
    MPI_Comm_dup(communicator, &made.communicator);
    found.push_back(made);
  }
  chosen.set(0);
  if (segment.exists()) segment.set(0);
  return found;
}

}  // namespace collective_cells
