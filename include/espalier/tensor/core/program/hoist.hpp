// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

namespace espalier {

namespace detail {

/// Gives what does not change from one iteration of a loop to the next to whatever encloses that loop.
class hoisting {
 public:
  constexpr hoisting(list<instruction>& code, const int* further, int open_region)
      : code_(code), further_(further), open_(open_region), collected_(code.size(), false) {}

  constexpr void run() {
    for (int id = open_ + 1; id < code_.size(); ++id) {
      if (collects(structure_of(code_[id]))) collected_[code_[id].operand[0]] = true;
    }
    for (int id = open_ + 1; id < code_.size(); ++id) {
      const instruction& i = code_[id];
      if (i.region > open_ && i.operand_count > 0 && !i.op->facts.bound_to_region && !collected_[id]) visit(id);
    }
  }

 private:
  constexpr void visit(int id) {
    const instruction& i = code_[id];
    // Loops that enclose one another are numbered from the outside in.
    int within = open_;
    bool from_outside = false;
    std::int64_t elements = 0;
    for (int k = 0; k < i.operand_count; ++k) {
      const int source = source_of(k < inline_operands ? i.operand[k] : i.operand_at(k, further_));
      if (is_constant(source)) continue;
      from_outside = true;
      elements += code_[source].shape.elements();
      if (code_[source].region > within) within = code_[source].region;
      if (within == i.region) return;
    }
    if (!from_outside || i.shape.elements() > elements || is_several(id)) return;
    // A branch that is not taken costs nothing.
    within = within_branch(code_, i.region, within);
    if (within == i.region) return;
    code_[id].region = within;
    for (int k = 0; k < i.operand_count; ++k) {
      const int o = i.operand_at(k, further_);
      for (const int one : {source_of(o), o}) {
        if (code_[one].region > within) code_[one].region = within;
      }
    }
  }

  /// Results that are made together stay together, where they are.
  [[nodiscard]] constexpr bool is_several(int id) const {
    return is_further_result(code_[id]) || (id + 1 < code_.size() && is_further_result(code_[id + 1]));
  }
  /// Constants and broadcasts cost nothing and go where they are read.
  [[nodiscard]] constexpr int source_of(int id) const {
    return code_[id].op->fuse == fusion::broadcast && !collected_[id] ? code_[id].operand[0] : id;
  }
  [[nodiscard]] constexpr bool is_constant(int id) const {
    return code_[id].op->fuse == fusion::source && !collected_[id];
  }

  list<instruction>& code_;
  /// The graph's table of further operands.
  const int* further_;
  int open_;
  /// True for the operand of a stack or sum, which stays in its loop.
  list<bool> collected_;
};

}  // namespace detail

/// Loop-invariant code belongs outside: it is computed once, its gradient is that of the sum over all iterations, and
/// the reverse of the loop need not keep it for each. Only what is no larger than its operands: making it again is
/// better than keeping it otherwise. Instructions stay in their places in the list, and `normalise` moves them. While a
/// loop is being built, `open_region`, only the loops inside it count.
/// @param further the graph's table of further operands
constexpr void hoist(detail::list<instruction>& code, const int* further, int open_region = -1) {
  detail::hoisting(code, further, open_region).run();
}

}  // namespace espalier
