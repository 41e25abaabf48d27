// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/mpi/mpi_compat.hpp>
#include <espalier/comm/mpi/mpi_requests.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// The ranks at the other end of an unfinished operation.
struct probe_peers {
  std::vector<int> ranks;
  bool incoming = false;  ///< a message into memory of this rank
};

/// Carries the messages between the ranks of a probe, apart from those that are measured. Every wait has a deadline,
/// and its error names the phase.
class probe_wire {
 public:
  using clock = std::chrono::steady_clock;

  probe_wire(MPI_Comm users, std::chrono::duration<double> deadline) : deadline_(deadline) {
    MPI_Comm_rank(users, &rank_);
    MPI_Comm_size(users, &size_);
    // Messages of the caller's own must not be taken for the probe's. Duplicating is where all ranks meet first.
    MPI_Request request = no_request();
    check(MPI_Comm_idup(users, &communicator_, &request), "MPI_Comm_idup");
    std::vector<MPI_Request> requests{request};
    probe_peers everybody;
    for (int r = 0; r < size_; ++r)
      if (r != rank_) everybody.ranks.push_back(r);
    wait(
        requests, [](std::size_t) {}, [&](std::size_t) { return everybody; });
    check(MPI_Comm_set_errhandler(communicator_, errors_return()), "MPI_Comm_set_errhandler");
  }
  probe_wire(const probe_wire&) = delete;
  probe_wire& operator=(const probe_wire&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] MPI_Comm communicator() const { return communicator_; }

  /// Names the phase that the ranks begin, for errors.
  void begin(std::string phase) { phase_ = std::move(phase); }

  /// Waits for `requests`, each of which is forgotten before `finished(its index)`, which may add and replace some.
  /// `peers_of(index)`: the `probe_peers` of an unfinished one.
  template <class Finished, class Peers>
  void wait(std::vector<MPI_Request>& requests, Finished finished, Peers peers_of, bool eager = false) {
    const auto allowed = std::chrono::duration_cast<clock::duration>(deadline_);
    auto last_progress = clock::now();
    int idle = 0;
    while (true) {
      int count = 0;
      done_.resize(requests.size());
      check(MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, done_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
      if (count == MPI_UNDEFINED) return;
      if (count > 0) {
        idle = 0;
        std::vector<int> now_done(done_.begin(), done_.begin() + count);
        for (const int at : now_done) finished(static_cast<std::size_t>(at));
        continue;
      }
      const auto now = clock::now();
      if (idle++ == 0) last_progress = now;
      // Emulated hosts and oversubscribed ones share processors: a rank that finds nothing leaves them to the others,
      // or their delays would be measured. The limit is a time, not a number of polls: with others about, a single poll
      // takes that long.
      constexpr auto idle_limit = std::chrono::microseconds(10);
      if (eager || now - last_progress < idle_limit) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      if (now - last_progress > allowed) expire(requests, peers_of);
    }
  }

  /// Returns when all ranks have called it. It goes through rank 0, which can tell which ranks are missing.
  void meet() {
    std::vector<MPI_Request> requests;
    std::vector<probe_peers> peers;
    const auto start = [&](int other, bool incoming) {
      requests.push_back(no_request());
      peers.push_back({{other}, incoming});
      check(incoming ? MPI_Irecv(nullptr, 0, bytes_type(), other, meeting_tag, communicator_, &requests.back())
                     : MPI_Isend(nullptr, 0, bytes_type(), other, meeting_tag, communicator_, &requests.back()),
            incoming ? "MPI_Irecv" : "MPI_Isend");
    };
    const auto settle = [&] {
      wait(
          requests, [](std::size_t) {}, [&](std::size_t at) { return peers[at]; });
      requests.clear();
      peers.clear();
    };
    for (const bool incoming : {true, false}) {
      if (rank_ == 0) {
        for (int other = 1; other < size_; ++other) start(other, incoming);
      } else {
        start(0, !incoming);
      }
      settle();
    }
  }

  /// Rank 0 gets the sum over all ranks, and hands it to them: each value is measured on one rank, and 0 elsewhere.
  void sum(std::vector<double>& values) {
    std::vector<std::vector<double>> parts(rank_ == 0 ? static_cast<std::size_t>(size_) : 0, values);
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(double));
    std::vector<MPI_Request> requests;
    std::vector<probe_peers> peers;
    if (rank_ == 0) {
      for (int other = 1; other < size_; ++other)
        receive(parts[static_cast<std::size_t>(other)].data(), bytes, other, requests, peers);
    } else {
      send(values.data(), bytes, 0, requests, peers);
    }
    settle(requests, peers);
    for (std::size_t other = 1; other < parts.size(); ++other)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += parts[other][i];
    hand_out(values.data(), bytes);
  }

  /// All ranks get rank 0's text.
  void hand_out(std::string& text) {
    auto length = static_cast<std::int64_t>(text.size());
    hand_out(&length, static_cast<std::int64_t>(sizeof length));
    text.resize(static_cast<std::size_t>(length));
    hand_out(text.data(), length);
  }
  void hand_out(void* data, std::int64_t bytes) {
    std::vector<MPI_Request> requests;
    std::vector<probe_peers> peers;
    if (rank_ == 0) {
      for (int other = 1; other < size_; ++other) send(data, bytes, other, requests, peers);
    } else {
      receive(data, bytes, 0, requests, peers);
    }
    settle(requests, peers);
  }

  /// The numbers of all ranks, on all ranks.
  [[nodiscard]] std::vector<double> gather(double mine) {
    std::vector<double> all(static_cast<std::size_t>(size_), 0.0);
    all[static_cast<std::size_t>(rank_)] = mine;
    sum(all);
    return all;
  }

  void check(int code, const char* routine) const { check_mpi(code, routine, rank_, nullptr); }

  /// Frees the communicator. Collective; after an error it is kept, since messages may be under way on it.
  void close() {
    meet();
    if (communicator_ != MPI_COMM_NULL) MPI_Comm_free(&communicator_);
  }

 private:
  static constexpr int meeting_tag = 1;
  static constexpr int data_tag = 2;

  void send(const void* data, std::int64_t bytes, int to, std::vector<MPI_Request>& requests,
            std::vector<probe_peers>& peers) {
    requests.push_back(no_request());
    peers.push_back({{to}, false});
    check(MPI_Isend(data, static_cast<int>(bytes), bytes_type(), to, data_tag, communicator_, &requests.back()),
          "MPI_Isend");
  }
  void receive(void* data, std::int64_t bytes, int from, std::vector<MPI_Request>& requests,
               std::vector<probe_peers>& peers) {
    requests.push_back(no_request());
    peers.push_back({{from}, true});
    check(MPI_Irecv(data, static_cast<int>(bytes), bytes_type(), from, data_tag, communicator_, &requests.back()),
          "MPI_Irecv");
  }
  void settle(std::vector<MPI_Request>& requests, const std::vector<probe_peers>& peers) {
    wait(
        requests, [](std::size_t) {}, [&](std::size_t at) { return peers[at]; });
  }

  template <class Peers> [[noreturn]] void expire(std::vector<MPI_Request>& requests, Peers peers_of) {
    std::vector<int> missing;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i] == no_request()) continue;
      const probe_peers peers = peers_of(i);
      missing.insert(missing.end(), peers.ranks.begin(), peers.ranks.end());
      // Nothing may be received into memory that the exception is about to free.
      if (peers.incoming) MPI_Cancel(&requests[i]);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    const std::string operation = "the probe of the topology (" + phase_ + ")";
    throw comm_error(expired_text(rank_, operation.c_str(), deadline_, missing, nullptr));
  }

  std::chrono::duration<double> deadline_;
  int rank_ = 0;
  int size_ = 1;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::string phase_ = "one of these has not called it";
  std::vector<int> done_;
};

}  // namespace espalier::comm::detail
