// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/comm/host/call_frame.hpp>
#include <espalier/comm/host/copy.hpp>
#include <espalier/comm/host/endpoint.hpp>
#include <espalier/comm/host/shape.hpp>
#include <espalier/comm/host/space.hpp>
#include <espalier/comm/host/traffic.hpp>

#include <cstddef>
#include <cstdint>

namespace espalier::comm::host {

/// Each rank reduces its share of every chunk, and publishes the result for all: for reductions among many ranks, where
/// each would otherwise read all contributions.
///
/// No rank says which chunks it has read. It publishes its chunk k only after it has reduced its share of k - 1 and
/// read all results of k - 2, and every rank waits for every other's chunk k. So two rooms for each are enough.
template <SharedSpace Space> class split_protocol {
 public:
  /// `places_known`: the ranks have told each other where their buffers are.
  split_protocol(endpoint<Space>& self, const call_tag& tag, const call_buffers& buffers, bool places_known)
      : self_(&self),
        buffers_(&buffers),
        shares_(split_shape_of(self.layout, self.how, self.flows.total(), self.size, buffers.element)),
        frame_(self, tag, [&] { return shape_in(self.layout, shares_.rounds); }),
        places_known_(places_known),
        exposed_(places_known && self.places[static_cast<std::size_t>(self.rank)].input.how != reach::staged) {}

  /// Returns the number of rounds.
  std::int64_t run() {
    frame_.await_room();
    if (!exposed_) self_->writer.begin(shares_.rounds);
    for (std::int64_t round = 0; round < shares_.rounds; ++round) {
      contribute(round);
      reduce_share(round);
      if (round > 0 && flows().receives()) collect(round - 1);
    }
    if (flows().receives()) collect(shares_.rounds - 1);
    return shares_.rounds;
  }

 private:
  [[nodiscard]] const traffic& flows() const { return self_->flows; }
  [[nodiscard]] int rank() const { return self_->rank; }
  [[nodiscard]] int size() const { return self_->size; }
  static shape shape_in(const region_layout& layout, std::int64_t rounds) {
    shape cut;
    cut.of = &layout.of(region_layout::tiers - 1);
    cut.rounds = rounds;
    return cut;
  }

  void contribute(std::int64_t round) {
    const std::int64_t begin = round * shares_.chunk;
    if (!exposed_) {
      self_->writer.write(frame_.data(rank(), 0) + shares_.room(round), buffers_->source + begin, shares_.length(round),
                          round);
    }
    frame_.raise(frame_.line(rank(), round % 2), round);
  }

  /// Waits for a rank's contribution to this rank's share of a chunk. Returns where it can be read.
  const std::byte* await_contribution(int source, std::int64_t round, const flow& share) {
    frame_.await(frame_.line(source, round % 2), round, source, "data");
    const std::int64_t begin = round * shares_.chunk + share.at;
    const exposed& place = self_->places[static_cast<std::size_t>(source)].input;
    const reach how = places_known_ ? place.how : reach::staged;
    if (how == reach::direct) return self_->space->direct(source, place) + begin;
    if (how == reach::kernel && share.bytes > 0) {
      std::byte* const here = self_->tile(source, share.bytes);
      self_->fetch(source, begin, here, share.bytes);
      return here;
    }
    return frame_.data(source, 0) + shares_.room(round) + share.at;
  }

  void reduce_share(std::int64_t round) {
    const flow share = shares_.part(round, rank());
    const std::int64_t begin = round * shares_.chunk + share.at;
    for (int s = 0; s < size(); ++s) {
      self_->parts[static_cast<std::size_t>(s)] =
          s == rank() ? buffers_->source + begin : await_contribution(s, round, share);
    }
    std::byte* const room = frame_.data(rank(), 0) + shares_.result(round);
    if (share.bytes > 0) {
      const bool only_mine = flows().operation() == collective::reduce && flows().receives();
      std::byte* const target = only_mine ? buffers_->output + begin : room;
      self_->fold({&target, 1, self_->parts.data(), size(), share.bytes / buffers_->element, store::cached});
      if (flows().receives() && !only_mine) copy_bytes(buffers_->output + begin, room, share.bytes, buffers_->stores);
    }
    frame_.raise(frame_.line(rank(), 2 + round % 2), round);
  }

  void collect(std::int64_t round) {
    for (int k = 1; k < size(); ++k) {
      const int s = rank() + k < size() ? rank() + k : rank() + k - size();
      frame_.await(frame_.line(s, 2 + round % 2), round, s, "results");
      const flow share = shares_.part(round, s);
      copy_bytes(buffers_->output + round * shares_.chunk + share.at, frame_.data(s, 0) + shares_.result(round),
                 share.bytes, buffers_->stores);
    }
  }

  endpoint<Space>* self_;
  const call_buffers* buffers_;
  split_shape shares_;
  call_frame<Space> frame_;
  bool places_known_;
  bool exposed_;  // this rank's source is read in place
};

}  // namespace espalier::comm::host
