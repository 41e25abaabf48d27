// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/pack.hpp>
#include <espalier/comm/run/element.hpp>
#include <espalier/comm/run/exchange_plans.hpp>
#include <espalier/comm/run/library.hpp>
#include <espalier/comm/run/mpi_runner.hpp>
#include <espalier/comm/run/tuner.hpp>
#include <espalier/comm/schedule/from_routes.hpp>
#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/comm/schedule/low_latency.hpp>
#include <espalier/comm/schedule/ordered.hpp>
#include <espalier/comm/schedule/price.hpp>
#include <espalier/comm/topology/paths.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier::comm {

struct collectives_options {
  std::chrono::duration<double> deadline = default_deadline();
  /// Bytes up to which the transport sends without asking (Open MPI: btl_tcp_eager_limit).
  std::int64_t eager = 65536;
  /// Always the same order of ranks: results equal to the bit on every rank, run and network.
  bool fixed_order = false;
  /// If set, nothing is tried: this way, where it can serve.
  std::optional<choice> forced;
  /// Schedules kept for later calls.
  std::size_t kept = 64;
};

/// Collectives over the ranks of an MPI communicator, generated for the network they run on.
///
/// All ranks construct it with the same topology and call the same operations in the same order. The first calls of a
/// collective at a size try what may be fastest (trees packed for the network, algorithms of few rounds, the MPI
/// library's own) and rank 0 settles on one. Where a collective is called for the first time it is planned, on rank 0,
/// and the ranks compare checksums: ranks with different calls get an error, not a hang.
///
/// Errors: `comm_error` on a wait without progress, on different calls, and of the transport; then the object is
/// unusable. std::invalid_argument before any communication where a call contradicts itself.
class collectives {
 public:
  collectives(MPI_Comm communicator, const topology& machine, const collectives_options& options = {})
      : collectives(communicator, network_of(machine), options) {}

  collectives(MPI_Comm communicator, network net, const collectives_options& options = {})
      : net_(std::move(net)), options_(options) {
    MPI_Comm_size(communicator, &size_);
    if (net_.ranks != size_) {
      throw std::invalid_argument("the topology has " + std::to_string(net_.ranks) +
                                  " ranks, but the communicator has " + std::to_string(size_));
    }
    MPI_Comm_dup(communicator, &communicator_);
    MPI_Comm_set_errhandler(communicator_, detail::errors_return());
    MPI_Comm_rank(communicator_, &rank_);
    oversubscribed_ = detail::has_more_ranks_than_processors(communicator_);
  }
  collectives(const collectives&) = delete;
  collectives& operator=(const collectives&) = delete;
  ~collectives() {
    // After an error messages may be under way: the number of the communicator must not be given to another.
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (!broken_ && finalised == 0) MPI_Comm_free(&communicator_);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const network& over() const { return net_; }

  /// Bytes this rank sent in the last call, by schedules; -1 if the MPI library did it, which does not say.
  [[nodiscard]] std::int64_t last_sent_bytes() const { return last_sent_; }

  /// `output[i]` of every rank = all ranks' `input[i]`, combined. `input == output`: in place.
  void all_reduce(const void* input, void* output, std::int64_t count, const element& what) {
    collective_call call = uniform_call(operation::all_reduce, size_, count);
    call.in_place = input == output;
    run(call, call.in_place ? nullptr : input, output, what);
  }
  /// `data` of the root on all ranks.
  void broadcast(void* data, std::int64_t count, const element& what, int root) {
    collective_call call = uniform_call(operation::broadcast, size_, count, root);
    call.in_place = true;
    run(call, nullptr, data, what);
  }
  void reduce(const void* input, void* output, std::int64_t count, const element& what, int root) {
    collective_call call = uniform_call(operation::reduce, size_, count, root);
    run(call, input, output, what);
  }
  /// `count`: elements of each rank.
  void all_gather(const void* input, void* output, std::int64_t count, const element& what) {
    run(uniform_call(operation::all_gather, size_, count), input, output, what);
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count, const element& what) {
    run(uniform_call(operation::reduce_scatter, size_, count), input, output, what);
  }
  void gather(const void* input, void* output, std::int64_t count, const element& what, int root) {
    run(uniform_call(operation::gather, size_, count, root), input, output, what);
  }
  void scatter(const void* input, void* output, std::int64_t count, const element& what, int root) {
    run(uniform_call(operation::scatter, size_, count, root), input, output, what);
  }
  void all_to_all(const void* input, void* output, std::int64_t count, const element& what) {
    run(uniform_call(operation::all_to_all, size_, count), input, output, what);
  }

  /// Any call. Buffers as `collective_call` says.
  void run(collective_call call, const void* input, void* output, const element& what, const context* where = nullptr) {
    if (broken_) throw comm_error("rank " + std::to_string(rank_) + ": an earlier collective failed");
    call.ordered = call.ordered || (reduces(call.what) && (options_.fixed_order || !what.commutes));
    prepared& plan = find(call, what);
    try {
      if (options_.forced || plan.tuning.settled()) {
        carry_out(plan, options_.forced ? served(plan, *options_.forced) : plan.settled, input, output, what, where);
      } else {
        try_one(plan, input, output, what, where);
      }
    } catch (...) {
      broken_ = true;
      throw;
    }
  }

  /// What a call is done by, once it has been settled on.
  [[nodiscard]] std::optional<choice> settled(const collective_call& call, const element& what) {
    prepared& plan = find(call, what);
    if (!plan.tuning.settled()) return std::nullopt;
    return plan.settled;
  }

 private:
  struct runnable {
    schedule plan;
    std::unique_ptr<mpi_schedule_runner> runner;
  };
  /// What is known of one call.
  struct prepared {
    collective_call call;
    detail::library_call library;
    std::int64_t bytes = 0;
    std::vector<choice> candidates;
    tuner tuning;
    choice settled;
    std::map<std::pair<int, std::int64_t>, std::unique_ptr<runnable>> ways;
    std::uint64_t last_used = 0;

    prepared(const collective_call& made, const element& what, int rank) : call(made), library(made, what, rank) {}
  };
  using key = std::tuple<operation, int, bool, bool, std::int64_t, std::int64_t, std::vector<std::int64_t>>;

  prepared& find(const collective_call& call, const element& what) {
    // The operation enters by whether it has a name in the library: times depend on it, results do not.
    const key wanted{call.what,
                     call.root,
                     call.in_place,
                     call.ordered,
                     what.by.element_bytes,
                     what.operation != detail::no_operation() ? 1 : 0,
                     call.counts};
    auto found = known_.find(wanted);
    if (found == known_.end()) {
      forget_oldest();
      found = known_.emplace(wanted, std::make_unique<prepared>(call, what, rank_)).first;
      prepare(*found->second, what);
    }
    found->second->last_used = ++uses_;
    return *found->second;
  }

  void forget_oldest() {
    if (known_.size() < options_.kept) return;
    auto oldest = known_.begin();
    for (auto it = known_.begin(); it != known_.end(); ++it) {
      if (it->second->last_used < oldest->second->last_used) oldest = it;
    }
    known_.erase(oldest);
  }

  void prepare(prepared& plan, const element& what) {
    plan.bytes = total_elements(plan.call) * what.by.element_bytes;
    const bool small = plan.bytes <= small_bytes;
    if (size_ > 1 && plan.bytes > 0) {
      if (!plan.call.ordered && plan.library.possible()) plan.candidates.push_back({method::library, 0});
      if (small || plan.call.ordered) plan.candidates.push_back({method::low_latency, 0});
      if (!small || plan.call.ordered) plan.candidates.push_back({method::trees, first_chunk(plan)});
      // Networks want short chunks, shared memory long ones: the search begins near the better.
      if (plan.bytes >= 8 * long_chunk) plan.candidates.push_back({method::trees, long_chunk});
    }
    if (plan.candidates.empty()) plan.candidates.push_back({method::low_latency, 0});
    // A fixed order has one way, whatever is faster: another would round otherwise.
    if (plan.call.ordered) plan.candidates = {{method::trees, ordered_chunk}};
    tuning_limits limits;
    limits.eager = options_.eager;
    plan.tuning = tuner(plan.candidates, limits);
    plan.settled = plan.candidates.front();
  }

  [[nodiscard]] std::int64_t first_chunk(const prepared& plan) const {
    // Sixty-four to a tree's share, if that is below what the transport sends without asking.
    const auto share = static_cast<std::uint64_t>(std::max<std::int64_t>(1, plan.bytes / 64));
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::bit_floor(share)), 8192, options_.eager / 2);
  }

  [[nodiscard]] choice served(const prepared& plan, const choice& wanted) const {
    if (wanted.how == method::library && !plan.library.possible()) return {method::low_latency, 0};
    if (wanted.how == method::trees && wanted.chunk == 0) return {method::trees, first_chunk(plan)};
    return wanted;
  }

  /// One call of the tuning: rank 0 says what to do, all do it, and it learns how long the slowest took.
  void try_one(prepared& plan, const void* input, void* output, const element& what, const context* where) {
    using clock = std::chrono::steady_clock;
    const choice mine = plan.tuning.next();
    const detail::plan_words said =
        detail::from_root(communicator_, {static_cast<std::int64_t>(mine.how), mine.chunk}, options_.deadline);
    const choice now{static_cast<method>(said.at(0)), said.at(1)};
    (void)way(plan, now, what);  // planning is not timed
    (void)detail::largest_of_all(communicator_, 0, options_.deadline);
    const clock::time_point start = clock::now();
    carry_out(plan, now, input, output, what, where);
    const double seconds = detail::largest_of_all(
        communicator_, std::chrono::duration<double>(clock::now() - start).count(), options_.deadline);
    // All ranks hear the same numbers, so their tuners stay alike.
    plan.tuning.note(seconds);
    if (plan.tuning.settled()) plan.settled = plan.tuning.next();
  }

  void carry_out(prepared& plan, const choice& how, const void* input, void* output, const element& what,
                 const context* where) {
    if (how.how == method::library) {
      last_sent_ = -1;
      detail::check_mpi(plan.library.run(communicator_, input, output, what), name_of(plan.call.what), rank_, where);
      return;
    }
    mpi_schedule_runner& runner = *way(plan, how, what).runner;
    last_sent_ = runner.sent_bytes();
    runner.run(input, output, what.by, where);
  }

  runnable& way(prepared& plan, const choice& how, const element& what) {
    if (how.how == method::library) return nothing_;
    std::unique_ptr<runnable>& made = plan.ways[{static_cast<int>(how.how), how.chunk}];
    if (made == nullptr) {
      made = std::make_unique<runnable>();
      made->plan = make(plan.call, how, what.by.element_bytes);
      detail::require_equal(communicator_, made->plan, options_.deadline);
      made->runner = std::make_unique<mpi_schedule_runner>(made->plan, communicator_, what.by.element_bytes,
                                                           options_.deadline, oversubscribed_);
    }
    return *made;
  }

  [[nodiscard]] schedule make(const collective_call& call, const choice& how, std::int64_t element_bytes) {
    chunking cut;
    cut.elements = std::max<std::int64_t>(1, (how.chunk > 0 ? how.chunk : 32768) / element_bytes);
    cut.grain = std::max<std::int64_t>(1, 64 / element_bytes);
    if (call.ordered) return from_ordered_trees(call, cut);
    if (how.how == method::low_latency) return few_rounds(call, cut);
    if (call.what == operation::gather || call.what == operation::scatter || call.what == operation::all_to_all) {
      return from_routes(call, net_, routes_for(call), cut);
    }
    return from_trees(call, net_, trees_for(call).trees, cut);
  }

  [[nodiscard]] static schedule few_rounds(const collective_call& call, const chunking& cut) {
    switch (call.what) {
      case operation::broadcast:
      case operation::reduce:
      case operation::gather:
      case operation::scatter: return binomial(call);
      case operation::all_reduce: return total_elements(call) < 2048 ? doubling(call) : circulant(call);
      case operation::all_gather:
      case operation::reduce_scatter: return circulant(call);
      case operation::all_to_all: return total_elements(call) < 8192 ? bruck(call) : pairwise(call, cut);
    }
    return binomial(call);
  }

  [[nodiscard]] const packing& trees_for(const collective_call& call) {
    const collective kind = kind_of(call.what);
    const int root = has_root(call.what) ? call.root : 0;
    const auto wanted = std::pair{kind, root};
    if (const auto found = packings_.find(wanted); found != packings_.end()) return found->second;
    detail::plan_words mine;
    if (rank_ == 0) {
      // A tree of little weight costs as many messages as one of much (Blink: minimising the number of trees).
      pack_options fewer;
      fewer.slack = 0.05;
      mine = detail::to_words(pack(net_, kind, root, fewer));
    }
    return packings_.emplace(wanted, detail::packing_from(detail::from_root(communicator_, mine, options_.deadline)))
        .first->second;
  }
  [[nodiscard]] static collective kind_of(operation what) {
    switch (what) {
      case operation::broadcast: return collective::broadcast;
      case operation::reduce: return collective::reduce;
      case operation::all_gather: return collective::all_gather;
      case operation::reduce_scatter: return collective::reduce_scatter;
      default: return collective::all_reduce;
    }
  }
  [[nodiscard]] std::vector<route> routes_for(const collective_call& call) {
    detail::plan_words mine;
    if (rank_ == 0) mine = detail::to_words(find_routes(call, net_).routes);
    return detail::routes_from(detail::from_root(communicator_, mine, options_.deadline));
  }

  static constexpr std::int64_t small_bytes = 64 << 10;
  static constexpr std::int64_t ordered_chunk = 32768;
  static constexpr std::int64_t long_chunk = 512 << 10;

  network net_;
  collectives_options options_;
  MPI_Comm communicator_{};
  int rank_ = 0;
  int size_ = 1;
  bool oversubscribed_ = true;
  bool broken_ = false;
  std::map<key, std::unique_ptr<prepared>> known_;
  std::map<std::pair<collective, int>, packing> packings_;
  std::uint64_t uses_ = 0;
  std::int64_t last_sent_ = 0;
  runnable nothing_;
};

}  // namespace espalier::comm
