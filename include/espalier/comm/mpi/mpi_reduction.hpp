// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/comm/mpi/mpi_exchange.hpp>
#include <espalier/comm/mpi/mpi_messages.hpp>
#include <espalier/comm/mpi_options.hpp>
#include <espalier/comm/reduce.hpp>
#include <espalier/comm/reducer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace espalier::comm::detail {

/// A reduction in pieces; an all-reduce when `moves` is null.
struct reduce_job {
  const transfer_group* group;
  const transfer* moves;
  reducer by;
  const std::byte* source;
  std::byte* target;
  std::int64_t count;

  [[nodiscard]] int members() const { return static_cast<int>(group->members.size()); }
  [[nodiscard]] bool gathers() const { return moves == nullptr; }
  /// The share that member k reduces, as it lies in this rank's source.
  [[nodiscard]] block share_of(int k) const {
    if (moves != nullptr) return moves->outgoing[static_cast<std::size_t>(k)];
    const element_range range = owned_range(count, members(), k);
    return contiguous_block(range.size(), range.begin, range.begin);
  }
  /// The share that this rank reduces, in its source and in its target.
  [[nodiscard]] block own() const {
    return moves != nullptr ? moves->incoming[static_cast<std::size_t>(moves->self)] : share_of(group->self);
  }
};

/// One reduction, in pieces of every member's share.
class mpi_reduction {
 public:
  static constexpr int max_window = 4;

  mpi_reduction(mpi_messages& messages, operation_memory& memory, const mpi_options& options, const reduce_job& job)
      : messages_(&messages), memory_(&memory), options_(&options), job_(job) {}

  /// Reduce-scatter, and for an all-reduce all-gather, of one piece of every share after the other, `window` at a time:
  /// while one is reduced the next arrives, and what was reduced is sent on while it is in the cache.
  void run() {
    const std::int64_t pieces = piece_count();
    const std::int64_t slots = std::min<std::int64_t>(options_->window, pieces);
    const std::int64_t staging = slots * job_.members() * piece_elements() * size_of(job_.by.type);
    (void)memory_->incoming.reserve(staging);
    (void)memory_->outgoing.reserve(staging);
    messages_->requests().reset(static_cast<std::size_t>(slots * 4 * job_.members()));
    for (int slot = 0; slot < slots; ++slot) start_piece(slot, slot, pieces);
    messages_->drain([&](std::size_t place) { advance(place, pieces); });
  }

  /// Two ranks, few bytes: each gets all of the other's values and reduces everything, in the same order.
  void swap() {
    const int peer = 1 - job_.group->self;
    const int rank = job_.group->members[static_cast<std::size_t>(peer)];
    const std::int64_t bytes = job_.count * size_of(job_.by.type);
    std::byte* staging = memory_->incoming.reserve(bytes);
    if (bytes > 0) {
      messages_->receive(messages_->requests().append(), staging, bytes, rank, messages_->tag(rank, 0, 0));
      messages_->send(messages_->requests().append(), job_.source, bytes, rank, messages_->tag(rank, 0, 0));
    }
    messages_->drain([](std::size_t) {});
    std::array<contribution, 2> parts;
    parts[static_cast<std::size_t>(peer)] = {staging, nullptr};
    parts[static_cast<std::size_t>(job_.group->self)] = {job_.source, nullptr};
    reduce_range(job_.by, job_.target, contiguous_block(job_.count), 0, job_.count, parts.data(), 2);
  }

 private:
  /// One piece of every share on its way.
  struct pipeline_slot {
    std::int64_t piece = 0;
    int contributions = 0;  // still to arrive before this rank's piece can be reduced
    int open = 0;           // requests that have not ended
  };

  enum stage : int { contribution_in, contribution_out, result_in, result_out };

  [[nodiscard]] std::int64_t piece_elements() const {
    return std::max<std::int64_t>(options_->piece_bytes / size_of(job_.by.type), 1);
  }

  /// Elements of a share in piece `piece`.
  [[nodiscard]] std::int64_t piece_length(std::int64_t elements, std::int64_t piece) const {
    const std::int64_t most = piece_elements();
    return std::clamp<std::int64_t>(elements - piece * most, 0, most);
  }

  [[nodiscard]] std::byte* slot_memory(std::byte* staging, int slot, int k) const {
    return staging + (std::int64_t{slot} * job_.members() + k) * piece_elements() * size_of(job_.by.type);
  }

  [[nodiscard]] std::size_t place_of(int slot, stage phase, int k) const {
    return static_cast<std::size_t>((slot * 4 + phase) * job_.members() + k);
  }

  [[nodiscard]] std::int64_t piece_count() const {
    std::int64_t longest = job_.own().elements();
    for (int k = 0; k < job_.members(); ++k) longest = std::max(longest, job_.share_of(k).elements());
    return (longest + piece_elements() - 1) / piece_elements();
  }

  /// Starts piece `piece` in a slot; goes on to the slot's next pieces when this one needs no message.
  void start_piece(int slot, std::int64_t piece, std::int64_t pieces) {
    for (; piece < pieces; piece += options_->window) {
      pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
      state = {piece, 0, 0};
      receive_contributions(slot);
      send_contributions(slot);
      if (state.contributions == 0) reduce_piece(slot);
      if (state.open > 0) return;
    }
  }

  void receive_contributions(int slot) {
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    const std::int64_t length = piece_length(job_.own().elements(), state.piece);
    if (length == 0) return;
    std::byte* staging = memory_->incoming.reserve(0);
    for_each_peer(*job_.group, [&](std::size_t k, int rank) {
      const int member = static_cast<int>(k);
      messages_->receive(place_of(slot, contribution_in, member), slot_memory(staging, slot, member),
                         length * size_of(job_.by.type), rank, messages_->tag(rank, 0, slot));
      ++state.contributions;
      ++state.open;
    });
  }

  void send_contributions(int slot) {
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    const std::int64_t element = size_of(job_.by.type);
    const std::int64_t first = state.piece * piece_elements();
    for_each_peer(*job_.group, [&](std::size_t k, int rank) {
      const int member = static_cast<int>(k);
      const block share = job_.share_of(member);
      const std::int64_t length = piece_length(share.elements(), state.piece);
      if (length == 0) return;
      const std::int64_t start = contiguous_source(share, first, length);
      const std::byte* data = job_.source + start * element;
      if (start < 0) {
        std::byte* packed = slot_memory(memory_->outgoing.reserve(0), slot, member);
        pack_range(job_.by.type, packed, job_.source, share, first, length);
        data = packed;
      }
      messages_->send(place_of(slot, contribution_out, member), data, length * element, rank,
                      messages_->tag(rank, 0, slot));
      ++state.open;
    });
  }

  void reduce_piece(int slot) {
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    const block own = job_.own();
    const std::int64_t element = size_of(job_.by.type);
    const std::int64_t first = state.piece * piece_elements();
    const std::int64_t length = piece_length(own.elements(), state.piece);
    if (length == 0) return;
    memory_->parts.resize(job_.group->members.size());
    std::byte* staging = memory_->incoming.reserve(0);
    for (int k = 0; k < job_.members(); ++k) {
      memory_->parts[static_cast<std::size_t>(k)] = {slot_memory(staging, slot, k), nullptr};
    }
    memory_->parts[static_cast<std::size_t>(job_.group->self)] = {job_.source, &own};
    reduce_range(job_.by, job_.target, own, first, length, memory_->parts.data(), job_.members());
    if (!job_.gathers()) return;
    const std::byte* result = job_.target + (own.target_offset + first) * element;
    for_each_peer(*job_.group, [&](std::size_t k, int rank) {
      const std::size_t place = place_of(slot, result_out, static_cast<int>(k));
      messages_->send(place, result, length * element, rank, messages_->tag(rank, 1, slot));
      ++state.open;
    });
  }

  /// Member k has this rank's contribution to its piece: its result can come, into the same place of the target. Not
  /// asked for earlier: in place, that memory was still being sent.
  void receive_result(int slot, int k) {
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    const block share = job_.share_of(k);
    const std::int64_t length = piece_length(share.elements(), state.piece);
    const std::int64_t first = share.target_offset + state.piece * piece_elements();
    const int rank = job_.group->members[static_cast<std::size_t>(k)];
    messages_->receive(place_of(slot, result_in, k), job_.target + first * size_of(job_.by.type),
                       length * size_of(job_.by.type), rank, messages_->tag(rank, 1, slot));
    ++state.open;
  }

  void advance(std::size_t place, std::int64_t pieces) {
    const int k = static_cast<int>(place) % job_.members();
    const int slot = static_cast<int>(place) / job_.members() / 4;
    const auto phase = static_cast<stage>(static_cast<int>(place) / job_.members() % 4);
    pipeline_slot& state = slots_[static_cast<std::size_t>(slot)];
    if (phase == contribution_in && --state.contributions == 0) reduce_piece(slot);
    if (phase == contribution_out && job_.gathers()) receive_result(slot, k);
    if (--state.open == 0) start_piece(slot, state.piece + options_->window, pieces);
  }

  mpi_messages* messages_;
  operation_memory* memory_;
  const mpi_options* options_;
  reduce_job job_;
  std::array<pipeline_slot, max_window> slots_;
};

}  // namespace espalier::comm::detail
