// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/host/space.hpp>
#include <espalier/comm/host/window.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#if defined(__linux__)
#include <sys/uio.h>
#include <unistd.h>
#endif

namespace espalier::comm::host {

/// The MPI ranks of one host: regions in a shared window, buffers in further ones, and, where the operating system
/// allows it, its copies out of another process's memory (process_vm_readv).
class process_space {
 public:
  static constexpr bool exposes_private_memory = false;

  /// Collective. @pre all ranks of the communicator are on one host
  process_space(MPI_Comm communicator, std::int64_t region_bytes, bool crowded)
      : communicator_(communicator), crowded_(crowded) {
    MPI_Comm_rank(communicator, &rank_);
    MPI_Comm_size(communicator, &size_);
    windows_.push_back(std::make_unique<window>(communicator, region_bytes));
    for (int r = 0; r < size_; ++r) regions_.push_back(windows_[0]->base(r));
    kernel_ = may_ask_kernel();
  }
  process_space(const process_space&) = delete;
  process_space& operator=(const process_space&) = delete;
  ~process_space() = default;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] std::byte* region(int rank) const { return regions_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool crowded() const { return crowded_; }
  [[nodiscard]] bool interrupted() const { return false; }

  /// Whether the operating system copies out of other ranks' memory.
  [[nodiscard]] bool has_kernel() const { return kernel_; }
  /// Switches copies by the kernel on or off for later calls; has no effect where the kernel cannot copy. The same on
  /// all ranks.
  void use_kernel(bool use) { kernel_in_use_ = use && kernel_; }

  [[nodiscard]] bool exposes() const { return buffers_ > 0 || kernel_in_use_; }

  [[nodiscard]] exposed expose(const void* data, std::int64_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(data);
    for (std::size_t w = 1; w < windows_.size(); ++w) {
      if (windows_[w] == nullptr) continue;
      const std::byte* const base = windows_[w]->base(rank_);
      if (base == nullptr || begin < base || begin + bytes > base + windows_[w]->bytes(rank_)) continue;
      return {reach::direct, static_cast<std::uint64_t>(w) << window_shift | static_cast<std::uint64_t>(begin - base)};
    }
    if (!kernel_in_use_) return {};
    return {reach::kernel, reinterpret_cast<std::uintptr_t>(data)};  // NOLINT: an address over there
  }
  [[nodiscard]] std::byte* direct(int rank, const exposed& e) const {
    return windows_[static_cast<std::size_t>(e.where >> window_shift)]->base(rank) +
           (e.where & ((std::uint64_t{1} << window_shift) - 1));
  }
  [[nodiscard]] bool fetch(int rank, const exposed& e, std::int64_t offset, void* to, std::int64_t bytes) const {
    return read_process(state_of(region(rank)).process.load(std::memory_order_relaxed),
                        e.where + static_cast<std::uint64_t>(offset), to, bytes);
  }

  /// Collective: memory of this rank that the others read and write in place.
  void* allocate(std::int64_t bytes) {
    if (bytes < 0) throw std::invalid_argument("a buffer cannot have a negative size");
    auto made = std::make_unique<window>(communicator_, std::max<std::int64_t>(bytes, 1));
    ++buffers_;
    void* const mine = made->base(rank_);
    // A freed buffer's number is free again, on all ranks alike.
    for (std::size_t w = 1; w < windows_.size(); ++w) {
      if (windows_[w] == nullptr) {
        windows_[w] = std::move(made);
        return mine;
      }
    }
    windows_.push_back(std::move(made));
    return mine;
  }
  /// Collective. Errors: std::invalid_argument if `memory` is not a buffer of this space.
  void deallocate(void* memory) {
    for (std::size_t w = 1; w < windows_.size(); ++w) {
      if (windows_[w] == nullptr || windows_[w]->base(rank_) != memory) continue;
      windows_[w]->free();
      windows_[w] = nullptr;
      --buffers_;
      return;
    }
    throw std::invalid_argument("this memory was not allocated here, or was given back before");
  }
  /// Collective.
  void free_all() {
    for (auto& w : windows_) {
      if (w != nullptr) w->free();
    }
    windows_.clear();
  }

 private:
  static constexpr unsigned window_shift = 48;

  static bool read_process(std::int64_t process, std::uint64_t from, void* to, std::int64_t bytes) {
#if defined(__linux__)
    auto* here = static_cast<std::byte*>(to);
    while (bytes > 0) {
      const iovec local{here, static_cast<std::size_t>(bytes)};
      const iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(from)),  // NOLINT: not ours to follow
                         static_cast<std::size_t>(bytes)};
      const ssize_t read = process_vm_readv(static_cast<pid_t>(process), &local, 1, &remote, 1, 0);
      if (read <= 0) return false;
      here += read;
      from += static_cast<std::uint64_t>(read);
      bytes -= read;
    }
    return true;
#else
    (void)process, (void)from, (void)to, (void)bytes;
    return false;
#endif
  }

  /// Tries it on every other rank: a policy, a container, or another kernel may forbid it. All ranks agree.
  [[nodiscard]] bool may_ask_kernel() const {
    int works = 1;
#if defined(__linux__)
    constexpr std::uint64_t secret = 0x6573706c69657221U;
    const std::uint64_t mine = secret + static_cast<std::uint64_t>(rank_);
    rank_state& state = state_of(region(rank_));
    state.process.store(getpid(), std::memory_order_relaxed);
    state.probe.store(reinterpret_cast<std::uintptr_t>(&mine), std::memory_order_release);  // NOLINT: read over there
    MPI_Barrier(communicator_);
    for (int r = 0; r < size_; ++r) {
      const rank_state& other = state_of(region(r));
      std::uint64_t found = 0;
      const bool read = read_process(other.process.load(std::memory_order_relaxed),
                                     other.probe.load(std::memory_order_acquire), &found, sizeof found);
      if (!read || found != secret + static_cast<std::uint64_t>(r)) works = 0;
    }
#else
    works = 0;
#endif
    MPI_Allreduce(MPI_IN_PLACE, &works, 1, MPI_INT, MPI_MIN, communicator_);  // NOLINT: MPI's constant
    return works != 0;
  }

  MPI_Comm communicator_;
  bool crowded_;
  bool kernel_ = false;
  bool kernel_in_use_ = false;
  int rank_ = 0;
  int size_ = 1;
  int buffers_ = 0;
  std::vector<std::unique_ptr<window>> windows_;  // the first has the regions, the others buffers
  std::vector<std::byte*> regions_;
};
static_assert(SharedSpace<process_space>);

}  // namespace espalier::comm::host
