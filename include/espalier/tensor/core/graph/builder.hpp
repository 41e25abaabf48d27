// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/failure.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>

namespace espalier {

struct loop_reversal;
struct gradient_context;

namespace detail {
/// The call of an op with a gradient of the user's by a region that is by hand along the axes `own` of a mesh.
struct call_by_hand {
  const mesh_shape* mesh = nullptr;
  axis_mask own = 0;
  /// The attributes that the op had in the region.
  std::int64_t before[3]{};
  /// Of each operand, the axes that it has leading dimensions of.
  list<axis_mask> lead;
};
}  // namespace detail

/// Appends instructions to a graph: used by tracing, by gradients and by tests that make graphs at run time.
class builder {
 public:
  [[nodiscard]] constexpr const graph& result() const { return graph_; }
  [[nodiscard]] constexpr graph& result() { return graph_; }
  [[nodiscard]] constexpr const instruction& operator[](int id) const { return graph_.code[id]; }
  [[nodiscard]] constexpr instruction& operator[](int id) { return graph_.code[id]; }
  [[nodiscard]] constexpr int size() const { return graph_.code.size(); }
  [[nodiscard]] constexpr op_view view(int id) const {
    return {graph_.code.data(), id, graph_.windows.data(), graph_.further.data()};
  }
  /// Returns the instruction that is operand k of another one.
  [[nodiscard]] constexpr int operand_at(const instruction& i, int k) const {
    return i.operand_at(k, graph_.further.data());
  }

  /// The innermost loop being traced (-1 outside): what is appended belongs to it.
  int region = -1;
  /// The source line of instructions that are appended.
  source_line where;
  /// True while user-visible lines stay at `where`: library functions that stand for one line of the user's set it.
  bool line_is_pinned = false;
  /// The calls of helper functions that have said so (`called_from`); the last field of each is the call around it.
  detail::list<source_line> callers;
  /// One more than the place of the innermost of these that goes on, or 0.
  int caller = 0;
  /// One more than the `dtype` that the program's sums travel in, or 0 if none is chosen (ops/argument.hpp).
  int sums_travel_as = 0;
  /// The first op that was to be differentiated and has no rule, or -1.
  int without_gradient = -1;
  /// The gradient of an op that calls functions of the user, in a program that maps one (program/map_over.hpp).
  void (*gradient_over_lanes)(gradient_context&) = nullptr;
  /// The same of one that is called by a region by hand (program/manual/mapping.hpp), and these calls.
  void (*gradient_by_hand)(gradient_context&) = nullptr;
  detail::list<detail::call_by_hand> calls_by_hand;
  /// The first mistake whose type could not travel on, and where it was made.
  const detail::reason_id* mistake = nullptr;
  mistake_place mistake_where;

  /// Notes a mistake by value: where a tensor was replaced by one, as in `h = shard<...>(h)`, nothing else is left.
  template <class Reason> constexpr void note(const failed<Reason>& made) {
    if (mistake != nullptr) return;
    mistake = &detail::noted_reason<Reason>::id;
    mistake_where = made.where;
  }

  constexpr void at(source_line line) {
    if (line_is_pinned) return;
    where = line;
    if (line.caller == 0) where.caller = caller;
  }

  /// A new instruction, or one of this graph once more.
  constexpr int append(instruction made) {
    if (made.operand_count > inline_operands) {
      detail::list<int> operands;
      for (int k = 0; k < made.operand_count; ++k) operands.push_back(operand_at(made, k));
      return append(made, operands.data(), operands.size());
    }
    made.where = where;
    made.region = region;
    for (int k = 0; k < made.operand_count; ++k) made.operand[k] = available(made.operand[k]);
    return graph_.code.push_back(made);
  }
  /// An instruction with any number of operands.
  constexpr int append(instruction made, const int* operands, int count) {
    made.where = where;
    made.region = region;
    made.operand_count = count;
    for (int k = 0; k < count && k < inline_operands; ++k) made.operand[k] = available(operands[k]);
    made.further = -1;
    if (count > inline_operands) {
      // The instructions that make an operand available may have many operands themselves.
      detail::list<int> beyond;
      for (int k = inline_operands; k < count; ++k) beyond.push_back(available(operands[k]));
      made.further = graph_.further.size();
      for (const int operand : beyond) graph_.further.push_back(operand);
    }
    return graph_.code.push_back(made);
  }

  /// An instruction with up to four operands.
  constexpr int append(const op_info& op, dtype type, const extents& shape, int a = -1, int b = -1, int c = -1,
                       int d = -1) {
    return append(make(op, type, shape, a, b, c, d));
  }

  [[nodiscard]] static constexpr instruction make(const op_info& op, dtype type, const extents& shape, int a = -1,
                                                  int b = -1, int c = -1, int d = -1) {
    instruction made;
    made.op = &op;
    made.type = type;
    made.shape = shape;
    made.operand[0] = a;
    made.operand[1] = b;
    made.operand[2] = c;
    made.operand[3] = d;
    made.operand_count = (a >= 0 ? 1 : 0) + (b >= 0 ? 1 : 0) + (c >= 0 ? 1 : 0) + (d >= 0 ? 1 : 0);
    return made;
  }

  /// Notes how the user wants a tensor of this shape placed; the index goes into `instruction::annotation`.
  constexpr int annotate(const extents& shape, const sharding& placement, int priority = 0) {
    return graph_.annotations.push_back({shape, placement, false, static_cast<std::uint8_t>(priority)});
  }

  /// Puts windows into the graph's table and returns where the first of them is. Equal ones share a place, so that
  /// equal instructions have equal attributes.
  constexpr int add_windows(const placed_window* windows, int count) {
    detail::list<placed_window>& all = graph_.windows;
    for (int at = 0; at + count <= all.size(); ++at) {
      int same = 0;
      while (same < count && all[at + same] == windows[same]) ++same;
      if (same == count) return at;
    }
    const int first = all.size();
    for (int n = 0; n < count; ++n) all.push_back(windows[n]);
    return first;
  }

  /// The function that finds values of the forward body while a reverse loop is built: see ops/scan.hpp.
  using substitution = int (*)(builder&, loop_reversal&, int);
  constexpr void substitute(substitution function, loop_reversal* state) {
    substitution_ = function;
    substitution_state_ = state;
  }
  [[nodiscard]] constexpr substitution substitution_function() const { return substitution_; }
  [[nodiscard]] constexpr loop_reversal* substitution_state() const { return substitution_state_; }

 private:
  [[nodiscard]] constexpr int available(int id) {
    return substitution_ == nullptr ? id : substitution_(*this, *substitution_state_, id);
  }

  graph graph_;
  substitution substitution_ = nullptr;
  loop_reversal* substitution_state_ = nullptr;
};

/// Keeps the user's own line on everything appended while it lives.
class pinned_line {
 public:
  constexpr pinned_line(builder& target, source_line line)
      : target_(target), line_(target.where), pinned_(target.line_is_pinned) {
    target_.at(line);
    target_.line_is_pinned = true;
  }
  constexpr ~pinned_line() {
    target_.where = line_;
    target_.line_is_pinned = pinned_;
  }
  pinned_line(const pinned_line&) = delete;
  pinned_line& operator=(const pinned_line&) = delete;

 private:
  builder& target_;
  source_line line_;
  bool pinned_;
};

/// The argument of an op's gradient rule: the op, the cotangent of its result, and a place for the cotangents of its
/// operands.
struct gradient_context {
  builder& emit;
  int id = 0;
  int cotangent = 0;
  /// The cotangents of the results after the first, for an op with several: -1 if nothing flows back to one of them.
  /// (If nothing flows back to the first, its cotangent is zero.)
  const int* further_result_cotangent = nullptr;
  /// The cotangents of the first operands, and those of the further ones, up to the last that has one.
  int operand_cotangent[inline_operands]{-1, -1, -1, -1};
  detail::list<int> further_cotangent{};

  [[nodiscard]] constexpr const instruction& self() const { return emit[id]; }
  [[nodiscard]] constexpr int operand(int k) const {
    return k < inline_operands ? emit[id].operand[k] : emit.operand_at(emit[id], k);
  }
  constexpr void give(int k, int value) {
    if (k < inline_operands) {
      operand_cotangent[k] = value;
      return;
    }
    while (further_cotangent.size() <= k - inline_operands) further_cotangent.push_back(-1);
    further_cotangent[k - inline_operands] = value;
  }
  /// Returns the value that `give` got for operand k, or -1.
  [[nodiscard]] constexpr int cotangent_of(int k) const {
    if (k < inline_operands) return operand_cotangent[k];
    return k - inline_operands < further_cotangent.size() ? further_cotangent[k - inline_operands] : -1;
  }
};

}  // namespace espalier
