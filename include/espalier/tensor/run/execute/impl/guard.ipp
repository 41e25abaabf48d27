// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a program ends that cannot go on: the compiled half of guard.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/output.hpp>
#include <espalier/comm/launch.hpp>
#include <espalier/tensor/run/execute/guard.hpp>
#if defined(ESPALIER_USE_MPI)
#include <espalier/comm/session.hpp>
#endif

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

namespace espalier::detail {

inline constexpr int exit_failure = 1;     // one rank's own failure
inline constexpr int exit_all_failed = 2;  // a mistake that every rank knows of

ESPALIER_INLINE std::string program_name(int argc, char** argv) {
  const std::string_view path = argc > 0 ? argv[0] : "espalier";
  return std::string(path.substr(path.find_last_of('/') + 1));
}

/// One write: the lines of several ranks stay whole.
inline void write_message(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

[[nodiscard]] inline bool mpi_is_running() {
#if defined(ESPALIER_USE_MPI)
  return comm::mpi_is_running();
#else
  return false;
#endif
}

ESPALIER_INLINE int leave_with(const std::string& program, int code) {
  const std::string failure = unwritten_output();
  if (code != 0 || failure.empty()) return code;
  write_message(joined({program, ": ", failure, "\n"}));
  return exit_failure;
}

ESPALIER_INLINE int leave_together(const std::string& program, const char* what) {
  if (comm::launcher_rank() == 0) write_message(joined({program, ": ", what, "\n"}));
#if defined(ESPALIER_USE_MPI)
  if (mpi_is_running()) MPI_Finalize();
#endif
  return exit_all_failed;
}

ESPALIER_INLINE int leave_alone(const std::string& program, const char* what) {
  if (!comm::under_mpi_launcher()) {
    write_message(joined({program, ": ", what, "\n"}));
    return exit_failure;
  }
  // A mistake that all ranks make alike is told once: the root speaks first, and ends the others before they do.
  if (comm::launcher_rank() != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  write_message(joined({program, ": rank ", comm::launcher_rank(), " stopped: ", what, "\n"}));
#if defined(ESPALIER_USE_MPI)
  if (mpi_is_running()) MPI_Abort(MPI_COMM_WORLD, exit_failure);
#endif
  return exit_failure;
}

}  // namespace espalier::detail
