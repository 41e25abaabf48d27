// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace espalier::comm::host {

/// Bytes from one rank to another, and where they begin: in the sender's source, or in the receiver's target.
struct flow {
  std::int64_t bytes = 0;
  std::int64_t at = 0;
};

/// The bytes that one rank sends to and gets from each other rank in a call. Allocates only when it is constructed.
class traffic {
 public:
  traffic(int ranks, int rank)
      : ranks_(ranks), rank_(rank), to_(static_cast<std::size_t>(ranks)), from_(static_cast<std::size_t>(ranks)) {}

  /// Errors: std::invalid_argument where the call contradicts itself.
  void set(const collective_call& call, std::int64_t element) {
    require_sound(call);
    operation_ = call.kind;
    root_ = call.root;
    const bool is_root = rank_ == root_;
    common_ = false;
    fan_ = 1;
    in_output_ = call.in_place && (is_root || !has_root(operation_));
    own_ = {};
    own_target_ = 0;
    const bool to_blocks = facts_of(operation_).after == array_share::block;
    switch (facts_of(operation_).before) {
      case array_share::whole_at_root:
        return to_blocks ? set_scatters(call, element, is_root) : set_broadcast(call.counts[0] * element, is_root);
      case array_share::whole:
        return to_blocks ? set_scatters(call, element, is_root) : set_whole(call.counts[0] * element, is_root);
      case array_share::block: return set_gathers(call, element, is_root);
      case array_share::cells: return set_exchange(call, element);
      case array_share::none: break;  // refused above
    }
  }

  [[nodiscard]] collective operation() const { return operation_; }
  [[nodiscard]] int root() const { return root_; }
  [[nodiscard]] bool folds() const { return reduces(operation_); }
  /// True if this rank's contribution is where its result is written.
  [[nodiscard]] bool in_output() const { return in_output_; }
  /// True if all readers get the same bytes of a source.
  [[nodiscard]] bool common() const { return common_; }
  /// Slots that a source needs for one chunk to each of its readers.
  [[nodiscard]] int fan() const { return fan_; }
  [[nodiscard]] int slot(int source, int reader) const { return fan_ == 1 ? 0 : reader < source ? reader : reader - 1; }
  [[nodiscard]] bool sends() const { return sends_; }
  [[nodiscard]] bool receives() const { return receives_; }
  [[nodiscard]] const flow& to(int rank) const { return to_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const flow& from(int rank) const { return from_[static_cast<std::size_t>(rank)]; }
  /// The rank's contribution to its own result.
  [[nodiscard]] const flow& own() const { return own_; }
  [[nodiscard]] std::int64_t own_target() const { return own_target_; }
  /// The largest flow of any two ranks, own ones included.
  [[nodiscard]] std::int64_t most() const { return most_; }
  /// Bytes of the array that the call is about.
  [[nodiscard]] std::int64_t total() const { return total_; }

 private:
  void require_sound(const collective_call& call) const {
    if (call.ranks != ranks_) {
      throw std::invalid_argument(
          espalier::detail::joined({"a call for ", call.ranks, " ranks on a communicator of ", ranks_}));
    }
    if (!has_schedules(call.kind)) throw std::invalid_argument("this kind of collective has no schedules");
    if (has_root(call.kind) && (call.root < 0 || call.root >= ranks_)) {
      throw std::invalid_argument("the root of a collective must be one of its ranks");
    }
    const auto n = static_cast<std::size_t>(ranks_);
    if (call.counts.size() != (has_cells(call.kind) ? n * n : has_blocks(call.kind) ? n : 1)) {
      throw std::invalid_argument(
          "counts of a collective: one for the whole array, one per rank for blocks, ranks x ranks for all-to-all");
    }
    for (const std::int64_t count : call.counts) {
      if (count < 0) throw std::invalid_argument("a count of a collective is negative");
    }
  }

  void set_broadcast(std::int64_t bytes, bool is_root) {
    common_ = true;
    most_ = total_ = bytes;
    sends_ = is_root && ranks_ > 1;
    receives_ = !is_root;
    if (is_root && !in_output_) own_ = {bytes, 0};
    for (int r = 0; r < ranks_; ++r) { set_pair(r, {is_root ? bytes : 0, 0}, {!is_root && r == root_ ? bytes : 0, 0}); }
  }

  void set_whole(std::int64_t bytes, bool is_root) {
    const bool all = operation_ == collective::all_reduce;
    common_ = true;
    most_ = total_ = bytes;
    receives_ = all || is_root;
    sends_ = all || !is_root;
    own_ = {receives_ ? bytes : 0, 0};
    for (int r = 0; r < ranks_; ++r) { set_pair(r, {sends_ ? bytes : 0, 0}, {receives_ ? bytes : 0, 0}); }
  }

  void set_gathers(const collective_call& call, std::int64_t element, bool is_root) {
    const bool all = operation_ == collective::all_gather;
    common_ = all;
    receives_ = all || is_root;
    sends_ = all || !is_root;
    const std::int64_t mine = call.counts[static_cast<std::size_t>(rank_)] * element;
    std::int64_t at = 0;
    most_ = 0;
    for (int r = 0; r < ranks_; ++r) {
      const std::int64_t bytes = call.counts[static_cast<std::size_t>(r)] * element;
      set_pair(r, {all || (!is_root && r == root_) ? mine : 0, 0}, {receives_ ? bytes : 0, at});
      if (r == rank_) own_target_ = at;
      at += bytes;
      most_ = espalier::detail::larger_of(most_, bytes);
    }
    total_ = at;
    if (receives_ && !in_output_) own_ = {mine, 0};
    if (!in_output_) return;
    // In place, a block is already at its position.
    for (flow& f : to_) f.at = own_target_;
  }

  void set_scatters(const collective_call& call, std::int64_t element, bool is_root) {
    const bool all = operation_ == collective::reduce_scatter;
    fan_ = espalier::detail::larger_of(1, ranks_ - 1);
    sends_ = all || is_root;
    receives_ = all || !is_root;
    const std::int64_t mine = call.counts[static_cast<std::size_t>(rank_)] * element;
    std::int64_t at = 0;
    most_ = 0;
    for (int r = 0; r < ranks_; ++r) {
      const std::int64_t bytes = call.counts[static_cast<std::size_t>(r)] * element;
      set_pair(r, {sends_ ? bytes : 0, at}, {all || (!is_root && r == root_) ? mine : 0, 0});
      // A scatter's root in place keeps its block in the input.
      if (r == rank_ && (all || (is_root && !in_output_))) own_ = {bytes, at};
      at += bytes;
      most_ = espalier::detail::larger_of(most_, bytes);
    }
    total_ = at;
    if (operation_ == collective::scatter) in_output_ = false;
  }

  void set_exchange(const collective_call& call, std::int64_t element) {
    const auto n = static_cast<std::size_t>(ranks_);
    const auto me = static_cast<std::size_t>(rank_);
    fan_ = espalier::detail::larger_of(1, ranks_ - 1);
    sends_ = receives_ = true;
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (std::size_t r = 0; r < n; ++r) {
      const std::int64_t out = call.counts[me * n + r] * element;
      const std::int64_t in = call.counts[r * n + me] * element;
      set_pair(static_cast<int>(r), {out, sent}, {in, received});
      if (r == me) {
        own_ = {in_output_ ? 0 : out, sent};
        own_target_ = received;
      }
      sent += out;
      received += in;
    }
    most_ = 0;
    total_ = 0;
    for (const std::int64_t count : call.counts) {
      most_ = espalier::detail::larger_of(most_, count * element);
      total_ += count * element;
    }
    // All pairs, not just this rank's: every rank finds the same mistake, and none waits for one that left.
    for (std::size_t a = 0; in_output_ && a < n; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (call.counts[a * n + b] == call.counts[b * n + a]) continue;
        throw std::invalid_argument("all-to-all in place: two ranks must exchange equal counts");
      }
    }
  }

  void set_pair(int rank, flow to, flow from) {
    const auto r = static_cast<std::size_t>(rank);
    to_[r] = rank == rank_ ? flow{} : to;
    from_[r] = rank == rank_ ? flow{} : from;
  }

  int ranks_;
  int rank_;
  collective operation_ = collective::broadcast;
  int root_ = 0;
  bool in_output_ = false;
  bool common_ = false;
  bool sends_ = false;
  bool receives_ = false;
  int fan_ = 1;
  std::int64_t most_ = 0;
  std::int64_t total_ = 0;
  flow own_;
  std::int64_t own_target_ = 0;
  espalier::detail::plain_vector<flow> to_;
  espalier::detail::plain_vector<flow> from_;
};

}  // namespace espalier::comm::host
