// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of together.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/run/execute/together.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace espalier {

namespace detail {

ESPALIER_INLINE std::vector<std::int64_t> values_of_all_processes(world& where, std::int64_t mine) {
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

ESPALIER_INLINE void together(world& where, detail::function_ref<void()> f) {
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
    throw error_on_all_ranks(rank == 0 ? text : detail::joined({"rank ", rank, ": ", text}));
  }
}

}  // namespace espalier
