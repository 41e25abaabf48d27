// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/layout.hpp>

namespace espalier::comm {

/// The same copy with as few and as long dimensions as possible: unit dimensions dropped, dimensions merged where both
/// sides continue. Fewer dimensions make longer inner runs, which is all the speed a copy has.
/// @post `collapsed(b).elements() == b.elements()`
[[nodiscard]] constexpr block collapsed(const block& box) {
  if (box.empty()) return empty_block();
  block result = contiguous_block(1, box.source_offset, box.target_offset);
  int place = block_rank;  // dimensions [place, block_rank) of the result are filled
  for (int from = block_rank - 1; from >= 0; --from) {
    if (box.extent[from] == 1) continue;
    const bool continues = place < block_rank &&
                           box.source_stride[from] == result.extent[place] * result.source_stride[place] &&
                           box.target_stride[from] == result.extent[place] * result.target_stride[place];
    if (continues) {
      result.extent[place] *= box.extent[from];
      continue;
    }
    --place;
    result.extent[place] = box.extent[from];
    result.source_stride[place] = box.source_stride[from];
    result.target_stride[place] = box.target_stride[from];
  }
  return result;
}

}  // namespace espalier::comm
