// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/streaming.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace espalier::comm::host {

using espalier::detail::finish_streaming;
using espalier::detail::line_bytes;
using espalier::detail::store;
using espalier::detail::stream_line;
using espalier::detail::to_next_line;

/// `to` and `from` may overlap where the store is cached.
inline void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, store how = store::cached) {
  if (bytes <= 0 || to == from) return;
  if (how == store::cached) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  espalier::detail::stream_bytes(to, from, bytes);
}

}  // namespace espalier::comm::host
