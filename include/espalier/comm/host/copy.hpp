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
  const std::int64_t head = to_next_line(to, bytes);
  std::memcpy(to, from, static_cast<std::size_t>(head));
  std::int64_t done = head;
  for (; done + 4 * line_bytes <= bytes; done += 4 * line_bytes) {
    for (std::int64_t k = 0; k < 4; ++k) stream_line(to + done + k * line_bytes, from + done + k * line_bytes);
  }
  std::memcpy(to + done, from + done, static_cast<std::size_t>(bytes - done));
}

}  // namespace espalier::comm::host
