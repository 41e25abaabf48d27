// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/graph/graph.hpp>

namespace espalier {

/// A program that a pass changes. Ids are stable while it does: an instruction that is moved, changed or left out is
/// named as before, and a new one has the next free number. The pass says what comes when (`place`), and which values
/// are read instead of others (`replace`); nothing else has to know of it, since `finish` numbers everything once.
///
/// Of %0 = parameter, %1 = exp(%0), %2 = neg(%1), with %1 replaced by a new %3 = tanh(%0): `place(0)`, `place(3)`,
/// `place(2)` give %0 = parameter, %1 = tanh(%0), %2 = neg(%1).
class graph_editor {
 public:
  constexpr graph_editor() = default;
  explicit constexpr graph_editor(graph_view g) : now_(detail::copy_of(g, g.size / 8 + 16)), source_size_(g.size) {
    order_.reserve(g.size + g.size / 8 + 16);
  }
  explicit constexpr graph_editor(graph&& g) : now_(static_cast<graph&&>(g)), source_size_(now_.code.size()) {
    order_.reserve(source_size_ + 16);
  }

  /// Every instruction by its id, placed or not.
  [[nodiscard]] constexpr instruction& operator[](int id) { return now_.code[id]; }
  [[nodiscard]] constexpr const instruction& operator[](int id) const { return now_.code[id]; }
  [[nodiscard]] constexpr int size() const { return now_.code.size(); }
  /// The number of instructions that there were at first.
  [[nodiscard]] constexpr int source_size() const { return source_size_; }
  /// Operand k of an instruction, as it was written: what replaces it is found by `standing_for`.
  [[nodiscard]] constexpr int operand_at(const instruction& i, int k) const {
    return i.operand_at(k, now_.further.data());
  }
  [[nodiscard]] constexpr int& operand_at(instruction& i, int k) { return i.operand_at(k, now_.further.data()); }
  /// All instructions, placed or not: what is appended there is a new one that is not placed.
  [[nodiscard]] constexpr graph& now() { return now_; }
  [[nodiscard]] constexpr const layout& annotation(int at) const { return now_.annotations[at]; }
  constexpr int annotate(const layout& placed) { return now_.annotations.push_back(placed); }

  /// Lets instruction `id` run after all that are placed.
  constexpr int place(int id) {
    if (id != order_.size() && first_change_ < 0) first_change_ = order_.size();
    is_in_order_ = is_in_order_ && id > last_placed_;
    last_placed_ = id;
    order_.push_back(id);
    return id;
  }
  /// A new instruction, which runs after all that are placed. Operands and region are named by their ids.
  /// @param i by value: it may be one of this editor's, whose list grows
  constexpr int append(instruction i) { return place(now_.code.push_back(i)); }

  /// Whoever reads value `id`, or belongs to the region that begins there, has `by` instead.
  /// @pre `by` does not follow from `id`
  constexpr void replace(int id, int by) {
    if (stands_for_.empty()) stands_for_.resize(source_size_, -1);
    stands_for_[id] = standing_for(by);
    replaced_.push_back(id);
  }
  /// What is read where an instruction names `id`.
  [[nodiscard]] constexpr int standing_for(int id) const {
    while (id < stands_for_.size() && stands_for_[id] >= 0) id = stands_for_[id];
    return id;
  }

  /// Lets an instruction name what stands for its operands now.
  constexpr void resolve(instruction& i) {
    if (stands_for_.empty()) return;
    for (int k = 0; k < i.operand_count; ++k) {
      int& operand = i.operand_at(k, now_.further.data());
      operand = standing_for(operand);
    }
  }

  /// Takes away again what may go and nothing reads that is placed, the last first.
  /// @param may_go is given an instruction and the one that runs after it, or null
  template <class MayGo> constexpr void drop_unread(MayGo may_go) {
    detail::list<bool> is_read(now_.code.size(), false);
    int at = order_.size();
    for (int n = order_.size() - 1; n >= 0; --n) {
      const int id = order_[n];
      const instruction& i = now_.code[id];
      const instruction* const next = n + 1 < order_.size() ? &now_.code[order_[n + 1]] : nullptr;
      if (!is_read[id] && may_go(i, next)) continue;
      for (int k = 0; k < i.operand_count; ++k) is_read[standing_for(i.operand_at(k, now_.further.data()))] = true;
      order_[--at] = id;
    }
    if (at > 0 && first_change_ < 0) first_change_ = 0;
    int kept = 0;
    for (; at < order_.size(); ++at) order_[kept++] = order_[at];
    order_.resize(kept);
  }

  /// The ids of what is placed, in the order in which it runs.
  [[nodiscard]] constexpr const detail::list<int>& order() const { return order_; }

  /// The program of what is placed. Ids lose their meaning.
  /// @pre what an instruction reads is placed before it
  [[nodiscard]] constexpr graph finish() {
    const bool keeps_numbers = first_change_ < 0 && replaced_.empty();
    if (keeps_numbers && order_.size() == now_.code.size()) return static_cast<graph&&>(now_);
    detail::list<int> number(now_.code.size(), -1);
    for (int n = 0; n < order_.size(); ++n) number[order_[n]] = n;
    // What replaces a value may have been replaced after it.
    for (int n = replaced_.size() - 1; n >= 0; --n) number[replaced_[n]] = number[stands_for_[replaced_[n]]];
    // (g++ 12 loses track of what the lists own in a conditional expression.)
    if (is_in_order_ && now_.code.size() == source_size_) return closed_up(number);
    return put_in_order(number);
  }

 private:
  /// Nothing is new and nothing moved: what is placed moves up to where others were.
  [[nodiscard]] constexpr graph closed_up(const detail::list<int>& number) {
    for (int n = 0; n < order_.size(); ++n) {
      instruction& i = now_.code[n];
      if (order_[n] != n) i = now_.code[order_[n]];
      detail::renumber(i, number, now_.further.data());
    }
    now_.code.resize(order_.size());
    return static_cast<graph&&>(now_);
  }
  [[nodiscard]] constexpr graph put_in_order(const detail::list<int>& number) {
    graph made;
    made.code.reserve(order_.size());
    for (const int id : order_) {
      instruction& i = made.code[made.code.push_back(now_.code[id])];
      if (i.operand_count > inline_operands) {
        // Each has a part of the table for itself: an instruction and its copy may have shared one.
        const int* const from = now_.further.data() + i.further;
        i.further = made.further.size();
        for (int k = inline_operands; k < i.operand_count; ++k) made.further.push_back(from[k - inline_operands]);
      }
      detail::renumber(i, number, made.further.data());
    }
    made.annotations = static_cast<detail::list<layout>&&>(now_.annotations);
    made.windows = static_cast<detail::list<placed_window>&&>(now_.windows);
    return made;
  }

  graph now_;
  int source_size_ = 0;
  detail::list<int> order_;
  /// The first place where another instruction is than at first (-1: none), and whether ids only grow.
  int first_change_ = -1;
  int last_placed_ = -1;
  bool is_in_order_ = true;
  /// By id: what is read instead, or -1; empty as long as nothing is replaced.
  detail::list<int> stands_for_;
  detail::list<int> replaced_;
};

}  // namespace espalier
