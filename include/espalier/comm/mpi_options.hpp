// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>

#include <chrono>
#include <cstdint>

namespace espalier::comm {

/// Tunable limits of an `mpi_communicator`. Every rank must be given the same values.
struct mpi_options {
  /// The longest wait without progress.
  std::chrono::duration<double> deadline = default_deadline();
  /// Bytes of one message of a reduction: small enough that it is reduced out of the cache.
  std::int64_t piece_bytes = std::int64_t{256} << 10;
  /// Pieces of a reduction in flight, 1 to 4.
  int window = 2;
  /// All-reduces between two ranks up to this size swap whole buffers: half the latency, the same bytes.
  std::int64_t direct_bytes = std::int64_t{256} << 10;
  /// Bytes of one message otherwise. MPI 3 counts are `int`.
  std::int64_t message_bytes = std::int64_t{1} << 30;
};

}  // namespace espalier::comm
