// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/io/box.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

#if defined(ESPALIER_USE_MPI)
#include <espalier/comm/mpi.hpp>

#include <chrono>
#include <thread>
#endif

// A checkpoint is written in two steps. The file's data is cut into windows; each process owns every n-th one. First
// the processes send one another what they hold of the others' windows, then each writes its own window in one call.
// How the arrays are split thus decides about messages between processes, and not about calls to the file system.

namespace espalier::detail {

/// An array and the byte of the file's data at which it starts.
struct saved_array {
  const any_array* array = nullptr;
  std::int64_t begin = 0;

  [[nodiscard]] std::int64_t element() const { return size_of(array->type()); }
  [[nodiscard]] std::int64_t end() const { return begin + array->shape().elements() * element(); }
};

/// The elements that `device` writes of an array, each element of one device only: of the devices that hold the same
/// shard, the first along every other axis. With `in_memory` strides are those of a shard's buffer, otherwise those of
/// the file.
[[nodiscard]] inline box_walk owned_box(const any_array& array, int device, bool in_memory) {
  const mesh_shape& mesh = array.mesh();
  const extents& shape = array.shape();
  const auto rank = static_cast<std::size_t>(shape.rank);
  const extents local = array.local_extents();
  std::array<std::int64_t, max_rank> whole{};
  std::array<std::int64_t, max_rank> starts{};
  std::array<std::int64_t, max_rank> sizes{};
  std::array<std::int64_t, max_rank> strides{};
  bool owned = true;
  for (int d = 0; d < shape.rank; ++d) {
    const interval held = local_interval(mesh, shape[d], array.placed().placement.dim[d], device);
    const auto at = static_cast<std::size_t>(d);
    whole[at] = shape[d];
    starts[at] = held.start;
    sizes[at] = held.size;
    strides[at] = stride_of(in_memory ? local : shape, d);
    owned = owned && held.size > 0;
  }
  const axis_mask splits = array.placed().placement.tiled();
  for (int axis = 0; axis < mesh.rank; ++axis) {
    const bool copies = (splits >> static_cast<unsigned>(axis) & 1U) == 0;
    if (copies && mesh.coordinate(device, axis) != 0) owned = false;
  }
  box_walk box{std::span(whole).first(rank), std::span(starts).first(rank), std::span(sizes).first(rank),
               std::span(strides).first(rank)};
  if (!owned) box.elements = 0;
  return box;
}

/// Bytes [begin, end) of the file's data.
struct file_window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Calls `visit(byte of the data, byte of the shard or of the tensor, bytes, array)` for what `device` owns in a
/// window, in the order of the file.
template <class Visit>
void for_each_owned_run(std::span<const saved_array> arrays, const file_window& window, int device, bool in_memory,
                        const Visit& visit) {
  // The first array that ends in the window or after it.
  auto one = std::partition_point(arrays.begin(), arrays.end(),
                                  [&](const saved_array& array) { return array.end() <= window.begin; });
  for (; one != arrays.end() && one->begin < window.end; ++one) {
    const std::int64_t size = one->element();
    const std::int64_t first = std::max<std::int64_t>(0, window.begin - one->begin) / size;
    const std::int64_t last = (std::min(window.end, one->end()) - one->begin) / size;
    for_each_run_within(owned_box(*one->array, device, in_memory), first, last,
                        [&](std::int64_t file, std::int64_t memory, std::int64_t elements) {
                          visit(one->begin + file * size, memory * size, elements * size, *one);
                        });
  }
}

/// Writes arrays into a checkpoint in windows. Its buffers take 12 MiB at most.
class window_writer {
 public:
  /// @pre the arrays are in the order of the file and fill its data; alignment: an element does not cross a multiple of
  /// its size
  window_writer(std::vector<saved_array> arrays, int processes)
      : arrays_(std::move(arrays)),
        processes_(processes),
        share_(std::max<std::int64_t>(4096, (round_bytes / processes + 4095) / 4096 * 4096)) {
    const std::int64_t bytes = arrays_.empty() ? 0 : arrays_.back().end();
    rounds_ = (bytes + share_ * processes - 1) / (share_ * processes);
    bytes_ = bytes;
    const std::int64_t largest = std::min(share_, bytes);
    window_.resize(static_cast<std::size_t>(largest));
    if (processes == 1) return;
    received_.resize(static_cast<std::size_t>(largest));
    sent_.resize(static_cast<std::size_t>(std::min(share_ * (processes - 1), bytes)));
  }

  /// All devices are in this process.
  void write_alone(io::safetensors_writer& file, int devices) {
    for (std::int64_t round = 0; round < rounds_; ++round) {
      const file_window window = window_of(round, 0);
      std::int64_t filled = 0;
      for (int device = 0; device < devices; ++device) filled += take_own(window, device, device);
      write(file, window, filled);
    }
  }

#if defined(ESPALIER_USE_MPI)
  /// Each rank is a device. Collective; a rank that cannot write goes on exchanging, so that none waits for it.
  /// Errors: what this rank's writing threw, when all is done; `comm::comm_error`.
  void write_with_others(io::safetensors_writer& file, comm::mpi_communicator& ranks) {
    const int self = ranks.rank();
    std::vector<message> messages;
    std::exception_ptr failure;
    for (std::int64_t round = 0; round < rounds_; ++round) {
      messages.clear();
      const file_window own = window_of(round, self);
      std::int64_t filled = take_own(own, self, 0);
      std::int64_t sent = 0;
      std::int64_t received = 0;
      for (int other = 0; other < processes_; ++other) {
        if (other == self) continue;
        const std::int64_t start = sent;
        for_each_owned_run(arrays_, window_of(round, other), self, true,
                           [&](std::int64_t, std::int64_t memory, std::int64_t bytes, const saved_array& from) {
                             std::memcpy(sent_.data() + sent, shard(from, 0) + memory, static_cast<std::size_t>(bytes));
                             sent += bytes;
                           });
        if (sent > start) messages.push_back({sent_.data() + start, sent - start, other, false});
        const std::int64_t place = received;
        for_each_owned_run(
            arrays_, own, other, false,
            [&](std::int64_t, std::int64_t, std::int64_t bytes, const saved_array&) { received += bytes; });
        if (received > place) messages.push_back({received_.data() + place, received - place, other, true});
      }
      exchange(ranks, messages);
      const std::byte* next = received_.data();
      for (int other = 0; other < processes_; ++other) {
        if (other == self) continue;
        for_each_owned_run(arrays_, own, other, false,
                           [&](std::int64_t place, std::int64_t, std::int64_t bytes, const saved_array&) {
                             std::memcpy(window_.data() + (place - own.begin), next, static_cast<std::size_t>(bytes));
                             next += bytes;
                           });
      }
      try {
        if (!failure) write(file, own, filled + received);
      } catch (...) { failure = std::current_exception(); }
    }
    if (failure) std::rethrow_exception(failure);
  }
#endif

 private:
  /// The bytes that all processes together write in a round.
  static constexpr std::int64_t round_bytes = std::int64_t{1} << 23;

  [[nodiscard]] static const std::byte* shard(const saved_array& from, int local) {
    return static_cast<const std::byte*>(array_memory::shards(*from.array)[static_cast<std::size_t>(local)].data());
  }

  [[nodiscard]] file_window window_of(std::int64_t round, int process) const {
    const std::int64_t begin = std::min(bytes_, (round * processes_ + process) * share_);
    return {begin, std::min(bytes_, begin + share_)};
  }

  /// Copies the bytes of the window that a device of this process owns into it. Returns their number.
  std::int64_t take_own(const file_window& window, int device, int local) {
    std::int64_t filled = 0;
    for_each_owned_run(arrays_, window, device, true,
                       [&](std::int64_t place, std::int64_t memory, std::int64_t bytes, const saved_array& from) {
                         std::memcpy(window_.data() + (place - window.begin), shard(from, local) + memory,
                                     static_cast<std::size_t>(bytes));
                         filled += bytes;
                       });
    return filled;
  }

  void write(io::safetensors_writer& file, const file_window& window, std::int64_t filled) const {
    const std::int64_t bytes = window.end - window.begin;
    if (filled != bytes)
      throw io::checkpoint_error(file.path(),
                                 std::to_string(filled) + " bytes of elements for a window of " + std::to_string(bytes),
                                 "each element on one device", "report this as a defect of the library");
    if (bytes > 0) file.write_range(window.begin, window_.data(), bytes);
  }

#if defined(ESPALIER_USE_MPI)
  struct message {
    std::byte* memory;
    std::int64_t bytes;
    int rank;
    bool incoming;
  };

  /// Messages of a round are smaller than 2^31 bytes, and each pair of ranks has one in each direction at most.
  static void exchange(comm::mpi_communicator& ranks, const std::vector<message>& messages) {
    constexpr int tag = 43;
    const auto check = [](int code) {
      if (code != MPI_SUCCESS)
        throw comm::comm_error("MPI reports error " + std::to_string(code) + " in save_checkpoint");
    };
    std::vector<MPI_Request> requests(messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const message& one = messages[i];
      const int bytes = static_cast<int>(one.bytes);
      check(one.incoming
                ? MPI_Irecv(one.memory, bytes, comm::detail::bytes_type(), one.rank, tag, ranks.base(), &requests[i])
                : MPI_Isend(one.memory, bytes, comm::detail::bytes_type(), one.rank, tag, ranks.base(), &requests[i]));
    }
    const auto start = std::chrono::steady_clock::now();
    int done = 0;
    while (true) {
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
      if (done != 0) return;
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() - start > ranks.options().deadline)
        throw comm::comm_error("rank " + std::to_string(ranks.rank()) +
                               " waited in save_checkpoint for another rank's part of the file"
                               "\n  to wait longer: set ESPALIER_DEADLINE_SECONDS");
    }
  }
#endif

  std::vector<saved_array> arrays_;
  int processes_;
  std::int64_t share_;
  std::int64_t rounds_ = 0;
  std::int64_t bytes_ = 0;
  std::vector<std::byte> window_;
  std::vector<std::byte> received_;
  std::vector<std::byte> sent_;
};

}  // namespace espalier::detail
