// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/base/light_std/sort_few.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/launch.hpp>
#include <espalier/comm/mpi/mpi_compat.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace espalier::comm::detail {

/// Throws `comm_error` with MPI's own text when `code` is an error.
inline void check_mpi(int code, const char* routine, int rank, const comm::context* where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, &text[0], &length);
  throw comm::comm_error(joined({"rank ", rank, ": ", routine, ": ", &text[0], during(where)}));
}

/// Whether this host runs more ranks than it has processors, those of no communicator but the world's among them: then
/// waiting ranks offer theirs to others at once.
[[nodiscard]] inline bool has_more_ranks_than_processors(MPI_Comm communicator) {
  MPI_Comm node{};
  int ranks = 1;
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &ranks);
  MPI_Comm_free(&node);
  return std::max(ranks, launcher_local_size()) > machine_processors();
}

/// Memory that grows, is never initialised, and never shrinks.
class staging_buffer {
 public:
  std::byte* reserve(std::int64_t bytes) {
    if (bytes > size_) {
      memory_ = {};
      memory_.reserve(static_cast<std::size_t>(bytes));
      size_ = bytes;
    }
    return memory_.data();
  }

 private:
  espalier::detail::plain_vector<std::byte> memory_;  // without elements
  std::int64_t size_ = 0;
};

/// Unfinished sends and receives, by place, and the poll that waits for them under a deadline.
class request_table {
 public:
  struct entry {
    int rank = 0;  // at the other end
    bool incoming = false;
  };

  request_table(bool oversubscribed, std::chrono::duration<double> deadline)
      : deadline_(deadline), patience_(oversubscribed ? 0 : 2000) {}

  [[nodiscard]] std::chrono::duration<double> deadline() const { return deadline_; }

  void reserve(std::size_t places) {
    requests_.reserve(places);
    entries_.reserve(places);
    finished_.reserve(places);
  }

  /// Starts over with `places` free places.
  void reset(std::size_t places) {
    requests_.assign(places, no_request());
    entries_.assign(places, entry{});
    finished_.assign(places, 0);
  }

  /// Puts a place at the end.
  std::size_t append() {
    requests_.push_back(no_request());
    entries_.push_back({});
    finished_.push_back(0);
    return requests_.size() - 1;
  }

  MPI_Request* start(std::size_t place, int rank, bool incoming) {
    entries_[place] = {rank, incoming};
    return &requests_[place];
  }

  [[nodiscard]] const entry& at(std::size_t place) const { return entries_[place]; }

  enum class outcome { all_done, expired };

  /// Calls `finished(place)` for each request that ends, in any order, until none is left; `finished` may start more.
  /// The deadline runs anew whenever something arrives: a slow link is not a dead rank. `look()` is called now and then
  /// in a long wait; it may throw.
  outcome drain(espalier::detail::function_ref<void(std::size_t)> finished,
                espalier::detail::function_ref<void(int)> check, espalier::detail::function_ref<void()> look) {
    constexpr std::chrono::milliseconds between_looks{20};
    const auto allowed = std::chrono::duration_cast<clock::duration>(deadline_);
    auto last_progress = clock::time_point{};
    auto last_look = clock::time_point{};
    int idle = 0;
    while (true) {
      int count = 0;
      check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished_.data(),
                         MPI_STATUSES_IGNORE));
      if (count == MPI_UNDEFINED) return outcome::all_done;
      if (count > 0) {
        idle = 0;
        for (int i = 0; i < count; ++i) { finished(static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])); }
        continue;
      }
      if (++idle <= patience_) continue;
      std::this_thread::yield();
      const auto now = clock::now();
      if (idle == patience_ + 1) {
        last_progress = now;
        last_look = now;
      }
      if (now - last_progress > allowed) return outcome::expired;
      if (now - last_look < between_looks) continue;
      last_look = now;
      look();
    }
  }

  /// World ranks at the other end of unfinished requests, each once, in order.
  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != no_request()) ranks.push_back(entries_[i].rank);
    }
    espalier::detail::sort_few(ranks, [](int a, int b) { return a < b; });
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

  /// Lets go of what is unfinished, so that nothing is received into buffers that an exception is about to free.
  void abandon() noexcept {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == no_request()) continue;
      if (entries_[i].incoming) MPI_Cancel(&requests_[i]);
      MPI_Request_free(&requests_[i]);
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  std::chrono::duration<double> deadline_;
  int patience_;  // idle polls before the processor is offered to others
  espalier::detail::plain_vector<MPI_Request> requests_;
  espalier::detail::plain_vector<entry> entries_;
  std::vector<int> finished_;
};

}  // namespace espalier::comm::detail
