// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random/bodies.hpp>

#include <cstdint>

/// Losses of random programs, and their gradients.
namespace espalier::test {

/// Draws a scalar loss and appends its gradients, sometimes also the gradients of the gradients.
class random_gradients : protected random_bodies {
 protected:
  using random_bodies::random_bodies;

  constexpr int sum_of_several() {
    int sum = -1;
    for (int k = 0; k < 4; ++k) {
      int value = any_number();
      if (value < 0 || (smooth() && !is_floating(type_of(value)))) continue;
      if (!smooth()) value = as_type(value, dtype::f32);
      const int term = total(tame(value));
      sum = sum < 0 ? term : bounded_by(emit::add(b_, sum, term), bound(sum) + bound(term));
    }
    return sum < 0 ? values_.back() : sum;
  }

  /// A scalar, made directly of one op's result: every kind of loss.
  constexpr int any_loss() {
    int value = -1;
    for (int tries = 0; tries < 4 && value < 0; ++tries) {
      switch (random_.integer(0, 11)) {
        case 0: value = einsum(); break;
        case 1: value = gather(); break;
        case 2: value = concat(); break;
        case 3: value = slice(); break;
        case 4: value = transpose(any_value()); break;
        case 5: value = reshape(any_value()); break;
        case 6: value = pad(); break;
        case 7: value = scatter(); break;
        case 8:
          value = any_that([&](int id) { return b_[id].op == &ops::region_result || b_[id].op == &ops::loop_stack; });
          break;
        case 9: value = reduce(); break;
        case 10: value = arithmetic(any_float()); break;
        default: value = values_.back(); break;
      }
      if (value >= 0 && !is_floating(type_of(value))) value = -1;
    }
    if (value < 0) value = any_float();
    if (value < 0) value = parameters_[0];
    if (!smooth() && !holds(value, bound(value) * static_cast<double>(shape_of(value).elements()))) {
      value = as_type(value, dtype::f32);
    }
    if (rank_of(value) > 0 && shape_of(value).elements() <= 12 && random_.chance(0.1)) {
      // Not a sum.
      const reduction kind = random_.chance(0.5) ? reduction::prod : reduction::max;
      if (!smooth() || kind == reduction::prod) return emit::reduce(b_, kind, tame(value), all_of(shape_of(value)));
    }
    if (rank_of(value) > 1 && random_.chance(0.2)) value = emit::reduce_sum(b_, value, 1);
    int loss = total(value);
    if (random_.chance(0.2) && !is_for_storage(type_of(loss))) loss = emit::scale(b_, loss, smooth() ? 0.37 : 2);
    return loss;
  }

  /// The number of these values to which a gradient flows.
  [[nodiscard]] constexpr int reached(int from, const ids& wanted) const {
    detail::list<bool> seen(b_.size(), false);
    ids next_of(b_.size(), -1);
    for (int id = 0; id < b_.size(); ++id) {
      if (b_[id].op == &ops::region_yield) next_of[b_[id].operand[0]] = id;
    }
    ids work;
    const auto want = [&](int id) {
      if (id < 0 || seen[id] || !is_floating(type_of(id)) || b_[id].op == &ops::stop_gradient) return;
      seen[id] = true;
      work.push_back(id);
    };
    want(from);
    while (!work.empty()) {
      const int id = work.back();
      work.pop_back();
      for (int k = 0; k < b_[id].operand_count; ++k) want(b_.operand_at(b_[id], k));
      want(next_of[id]);
    }
    int count = 0;
    for (const int id : wanted) count += seen[id] ? 1 : 0;
    return count;
  }

  constexpr void add_gradients() {
    int loss = any_loss();
    for (int tries = 0; tries < 4; ++tries) {
      const int depends_on = reached(loss, parameters_);
      if (depends_on == parameters_.size() || (depends_on > 0 && random_.chance(0.3))) break;
      const int other = any_loss();
      const bool add = depends_on > 0 && type_of(other) == type_of(loss);
      if (add || depends_on == 0) loss = add ? emit::add(b_, loss, other) : other;
    }
    ids wanted;
    for (const int id : parameters_) {
      if (random_.chance(0.8)) wanted.push_back(id);
    }
    // Where nothing is differentiated there is nothing to see.
    if (reached(loss, wanted) == 0) {
      wanted.clear();
      for (const int id : parameters_) wanted.push_back(id);
    }
    // Of something in between, now and then.
    const int between = any_float();
    if (between >= 0 && random_.chance(0.15)) wanted.push_back(between);
    if (wanted.empty()) wanted.push_back(parameters_[0]);
    ids gradients(wanted.size(), -1);
    note_rule(differentiate(b_, loss, wanted.data(), wanted.size(), gradients.data()));
    derivatives_.loss = loss;
    derivatives_.by = wanted;
    derivatives_.gradients = gradients;
    if (second_order_) {
      int squares = -1;
      for (const int gradient : gradients) {
        if (type_of(gradient) != type_of(gradients[0])) continue;
        const int square = emit::multiply(b_, gradient, gradient);
        const int sum = emit::reduce_sum(b_, square, all_of(shape_of(square)));
        squares = squares < 0 ? sum : emit::add(b_, squares, sum);
      }
      ids second(wanted.size(), -1);
      note_rule(differentiate(b_, squares, wanted.data(), wanted.size(), second.data()));
      derivatives_.loss = squares;
      derivatives_.gradients = second;
      for (int k = 0; k < second.size(); ++k) note_gradient(wanted[k], second[k]);
      if (random_.chance(0.5)) results_.push_back(squares);
    }
    for (int k = 0; k < gradients.size(); ++k) note_gradient(wanted[k], gradients[k]);
    results_.push_back(loss);
  }

  /// The gradient itself becomes a result, or an updated parameter in the parameter's place.
  constexpr void note_gradient(int wanted, int gradient) {
    if (random_.chance(0.6)) {
      results_.push_back(gradient);
      return;
    }
    const double step = smooth() ? -0.1 : -1;
    results_.push_back(emit::add(b_, wanted, emit::scale(b_, gradient, step)));
  }

  ids results_;
};

}  // namespace espalier::test
