// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/run/execute/world.hpp>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier {

/// An error of one rank, thrown on all ranks.
struct error_on_all_ranks : std::runtime_error, known_to_all_ranks {
  using std::runtime_error::runtime_error;
};

namespace detail {

/// Each process's number, on every process; the only one if all devices are in this process. Collective.
[[nodiscard]] inline std::vector<std::int64_t> values_of_all_processes(world& where, std::int64_t mine) {
  if (!where.uses_mpi()) return {mine};
  std::vector<std::int64_t> values(static_cast<std::size_t>(where.mesh_value().devices()), 0);
  where.on_devices([&](int local, comm::any_communicator& communicator) {
    values[static_cast<std::size_t>(where.device(local))] = mine;
    for (int rank = 0; rank < communicator.size(); ++rank) {
      communicator.broadcast(&values[static_cast<std::size_t>(rank)], sizeof(std::int64_t), rank);
    }
  });
  return values;
}

}  // namespace detail

/// Runs `f()` on every process. If it throws on some, it throws on all: no rank waits for one that gave up. Collective.
///
/// Errors: within one process, what `f` threw; under MPI `error_on_all_ranks` with the text of the lowest rank's.
template <class F> void together(world& where, const F& f) {
  if (!where.uses_mpi()) {
    f();
    return;
  }
  std::string text;
  bool failed = false;
  try {
    f();
  } catch (const std::exception& error) {
    failed = true;
    text = error.what();
  } catch (...) {
    failed = true;
    text = "an exception that is not a std::exception";
  }
  const auto lengths =
      detail::values_of_all_processes(where, failed ? static_cast<std::int64_t>(text.size()) : std::int64_t{-1});
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    if (lengths[rank] < 0) continue;
    text.resize(static_cast<std::size_t>(lengths[rank]));
    where.on_devices([&](int, comm::any_communicator& communicator) {
      communicator.broadcast(text.data(), lengths[rank], static_cast<int>(rank));
    });
    throw error_on_all_ranks(rank == 0 ? text : "rank " + std::to_string(rank) + ": " + text);
  }
}

}  // namespace espalier
