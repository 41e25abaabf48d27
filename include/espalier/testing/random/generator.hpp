// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random/gradients.hpp>

#include <cstdint>

/// Random programs as values: the same graph from the same seed, at run time or in a constant evaluation.
namespace espalier::test {

/// Makes random well-formed programs as tracing would: with dead code, aliases, captured values, loops in loops that
/// hand their carries on in any order, donated arguments, and gradients.
class program_generator : private random_gradients {
 public:
  constexpr program_generator(std::uint64_t seed, const program_options& options) : random_gradients(seed, options) {}

  using random_gradients::derivatives;
  using random_gradients::ids;

  constexpr graph make() {
    differentiable_ = random_.chance(options_.gradients);
    second_order_ = differentiable_ && random_.chance(options_.second_order);
    inner_gradients_ = random_.chance(5 * options_.inner_gradients);
    twice_ = second_order_ || inner_gradients_;
    length_ = random_.integer(1, 4);
    // The gradient of a loop stacks what its body computes, and of a loop in a loop stacks of stacks.
    options_.loop_depth = random_.integer(options_.loop_depth > 0 ? 1 : 0, options_.loop_depth);
    const int by_hand = count_of(options_.by_hand);
    const int room = max_rank - options_.loop_depth - (by_hand > 0 ? by_hand + 1 : 0);
    if (options_.most_dimensions > room) options_.most_dimensions = room;
    make_arguments();
    add_ops(options_.instructions, 0);
    if (values_.size() > 4 && random_.chance(0.5)) keep(sum_of_several());
    if (differentiable_) add_gradients();
    add_results();
    return static_cast<graph&&>(b_.result());
  }

  [[nodiscard]] constexpr const derivatives& differentiated() const { return derivatives_; }

 private:
  constexpr int replaceable(const ids& taken, int value) {
    ids fitting;
    for (int n = 0; n < arguments_.size(); ++n) {
      if (taken[n] == 0 && same_kind(arguments_[n], value)) fitting.push_back(n);
    }
    return fitting.empty() ? -1 : fitting[random_.integer(0, fitting.size() - 1)];
  }

  constexpr void want_result(int id) {
    if (id >= 0) results_.push_back(id);
  }
  /// Shards are joined along a dimension that they have.
  constexpr void give_dimensions() {
    extents one;
    one.append(1);
    for (int& id : results_) {
      if (rank_of(id) == 0) id = emit::reshape(b_, id, one);
    }
  }
  constexpr void add_results() {
    for (int n = random_.integer(1, 4); n > 0; --n) {
      switch (random_.integer(0, 9)) {
        case 0: want_result(arguments_[random_.integer(0, arguments_.size() - 1)]); break;
        case 1: want_result(random_.chance(0.1) ? index(any_shape(1, 3)) : source()); break;
        case 2: {
          const int from = source();
          want_result(rank_of(from) < 4 ? broadcast(from) : from);
          break;
        }
        case 3:
          if (!results_.empty()) want_result(results_[random_.integer(0, results_.size() - 1)]);
          break;
        case 4: want_result(reshape(arguments_[random_.integer(0, arguments_.size() - 1)])); break;
        default: want_result(any_value()); break;
      }
    }
    // What is computed last, so that not everything is dead code.
    results_.push_back(values_.back());
    if (options_.by_hand != 0) give_dimensions();
    ids taken(arguments_.size(), 0);
    detail::list<int> place(results_.size(), -1);
    if (random_.chance(options_.donated)) exchange_arguments(taken, place);
    if (random_.chance(options_.donated)) update_in_place(taken, place);
    for (int k = 0; k < results_.size(); ++k) {
      if (place[k] >= 0 || !random_.chance(options_.donated)) continue;
      const int n = replaceable(taken, results_[k]);
      if (n < 0) continue;
      taken[n] = 1;
      place[k] = n;
    }
    // In any order.
    ids order;
    for (int k = 0; k < results_.size(); ++k) order.push_back(k);
    for (int k = order.size() - 1; k > 0; --k) {
      const int other = random_.integer(0, k);
      const int swapped = order[k];
      order[k] = order[other];
      order[other] = swapped;
    }
    for (int k = 0; k < order.size(); ++k) {
      const int at = order[k];
      emit::result(b_, results_[at], k, place[at] >= 0 ? arguments_[place[at]] : -1);
    }
  }

  /// Arguments come back in each other's places: swapped, in a ring, through a reshape, or in their own.
  constexpr void exchange_arguments(ids& taken, detail::list<int>& place) {
    const int first = random_.integer(0, arguments_.size() - 1);
    ids ring;
    for (int n = 0; n < arguments_.size(); ++n) {
      const bool fits = type_of(arguments_[n]) == type_of(arguments_[first]) &&
                        shape_of(arguments_[n]).elements() == shape_of(arguments_[first]).elements();
      if (fits && ring.size() < 4) ring.push_back(n);
    }
    const int shift = random_.integer(0, ring.size());
    for (int k = 0; k < ring.size(); ++k) {
      // Some stay away: then what is overwritten may be read after all.
      if (random_.chance(0.15)) continue;
      const int from = arguments_[ring[(k + shift) % ring.size()]];
      const int to = ring[k];
      results_.push_back(emit::reshape(b_, from, shape_of(arguments_[to])));
      place.push_back(to);
      taken[to] = 1;
    }
  }

  /// New values of arguments that are made of the old ones, each read by the others too.
  constexpr void update_in_place(ids& taken, detail::list<int>& place) {
    const int models = arguments_.size();
    for (int n = 0; n < models; ++n) {
      const int argument = arguments_[n];
      if (taken[n] != 0 || !is_number(argument) || (smooth() && !is_floating(type_of(argument)))) continue;
      if (!random_.chance(0.5)) continue;
      int other = -1;
      for (int tries = 0; tries < 3 && other < 0; ++tries) {
        const int candidate = arguments_[random_.integer(0, models - 1)];
        if (same_kind(candidate, argument)) other = candidate;
      }
      if (other < 0) other = like(argument);
      const bool subtracts = random_.chance(0.5) && !is_natural(argument);
      const int step = subtracts ? emit::subtract(b_, other, argument) : emit::add(b_, argument, tame(other));
      results_.push_back(step);
      place.push_back(n);
      taken[n] = 1;
    }
  }
};

/// A random program. Its data are `random_program_arguments` (random_graph.hpp), drawn from the same seed.
[[nodiscard]] constexpr graph random_program_graph(std::uint32_t seed, const program_options& options = {}) {
  return program_generator(seed, options).make();
}

/// Element `at` of argument `number`, which has this type: in [-1, 1], one of -2 to 2, or one of 0 to 2 if it
/// has no sign; indices are whole.
[[nodiscard]] constexpr double random_program_element(std::uint32_t seed, int number, std::int64_t at, dtype type,
                                                      numbers kind) {
  dice random((static_cast<std::uint64_t>(seed) << 32U) + (static_cast<std::uint64_t>(number) << 20U) +
              static_cast<std::uint64_t>(at) + 0x5bd1e995U);
  if (type == dtype::boolean) return random.integer(0, 1);
  if (facts_of(type).format == number_format::natural) return random.integer(0, 2);
  if (is_integer(type) || kind == numbers::whole) return random.integer(-2, 2);
  return random.real(-1, 1);
}

}  // namespace espalier::test
