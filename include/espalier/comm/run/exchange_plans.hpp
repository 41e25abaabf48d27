// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/run/agreement.hpp>

#include <chrono>
#include <string>

// `agreement` for those who need it once.
namespace espalier::comm::detail {

/// Waits for a collective of the library that was only started, under a deadline.
inline void complete(MPI_Request request, std::chrono::duration<double> deadline, const std::string& what) {
  complete_request(request, what.c_str(), deadline, true, [] { return false; });
}

/// `mine` of rank 0 on all ranks.
[[nodiscard]] inline plan_words from_root(MPI_Comm communicator, const plan_words& mine,
                                          std::chrono::duration<double> deadline) {
  return agreement(communicator, deadline, true).from_root("for rank 0's plan", [&] { return mine; });
}

}  // namespace espalier::comm::detail
