// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/run/execute/world.hpp>

#include <exception>
#include <string>
#include <type_traits>

namespace espalier {

namespace detail {

[[nodiscard]] std::string program_name(int argc, char** argv);
/// The code, or 1 and a message if it is 0 and what was printed cannot be written.
[[nodiscard]] int leave_with(const std::string& program, int code);
/// Every rank is here, or will be. Returns the process's exit code.
[[nodiscard]] int leave_together(const std::string& program, const char* what);
/// Perhaps only this rank is here, and the others wait for it.
[[nodiscard]] int leave_alone(const std::string& program, const char* what);

}  // namespace detail

/// The body of a `main`: runs `body()`, which may return an exit code, and turns an exception into one message and a
/// non-zero code on every rank. A rank that throws alone brings the others down, so that none waits for it.
///
///     int main(int argc, char** argv) {
///       return ep::guarded_main(argc, argv, [&] { ep::world world(argc, argv, mesh{}); ... });
///     }
///
/// Codes: 2 for what every rank knows (`known_to_all_ranks`, such as a wrong number of ranks), else 1: also where what
/// the program printed to stdout cannot be written, as on a full disk.
template <class Body> [[nodiscard]] int guarded_main(int argc, char** argv, const Body& body) {
  const std::string program = detail::program_name(argc, argv);
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<const Body&>>) {
      body();
      return detail::leave_with(program, 0);
    } else {
      return detail::leave_with(program, body());
    }
  } catch (const std::exception& error) {
    if (dynamic_cast<const known_to_all_ranks*>(&error) != nullptr) {
      return detail::leave_together(program, error.what());
    }
    return detail::leave_alone(program, error.what());
  } catch (...) { return detail::leave_alone(program, "an exception that is not a std::exception"); }
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/guard.ipp>
#endif
