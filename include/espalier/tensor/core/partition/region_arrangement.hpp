// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

namespace espalier::detail {

/// Moves an instruction that is inside a region without belonging to it before that region.
class region_arrangement {
 public:
  /// Both are put in order by `run`: the instructions of a program, and what goes with each.
  constexpr region_arrangement(graph& program, list<int>& origin)
      : code_(program.code),
        further_(program.further.data()),
        origin_(origin),
        head_(code_.size() + 1, -1),
        next_(code_.size(), -1),
        regions_(program),
        number_(code_.size(), -1) {}

  constexpr void run() {
    const int size = code_.size();
    for (int id = size - 1; id >= 0; --id) {
      const instruction& i = code_[id];
      int& head = head_[i.region < 0 ? size : i.region];
      next_[id] = head;
      head = id;
    }
    arranged_.reserve(size);
    origin_made_.reserve(size);
    int cursor = head_[size];
    arrange(cursor, size);
    code_ = static_cast<list<instruction>&&>(arranged_);
    origin_ = static_cast<list<int>&&>(origin_made_);
  }

 private:
  constexpr void arrange(int& cursor, int last) {
    while (cursor >= 0 && cursor < last) {
      const int id = cursor;
      cursor = next_[id];
      if (structure_of(code_[id]) == structure::region_begin) {
        arrange(cursor, regions_.beginning_at(id).last);
        emit(id);
        int body = head_[id];
        arrange(body, code_.size());
      } else {
        emit(id);
      }
    }
  }

  constexpr void emit(int id) {
    instruction i = code_[id];
    renumber(i, number_, further_);
    number_[id] = arranged_.push_back(i);
    origin_made_.push_back(origin_[id]);
  }

  list<instruction>& code_;
  /// The graph's table of further operands: renumbered in place.
  int* further_;
  list<int>& origin_;
  /// The first instruction of each region (the last entry: outside of all), and the one that follows each.
  list<int> head_;
  list<int> next_;
  region_table regions_;
  list<int> number_;
  list<instruction> arranged_;
  list<int> origin_made_;
};

}  // namespace espalier::detail
