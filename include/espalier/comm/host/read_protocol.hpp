// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/host/call_frame.hpp>
#include <espalier/comm/host/endpoint.hpp>
#include <espalier/comm/host/space.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <cstddef>
#include <cstdint>

namespace espalier::comm::host {

/// Memory of another rank that this one reads: its source, or the bytes that it packed for this rank.
struct readable_memory {
  const std::byte* memory = nullptr;
  bool packed = false;
};
using readable_list = espalier::detail::plain_vector<readable_memory>;

/// The memory that a rank exposes: its source; or nothing, if it packs the bytes that others need.
struct exposed_source {
  const void* source = nullptr;
  bool packs = true;
};

/// A rank packs at most so many bytes for each other rank.
inline constexpr std::int64_t packed_room = 1024;
/// Writes the bytes that `rank` is to get.
using packer = espalier::detail::function_ref<void(int rank, std::byte* room)>;

/// All ranks tell each other where their sources are, or pack bytes of them; `readable` gets each rank's. `summary`:
/// the same on all ranks, which is verified. Returns whether all ranks pack.
template <SharedSpace Space>
[[nodiscard]] bool exchange_sources(endpoint<Space>& self, const call_tag& tag, const call_summary& summary,
                                    const exposed_source& mine, packer pack, readable_list& readable) {
  struct words {
    call_summary summary;
    const void* source;
    std::uint64_t packs;
  };
  const word_exchange<Space> exchange(self, tag, 1);
  const auto room = [&](int from, int to) {
    return exchange.data(from) + (to < from ? to : to - 1) * packed_room;  // none for itself
  };
  for (int r = 0; mine.packs && r < self.size; ++r) {
    if (r != self.rank) pack(r, room(self.rank, r));
  }
  readable.resize(static_cast<std::size_t>(self.size));
  bool all_pack = true;
  exchange.run(words{summary, mine.source, mine.packs ? 1U : 0U}, "places of buffers", [&](int r, const words& theirs) {
    if (theirs.summary != summary) self.waits.differ(r);
    all_pack = all_pack && theirs.packs != 0;
    const bool packed = r != self.rank && theirs.packs != 0;
    readable[static_cast<std::size_t>(r)] = {packed ? room(r, self.rank) : static_cast<const std::byte*>(theirs.source),
                                             packed};
  });
  return all_pack;
}

}  // namespace espalier::comm::host
