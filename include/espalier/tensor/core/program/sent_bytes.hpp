// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/program.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace espalier::detail {

/// `Program::sent_bytes_of` as constants, each from an evaluation of its own: a program that prints them would else
/// bring the code that works them out.
template <class Program> class sent_bytes_table {
  static constexpr int size = Program::code.size;

  struct collective_list {
    int count = 0;
    int id[size]{};
  };
  static constexpr collective_list moving = [] {
    collective_list all;
    for (int id = 0; id < size; ++id) {
      if (communicates(Program::code.code[id])) all.id[all.count++] = id;
    }
    return all;
  }();
  template <int N> static constexpr std::int64_t sent = Program::sent_bytes_of(moving.id[N]);

  struct table {
    std::int64_t of[size]{};
  };
  template <std::size_t... N> [[nodiscard]] static constexpr table make(std::index_sequence<N...> /*collectives*/) {
    const std::int64_t each[]{sent<static_cast<int>(N)>..., 0};
    table result;
    for (int n = 0; n < moving.count; ++n) result.of[moving.id[n]] = each[n];
    return result;
  }

 public:
  /// The bytes of each instruction; 0 if it is no collective.
  static constexpr table value = make(std::make_index_sequence<static_cast<std::size_t>(moving.count)>{});
};

}  // namespace espalier::detail
