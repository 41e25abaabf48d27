// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/memory_outline.hpp>

namespace espalier::detail {

/// The sets of values that share a buffer, as they are found value by value.
struct shared_buffers {
  constexpr explicit shared_buffers(int values)
      : root(values, -1), within(values), copied(values, false), sharer(values, -1), next_sharer(values, -1) {}

  /// Gives the value a buffer of its own.
  constexpr void own(int id) {
    root[id] = id;
    within[id].space = memory_space::arena;
  }
  /// Puts the value where another one is.
  constexpr void share(int id, int with) {
    within[id] = within[with];
    follow(id, root[with]);
  }
  /// Lists `id` among those that share the buffer of `owner` (which may be none).
  constexpr void follow(int id, int owner) {
    root[id] = owner;
    if (owner < 0) return;
    next_sharer[id] = sharer[owner];
    sharer[owner] = id;
  }
  /// Each iteration of `loop` has its own slice, of so many bytes, of the value whose buffer `id` shares.
  constexpr void slice(int id, int of, int region, std::int64_t bytes) {
    location& where = within[id];
    where.outer = where.region >= 0 ? of : -1;
    where.region = region;
    where.stride = bytes;
  }
  /// Whether the value is in the arena, at an address that no loop moves.
  [[nodiscard]] constexpr bool is_plain(int value) const {
    return within[value].space == memory_space::arena && within[value].region < 0;
  }

  /// See `memory_outline`.
  list<int> root;
  list<location> within;
  list<bool> copied;
  /// One of the values that share the buffer of a root; `next_sharer` links to the others.
  list<int> sharer;
  list<int> next_sharer;
};

}  // namespace espalier::detail
