// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/comm/host/call_frame.hpp>
#include <espalier/comm/host/chunk_protocol.hpp>
#include <espalier/comm/host/copy.hpp>
#include <espalier/comm/host/endpoint.hpp>
#include <espalier/comm/host/in_place_protocol.hpp>
#include <espalier/comm/host/read_protocol.hpp>
#include <espalier/comm/host/shape.hpp>
#include <espalier/comm/host/space.hpp>
#include <espalier/comm/host/split_protocol.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace espalier::comm::host {

/// One call of a collective on one rank: chooses the protocol and runs it.
template <SharedSpace Space> class array_call {
 public:
  array_call(endpoint<Space>& self, const call_tag& tag, call_buffers& buffers)
      : self_(&self), flows_(&self.flows), tag_(tag), buffers_(&buffers) {
    buffers.stores = store_of(overwrites());
  }

  [[nodiscard]] call_end run() {
    const call_end end = flows_->total() < self_->how.expose_from || !self_->space->exposes() ? small() : large();
    if (buffers_->stores == store::streaming) finish_streaming();
    return end;
  }

 private:
  [[nodiscard]] call_end chunks(source_places places, bool exposes) {
    return chunk_protocol<Space>(*self_, tag_, *buffers_, places, exposes).run();
  }

  [[nodiscard]] call_end small() {
    if (!splits()) return chunks(source_places::staged, false);
    return {false, split_protocol<Space>(*self_, tag_, *buffers_, false).run()};
  }

  /// Buffers may be read in place.
  [[nodiscard]] call_end large() {
    if (flows_->operation() == collective::all_reduce) return large_all_reduce();
    if (splits()) {
      const bool exposed_here = exchange_places(*self_, tag_, *buffers_);
      return {exposed_here, split_protocol<Space>(*self_, tag_, *buffers_, true).run()};
    }
    for (buffer_places& of : self_->places) of.input = {reach::unknown, 0};
    // A source that is overwritten while others read it has to be staged.
    return chunks(source_places::in_flags, flows_->sends() && !overwrites());
  }

  [[nodiscard]] call_end large_all_reduce() {
    const bool exposed_here = exchange_places(*self_, tag_, *buffers_);
    bool all_direct = true;
    bool any_in_place = false;
    bool safe = true;
    for (const buffer_places& of : self_->places) {
      all_direct = all_direct && of.input.how == reach::direct && of.output.how == reach::direct;
      any_in_place = any_in_place || of.in_place != 0;
      safe = safe && (of.input.how == reach::staged || of.in_place == 0);
    }
    if (all_direct) {
      buffers_->stores = store_of(any_in_place);
      reduce_in_place(*self_, *buffers_, buffers_->stores);
      return {true, 1};
    }
    // In place, only the rank that reads a piece may overwrite it: that is so where each reduces its own.
    if (splits() || !safe) return {exposed_here, split_protocol<Space>(*self_, tag_, *buffers_, true).run()};
    return chunks(source_places::known, exposed_here);
  }

  /// Whether results overwrite this rank's contribution.
  [[nodiscard]] bool overwrites() const {
    return flows_->in_output() && (flows_->folds() || flows_->operation() == collective::all_to_all);
  }
  /// Streaming pays where the bytes read and written do not fit into the last cache, and were not there before.
  [[nodiscard]] store store_of(bool in_place) const {
    return !in_place && flows_->total() * self_->size >= self_->how.stream_from ? store::streaming : store::cached;
  }
  /// Whether each rank reduces a share for all, instead of everything for itself.
  [[nodiscard]] bool splits() const {
    return flows_->common() && flows_->folds() && self_->size > 2 &&
           flows_->total() * (self_->size - 2) > self_->how.split_from;
  }

  endpoint<Space>* self_;
  const traffic* flows_;
  call_tag tag_;
  call_buffers* buffers_;
};

/// The eight collectives over memory that ranks share: the same for processes and for threads.
///
/// A source publishes its bytes chunk by chunk: in its own region, after which it raises a flag that names the call and
/// the chunk; or in place, if they can be read there. Readers copy a chunk straight to where it belongs, or reduce it
/// on the way, and mark it as read, so that its room can be used again. Nothing else is ever copied. A call uses the
/// flags and rooms of the call before it with another number, so calls follow each other without a barrier.
///
/// Contributions are always reduced in the order of ranks: results are equal to the bit on all ranks and on every run.
///
/// A call is an object of its own file's type: `chunk_protocol` for most, `split_protocol` for reductions among many
/// ranks, `reduce_in_place` where all buffers can be reached, `exchange_sources` for calls of other kinds.
template <SharedSpace Space> class engine {
 public:
  engine(Space& space, const sizes& how, std::chrono::duration<double> deadline) : self_(space, how, deadline) {}

  [[nodiscard]] static std::int64_t region_bytes(int ranks, const sizes& how) {
    return region_layout(ranks, how.region).bytes();
  }
  [[nodiscard]] const sizes& how() const { return self_.how; }

  /// Whether chunks can hold such elements.
  [[nodiscard]] bool holds(std::int64_t element_bytes) const {
    return element_bytes <= self_.layout.of(region_layout::tiers - 1).bytes / (4 * (self_.size + 1)) - 2 * line_bytes;
  }

  /// Takes part in a collective. `summary`: what its ranks have to agree on; `number`: the call's number for other
  /// readers of the ranks' notices, 0 if there are none. Errors: std::invalid_argument before anything is shared;
  /// `comm_error` when the deadline passes or other ranks are in another call: then this rank can make no other.
  void run(const collective_call& call, const call_summary& summary, std::uint64_t number, const void* input,
           void* output, const combiner& by, const context* where) {
    self_.require_whole(where);
    traffic& flows = self_.flows;
    flows.set(call, by.element_bytes);
    if (flows.folds()) self_.fold.set(by);
    call_buffers buffers;
    buffers.element = by.element_bytes;
    buffers.output = static_cast<std::byte*>(output);
    buffers.source = flows.in_output() ? buffers.output : static_cast<const std::byte*>(input);
    if (flows.total() == 0) return;
    if (self_.size == 1) {
      return copy_bytes(buffers.output + flows.own_target(), buffers.source + flows.own().at, flows.own().bytes);
    }
    self_.guarded([&] { begin_and_run(buffers, summary, number, where); });
  }

  /// Returns when all ranks have come here. `operation`: for the error of a rank that waits in vain; else as `run`.
  void meet(const char* operation, const context* where) { static_cast<void>(largest(0, operation, where)); }

  /// Returns on all ranks the largest of the numbers that they bring. Otherwise as `meet`.
  [[nodiscard]] double largest(double mine, const char* operation, const context* where) {
    self_.require_whole(where);
    if (self_.size == 1) return mine;
    double most = mine;
    self_.guarded([&] {
      const call_tag tag = self_.begin_call(~std::uint64_t{0} >> (64 - hash_bits), false, operation, where);
      word_exchange<Space>(self_, tag, 0).run(mine, "its coming", [&](int, double theirs) {
        most = espalier::detail::larger_of(most, theirs);
      });
      self_.end_call({});
    });
    return most;
  }

  using readable_list = host::readable_list;
  using exposed_source = host::exposed_source;
  using packer = host::packer;
  using memory_reader = espalier::detail::function_ref<void(const readable_list&)>;
  static constexpr std::int64_t packed_room = host::packed_room;

  /// All ranks meet, and `work(readable)` reads the memory that all of them expose to this one, for exchanges that no
  /// `collective_call` describes. This returns when no rank reads this one's source any more; without waiting, if all
  /// ranks pack. `pack(rank, room)` writes the bytes that a rank is to get. `summary`: the same on all ranks, which is
  /// verified. Errors: as above; `pack` and `work` throw nothing.
  void meet(const char* operation, const call_summary& summary, const exposed_source& mine, const context* where,
            packer pack, memory_reader work) requires Space::exposes_private_memory {
    self_.require_whole(where);
    self_.guarded([&] {
      self_.note(summary, 0);
      const call_tag tag = self_.begin_call(detail::short_fingerprint(summary), true, operation, where);
      const bool all_pack = exchange_sources(self_, tag, summary, mine, pack, readable_);
      work(readable_);
      finish_streaming();
      self_.end_call({!all_pack, 1});
    });
  }

 private:
  void begin_and_run(call_buffers& buffers, call_summary summary, std::uint64_t number, const context* where) {
    // Whether ranks look for each other's buffers depends on this.
    if (self_.space->exposes()) summary.kind |= std::uint64_t{detail::exposed_flag} << detail::flags_at;
    self_.note(summary, number);
    const call_tag tag =
        self_.begin_call(detail::short_fingerprint(summary), true, name_of(self_.flows.operation()), where);
    self_.end_call(array_call<Space>(self_, tag, buffers).run());
  }

  endpoint<Space> self_;
  readable_list readable_;
};

}  // namespace espalier::comm::host
