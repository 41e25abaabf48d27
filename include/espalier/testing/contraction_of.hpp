// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/contraction/problem.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace espalier::kernels {

/// Reads "bsm,mnd->bsnd" with the shapes of both operands, for tests and for calls by hand.
/// An inconsistent text gives a contraction that `is_valid` refuses.
[[nodiscard]] constexpr contraction contraction_of(std::string_view text, std::initializer_list<std::int64_t> shape_a,
                                                   std::initializer_list<std::int64_t> shape_b) {
  contraction p;
  char names[contraction::max_labels] = {};
  const auto bad = [] {
    contraction none;
    none.label_count = -1;
    return none;
  };
  const auto read = [&](std::string_view part, const std::int64_t* shape, int& rank, signed char* dims) {
    for (const char name : part) {
      int label = 0;
      while (label < p.label_count && names[label] != name) ++label;
      if (rank == contraction::max_rank || label == contraction::max_labels) return false;
      if (label == p.label_count) {
        if (shape == nullptr) return false;
        names[p.label_count++] = name;
        p.extent[label] = shape[rank];
      }
      if (shape != nullptr && p.extent[label] != shape[rank]) return false;
      dims[rank++] = static_cast<signed char>(label);
    }
    return true;
  };
  const std::size_t comma = text.find(',');
  const std::size_t arrow = text.find("->");
  if (comma == std::string_view::npos || arrow == std::string_view::npos || comma > arrow) return bad();
  if (comma != shape_a.size() || arrow - comma - 1 != shape_b.size()) return bad();
  if (!read(text.substr(0, comma), shape_a.begin(), p.rank_a, p.a)) return bad();
  if (!read(text.substr(comma + 1, arrow - comma - 1), shape_b.begin(), p.rank_b, p.b)) return bad();
  if (!read(text.substr(arrow + 2), nullptr, p.rank_c, p.c)) return bad();
  return p;
}

}  // namespace espalier::kernels
