// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/host/space.hpp>
#include <espalier/comm/host/window.hpp>
#include <espalier/comm/mpi/mpi_compat.hpp>
#include <espalier/comm/mpi_ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Which calls the ranks have come to, as far as that can be seen: every rank writes the number of its call, and what
/// it is, to memory that its host's ranks share, before it waits for others.
class arrival_list {
 public:
  using notice = host::call_notice;

  /// Uses existing memory, zero at first. `notices`: of all ranks, in their order.
  arrival_list(const std::vector<notice*>& notices, int rank) : own_(notices[static_cast<std::size_t>(rank)]) {
    for (notice* const there : notices) seats_.push_back({static_cast<int>(seats_.size()), there});
  }

  /// Allocates its own memory. Collective over `everyone`. `host`: those whose memory this rank shares; kept.
  arrival_list(MPI_Comm everyone, MPI_Comm host, std::chrono::duration<double> deadline)
      : host_(host), deadline_(deadline) {
    int all = 0;
    int here = 0;
    int rank = 0;
    MPI_Comm_size(everyone, &all);
    MPI_Comm_size(host, &here);
    MPI_Comm_rank(host, &rank);
    const std::vector<int> ranks = ranks_in(host, everyone);
    for (int r = 0; r < all; ++r) {
      if (std::find(ranks.begin(), ranks.end(), r) == ranks.end()) elsewhere_.push_back(r);
    }
    try {
      memory_ = std::make_unique<host::window>(host, host::line_bytes);
    } catch (const comm_error&) {  // no shared memory left, on any rank of this host: nothing can be seen
      elsewhere_.clear();
      return;
    }
    for (int k = 0; k < here; ++k) {
      auto* const there = reinterpret_cast<notice*>(memory_->base(k));  // NOLINT: shared memory has no constructor
      seats_.push_back({ranks[static_cast<std::size_t>(k)], there});
      if (k == rank) own_ = there;
    }
  }
  arrival_list(const arrival_list&) = delete;
  arrival_list& operator=(const arrival_list&) = delete;
  ~arrival_list() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (host_ == no_communicator() || finalised != 0) return;
    // As with all windows: freed together or not at all.
    constexpr std::chrono::duration<double> most{5};
    if (!host::all_come(host_, std::min(deadline_, most))) return;
    if (memory_ != nullptr) memory_->free();
    MPI_Comm_free(&host_);
  }

  /// This rank comes to its call with this number, from 1.
  void enter(std::uint64_t call, const call_summary& said) {
    if (own_ != nullptr) own_->write(call, said);
  }

  /// Returns which rank is in another call under the same number, and how the call differs; empty if there is none.
  /// `compares`: this rank is about to hear the same from all ranks that say that they compare, too.
  [[nodiscard]] std::string mismatch(std::uint64_t call, const call_summary& mine, int rank, bool compares) const {
    bool differs = false;
    for (const seat& s : seats_) {
      call_summary there;
      if (s.rank == rank || !s.last->read(call, there)) continue;
      const bool will_say = compares && (flags_of(there.kind) & compares_flag) != 0;
      differs = differs || (!will_say && !same_for_all(mine, there));
    }
    if (differs) {
      said_by_ranks said = host::hear_all(call, static_cast<int>(seats_.size()), [&](int k) -> const notice& {
        return *seats_[static_cast<std::size_t>(k)].last;
      });
      for (auto& one : said) one.rank = seats_[static_cast<std::size_t>(one.rank)].rank;
      return mismatch_text(std::move(said));
    }
    return {};
  }

  /// Whether some rank of this host has not come to a call, or none is anywhere else: then `text_of` is all that any
  /// rank knows.
  [[nodiscard]] bool knows(std::uint64_t call) const { return elsewhere_.empty() || !missing(call).empty(); }

  /// Names the ranks that have not come to a call, for an error: "rank 3 did not come". From any thread.
  [[nodiscard]] std::string text_of(std::uint64_t call) const {
    if (seats_.empty()) return "some rank did not come (which, the library does not say)";
    const std::vector<int> missed = missing(call);
    const std::string others = elsewhere_.empty() ? "" : list_ranks(elsewhere_) + " on other hosts";
    if (!missed.empty()) {
      return list_ranks(missed) + " did not come" +
             (others.empty() ? "" : "; whether " + others + " did cannot be seen from here");
    }
    if (others.empty()) return "all ranks came, and it did not end";
    return "all ranks of this host came; whether " + others + " did cannot be seen from here";
  }

 private:
  struct seat {
    int rank = 0;
    const notice* last = nullptr;
  };

  static MPI_Comm no_communicator() { return MPI_COMM_NULL; }  // NOLINT: MPI's constant

  [[nodiscard]] std::vector<int> missing(std::uint64_t call) const {
    std::vector<int> found;
    for (const seat& s : seats_) {
      if (s.last->number() < call) found.push_back(s.rank);
    }
    return found;
  }

  MPI_Comm host_ = no_communicator();
  std::chrono::duration<double> deadline_{0};
  std::unique_ptr<host::window> memory_;
  std::vector<seat> seats_;
  notice* own_ = nullptr;
  std::vector<int> elsewhere_;
};

}  // namespace espalier::comm::detail
