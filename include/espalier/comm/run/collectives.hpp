// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/host/collectives.hpp>
#include <espalier/comm/mpi/mpi_requests.hpp>
#include <espalier/comm/probe/probe.hpp>
#include <espalier/comm/run/agreement.hpp>
#include <espalier/comm/run/arrival_list.hpp>
#include <espalier/comm/run/call_summary.hpp>
#include <espalier/comm/run/element.hpp>
#include <espalier/comm/run/in_flight.hpp>
#include <espalier/comm/run/library.hpp>
#include <espalier/comm/run/mpi_runner.hpp>
#include <espalier/comm/run/planner.hpp>
#include <espalier/comm/run/recent_calls.hpp>
#include <espalier/comm/run/slowdown.hpp>
#include <espalier/comm/run/tuner.hpp>
#include <espalier/comm/run/watchdog.hpp>
#include <espalier/comm/topology/paths.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier::comm {

/// Options for the detection of links that become slow. A settled call is compared with earlier runs of itself.
struct watch_options {
  slowdown_limits limits;              ///< `factor` 0: nothing is watched
  std::int64_t least_bytes = 1 << 20;  ///< calls of fewer bytes are not watched
  double cool_down = 60;               ///< least seconds between probes; longer after one that found nothing
  double changed = 1.25;               ///< a way between two ranks that is so many times as fast or slow has changed
  /// Collective, alike on all ranks. None: `comm::probe` for collectives made from a topology; for those made from a
  /// network, which may be a part of one, what becomes slow is only noted.
  std::function<network(MPI_Comm)> probe;
};

struct collectives_options {
  std::chrono::duration<double> deadline = default_deadline();
  /// Bytes up to which the transport sends without asking (Open MPI: btl_tcp_eager_limit).
  std::int64_t eager = 65536;
  /// Always the same order of ranks: results equal to the bit on every rank, run and network.
  bool fixed_order = false;
  /// The choice to use wherever it can serve the call; if set, no candidates are tried.
  std::optional<choice> forced;
  /// Whether shared memory may be used where all ranks are on one host.
  bool share_memory = true;
  /// Calls remembered for later.
  std::size_t kept = 64;
  /// Message tags to use at most; 0: all that MPI has. When they are used up by what was started, all ranks meet once.
  int tags = 0;
  watch_options watch;
};

/// Something that happened to the collectives of a communicator, alike on all its ranks.
struct network_event {
  double seconds = 0;  ///< on this rank, since the collectives were made
  std::string text;
};

/// Collectives over the ranks of an MPI communicator, generated for the network they run on.
///
/// All ranks construct it with the same topology and call the same operations in the same order. The first calls of a
/// collective at a size try what may be fastest (trees packed for the network, algorithms of few rounds, the MPI
/// library's own, shared memory where all ranks are on one host), and rank 0 settles on one. Plans and decisions are
/// rank 0's, sent to the others with checksums: ranks with different calls get an error, not a hang (what is promised
/// of calls that were made before is in docs/collectives.md). A settled call that becomes slow is noticed, the network
/// probed again, and everything planned anew.
///
/// `start` returns at once; any number of operations may be under way, and each wait takes all of them further.
///
/// Errors: `comm_error` on a wait without progress, on different calls, and of the transport; then the object is
/// unusable. A wait inside the MPI library's own collective cannot be left: there the program ends, with the message.
/// std::invalid_argument before any communication where a call contradicts itself.
class collectives {
 public:
  collectives(MPI_Comm communicator, const topology& machine, const collectives_options& options = {})
      : collectives(communicator, network_of(machine), that_probe(options)) {}

  collectives(MPI_Comm communicator, network net, const collectives_options& options = {})
      : options_(options),
        communicator_(duplicate(communicator, net.ranks)),
        oversubscribed_(detail::has_more_ranks_than_processors(communicator_)),
        created_(clock::now()),
        together_(communicator_, options.deadline, oversubscribed_),
        planner_(std::move(net), together_, {options.eager, options.forced, options.fixed_order}),
        known_(options.kept),
        under_way_(options.deadline, oversubscribed_),
        tags_(communicator_, options.tags),
        cool_down_(options.watch.cool_down, 0) {
    MPI_Comm_size(communicator_, &size_);
    MPI_Comm_rank(communicator_, &rank_);
    in_library_ = std::make_unique<detail::watched_call>(rank_, options_.deadline);
    together_.meanwhile([this] { return !under_way_.empty() && under_way_.progress(); });
    together_.look_around([this](bool compares) { look_for_other_calls(compares); });
    under_way_.look_around([this] { look_for_other_calls(false); });
  }
  collectives(const collectives&) = delete;
  collectives& operator=(const collectives&) = delete;
  ~collectives() {
    if (watched_) detail::watchdog::of_this_process().remove(*in_library_);
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) return;
    try {
      if (!under_way_.broken()) under_way_.wait_all();
    } catch (const std::exception&) { under_way_.fail(); }
    // After an error messages may be under way: the number of the communicator must not be given to another.
    if (under_way_.broken()) return;
    arrivals_.reset();
    host_.reset();
    MPI_Comm_free(&communicator_);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const network& over() const { return planner_.over(); }

  /// Bytes this rank sent in the last call, by schedules; -1 if it went over shared memory, or the MPI library did it.
  [[nodiscard]] std::int64_t last_sent_bytes() const { return last_sent_; }

  /// Memory for buffers: on one host, the other ranks read and write it in place, which saves a copy. Collective; each
  /// rank says how many bytes it wants. Zero at first; kept until `deallocate` or the end of this object.
  [[nodiscard]] void* allocate(std::int64_t bytes) {
    if (bytes < 0) throw std::invalid_argument("a buffer cannot have a negative size");
    require_sound();
    find_host();
    if (host_ != nullptr) return host_->allocate(bytes);
    buffers_.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(1, bytes)));
    return buffers_.back().data();
  }
  /// Collective, in the order of allocation of what is given back. Errors: std::invalid_argument for other memory.
  void deallocate(void* memory) {
    if (host_ != nullptr) return host_->deallocate(memory);
    if (std::erase_if(buffers_, [&](const auto& b) { return b.data() == memory; }) == 0) {
      throw std::invalid_argument("this memory was not allocated here, or was given back before");
    }
  }

  /// `output[i]` of every rank = all ranks' `input[i]`, combined. `input == output`: in place.
  void all_reduce(const void* input, void* output, std::int64_t count, const element& what) {
    const bool in_place = input == output;
    run_uniform(collective::all_reduce, count, 0, in_place, in_place ? nullptr : input, output, what);
  }
  /// `data` of the root on all ranks.
  void broadcast(void* data, std::int64_t count, const element& what, int root) {
    run_uniform(collective::broadcast, count, root, true, nullptr, data, what);
  }
  void reduce(const void* input, void* output, std::int64_t count, const element& what, int root) {
    run_uniform(collective::reduce, count, root, false, input, output, what);
  }
  /// `count`: elements of each rank.
  void all_gather(const void* input, void* output, std::int64_t count, const element& what) {
    run_uniform(collective::all_gather, count, 0, false, input, output, what);
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count, const element& what) {
    run_uniform(collective::reduce_scatter, count, 0, false, input, output, what);
  }
  void gather(const void* input, void* output, std::int64_t count, const element& what, int root) {
    run_uniform(collective::gather, count, root, false, input, output, what);
  }
  void scatter(const void* input, void* output, std::int64_t count, const element& what, int root) {
    run_uniform(collective::scatter, count, root, false, input, output, what);
  }
  void all_to_all(const void* input, void* output, std::int64_t count, const element& what) {
    run_uniform(collective::all_to_all, count, 0, false, input, output, what);
  }

  /// Any call. Buffers as `collective_call` says.
  void run(const collective_call& call, const void* input, void* output, const element& what,
           const context* where = nullptr) {
    require_sound();
    ++number_;
    const bool ordered = is_ordered(call.kind, call.ordered, what);
    const key wanted = known_calls::key_of(call.kind, call.root, call.in_place, ordered, what);
    known_call* known = known_.find(wanted, call.counts);
    if (known == nullptr) known = &learn(wanted, call, ordered, what);
    run(*known, input, output, what, where);
  }

  /// Starts any call, by a schedule: what was settled on for the call, or else what the cost model takes for best. Like
  /// all calls, those started come in the same order on all ranks; waits for them need not. The buffers, what `what`
  /// and `where` point to stay where they are until it is over.
  [[nodiscard]] started_collective start(const collective_call& call, const void* input, void* output,
                                         const element& what, const context* where = nullptr) {
    require_sound();
    ++number_;
    const bool ordered = is_ordered(call.kind, call.ordered, what);
    const key wanted = known_calls::key_of(call.kind, call.root, call.in_place, ordered, what);
    known_call* known = known_.find(wanted, call.counts);
    if (known == nullptr) known = &learn(wanted, call, ordered, what);
    come_to(*known, what);
    return guarded([&] {
      const bool settled = known->settled && is_schedule(known->settled->how);
      std::shared_ptr<detail::runnable> way = runnable_of(*known, settled ? *known->settled : known->scheduled, what);
      std::unique_ptr<mpi_schedule_runner> runner = way->take();
      if (!tags_.has(runner->tags())) {
        under_way_.wait_all();
        together_.meet("for message tags to be free again");
        tags_.restart();
      }
      runner->begin(input, output, what.by, where, tags_.take(runner->tags(), detail::short_fingerprint(said_)));
      return started_collective(under_way_, under_way_.add(std::move(way), std::move(runner), call.kind));
    });
  }

  /// Returns the operations that were started and are not over.
  [[nodiscard]] std::vector<pending_operation> pending() const { return under_way_.pending(); }
  /// Takes what was started further, without waiting.
  void progress() { under_way_.progress(); }

  /// Returns the choice for a call, once one has been settled on.
  [[nodiscard]] std::optional<choice> settled(const collective_call& call, const element& what) {
    const bool ordered = is_ordered(call.kind, call.ordered, what);
    const known_call* known =
        known_.find(known_calls::key_of(call.kind, call.root, call.in_place, ordered, what), call.counts);
    return known == nullptr ? std::nullopt : known->settled;
  }

  /// Returns the links that became slow, and the reaction to each.
  [[nodiscard]] const std::vector<network_event>& events() const { return events_; }

 private:
  using clock = std::chrono::steady_clock;

  /// Calls of the MPI library between two comparisons; those of much data count as 1/64 of it.
  static constexpr int most_unchecked = 4096;

  /// The state that is kept for one call.
  struct known_call {
    collective_call call;
    call_summary said;  // without type and operation: calls that differ in these only share all of this
    detail::library_call library;
    std::int64_t bytes;
    bool shareable = false;      // over shared memory
    double library_seconds = 0;  // that the library may take beyond the deadline
    choice scheduled;
    tuner tuning;      // rank 0's
    choice next;       // to be tried
    int calls = 1;     // in a row, which are one try
    int done = 0;      // of these
    double spent = 0;  // in these, here
    std::optional<choice> settled;
    detail::runnable* settled_runnable = nullptr;  // of a schedule
    std::vector<std::pair<choice, std::shared_ptr<detail::runnable>>> runnables;
    slowdown_watch watch;

    known_call(const collective_call& made, std::uint64_t kind, const element& what, int rank)
        : call(made),
          said(detail::summary_of(call, moves_only(what.by.element_bytes), detail::flags_of(kind))),
          library(call, what, rank),
          bytes(total_elements(made) * what.by.element_bytes) {}
    [[nodiscard]] call_summary said_of(const element& what) const { return detail::with_names(said, what.by); }
  };
  using known_calls = detail::recent_calls<known_call>;
  using key = known_calls::key;

  static MPI_Comm duplicate(MPI_Comm communicator, int ranks) {
    int size = 0;
    MPI_Comm_size(communicator, &size);
    if (ranks != size) {
      throw std::invalid_argument("the topology has " + std::to_string(ranks) + " ranks, but the communicator has " +
                                  std::to_string(size));
    }
    MPI_Comm made{};
    MPI_Comm_dup(communicator, &made);
    MPI_Comm_set_errhandler(made, detail::errors_return());
    return made;
  }

  static collectives_options that_probe(collectives_options options) {
    if (!options.watch.probe) {
      probe_options how;
      how.deadline = options.deadline;
      options.watch.probe = [how](MPI_Comm communicator) { return network_of(comm::probe(communicator, how)); };
    }
    return options;
  }

  void require_sound() const {
    if (under_way_.broken()) throw comm_error("rank " + std::to_string(rank_) + ": an earlier collective failed");
  }
  [[nodiscard]] bool is_ordered(collective what, bool asked, const element& by) const {
    return reduces(what) && (asked || options_.fixed_order || !by.commutes);
  }
  template <class Body> std::invoke_result_t<const Body&> guarded(const Body& body) {
    try {
      return body();
    } catch (const mismatched_call&) { throw; } catch (...) {
      under_way_.fail();
      throw;
    }
  }

  void run_uniform(collective what, std::int64_t count, int root, bool in_place, const void* input, void* output,
                   const element& by) {
    require_sound();
    ++number_;
    const bool ordered = is_ordered(what, false, by);
    const key wanted = known_calls::key_of(what, root, in_place, ordered, by);
    known_call* known = known_.find(wanted, count);
    if (known == nullptr) {
      collective_call call = uniform_call(what, size_, count, root);
      call.in_place = in_place;
      known = &learn(wanted, call, ordered, by);
    }
    run(*known, input, output, by, nullptr);
  }

  /// Plans a call. Collective.
  known_call& learn(const key& wanted, const collective_call& given, bool ordered, const element& what) {
    auto made = std::make_shared<known_call>(given, wanted.kind, what, rank_);
    made->call.ordered = ordered;
    // First: what follows depends on the call, and ranks with different ones would take each other's answers.
    said_ = made->said_of(what);
    require_same_call();
    if (std::shared_ptr<known_call> like = known_.find_like(wanted, given.counts)) {
      return known_.add(wanted, std::move(like));
    }
    return guarded([&]() -> known_call& {
      if (made->bytes > 0) {
        find_host();
        find_arrivals();
      }
      made->shareable = host_ != nullptr && host_->serves(made->call, what);
      const detail::proposal said = planner_.propose(made->call, what.by.element_bytes, others_that_serve(*made));
      tuning_limits limits;
      limits.eager = options_.eager;
      // A call of microseconds is measured less exactly, and tried at less cost.
      if (made->bytes <= options_.eager) limits.rounds = 6;
      made->scheduled = said.scheduled;
      made->tuning = tuner(said.candidates, limits);
      made->next = said.candidates.front();
      made->library_seconds = planner_.slowest_seconds(made->bytes);
      made->watch = slowdown_watch(options_.watch.limits);
      if (said.candidates.size() == 1) settle(*made, made->next, what);
      return known_.add(wanted, std::move(made));
    });
  }

  /// Shared memory, if all ranks are on one host: asked once, when it may first be of use. Collective.
  void find_host() {
    if (host_known_) return;
    host_known_ = true;
    const bool wanted = !options_.forced || is_of_one_host(options_.forced->how);
    if (size_ == 1 || !wanted || !options_.share_memory) return;
    if (!under_way_.empty()) under_way_.wait_all();  // other ranks may have to end them before they come here
    if (!on_one_host(communicator_)) return;
    host_options shared;
    shared.deadline = options_.deadline;
    host_ = std::make_unique<host_collectives>(communicator_, shared);
  }

  /// Sets up the list where ranks note which call they have come to: once, before the first that moves data.
  /// Collective.
  void find_arrivals() {
    if (arrivals_ != nullptr || size_ == 1 || !options_.share_memory) return;
    if (host_ != nullptr) {
      arrivals_ = std::make_unique<detail::arrival_list>(host_->notices(), rank_);
    } else {
      if (!under_way_.empty()) under_way_.wait_all();  // as above
      MPI_Comm host{};
      MPI_Comm_split_type(communicator_, MPI_COMM_TYPE_SHARED, 0, detail::no_info(), &host);
      arrivals_ = std::make_unique<detail::arrival_list>(communicator_, host, options_.deadline);
    }
    in_library_->note_in(*arrivals_);
  }

  /// Returns the methods other than schedules that can carry out a call: candidates of which the cost model knows
  /// nothing. All ranks find the same.
  [[nodiscard]] std::vector<choice> others_that_serve(const known_call& known) const {
    std::vector<choice> found;
    // The library keeps the order of ranks where an operation does not commute, but not the same one at any size.
    const bool fixed = known.call.ordered && options_.fixed_order;
    if (known.library.possible() && !fixed) found.push_back({method::library, 0});
    if (host_ == nullptr || fixed || !known.shareable) return found;
    found.push_back({method::shared, 0});
    if (options_.forced || host_->has_kernel(known.bytes)) found.push_back({method::single_copy, 0});
    return found;
  }

  /// Notes, for ranks that look, which call this rank is in.
  void come_to(const known_call& known, const element& what) {
    said_ = known.said_of(what);
    if (arrivals_ != nullptr) arrivals_->enter(number_, said_);
  }

  /// Checks, in a long wait, whether some rank is in another call, so that this one waits in vain.
  void look_for_other_calls(bool compares) const {
    if (arrivals_ == nullptr) return;
    const std::string found = arrivals_->mismatch(number_, said_, rank_, compares);
    if (!found.empty()) throw comm_error("the ranks are in different collectives: " + found);
  }

  /// Throws on all ranks unless all are in the same call, and were in all calls that the MPI library carried out
  /// since they last compared them: it does not notice what ranks disagree on. Collective.
  void require_same_call() {
    if (arrivals_ != nullptr) {
      call_summary noted = said_;
      noted.kind |= std::uint64_t{detail::compares_flag} << detail::flags_at;
      arrivals_->enter(number_, noted);
    }
    const std::uint64_t mine = detail::long_fingerprint(said_) + by_library_;
    if (guarded([&] { return together_.are_equal(mine, detail::spelled_call(said_).name()); })) {
      compared_ = number_;
      unchecked_ = 0;
      return;
    }
    const std::vector<call_summary> all = guarded([&] { return said_by_all(); });
    if (std::equal(all.begin() + 1, all.end(), all.begin())) guarded([&] { fail_by_library(); });
    said_by_ranks said;
    for (const call_summary& one : all) said.push_back({static_cast<int>(said.size()), one});
    throw mismatched_call("the ranks call different collectives: " + detail::mismatch_text(said));
  }
  [[nodiscard]] std::vector<call_summary> said_by_all() {
    const detail::plan_words words =
        together_.from_all({static_cast<std::int64_t>(said_.kind), static_cast<std::int64_t>(said_.element_bytes),
                            static_cast<std::int64_t>(said_.size)},
                           "for the calls of all ranks", true);
    std::vector<call_summary> all;
    for (std::size_t at = 0; at < words.size(); at += 3) {
      all.push_back({static_cast<std::uint64_t>(words[at]), static_cast<std::uint64_t>(words[at + 1]),
                     static_cast<std::uint64_t>(words[at + 2])});
    }
    return all;
  }

  /// Notes a call that the MPI library carries out. Such calls are compared afterwards, many at once: before each, it
  /// would cost as much as a small call.
  void note_library_call(const known_call& known) {
    by_library_ = (by_library_ ^ detail::long_fingerprint(said_)) * 0x9E3779B97F4A7C15U;
    unchecked_ += known.bytes < options_.watch.least_bytes ? 1 : most_unchecked / 64;
    if (unchecked_ < most_unchecked) return;
    guarded([&] {
      if (!together_.are_equal(by_library_, name_of(known.call.kind))) fail_by_library();
    });
    compared_ = number_;
    unchecked_ = 0;
  }
  [[noreturn]] void fail_by_library() const {
    throw comm_error("rank " + std::to_string(rank_) + ": of this communicator's calls " +
                     std::to_string(compared_ + 1) + " to " + std::to_string(number_) +
                     ", at least one that the MPI library carried out was made with different collectives, counts, "
                     "roots, types or operations on different ranks: its results are wrong, and all that follows from "
                     "them\n  collectives_options::forced with another method finds the call");
  }

  void run(known_call& known, const void* input, void* output, const element& what, const context* where) {
    said_ = known.said_of(what);
    if (!known.settled) {
      guarded([&] { try_one(known, input, output, what, where); });
    } else if (known.bytes < options_.watch.least_bytes || size_ == 1) {
      carry_out(known, known.settled->how, known.settled_runnable, input, output, what, where);
    } else {
      const clock::time_point start = clock::now();
      carry_out(known, known.settled->how, known.settled_runnable, input, output, what, where);
      if (known.watch.note(since(start))) guarded([&] { judge(known, where); });
    }
  }

  /// One call of the tuning. Where a try is over, rank 0 learns how long the slowest took, and says what is next.
  void try_one(known_call& known, const void* input, void* output, const element& what, const context* where) {
    come_to(known, what);
    under_way_.wait_all();  // they would share the time
    const choice now = known.next;
    detail::runnable* const way = runnable_of(known, now, what).get();  // planning is not timed
    if (known.done == 0) together_.meet("for all ranks to begin");
    if (known.calls > 1 && host_ != nullptr) meet_closely(known, where);
    const clock::time_point start = clock::now();
    carry_out(known, now.how, way, input, output, what, where);
    const double spent = since(start);
    const bool warms_up = known.done == 0 && known.calls > 1;
    if (!warms_up) known.spent += spent;
    if (++known.done == known.calls) end_try(known, what);
  }

  /// Synchronises the ranks where calls are short: the library's barrier would leave them too far apart.
  void meet_closely(const known_call& known, const context* where) {
    host_->meet(name_of(known.call.kind), where);
    const clock::time_point met = clock::now();
    while (since(met) < 1e-6) {}  // until caches have done what the meeting asked of them
  }

  void end_try(known_call& known, const element& what) {
    const double mean = known.spent / std::max(1, known.calls - 1);
    const double slowest = together_.largest(mean, "for the times of all ranks");
    const detail::plan_words said = together_.from_root("for what rank 0 decides", [&] {
      known.tuning.note(slowest);
      detail::plan_words words = detail::to_words(std::vector<choice>{known.tuning.next()});
      words.push_back(known.tuning.settled() ? 0 : known.tuning.calls());
      return words;
    });
    known.next = detail::choices_from(said).front();
    known.calls = static_cast<int>(said.back());
    known.done = 0;
    known.spent = 0;
    if (known.calls == 0) settle(known, known.next, what);
  }

  void settle(known_call& known, const choice& found, const element& what) {
    known.settled_runnable = runnable_of(known, found, what).get();
    known.settled = found;
    std::erase_if(known.runnables, [&](const auto& w) { return w.first != found && w.first != known.scheduled; });
  }

  /// `way`: of a schedule.
  void carry_out(known_call& known, method how, detail::runnable* way, const void* input, void* output,
                 const element& what, const context* where) {
    switch (how) {
      case method::library: return run_library(known, input, output, what, where);
      case method::shared: return run_shared(known, input, output, what, where, private_memory::staged);
      case method::single_copy: return run_shared(known, input, output, what, where, private_memory::kernel);
      case method::trees:
      case method::low_latency: return run_schedule(known, *way, input, output, what, where);
    }
  }

  void run_schedule(const known_call& known, detail::runnable& way, const void* input, void* output,
                    const element& what, const context* where) {
    mpi_schedule_runner& runner = way.blocking();
    last_sent_ = runner.sent_bytes();
    come_to(known, what);
    guarded([&] {
      runner.begin(input, output, what.by, where, tags_.of_blocking(runner.tags(), detail::short_fingerprint(said_)));
      under_way_.wait_beside(runner);
    });
  }

  void run_shared(known_call& known, const void* input, void* output, const element& what, const context* where,
                  private_memory how) {
    if (!under_way_.empty()) under_way_.wait_all();  // as below
    last_sent_ = -1;
    guarded([&] { host_->run(known.call, said_, number_, input, output, what, where, how); });
  }

  void run_library(known_call& known, const void* input, void* output, const element& what, const context* where) {
    // Operations under way make no progress while the library has the processor, and other ranks may need that progress
    // before they come here.
    if (!under_way_.empty()) under_way_.wait_all();
    if (!watched_) {
      detail::watchdog::of_this_process().add(*in_library_);
      watched_ = true;
    }
    last_sent_ = -1;
    in_library_->enter(number_, said_, name_of(known.call.kind), where, known.library_seconds);
    const int code = known.library.run(communicator_, input, output, what);
    in_library_->leave();
    if (code != MPI_SUCCESS) {
      under_way_.fail();
      detail::check_mpi(code, name_of(known.call.kind), rank_, where);
    }
    note_library_call(known);
  }

  /// The schedule of a choice; null if that is none. Collective where it is new.
  std::shared_ptr<detail::runnable> runnable_of(known_call& known, const choice& how, const element& what) {
    if (!is_schedule(how.how)) return nullptr;
    for (const auto& [made, way] : known.runnables) {
      if (made == how) return way;
    }
    require_same_call();
    schedule plan = planner_.make(known.call, how, what.by.element_bytes);
    const char* const name = name_of(known.call.kind);
    if (!together_.are_equal(fingerprint(plan), name)) {
      throw comm_error(std::string("the ranks made different plans for ") + name + ": they have different topologies");
    }
    auto made = std::make_shared<detail::runnable>(std::move(plan), communicator_, what.by.element_bytes,
                                                   options_.deadline, oversubscribed_);
    tags_.require(made->blocking().tags());
    known.runnables.emplace_back(how, std::move(made));
    return known.runnables.back().second;
  }

  /// The end of a window of calls, on all ranks alike: has this one become slow?
  void judge(known_call& known, const context* where) {
    // Where all ranks wait for all, the last to arrive measures the network alone, and the others their waiting too.
    const double sign = has_root(known.call.kind) ? 1 : -1;
    const double ratio = sign * largest_after(known, sign * known.watch.ratio(), where);
    if (!known.watch.judge(ratio)) return;
    const detail::plan_words said = together_.from_root(
        "for what rank 0 decides", [&] { return detail::plan_words{cool_down_.allows(since(created_)) ? 1 : 0}; });
    if (said.at(0) == 0) return;
    const double seconds = together_.largest(known.watch.seconds(), "for the times of all ranks");
    note(std::string(name_of(known.call.kind)) + " of " + std::to_string(known.bytes) + " bytes takes " +
         detail::number_text(seconds) + " s, " + detail::number_text(ratio) + " times what was usual" +
         (options_.watch.probe ? ": the network is probed" : ""));
    if (options_.watch.probe) {
      probe_again(known);
    } else {
      cool_down_.done(since(created_), true);
      known.watch.forget();
    }
  }

  /// The largest of all ranks' numbers, after a call. It uses shared memory where no operation is under way on any
  /// rank, as after all but schedules: messages would take tens of microseconds.
  [[nodiscard]] double largest_after(const known_call& known, double mine, const context* where) {
    const char* const what = "for the times of all ranks";
    if (host_ == nullptr || is_schedule(known.settled->how)) return together_.largest(mine, what);
    return host_->largest(mine, name_of(known.call.kind), where);
  }

  void probe_again(known_call& known) {
    under_way_.wait_all();
    network found = options_.watch.probe(communicator_);
    const detail::plan_words said = together_.from_root("for what rank 0 decides", [&] {
      if (found.ranks != size_) throw std::invalid_argument("the new network has another number of ranks");
      const detail::changed_path worst = detail::most_changed(planner_.over(), found);
      const bool changed = worst.factor > options_.watch.changed;
      cool_down_.done(since(created_), !changed);
      return detail::plan_words{changed ? 1 : 0, worst.from, worst.to, std::bit_cast<std::int64_t>(worst.before),
                                std::bit_cast<std::int64_t>(worst.after)};
    });
    if (said.at(0) == 0) {
      note("no way between two ranks has changed: what calls take now is usual from here on");
      known.watch.forget();
      return;
    }
    const auto rate = [&](std::size_t n) {
      return detail::number_text(std::bit_cast<double>(said.at(n)) * 1e-6) + " MB/s";
    };
    note("from rank " + std::to_string(said.at(1)) + " to rank " + std::to_string(said.at(2)) + " there were " +
         rate(3) + ", now there are " + rate(4) + ": all collectives are planned anew");
    planner_ = detail::planner(std::move(found), together_, {options_.eager, options_.forced, options_.fixed_order});
    known_.clear();
  }

  void note(std::string text) { events_.push_back({since(created_), std::move(text)}); }
  [[nodiscard]] static double since(clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
  }

  collectives_options options_;
  MPI_Comm communicator_;
  int rank_ = 0;
  int size_ = 1;
  bool oversubscribed_;
  clock::time_point created_;
  detail::agreement together_;
  detail::planner planner_;
  known_calls known_;
  detail::operations_in_flight under_way_;
  detail::tag_space tags_;
  cool_down cool_down_;  // rank 0's
  std::vector<network_event> events_;
  std::unique_ptr<host_collectives> host_;
  bool host_known_ = false;
  std::vector<std::vector<std::byte>> buffers_;
  std::unique_ptr<detail::arrival_list> arrivals_;
  std::unique_ptr<detail::watched_call> in_library_;
  bool watched_ = false;
  std::int64_t last_sent_ = 0;
  std::uint64_t number_ = 0;  // of the call, from 1, and what it is
  call_summary said_;
  std::uint64_t by_library_ = 0;  // fingerprint of all calls that the library carried out
  std::uint64_t compared_ = 0;    // the last call at which the ranks compared it
  int unchecked_ = 0;
};

}  // namespace espalier::comm
