// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/comm/host/call_frame.hpp>
#include <espalier/comm/host/endpoint.hpp>
#include <espalier/comm/host/space.hpp>

#include <cstddef>
#include <cstdint>

namespace espalier::comm::host {

/// All ranks tell each other where their buffers can be reached: afterwards `self.places` has it. Returns whether
/// others can reach this rank's source.
template <SharedSpace Space>
bool exchange_places(endpoint<Space>& self, const call_tag& tag, const call_buffers& buffers) {
  buffer_places mine{};
  mine.input = self.expose(buffers.source, self.flows.total());
  if (self.flows.receives()) mine.output = self.expose(buffers.output, self.flows.total());
  mine.in_place = self.flows.in_output() ? 1 : 0;
  // The smallest tier's lines: no call that comes here has its chunks there.
  word_exchange<Space>(self, tag, 0).run(mine, "places of buffers", [&](int r, const buffer_places& theirs) {
    self.places[static_cast<std::size_t>(r)] = theirs;
  });
  return mine.input.how != reach::staged;
}

/// An all-reduce in which every rank reaches all buffers in place: each reduces its share of all inputs into all
/// outputs. `stores`: how results are written. @pre `exchange_places` has been called
template <SharedSpace Space> void reduce_in_place(endpoint<Space>& self, const call_buffers& buffers, store stores) {
  const std::int64_t count = self.flows.total() / buffers.element;
  const std::int64_t grain = espalier::detail::larger_of<std::int64_t>(1, 4096 / buffers.element);
  const std::int64_t share = ((count + self.size - 1) / self.size + grain - 1) / grain * grain;
  const std::int64_t begin = espalier::detail::smaller_of(count, share * self.rank);
  for (int r = 0; r < self.size; ++r) {
    const auto k = static_cast<std::size_t>(r);
    const bool own = r == self.rank;
    const std::byte* const input = own ? buffers.source : self.space->direct(r, self.places[k].input);
    std::byte* const output = own ? buffers.output : self.space->direct(r, self.places[k].output);
    self.parts[k] = input + begin * buffers.element;
    self.targets[k] = output + begin * buffers.element;
  }
  self.fold({self.targets.data(), self.size, self.parts.data(), self.size,
             espalier::detail::smaller_of(count - begin, share), stores});
}

}  // namespace espalier::comm::host
