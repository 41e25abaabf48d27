// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/scan.hpp>
#include <espalier/tensor/core/partition/row_product.hpp>
#include <espalier/tensor/core/program/hoist.hpp>
#include <espalier/tensor/core/program/lone_heads.hpp>
#include <espalier/tensor/core/program/repeat_widened.hpp>

namespace espalier {

/// The loop whose reverse is being built, and the way to the values of its body from there.
struct loop_reversal {
  int forward = -1;
  int reverse = -1;
  bool recompute = false;
  /// True for each place in the forward body whose value is the same in all iterations.
  detail::list<bool> fixed;
  /// The substitute for each value of the forward body inside the reverse loop, or -1. If the body is repeated, also
  /// the substitute for each value of the loops in it.
  detail::list<int> stand_in;
  loop_reversal* outer = nullptr;

  /// (Values that the sweep appends to the body, to hand them out, come after the places that `fixed` covers.)
  [[nodiscard]] constexpr bool is_fixed(int id) const { return id - forward < fixed.size() && fixed[id - forward]; }
  [[nodiscard]] constexpr int find(int id) const { return id >= 0 && id < stand_in.size() ? stand_in[id] : -1; }
  constexpr int note(int id, int value) {
    if (id >= stand_in.size()) stand_in.resize(value, -1);
    return stand_in[id] = value;
  }
};

namespace detail {

/// Whether the reverse loop repeats a value rather than stores it: it is cheap to compute again, and large or free to
/// keep.
[[nodiscard]] constexpr bool cheaper_to_repeat(builder& b, int id) {
  const instruction& i = b[id];
  // A sum that is partial in the body has been carried out in what is kept of it.
  if (requests_of(i) == layout_request::annotation && b.result().annotations[i.annotation].placement.unreduced != 0) {
    return false;
  }
  if (i.operand_count == 0 || i.op->facts.cheap_to_repeat) return true;
  int looks = 0;
  return is_from_sixteen_bits(b.result().code.data(), id) || follows_from_scores(b.result(), id, looks);
}

/// The result, stack or sum of a repeated loop. Its operand may be another one, which the sweep made to hand an inner
/// loop's values out.
constexpr int repeat_reader(builder& b, loop_reversal& level, int id) {
  if (level.find(id) >= 0) return level.find(id);
  instruction made = b[id];
  made.operand[0] = repeat_reader(b, level, made.operand[0]);
  made.region = b[b[made.operand[0]].region].region;
  made.label = nullptr;
  return level.note(id, b.result().code.push_back(made));
}

/// Finds or makes the value that stands for `id` of a forward body. It belongs to the loop that reverses that body,
/// which may be further out than the one being built; `normalise` moves it there.
constexpr int reach(builder& b, loop_reversal& innermost, int id) {
  loop_reversal* level = &innermost;
  while (level != nullptr && b[id].region != level->forward) level = level->outer;
  if (level == nullptr) return id;
  if (level->find(id) >= 0) return level->find(id);
  instruction original = b[id];
  if (level->recompute && reads_region(structure_of(original))) return repeat_reader(b, *level, id);
  const int building = b.region;
  b.region = level->reverse;
  original.label = nullptr;
  const bool repeat = level->recompute || cheaper_to_repeat(b, id) || level->is_fixed(id);
  // (After the instructions of a body comes at least the end of its loop.)
  if (repeat && (is_further_result(original) || is_further_result(b[id + 1]))) {
    // The value is repeated with all results that are made with it.
    const int op = is_further_result(original) ? original.operand[0] : id;
    for (int n = further_results(b.result().code.data(), b.size(), op), first = op; first <= op + n; ++first) {
      instruction next = b[first];
      next.label = nullptr;
      level->note(first, b.append(next));
    }
    b.region = building;
    return level->find(id);
  }
  const int made = repeat ? b.append(original) : emit::loop_slice(b, emit::loop_stack(b, id));
  b.region = building;
  return level->note(id, made);
}

/// The reverse sweep (reverse-mode differentiation) over a graph under construction.
class reverse_sweep {
 public:
  /// @param size the number of instructions through which it goes
  constexpr reverse_sweep(builder& target, int size) : b_(target), cotangent_(size, -1), active_(size, false) {}

  constexpr void want(int id) { active_[id] = true; }

  /// Marks what depends on the wanted values. A loop's carry depends on what its body passes on, so the sweep repeats
  /// until nothing changes.
  constexpr void mark(int begin, int end) {
    for (bool changed = true; changed;) {
      changed = false;
      for (int id = begin; id < end; ++id) {
        const instruction& i = b_[id];
        if (active_[id] || (!is_floating(i.type) && !has_several_results(id)) || i.op->facts.stops_gradient) continue;
        bool depends = false;
        for (int k = 0; k < i.operand_count; ++k)
          depends = depends || active_[k < inline_operands ? i.operand[k] : b_.operand_at(i, k)];
        if (!depends) continue;
        active_[id] = true;
        if (structure_of(i) == structure::region_yield && !active_[parameter_of(i)])
          active_[parameter_of(i)] = changed = true;
      }
    }
  }

  /// Adds to what flows into a value.
  constexpr void seed(int id, int value) {
    cotangent_[id] = cotangent_[id] < 0 ? value : emit::add(b_, cotangent_[id], value);
  }
  [[nodiscard]] constexpr int cotangent(int id) const { return cotangent_[id]; }
  /// The first op that has no gradient rule, or -1.
  [[nodiscard]] constexpr int without_rule() const { return without_rule_; }

  /// Carries cotangents back from instruction end - 1 to `begin`, through the instructions of the loop that is being
  /// reversed. An instruction inside another loop that does not belong to it is computed before that loop, so its turn
  /// comes after.
  constexpr void run(int begin, int end) {
    for (int id = end - 1; id >= begin; --id) {
      if (!belongs(id)) continue;
      const op_info* const op = b_[id].op;
      if (op->facts.part == structure::region_end) {
        const int start = b_[id].operand[0];
        reverse_region(start, id);
        run(start + 1, id);
        id = start;
        continue;
      }
      // Carries, results, stacks and sums are handled with the loop they belong to.
      if (!active_[id] || op->facts.part == structure::region_parameter || reads_region(op->facts.part) ||
          op->facts.is_further_result || (cotangent_[id] < 0 && !has_cotangent(id)))
        continue;
      if (op->facts.part == structure::loop_slice && forward_region_ >= 0) {
        reads_.push_back({b_[id].operand[0], cotangent_[id]});
      } else {
        visit(id);
      }
    }
  }

 private:
  /// Found when the first region is met: many sweeps meet none.
  [[nodiscard]] constexpr const region& beginning_at(int begin) {
    if (regions_.size() == 0) {
      graph_view through = b_.result();
      through.size = cotangent_.size();
      regions_ = region_table(through);
    }
    return regions_.beginning_at(begin);
  }

  struct outside_term {
    int id = -1;
    int value = -1;
  };

  /// True if the instruction belongs to the body that is being reversed. If no loop is being reversed, all instructions
  /// belong, except the bodies of finished loops.
  [[nodiscard]] constexpr bool belongs(int id) const {
    if (forward_region_ >= 0) return b_[id].region == forward_region_;
    int open = b_.region;
    while (open >= 0 && open != b_[id].region) open = b_[open].region;
    return open == b_[id].region;
  }

  [[nodiscard]] constexpr bool has_several_results(int id) const {
    return id + 1 < b_.size() && is_further_result(b_[id + 1]);
  }
  /// Whether something flows back to a value, or to one that is made with it.
  [[nodiscard]] constexpr bool has_cotangent(int id) const {
    if (cotangent_[id] >= 0) return true;
    if (!has_several_results(id)) return false;
    for (int n = further_results(b_.result().code.data(), b_.size(), id); n > 0; --n) {
      if (cotangent_[id + n] >= 0) return true;
    }
    return false;
  }

  constexpr void visit(int id) {
    if (b_[id].op->gradient == nullptr) {
      if (without_rule_ < 0) without_rule_ = id;
      return;
    }
    b_.at(b_[id].where);
    if (cotangent_[id] < 0) cotangent_[id] = zeros_like(id);
    gradient_context context{b_, id, cotangent_[id]};
    if (has_several_results(id)) context.further_result_cotangent = &cotangent_[id + 1];
    b_[id].op->gradient(context);
    for (int k = 0; k < b_[id].operand_count; ++k) {
      const int value = k < inline_operands ? context.operand_cotangent[k] : context.cotangent_of(k);
      if (value >= 0) add_to(b_.operand_at(b_[id], k), value);
    }
  }

  constexpr void add_to(int id, int value) {
    if (!active_[id]) return;
    if (b_[id].region != forward_region_ && forward_region_ >= 0) {
      // A value from outside the loop: the terms of one iteration are added up first, those of all iterations later.
      for (outside_term& term : outside_) {
        if (term.id == id) {
          term.value = emit::add(b_, term.value, value);
          return;
        }
      }
      outside_.push_back({id, value});
      return;
    }
    cotangent_[id] = cotangent_[id] < 0 ? value : emit::add(b_, cotangent_[id], value);
  }

  constexpr int zeros_like(int id) { return emit::constant_like(b_, id, 0); }

  /// Builds the reverse of the loop [begin, end].
  constexpr void reverse_region(int begin, int end) {
    const region& original = beginning_at(begin);
    const list<int>& next = original.yields;
    list<int> from_result(next.size(), -1);
    list<outside_term> collected;
    bool any = false;
    for (const int id : original.results) {
      if (cotangent_[id] < 0) continue;
      any = true;
      for (int k = 0; k < next.size(); ++k) {
        if (next[k] == yield_of_result(b_[id])) from_result[k] = id;
      }
    }
    for (const int id : original.collected) {
      if (cotangent_[id] >= 0) collected.push_back({id, b_[id].operand[0]});
    }
    if (!any && collected.empty()) return;
    const region_attributes forward = attributes_of<region_attributes>(b_[begin]);
    if (forward.kind == region_kind::until) {
      b_.note(failed<why::while_loop_has_no_gradient<>>(b_[begin].where));
      return;
    }

    b_.at(b_[begin].where);
    list<int> initial;
    list<int> carried;  // indices into `next` of the carries that have cotangents
    for (int k = 0; k < next.size(); ++k) {
      if (!active_[next[k]] || !is_floating(b_[next[k]].type)) continue;
      carried.push_back(k);
      initial.push_back(from_result[k] >= 0 ? cotangent_[from_result[k]] : zeros_like(next[k]));
    }
    list<int> stacked_terms;
    for (const outside_term& c : collected) stacked_terms.push_back(cotangent_[c.id]);

    // All that follows is appended to the reverse loop.
    loop_reversal reversal;
    reversal.forward = begin;
    // What a branch has computed is computed again where its gradient is taken: then no branch keeps anything.
    reversal.recompute = forward.recompute || forward.kind == region_kind::branch;
    reversal.fixed = fixed_values(begin, end);
    reversal.outer = b_.substitution_state();
    const int surrounding_region = forward_region_;
    list<outside_term> surrounding_terms;
    list<outside_term> surrounding_reads;
    surrounding_terms.swap(outside_);
    surrounding_reads.swap(reads_);
    for (int& one : initial) one = available_outside(one);

    begin_reverse(original, forward);
    reversal.reverse = b_.region;
    list<int> carry;
    for (const int id : initial) carry.push_back(emit::region_parameter(b_, id));
    b_.substitute(reach, &reversal);
    forward_region_ = begin;
    if (reversal.recompute) repeat_body(original, reversal);

    for (int k = 0; k < carried.size(); ++k) {
      const int value = yielded_by(b_[next[carried[k]]]);
      add_to(value, carry[k]);
    }
    for (int k = 0; k < collected.size(); ++k) {
      const bool is_stack = structure_of(b_[collected[k].id]) == structure::loop_stack;
      add_to(collected[k].value, is_stack ? emit::loop_slice(b_, stacked_terms[k]) : stacked_terms[k]);
    }
    run(begin + 1, end);
    b_.at(b_[begin].where);
    list<int> passed;
    for (int k = 0; k < carried.size(); ++k) {
      const int forward_carry = parameter_of(b_[next[carried[k]]]);
      const int value = cotangent_[forward_carry] >= 0 ? cotangent_[forward_carry] : zeros_like(forward_carry);
      passed.push_back(emit::region_yield(b_, carry[k], value));
    }
    list<outside_term> terms;
    list<outside_term> reads;
    terms.swap(outside_);
    reads.swap(reads_);
    for (outside_term& term : terms) term.value = emit::own(b_, term.value);
    for (outside_term& read : reads) read.value = emit::own(b_, read.value);
    b_.substitute(reversal.outer == nullptr ? nullptr : reach, reversal.outer);
    forward_region_ = surrounding_region;
    outside_.swap(surrounding_terms);
    reads_.swap(surrounding_reads);
    emit::region_end(b_);

    for (int k = 0; k < carried.size(); ++k) {
      const int init = initial_of(b_[parameter_of(b_[next[carried[k]]])]);
      add_to(init, emit::region_result(b_, passed[k]));
    }
    for (const outside_term& read : reads) add_to(read.id, emit::loop_stack(b_, read.value));
    for (const outside_term& term : terms) add_to(term.id, emit::loop_sum(b_, term.value));
  }

  /// The reverse runs as often as the region has run.
  constexpr void begin_reverse(const region& original, const region_attributes& forward) {
    region_attributes reverse{.iterations = forward.iterations, .reverse = !forward.reverse, .kind = forward.kind};
    int entry = original.entry;
    if (forward.kind == region_kind::until_or_at_most) {
      reverse.kind = region_kind::up_to;
      // The first parameter counts.
      const int count = regions_.result_of(regions_.yield_of(original.parameters[0]));
      if (count >= 0) entry = count;
    }
    if (entry >= 0) entry = available_outside(entry);
    emit::region_begin(b_, reverse, entry, static_cast<int>(branch_number(b_[original.first])));
  }

  /// Returns the values of the body [begin, end] that depend on nothing that changes from one iteration to the next.
  [[nodiscard]] constexpr list<bool> fixed_values(int begin, int end) const {
    list<bool> fixed(end - begin, false);
    for (int id = begin + 1; id < end; ++id) {
      const instruction& i = b_[id];
      bool is_fixed = i.region == begin && !i.op->facts.bound_to_region;
      for (int k = 0; k < i.operand_count; ++k) {
        const int o = k < inline_operands ? i.operand[k] : b_.operand_at(i, k);
        is_fixed = is_fixed && (b_[o].region != begin || (o < end && fixed[o - begin]));
      }
      fixed[id - begin] = is_fixed;
    }
    return fixed;
  }

  [[nodiscard]] constexpr int available_outside(int id) {
    return b_.substitution_function() == nullptr ? id : reach(b_, *b_.substitution_state(), id);
  }

  /// Recomputation: the forward body once more, on the carry that was kept; what no gradient reads is dropped later.
  constexpr void repeat_body(const region& original, loop_reversal& reversal) {
    reversal.recompute = false;
    for (const int id : original.parameters) reach(b_, reversal, id);
    reversal.recompute = true;
    for (int id = original.first + 1; id < original.last; ++id) {
      if (b_[id].region != original.first || structure_of(b_[id]) == structure::region_yield || b_[id].op->facts.looks)
        continue;
      if (structure_of(b_[id]) == structure::region_begin) {
        id = repeat_loop(id, reversal);
      } else {
        reach(b_, reversal, id);
      }
    }
  }

  /// Whether it says how often a loop has run that tells it by its first parameter: a gradient of the loop reads it.
  [[nodiscard]] constexpr bool is_count(const instruction& i) {
    if (structure_of(i) != structure::region_result) return false;
    const instruction& yield = b_[yield_of_result(i)];
    const region& of = beginning_at(yield.region);
    return of.kind == region_kind::until_or_at_most && parameter_of(yield) == of.parameters[0];
  }

  /// Copies a loop inside the repeated body and returns its end. Results, stacks and sums follow where they are read.
  constexpr int repeat_loop(int begin, loop_reversal& reversal) {
    const int end = beginning_at(begin).last;
    for (int id = begin; id <= end; ++id) {
      instruction i = b_[id];
      // An instruction here that belongs to a loop further out has been computed there, and is not repeated.
      const bool belongs = i.region == reversal.forward || (i.region >= 0 && reversal.find(i.region) >= 0);
      if ((reads_region(structure_of(i)) && !is_count(i)) || !belongs || i.op->facts.looks) continue;
      list<int> operands;
      for (int k = 0; k < i.operand_count; ++k) {
        int operand = b_.operand_at(i, k);
        const bool reads = reads_region(structure_of(b_[operand])) && b_[operand].region >= 0;
        if (reversal.find(operand) >= 0) {
          operand = reversal.find(operand);
        } else if (reads && reversal.find(b_[operand].region) >= 0) {
          operand = repeat_reader(b_, reversal, operand);
        }
        operands.push_back(operand);
      }
      b_.region = i.region == reversal.forward ? reversal.reverse : reversal.find(i.region);
      b_.where = i.where;
      i.label = nullptr;
      reversal.note(id, b_.append(i, operands.data(), operands.size()));
    }
    b_.region = reversal.reverse;
    return end;
  }

  builder& b_;
  region_table regions_;
  list<int> cotangent_;
  list<bool> active_;
  /// The forward loop whose body is being reversed, and the terms for values outside it.
  int forward_region_ = -1;
  list<outside_term> outside_;
  /// The slices of stacked tensors that the body reads, with their cotangents.
  list<outside_term> reads_;
  int without_rule_ = -1;
};

}  // namespace detail

/// A value, and what flows back into it.
struct cotangent_of {
  int value = -1;
  int cotangent = -1;
};

/// Appends to the graph what flows back from `seeds` to each of `wanted`, and stores the ids in `gradients`: -1 where
/// none of them depends on it. Returns the first op without a gradient rule, or -1.
constexpr int pull_back(builder& b, const detail::list<cotangent_of>& seeds, const int* wanted, int count,
                        int* gradients) {
  const int end = b.size();
  hoist(b.result().code, b.result().further.data(), b.region);
  detail::mark_lone_heads(b, 0, end);
  detail::reverse_sweep sweep(b, end);
  for (int i = 0; i < count; ++i) sweep.want(wanted[i]);
  sweep.mark(0, end);
  for (const cotangent_of& one : seeds) sweep.seed(one.value, one.cotangent);
  sweep.run(0, end);
  for (int i = 0; i < count; ++i) gradients[i] = sweep.cotangent(wanted[i]);
  return sweep.without_rule();
}
/// The same through the instructions from `begin` on, of which `wanted` are: what they use besides is constant. For
/// gradients that are made while others are.
constexpr int pull_back_to(builder& b, int begin, const detail::list<cotangent_of>& seeds, const int* wanted, int count,
                           int* gradients) {
  const int end = b.size();
  detail::mark_lone_heads(b, begin, end);
  detail::reverse_sweep sweep(b, end);
  for (int i = 0; i < count; ++i) sweep.want(wanted[i]);
  sweep.mark(begin, end);
  for (const cotangent_of& one : seeds) sweep.seed(one.value, one.cotangent);
  sweep.run(begin, end);
  for (int i = 0; i < count; ++i) gradients[i] = sweep.cotangent(wanted[i]);
  return sweep.without_rule();
}
/// The same from one value.
constexpr int pull_back(builder& b, int value, int cotangent, const int* wanted, int count, int* gradients) {
  detail::list<cotangent_of> seeds;
  seeds.push_back({value, cotangent});
  return pull_back(b, seeds, wanted, count, gradients);
}

/// Appends to the graph the gradients of scalar `loss` by each of `wanted` and stores their ids in `gradients`; each
/// is laid out like the value it belongs to. Returns the first op without a gradient rule, or -1.
constexpr int differentiate(builder& b, int loss, const int* wanted, int count, int* gradients) {
  const int without_rule = pull_back(b, loss, emit::constant_like(b, loss, 1), wanted, count, gradients);
  for (int i = 0; i < count; ++i) {
    b.at(b[wanted[i]].where);
    gradients[i] = emit::match(b, gradients[i] >= 0 ? gradients[i] : emit::constant_like(b, wanted[i], 0), wanted[i]);
  }
  return without_rule;
}

}  // namespace espalier
