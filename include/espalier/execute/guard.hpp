// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/execute/world.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

namespace espalier {

namespace detail {

inline constexpr int exit_failure = 1;     // one rank's own failure
inline constexpr int exit_all_failed = 2;  // a mistake that every rank knows of

[[nodiscard]] inline std::string program_name(int argc, char** argv) {
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
  return comm::detail::mpi_has_begun() && !comm::detail::mpi_has_ended();
#else
  return false;
#endif
}

/// Every rank is here, or will be.
[[nodiscard]] inline int leave_together(const std::string& program, const char* what) {
  if (comm::launcher_rank() == 0) write_message(program + ": " + what + '\n');
#if defined(ESPALIER_USE_MPI)
  if (mpi_is_running()) MPI_Finalize();
#endif
  return exit_all_failed;
}

/// Perhaps only this rank is here, and the others wait for it.
[[nodiscard]] inline int leave_alone(const std::string& program, const char* what) {
  if (!comm::under_mpi_launcher()) {
    write_message(program + ": " + what + '\n');
    return exit_failure;
  }
  // A mistake that all ranks make alike is told once: the root speaks first, and ends the others before they do.
  if (comm::launcher_rank() != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  write_message(program + ": rank " + std::to_string(comm::launcher_rank()) + " stopped: " + what + '\n');
#if defined(ESPALIER_USE_MPI)
  if (mpi_is_running()) MPI_Abort(MPI_COMM_WORLD, exit_failure);
#endif
  return exit_failure;
}

}  // namespace detail

/// The body of a `main`: runs `body()`, which may return an exit code, and turns an exception into one message and a
/// non-zero code on every rank. A rank that throws alone brings the others down, so that none waits for it.
///
///     int main(int argc, char** argv) {
///       return ep::guarded_main(argc, argv, [&] { ep::world world(argc, argv, mesh{}); ... });
///     }
///
/// Codes: 2 for what every rank knows (`known_to_all_ranks`, such as a wrong number of ranks), else 1.
template <class Body> [[nodiscard]] int guarded_main(int argc, char** argv, const Body& body) {
  const std::string program = detail::program_name(argc, argv);
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<const Body&>>) {
      body();
      return 0;
    } else {
      return body();
    }
  } catch (const std::exception& error) {
    if (dynamic_cast<const known_to_all_ranks*>(&error) != nullptr) {
      return detail::leave_together(program, error.what());
    }
    return detail::leave_alone(program, error.what());
  } catch (...) { return detail::leave_alone(program, "an exception that is not a std::exception"); }
}

}  // namespace espalier
