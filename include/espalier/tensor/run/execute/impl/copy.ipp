// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How arrays are copied: the compiled half of copy.hpp.
#include <espalier/tensor/run/execute/copy.hpp>

#include <cstddef>
#include <cstring>

namespace espalier::detail {

ESPALIER_INLINE void detach(any_array& array) {
  array.require_unspent();
  for (shared_buffer& shard : array_memory::shards(array)) {
    const shared_buffer own(shard.bytes());
    std::memcpy(own.data(), shard.data(), static_cast<std::size_t>(shard.bytes()));
    shard = own;
  }
  array_memory::handle(array).own_memory();
}

}  // namespace espalier::detail
