// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

namespace espalier::detail {

/// Moves an instruction that is inside a region without belonging to it before that region.
class region_arrangement {
 public:
  /// Both are put in order by `run`: the instructions of a program, and what goes with each.
  constexpr region_arrangement(graph& program, list<int>& origin)
      : program_(program),
        origin_(origin),
        head_(program.code.size() + 1, -1),
        next_(program.code.size(), -1),
        regions_(program),
        edit_(static_cast<graph&&>(program)) {}

  constexpr void run() {
    const int size = edit_.size();
    for (int id = size - 1; id >= 0; --id) {
      const instruction& i = edit_[id];
      int& head = head_[i.region < 0 ? size : i.region];
      next_[id] = head;
      head = id;
    }
    int cursor = head_[size];
    arrange(cursor, size);
    list<int> origin;
    origin.reserve(size);
    for (const int id : edit_.order()) origin.push_back(origin_[id]);
    origin_ = static_cast<list<int>&&>(origin);
    program_ = edit_.finish();
  }

 private:
  constexpr void arrange(int& cursor, int last) {
    while (cursor >= 0 && cursor < last) {
      const int id = cursor;
      cursor = next_[id];
      if (structure_of(edit_[id]) == structure::region_begin) {
        arrange(cursor, regions_.beginning_at(id).last);
        edit_.place(id);
        int body = head_[id];
        arrange(body, edit_.size());
      } else {
        edit_.place(id);
      }
    }
  }

  graph& program_;
  list<int>& origin_;
  /// The first instruction of each region (the last entry: outside of all), and the one that follows each.
  list<int> head_;
  list<int> next_;
  region_table regions_;
  graph_editor edit_;
};

}  // namespace espalier::detail
