// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/base/light_std/owned.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/comm/mpi/mpi_exchange.hpp>
#include <espalier/comm/mpi/mpi_messages.hpp>
#include <espalier/comm/mpi/mpi_reduction.hpp>
#include <espalier/comm/mpi_handle.hpp>
#include <espalier/comm/mpi_options.hpp>
#include <espalier/comm/termination.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>

namespace espalier::comm {

/// Another way to carry out collectives: comm/run/engine.hpp has one that is made for the network. It costs ten seconds
/// to compile, so a program that wants it says so.
///
/// Each returns the bytes that this rank sent; nothing if the engine does not serve it, which all members of the group
/// find alike.
class collective_engine {
 public:
  collective_engine() = default;
  collective_engine(const collective_engine&) = delete;
  collective_engine& operator=(const collective_engine&) = delete;
  virtual ~collective_engine() = default;

  /// Prepares a group before its first all-reduce, and each transfer, which must not move afterwards, before its first
  /// use. Collective over all ranks: they prepare the same operations, each for its own group, in the same order.
  virtual void prepare(const transfer_group& group) = 0;
  virtual void prepare(const transfer& moves) = 0;
  virtual std::optional<std::int64_t> all_reduce(const transfer_group& group, const void* source, void* target,
                                                 std::int64_t count, const reducer& by, const context* where) = 0;
  virtual std::optional<std::int64_t> exchange(const transfer& moves, const void* source, void* target,
                                               const context* where) = 0;
  virtual std::optional<std::int64_t> reduce_exchange(const transfer& moves, const void* source, void* target,
                                                      const reducer& by, const context* where) = 0;
};

/// A device that is an MPI rank.
///
/// Everything is non-blocking point-to-point on ONE duplicate of the given communicator, whatever the group. A
/// sub-communicator per group would have to be created collectively, in one order on all ranks, by blocking calls that
/// no deadline can guard; and the only thing it would give, a private tag space, is had by numbering the operations of
/// each pair of ranks. Groups may so be as many as there are axis subsets, and cost nothing.
///
/// Only the thread that uses it calls MPI (`MPI_THREAD_FUNNELED` is enough). Constructing it is collective.
class mpi_communicator {
 public:
  explicit mpi_communicator(MPI_Comm base = detail::all_ranks(), mpi_options options = {})
      : options_(options), messages_(base, options) {
    options_.window = std::clamp(options_.window, 1, detail::mpi_reduction::max_window);
    world_.members.resize(static_cast<std::size_t>(size()));
    for (int k = 0; k < size(); ++k) world_.members[static_cast<std::size_t>(k)] = k;
    world_.self = rank();
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;

  [[nodiscard]] int rank() const { return messages_.rank(); }
  [[nodiscard]] int size() const { return messages_.size(); }

  void prepare(const transfer& moves) {
    detail::require_consistent(moves, rank(), size());
    if (engine_ != nullptr && moves.members.size() > 1) engine_->prepare(moves);
    reserve(moves);
    (void)memory_.incoming.reserve(detail::staging_bytes(moves, moves.incoming, &detail::contiguous_target));
    (void)memory_.outgoing.reserve(detail::staging_bytes(moves, moves.outgoing, &detail::contiguous_source));
    std::size_t messages = 0;
    for (const block& box : moves.incoming) messages += messages_.message_count(box.elements() * size_of(moves.type));
    for (const block& box : moves.outgoing) messages += messages_.message_count(box.elements() * size_of(moves.type));
    messages_.requests().reserve(messages);
  }
  /// Sends later collectives of groups of two and more through `engine`. Every rank calls this before it prepares any
  /// group. `engine`: a `std::unique_ptr` to it.
  template <class Pointer> void use(Pointer engine) {
    engine_ = espalier::detail::owned<collective_engine>(engine.release());
  }
  [[nodiscard]] const mpi_handle& base() const { return messages_.base(); }
  [[nodiscard]] const mpi_options& options() const { return options_; }

  void prepare(const transfer_group& group) {
    detail::require_consistent(group, rank(), size());
    if (engine_ != nullptr && group.members.size() > 1) engine_->prepare(group);
    reserve(group);
  }

  void exchange(const transfer& moves, const void* source, void* target) {
    messages_.begin<collective::exchange>(moves.type);
    if (engine_ != nullptr && moves.members.size() > 1) {
      if (const auto sent = engine_->exchange(moves, source, target, messages_.where())) {
        counters_.add(moves.channel, *sent);
        return;
      }
    }
    messages_.guarded(moves, [&] { detail::mpi_exchange(messages_, memory_, moves, source, target).run(); });
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void reduce_exchange(const transfer& moves, const void* source, void* target, const reducer& by) {
    messages_.begin<collective::reduce_exchange>(moves.type, by.kind);
    detail::require_reducible(moves, by, messages_.where());
    if (engine_ != nullptr && moves.members.size() > 1) {
      if (const auto sent = engine_->reduce_exchange(moves, source, target, by, messages_.where())) {
        counters_.add(moves.channel, *sent);
        return;
      }
    }
    const detail::reduce_job job{
        &moves, &moves, by, static_cast<const std::byte*>(source), static_cast<std::byte*>(target), 0};
    messages_.guarded(moves, [&] { detail::mpi_reduction(messages_, memory_, options_, job).run(); });
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void all_reduce(const transfer_group& group, const void* source, void* target, std::int64_t count,
                  const reducer& by) {
    messages_.begin<collective::all_reduce>(by.type, by.kind, count);
    detail::require_reducible(by, messages_.where());
    if (engine_ != nullptr && group.members.size() > 1 && count > 0) {
      if (const auto sent = engine_->all_reduce(group, source, target, count, by, messages_.where())) {
        counters_.add(group.channel, *sent);
        return;
      }
    }
    const detail::reduce_job job{
        &group, nullptr, by, static_cast<const std::byte*>(source), static_cast<std::byte*>(target), count};
    messages_.guarded(group, [&] {
      detail::mpi_reduction reduction(messages_, memory_, options_, job);
      if (group.members.size() == 2 && count * size_of(by.type) <= options_.direct_bytes) {
        reduction.swap();
      } else {
        reduction.run();
      }
    });
    counters_.add(group.channel,
                  all_reduce_sent_bytes(count, size_of(by.type), static_cast<int>(group.members.size()), group.self));
  }

  /// Every rank tells every other one that it is here: more messages than a tree, but an expired wait then knows
  /// exactly which ranks are missing. Not for inner loops on many ranks.
  void barrier() {
    messages_.begin<collective::barrier>();
    messages_.guarded(world_, [&] {
      for (int k = 0; k < size(); ++k) {
        if (k != rank()) messages_.receive(messages_.requests().append(), nullptr, 0, k, messages_.tag(k, 0, 0));
      }
      for (int k = 0; k < size(); ++k) {
        if (k != rank()) messages_.send(messages_.requests().append(), nullptr, 0, k, messages_.tag(k, 0, 0));
      }
      messages_.drain([](std::size_t) {});
    });
  }

  /// `bytes` bytes at `data`, from rank `root` to all; sent by the root itself to each.
  void broadcast(void* data, std::int64_t bytes, int root) {
    messages_.begin<collective::broadcast>(dtype::f32, reduction::sum, bytes * size() + root);
    messages_.guarded(world_, [&] {
      std::byte* memory = static_cast<std::byte*>(data);
      if (rank() != root) {
        messages_.receive_messages(memory, bytes, root);
      } else {
        for (int k = 0; k < size(); ++k) {
          if (k != rank()) messages_.send_messages(memory, bytes, k);
        }
      }
      messages_.drain([](std::size_t) {});
    });
  }

  [[nodiscard]] std::span<const std::int64_t> counters() const { return counters_.view(); }
  void reset_counters() { counters_.reset(); }

  void set_context(const context* where) {
    messages_.set_where(where);
    detail::last_words_of_this_rank.note(where);
  }

  /// Writes one message to stderr and ends all ranks with a non-zero code. Does not return.
  [[noreturn]] void abort(const std::string& reason) {
    const bool says_where = reason.find("instruction: ") != std::string::npos;
    const std::string text = detail::joined({"espalier: rank ", rank(), " of ", size(), " stopped: ", reason,
                                             detail::during(says_where ? nullptr : messages_.where()), "\n"});
    // One write: the lines of several ranks stay whole.
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
    MPI_Abort(detail::all_ranks(), 1);
    std::abort();
  }

 private:
  void reserve(const transfer_group& group) {
    counters_.reserve(group.channel);
    const auto members = static_cast<std::int64_t>(group.members.size());
    const std::int64_t pieces = options_.window * members * options_.piece_bytes;
    (void)memory_.incoming.reserve(std::max(pieces, options_.direct_bytes));
    (void)memory_.outgoing.reserve(pieces);
    messages_.requests().reserve(static_cast<std::size_t>(options_.window * 4 * members));
    memory_.parts.reserve(group.members.size());
    memory_.boxes.reserve(group.members.size());
  }

  mpi_options options_;
  detail::mpi_messages messages_;
  transfer_group world_;
  detail::operation_memory memory_;
  detail::byte_counters counters_;
  espalier::detail::owned<collective_engine> engine_;
};

static_assert(Communicator<mpi_communicator>);

}  // namespace espalier::comm
