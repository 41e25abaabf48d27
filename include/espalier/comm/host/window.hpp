// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/host/copy.hpp>
#include <espalier/comm/mpi/mpi_compat.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace espalier::comm::detail {

// As in mpi_compat.hpp: handles that are macros are named once.
inline MPI_Info no_info() { return MPI_INFO_NULL; }
inline MPI_Win no_window() { return MPI_WIN_NULL; }

}  // namespace espalier::comm::detail

namespace espalier::comm::host {

/// Whether all ranks come within a time: only then may what has to be freed together be freed.
[[nodiscard]] inline bool all_come(MPI_Comm communicator, std::chrono::duration<double> within) {
  MPI_Request request = detail::no_request();
  if (MPI_Ibarrier(communicator, &request) != MPI_SUCCESS) return false;
  const auto end = std::chrono::steady_clock::now() + within;
  for (int done = 0;;) {
    if (MPI_Test(&request, &done, detail::ignored_status()) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
}

/// Memory of every rank of a host that all ranks can read and write: an MPI shared window. Making it and freeing it is
/// collective.
class window {
 public:
  /// `bytes`: of this rank. Errors: `comm_error` on all ranks, if there is not so much shared memory.
  window(MPI_Comm communicator, std::int64_t bytes) {
    int ranks = 0;
    int rank = 0;
    MPI_Comm_size(communicator, &ranks);
    MPI_Comm_rank(communicator, &rank);
    MPI_Info apart{};
    MPI_Info_create(&apart);
    MPI_Info_set(apart, "alloc_shared_noncontig", "true");
    void* base = nullptr;
    const auto asked = static_cast<MPI_Aint>(bytes > 0 ? bytes + line_bytes : 0);
    const int code = MPI_Win_allocate_shared(asked, 1, apart, communicator, static_cast<void*>(&base), &handle_);
    MPI_Info_free(&apart);
    int failed = code != MPI_SUCCESS ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, communicator);  // NOLINT: MPI's constant
    if (failed != 0) {
      throw comm_error("there is not enough shared memory for " + std::to_string(bytes) + " bytes on rank " +
                       std::to_string(rank) + " and those of the other ranks: make /dev/shm larger");
    }
    for (int r = 0; r < ranks; ++r) {
      MPI_Aint size = 0;
      int unit = 1;
      void* there = nullptr;
      MPI_Win_shared_query(handle_, r, &size, &unit, static_cast<void*>(&there));
      // Pages are mapped at any address, but the first whole line is at the same offset for all ranks.
      auto* const first = static_cast<std::byte*>(there);
      bases_.push_back(size == 0 ? nullptr : first + to_next_line(first, line_bytes));
      sizes_.push_back(size == 0 ? 0 : static_cast<std::int64_t>(size) - line_bytes);
    }
    MPI_Win_lock_all(MPI_MODE_NOCHECK, handle_);
    if (bytes > 0) std::memset(bases_[static_cast<std::size_t>(rank)], 0, static_cast<std::size_t>(bytes));
    MPI_Barrier(communicator);
    for (int r = 0; r < ranks; ++r) map_pages(r);
    MPI_Barrier(communicator);
  }
  window(const window&) = delete;
  window& operator=(const window&) = delete;
  window(window&& other) noexcept
      : handle_(std::exchange(other.handle_, detail::no_window())),
        bases_(std::move(other.bases_)),
        sizes_(std::move(other.sizes_)) {}
  window& operator=(window&&) = delete;
  ~window() = default;

  /// Collective.
  void free() {
    if (handle_ == detail::no_window()) return;
    MPI_Win_unlock_all(handle_);
    MPI_Win_free(&handle_);
  }

  [[nodiscard]] std::byte* base(int rank) const { return bases_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::int64_t bytes(int rank) const { return sizes_[static_cast<std::size_t>(rank)]; }

 private:
  /// Enters all pages into this process's tables now, instead of one by one in the first call.
  void map_pages(int rank) const {
#if defined(MADV_POPULATE_READ)
    constexpr std::uintptr_t page = 4096;
    if (bytes(rank) == 0) return;
    const auto first = reinterpret_cast<std::uintptr_t>(base(rank));  // NOLINT: rounded to pages
    const std::uintptr_t begin = (first + page - 1) / page * page;
    const std::uintptr_t end = (first + static_cast<std::uintptr_t>(bytes(rank))) / page * page;
    // Where the kernel does not know it, pages come as they are touched.
    if (end > begin) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);  // NOLINT
#else
    (void)rank;
#endif
  }

  MPI_Win handle_ = detail::no_window();
  std::vector<std::byte*> bases_;
  std::vector<std::int64_t> sizes_;
};

}  // namespace espalier::comm::host
