// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/testing/random/own_gradients.hpp>

#include <cstdint>

/// Random sequences of ops, and loops whose bodies are such sequences.
namespace espalier::test {

/// Draws the ops of a program or of a loop's body. A loop passes its carries on in any order, and may contain loops.
class random_bodies : protected random_own_gradients {
 public:
  using ids = random_values::ids;
  /// The gradients that the program computes last: of `loss` by the values `by`. The loss is -1 if there are none.
  struct derivatives {
    int loss = -1;
    ids by;
    ids gradients;
    /// An op that would have to be differentiated and cannot be, or -1.
    int without_rule = -1;
  };

 protected:
  using random_own_gradients::random_own_gradients;

  constexpr void add_ops(int count, int depth) {
    for (int i = 0; i < count; ++i) {
      if (depth < options_.loop_depth && random_.chance(depth == 0 ? options_.loops : 2 * options_.loops)) {
        add_loop(depth);
        continue;
      }
      int id = options_.mesh.rank > 0 && random_.chance(options_.partial) ? sum_over_devices() : -1;
      if (id < 0 && communicates()) id = communicated();
      if (id < 0) id = smooth() ? add_smooth_op() : add_whole_op();
      if (id < 0) continue;
      keep(with_annotations(id));
    }
  }

  constexpr int add_smooth_op() {
    if (options_.own_gradients > 0 && random_.chance(options_.own_gradients)) return with_own_gradient(any_float());
    if (options_.float_type != dtype::f64 && random_.chance(0.25)) return composite(any_float());
    const int x = any_float();
    switch (random_.integer(0, 9)) {
      case 0:
      case 1: return arithmetic(x);
      case 2:
      case 3: return function(x);
      case 4: return normalised(x);
      default: return add_common_op();
    }
  }
  constexpr int add_whole_op() {
    switch (random_.integer(0, 9)) {
      case 0:
      case 1: return arithmetic(any_number());
      case 2: return truth();
      case 3: {
        const int value = any_value();
        return as_type(value, any_type());
      }
      case 4: return other_arithmetic(any_number());
      case 5: return exact_function(any_value());
      default: return add_common_op();
    }
  }

  /// Ops that move or combine elements: of all types.
  constexpr int add_common_op() {
    if (options_.taken_apart > 0 && random_.chance(options_.taken_apart)) return taken_apart(any_value());
    switch (random_.integer(0, 22)) {
      case 22: {
        const int x = any_value();
        return bounded_by(emit::again(b_, x), bound(x));
      }
      case 21: return cumulated();
      case 19: return largest();
      case 18: return dynamic_slice();
      case 17: return dynamic_update_slice();
      case 14: return rearranged();
      case 15: return convolution();
      case 16:
      case 20: return pooled();
      case 0: return reduce();
      case 1: return broadcast(any_value());
      case 2: return transpose(any_value());
      case 3: return reshape(any_value());
      case 4:
      case 5: return einsum();
      case 6: return choice();
      case 7: return slice();
      case 8: return concat();
      case 9: return gather();
      case 10: return scatter();
      case 11: return pad();
      case 12: return source();
      default: {
        const int x = any_value();
        if (!options_.stop_gradients || random_.chance(0.7)) {
          return bounded_by(b_.append(ops::copy, type_of(x), shape_of(x), x), bound(x));
        }
        return unary(ops::stop_gradient, x, bound(x));
      }
    }
  }

  struct loop_carries {
    int count = 0;
    int carry[8]{};
    int passed[8]{};
  };
  /// The branches that come after one that is drawn: what decides between them, the number of the next one, how many
  /// there are, and what the one before has returned.
  struct other_branches {
    int entry = -1;
    int number = 0;
    int left = 0;
    ids before;
  };

  /// A carry that its loop only adds to, or takes the largest or smallest with: `value` is what it has become by now.
  struct accumulator {
    int first = -1;
    int carry = -1;
    int value = -1;
    reduction combine = reduction::sum;
    /// The most that one iteration adds.
    double step = 0;
    /// The place among the accumulators of the loop that this one is in, if it goes on with one of those.
    int outer = -1;
  };

  /// Draws what accumulators start with, and puts them at the end of those that are open.
  constexpr void draw_accumulators(int outer_from, int outer_last) {
    for (int n = random_.chance(options_.accumulators) ? random_.integer(1, 2) : 0; n > 0; --n) {
      accumulator one;
      if (outer_from < outer_last && random_.chance(0.5)) {
        one.outer = random_.integer(outer_from, outer_last - 1);
        for (int other = outer_last; other < accumulators_.size(); ++other) {
          if (accumulators_[other].outer == one.outer) one.outer = -1;
        }
      }
      if (one.outer >= 0) {
        one.combine = accumulators_[one.outer].combine;
        one.first = accumulators_[one.outer].value;
      } else {
        const int model = any_number();
        if (model < 0) return;
        one.combine = random_.chance(0.7) ? reduction::sum : random_.chance(0.5) ? reduction::max : reduction::min;
        one.first = random_.chance(0.6) ? constant_like(model, 0) : tame(model);
      }
      accumulators_.push_back(one);
    }
  }
  /// Something of the shape and type of an accumulator, often a sum over a dimension that is split.
  constexpr int term_for(const accumulator& one) {
    const extents shape = shape_of(one.carry);
    const std::int64_t size = random_.integer(1, 4);
    const bool fits = options_.mesh.rank > 0 && shape.rank < options_.most_dimensions &&
                      shape.elements() * size <= options_.most_elements;
    if (!fits || random_.chance(0.3)) return tame(like(one.carry));
    extents rows;
    rows.append(size);
    for (int d = 0; d < shape.rank; ++d) rows.append(shape[d]);
    const int from = tame(like(rows, type_of(one.carry)));
    sharding split = sharding::whole(rows.rank);
    for (int axis = 0; axis < options_.mesh.rank; ++axis) {
      if (has_axis(options_.by_hand, axis)) continue;
      const int where = random_.chance(0.5) ? 0 : random_.integer(0, rows.rank);
      if (where < rows.rank) split.dim[where] = split.dim[where].with(in_any_order(axis));
    }
    const double most = bound(from) * (one.combine == reduction::sum ? static_cast<double>(size) : 1);
    const int parts = annotated(ops::reshard, from, b_.annotate(rows, split));
    return bounded_by(emit::reduce(b_, one.combine, parts, 1), most);
  }
  constexpr void accumulate(accumulator& one) {
    const int term = term_for(one);
    const double most = bound(term);
    const dtype type = type_of(term);
    const extents shape = shape_of(term);
    int next = -1;
    if (one.combine != reduction::sum) {
      next = b_.append(one.combine == reduction::max ? ops::maximum : ops::minimum, type, shape, one.value, term);
    } else if (!is_natural(type) && random_.chance(0.2)) {
      next = emit::subtract(b_, one.value, term);
    } else {
      const bool comes_first = random_.chance(0.5);
      next = emit::add(b_, comes_first ? term : one.value, comes_first ? one.value : term);
    }
    if (random_.chance(0.1)) {
      const int one_side = like(term);
      const int other_side = like(term);
      next = emit::select(b_, emit::compare(b_, ops::less, one_side, other_side), next, one.value);
    }
    if (smooth() && one.combine == reduction::sum && random_.chance(0.1)) next = emit::scale(b_, next, 0.5);
    one.step += most;
    // (An annotation of its own, after which it may be laid out as before.)
    const double unlimited = 1e6;
    one.value = with_annotations(bounded_by(next, unlimited));
  }

  /// A tensor whose first dimension is the loop's length: an argument, a stack of an earlier loop, or one made so.
  constexpr int stacked(std::int64_t count) {
    for (int tries = 0; tries < 6; ++tries) {
      const int id = any_value();
      if (rank_of(id) > 0 && shape_of(id)[0] == count) return id;
    }
    const int from = any_of_rank(0, options_.most_dimensions - 1);
    if (from < 0 || shape_of(from).elements() * count > options_.most_elements) return -1;
    extents shape;
    shape.append(count);
    for (int d = 0; d < rank_of(from); ++d) shape.append(shape_of(from)[d]);
    if (random_.chance(0.5)) return like(shape, type_of(from));
    return bounded_by(emit::broadcast_along(b_, from, shape, 1), bound(from));
  }

  constexpr std::int64_t any_length() {
    if (random_.chance(options_.empty_loops)) return 0;
    return random_.chance(0.6) ? length_ : random_.integer(1, 4);
  }

  /// What decides about a region: for all devices alike. Floats do where no rounding is likely to change the answer.
  constexpr int decision() { return invariant(own_decision()); }
  constexpr int own_decision() {
    const int x = any_value();
    const bool is_precise = smooth() && options_.float_type == dtype::f64 && is_floating(type_of(x));
    if (!is_precise || random_.chance(0.3)) return condition(extents{});
    const int largest = rank_of(x) == 0 ? x : emit::reduce(b_, reduction::max, x, (std::int64_t{1} << rank_of(x)) - 1);
    return emit::compare(b_, ops::less, emit::constant_like(b_, largest, 0.30103), largest);
  }

  constexpr void add_loop(int depth) {
    other_branches rest = add_region(depth, {});
    while (rest.left > 0) rest = add_region(depth, rest);
  }
  /// @param of the branches that this region is one of, after the first
  /// @return those that come next
  constexpr other_branches add_region(int depth, const other_branches& of) {
    const bool is_other = of.entry >= 0;
    std::int64_t count = is_other ? 1 : any_length();
    const bool is_decided = is_other || (count > 0 && random_.chance(options_.decided));
    const bool is_branch = is_other || (is_decided && random_.chance(0.5));
    const bool is_first = is_branch && !is_other && options_.alternatives > 0 && random_.chance(options_.alternatives);
    // (Its iterations are not counted, so that nothing of it is sliced or differentiated.)
    const bool is_unlimited = is_decided && !is_branch && options_.unlimited > 0 && !differentiable_ &&
                              !inner_gradients_ && random_.chance(options_.unlimited);
    if (is_branch) count = 1;
    ids slices;
    for (int n = is_unlimited ? 0 : random_.integer(0, 2); n > 0; --n) {
      const int from = stacked(count);
      if (from >= 0) slices.push_back(from);
    }
    loop_carries c;
    c.count = is_other ? of.before.size() : random_.integer(1, options_.most_carries);
    int initial[8]{};
    for (int k = 0; k < c.count; ++k) {
      if (is_other) {
        initial[k] = of.before[k];
        continue;
      }
      if (k > 0 && random_.chance(0.65)) {
        const int model = initial[random_.integer(0, k - 1)];
        const bool turned = random_.chance(0.2);
        const extents shape = turned ? reshaped(shape_of(model)) : shape_of(model);
        initial[k] = !turned && random_.chance(0.2) ? model : like(shape, type_of(model));
      } else {
        initial[k] = any_value();
        if (type_of(initial[k]) == dtype::boolean) initial[k] = as_type(initial[k], any_type());
      }
      initial[k] = tame(initial[k]);
      if (is_first && random_.chance(0.5)) initial[k] = constant_like(initial[k], 0);
      initial[k] = placed(initial[k]);
    }
    const int outer_from = accumulators_from_;
    const int outer_last = accumulators_.size();
    draw_accumulators(outer_from, outer_last);
    accumulators_from_ = outer_last;
    const int accumulators_last = accumulators_.size();
    const ids outside = values_;
    const bool reverse = !is_decided && random_.chance(0.3);
    const bool counts = random_.chance(0.4) && !is_unlimited;
    extents numbers;
    numbers.append(count);
    const int all_steps = counts ? emit::iota(b_, dtype::i32, numbers, 0) : -1;
    const int steps_outside = steps_.size();
    region_attributes attributes{count, reverse, random_.chance(0.4)};
    int entry = of.entry;
    int counter = -1;
    bool is_of_three = false;
    if (is_decided) {
      attributes.kind = is_branch ? region_kind::branch : region_kind::until_or_at_most;
      if (is_unlimited) attributes = {.iterations = 1, .kind = region_kind::until};
      if (!is_other) entry = decision();
      if (is_branch && !is_other && random_.chance(0.5)) entry = emit::convert(b_, entry, dtype::i32);
      if (is_first && type_of(entry) == dtype::i32 && random_.chance(0.4)) {
        // One of three.
        is_of_three = true;
        entry = emit::add(b_, entry, emit::convert(b_, decision(), dtype::i32));
      }
      counter = emit::constant(b_, dtype::i32, extents{}, 0);
    }
    const int number = is_other ? of.number : is_branch ? random_.integer(0, 1) : 0;
    other_branches next_branches{entry, 1 - number, is_other ? of.left - 1 : is_first ? 1 + is_of_three : 0, {}};
    if (next_branches.left > 0 && is_other) next_branches.number = 2;
    emit::region_begin(b_, attributes, entry, number);
    if (is_decided) counter = emit::region_parameter(b_, counter);
    for (int k = 0; k < c.count; ++k) c.carry[k] = bounded_by(emit::region_parameter(b_, initial[k]), tame_bound);
    for (int n = outer_last; n < accumulators_last; ++n) {
      accumulators_[n].carry = accumulators_[n].value = emit::region_parameter(b_, accumulators_[n].first);
    }
    for (const int from : slices) {
      const int slice = bounded_by(emit::loop_slice(b_, from), bound(from));
      // A slice of what a loop further out counts, too.
      values_.push_back(slice);
    }
    if (counts) steps_.push_back(emit::loop_slice(b_, all_steps));
    for (int k = c.count - 1; k >= 0; --k) values_.push_back(placed(c.carry[k]));
    add_ops(random_.integer(1, 5), depth + 1);
    if (inner_gradients_ && random_.chance(0.2)) step_down(c);
    for (int n = outer_last; n < accumulators_last; ++n) {
      for (int terms = random_.integer(1, 2); terms > 0; --terms) accumulate(accumulators_[n]);
    }
    choose_passed(c, outside);
    for (int k = 0; k < c.count; ++k) c.passed[k] = placed(c.passed[k]);
    int next[8]{};
    for (int k = 0; k < c.count; ++k) next[k] = emit::region_yield(b_, c.carry[k], c.passed[k]);
    ids accumulated;
    for (int n = outer_last; n < accumulators_last; ++n) {
      accumulator& one = accumulators_[n];
      const double most = bound(one.first) + one.step * static_cast<double>(count);
      if (one.outer < 0 && !holds(one.carry, most)) one.value = one.carry;
      accumulated.push_back(emit::region_yield(b_, one.carry, one.value));
    }
    ids outputs;
    // (A loop that may have fewer iterations leaves layers of a stack as they were.)
    for (int n = is_decided ? 0 : random_.integer(0, 3); n > 0; --n) {
      int value = -1;
      switch (random_.integer(0, 5)) {
        case 0: value = c.carry[random_.integer(0, c.count - 1)]; break;
        case 1: value = c.passed[random_.integer(0, c.count - 1)]; break;
        case 2: value = outside[random_.integer(0, outside.size() - 1)]; break;
        case 3: value = outputs.empty() ? any_value() : outputs.back(); break;
        default: value = any_value(); break;
      }
      if (rank_of(value) >= options_.most_dimensions) continue;
      if (shape_of(value).elements() * count > options_.most_elements) continue;
      const double most = bound(value);
      outputs.push_back(bounded_by(emit::own(b_, value), most));
    }
    if (is_decided)
      counter = emit::region_yield(b_, counter, emit::add(b_, counter, emit::constant_like(b_, counter, 1)));
    int goes_on = is_decided && !is_branch ? decision() : -1;
    if (is_unlimited) {
      const int last = emit::constant(b_, dtype::i32, extents{}, static_cast<double>(count));
      const int more = emit::compare(b_, ops::less, b_[counter].operand[1], last);
      goes_on = b_.append(ops::logical_and, dtype::boolean, extents{}, more, goes_on);
    }
    emit::region_end(b_, goes_on);
    values_ = outside;
    steps_.resize(steps_outside);
    if (is_decided && !is_branch) emit::region_result(b_, counter);
    for (int n = outer_last; n < accumulators_last; ++n) {
      const accumulator one = accumulators_[n];
      const int result = emit::region_result(b_, accumulated[n - outer_last]);
      if (one.outer >= 0) {
        accumulators_[one.outer].value = result;
        accumulators_[one.outer].step += one.step * static_cast<double>(count);
      } else {
        keep(limited(result, bound(one.first) + one.step * static_cast<double>(count)));
      }
    }
    accumulators_.resize(outer_last);
    accumulators_from_ = outer_from;
    if (next_branches.left > 0) {
      for (int k = 0; k < c.count; ++k)
        next_branches.before.push_back(bounded_by(emit::region_result(b_, next[k]), tame_bound));
      return next_branches;
    }
    const bool all = outputs.empty() || random_.chance(0.5);
    for (int k = 0; k < c.count; ++k) {
      if (all || random_.chance(0.6)) keep(bounded_by(emit::region_result(b_, next[k]), tame_bound));
    }
    for (const int value : outputs) {
      const double most = bound(value);
      keep(bounded_by(emit::loop_stack(b_, value), most));
      const double sum = most * static_cast<double>(count);
      if (random_.chance(0.15) && is_number(value) && holds(value, sum)) {
        keep(limited(emit::loop_sum(b_, value), sum));
      }
    }
    return {};
  }

  /// The value of a carry, now and then in any layout.
  constexpr int placed(int id) {
    if (options_.placed_carries <= 0 || options_.mesh.rank == 0 || !random_.chance(options_.placed_carries)) return id;
    const extents shape = shape_of(id);
    return annotated(random_.chance(0.7) ? ops::shard : ops::reshard, id, any_annotation(shape));
  }

  /// The values that the loop hands on. Every value was there before the first is overwritten.
  constexpr void choose_passed(loop_carries& c, const ids& outside) {
    for (int k = 0; k < c.count; ++k) c.passed[k] = computed_carry(c.carry[k]);
    if (c.count > 1 && random_.chance(0.35)) {
      // A delay line, or a turn: each carry that fits becomes the one before it.
      const bool turn = random_.chance(0.5);
      for (int k = 0; k < c.count; ++k) {
        const int from = k + 1 < c.count ? k + 1 : 0;
        if ((turn || from > 0) && same_kind(c.carry[k], c.carry[from])) c.passed[k] = c.carry[from];
      }
      return;
    }
    for (int k = 0; k < c.count; ++k) {
      const int carry = c.carry[k];
      const int other = c.carry[random_.integer(0, c.count - 1)];
      switch (random_.integer(0, 7)) {
        case 0: c.passed[k] = carry; break;
        case 1:
        case 2:
          if (same_kind(other, carry)) {
            c.passed[k] = other;
          } else if (type_of(other) == type_of(carry) && shape_of(other).elements() == shape_of(carry).elements()) {
            c.passed[k] = bounded_by(emit::reshape(b_, other, shape_of(carry)), tame_bound);
          }
          break;
        case 3: {
          const int value = outside[random_.integer(0, outside.size() - 1)];
          if (same_kind(value, carry) && bound(value) <= tame_bound) c.passed[k] = value;
          break;
        }
        case 4:
          if (k > 0 && same_kind(c.passed[k - 1], carry)) c.passed[k] = c.passed[k - 1];
          break;
        case 5: {
          // An alias of another carry, after which it would be overwritten.
          if (same_kind(other, carry)) {
            c.passed[k] = unary(options_.stop_gradients ? ops::stop_gradient : ops::copy, other, tame_bound);
          }
          break;
        }
        default: break;
      }
    }
  }
  constexpr int computed_carry(int carry) {
    if (random_.chance(0.15)) {
      const int updated = dynamic_update_slice(carry);
      if (updated >= 0) return tame(updated);
    }
    const int other = like(carry);
    const double sum = bound(carry) + bound(other);
    if (random_.chance(0.3) || !holds(carry, sum)) return tame(other);
    return tame(bounded_by(emit::add(b_, carry, other), sum));
  }

  /// One step of descent in the body of a loop, along the gradient of something by a carry.
  constexpr void step_down(loop_carries& c) {
    for (int k = 0; k < c.count; ++k) {
      const int carry = c.carry[k];
      if (!is_floating(type_of(carry)) || (!smooth() && is_for_storage(type_of(carry)))) continue;
      const int other = like(carry);
      const int product = bounded_by(emit::multiply(b_, carry, other), bound(carry) * bound(other));
      const int loss = total(smooth() ? tame(product) : product);
      int gradient = -1;
      note_rule(differentiate(b_, loss, &carry, 1, &gradient));
      const double step = smooth() ? 0.1 : 1;
      keep(tame(emit::subtract(b_, carry, emit::scale(b_, gradient, step))));
      return;
    }
  }

  constexpr void note_rule(int without_rule) {
    if (derivatives_.without_rule < 0) derivatives_.without_rule = without_rule;
  }

  derivatives derivatives_;
  /// The accumulators of open loops, and where those of the innermost begin.
  detail::list<accumulator> accumulators_;
  int accumulators_from_ = 0;
};

}  // namespace espalier::test
