// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/again.hpp>
#include <espalier/tensor/core/ops/further_result.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/tensor/core/program/lone_heads.hpp>

#include <type_traits>

// Gradients that users write, and gradients that compute again what the forward pass does not keep.
//
// The value of such a function passes through an op of its own, whose operands are the tensors of the value and of the
// arguments, and whose gradient gives to the arguments alone: what computed the value is not differentiated. Once there
// is nothing left to differentiate, `normalise` passes it by (`op_facts::passes_operands`).

namespace espalier {

namespace detail {

/// An op with a gradient of the user's that has been mapped has so many dimensions of lanes, the first ones, in its
/// value and in the operands whose bits are set; the user's functions are of one lane. One that a region by hand calls
/// has one more than its place in `builder::calls_by_hand`: the user's functions are of one shard, within the lanes.
struct lanes_attributes {
  int lanes = 0;
  std::int64_t operands = 0;
  int region = 0;
};
/// Hands on the gradient of an op that is not of one lane or of one shard. Returns whether it is one.
constexpr bool is_of_many(gradient_context& c) {
  const auto how = attributes_of<lanes_attributes>(c);
  if (how.lanes > 0) {
    c.emit.gradient_over_lanes(c);
  } else if (how.region > 0) {
    c.emit.gradient_by_hand(c);
  }
  return how.lanes > 0 || how.region > 0;
}

/// The cotangents that flow back to these arguments: one as it is, several as results.
template <class... Arguments> struct cotangent_types { using type = results<Arguments...>; };
template <class Argument> struct cotangent_types<Argument> { using type = Argument; };

/// The next operands of an op as the tensors of a tree.
template <class Tree> constexpr Tree tree_of_operands(gradient_context& c, int& next) {
  Tree tree{};
  for_each_leaf(tree, [&](auto& one) {
    one.owner = &c.emit;
    one.id = c.operand(next++);
  });
  return tree;
}

/// The cotangent of a value, as such: zeros where nothing flows into it.
template <class Value> constexpr Value cotangent_tree(gradient_context& c, const Value& value) {
  Value into = value;
  int n = 0;
  for_each_leaf(into, [&](auto& one) {
    const int given = n == 0 ? c.cotangent : c.further_result_cotangent[n - 1];
    ++n;
    one.id = given >= 0 && is_floating(one.type) ? given : emit::constant(c.emit, one.type, one.shape, 0);
  });
  return into;
}

template <class Backward, class Value, class... Arguments> constexpr void user_gradient(gradient_context& c) {
  builder& b = c.emit;
  if (is_of_many(c)) return;
  const source_line where = c.self().where;
  int next = 0;
  const Value value = tree_of_operands<Value>(c, next);
  int argument = next;
  const results<Arguments...> arguments{tree_of_operands<Arguments>(c, next)...};
  const Value cotangent = cotangent_tree(c, value);
  const auto back = [&]<int... I>(std::integer_sequence<int, I...>) {
    return Backward{}(arguments.template get<I>()..., value, cotangent);
  }
  (std::make_integer_sequence<int, static_cast<int>(sizeof...(Arguments))>{});
  using given = std::remove_cv_t<decltype(back)>;
  using expected = typename cotangent_types<Arguments...>::type;
  using mistake = typename failure_in<given>::type;
  if constexpr (Failed<mistake>) {
    b.note(mistake(failure_place(back)));
  } else if constexpr (!std::is_same_v<given, expected>) {
    b.note(failed<why::gradient_of_another_type<given, expected>>(where));
  } else {
    for_each_leaf(back, [&](const auto& one) {
      if (is_floating(one.type)) c.give(argument, operand_of(b, one, where));
      ++argument;
    });
  }
}

/// The function once more, and its gradient.
template <class Function, class Value, class... Arguments> constexpr void gradient_of_repetition(gradient_context& c) {
  builder& b = c.emit;
  if (is_of_many(c)) return;
  const source_line where = c.self().where;
  int next = 0;
  const Value value = tree_of_operands<Value>(c, next);
  const int first = next;
  results<Arguments...> arguments{tree_of_operands<Arguments>(c, next)...};
  const Value cotangent = cotangent_tree(c, value);
  const int begin = b.size();
  list<int> wanted;
  for_each_leaf(arguments, [&](auto& one) {
    one.id = emit::again(b, one.id);
    wanted.push_back(one.id);
  });
  const auto repeated = call_with(Function{}, arguments);
  mark_lone_heads(b, begin, b.size(), true);
  list<cotangent_of> seeds;
  for_each_pair(repeated, cotangent, [&](const auto& one, const auto& into) {
    if (is_floating(one.type)) seeds.push_back({operand_of(b, one, where), into.id});
  });
  list<int> back(wanted.size(), -1);
  const int missing = pull_back_to(b, begin, seeds, wanted.data(), wanted.size(), back.data());
  if (missing >= 0 && b.without_gradient < 0) b.without_gradient = missing;
  for (int k = 0; k < back.size(); ++k) {
    if (back[k] >= 0) c.give(first + k, back[k]);
  }
}

[[nodiscard]] constexpr op_info op_with_gradient(void (*gradient)(gradient_context&)) {
  return {.name = "custom_gradient",
          .facts = {.passes_operands = true, .attributes = "lanes:count operands:count region:count"},
          .factors = same_dimensions,
          .gradient = gradient,
          .flops = no_flops};
}
template <class Backward, class Value, class... Arguments>
inline constexpr op_info op_with_user_gradient = op_with_gradient(user_gradient<Backward, Value, Arguments...>);
template <class Function, class Value, class... Arguments>
inline constexpr op_info op_with_repetition = op_with_gradient(gradient_of_repetition<Function, Value, Arguments...>);

/// `value`, through `op`.
template <class Value, class... Arguments>
constexpr Value with_gradient(const op_info& op, const Value& value, source_line where, const Arguments&... arguments) {
  builder& b = *owner_of(results(arguments...));
  b.at(where);
  list<int> operands;
  const auto add = [&](const auto& one) { operands.push_back(operand_of(b, one, where)); };
  for_each_leaf(value, add);
  (for_each_leaf(arguments, add), ...);
  Value passed = value;
  int made = -1;
  int n = 0;
  for_each_leaf(passed, [&](auto& one) {
    one.owner = &b;
    if (n == 0) {
      one.id = made = b.append(builder::make(op, one.type, one.shape), operands.data(), operands.size());
    } else {
      one.id = emit::further_result(b, made, n, one.type, one.shape);
    }
    ++n;
  });
  return passed;
}

/// A function whose value passes through `Op<value, arguments ...>::value`.
template <class Forward, class Stateless, template <class, class...> class Op> struct function_with_gradient {
  Forward forward;
  source_line where;

  template <class... Arguments> constexpr auto operator()(const Arguments&... arguments) const {
    static_assert(sizeof...(Arguments) > 0, "custom_gradient, checkpoint: the function needs an argument");
    using mistake = typename failure_in<results<Arguments...>>::type;
    if constexpr (Failed<mistake>) {
      return mistake(failure_place(results(arguments...)));
    } else if constexpr (!std::is_empty_v<Stateless> || !std::is_default_constructible_v<Stateless>) {
      return failed<why::function_with_captures<Stateless>>(where);
    } else {
      builder& b = *owner_of(results(arguments...));
      const int begin = b.size();
      const auto value = forward(arguments...);
      using value_type = std::remove_cv_t<decltype(value)>;
      if constexpr (Failed<typename failure_in<value_type>::type>) {
        return value;
      } else {
        using own = Op<value_type, Arguments...>;
        if constexpr (own::computes_again) mark_lone_heads(b, begin, b.size(), true);
        return with_gradient(own::value, value, where, arguments...);
      }
    }
  }
};
template <class Backward> struct user_gradient_of {
  template <class Value, class... Arguments> struct op {
    static constexpr const op_info& value = op_with_user_gradient<Backward, Value, Arguments...>;
    static constexpr bool computes_again = false;
  };
};
template <class Function> struct repetition_of {
  template <class Value, class... Arguments> struct op {
    static constexpr const op_info& value = op_with_repetition<Function, Value, Arguments...>;
    static constexpr bool computes_again = true;
  };
};

}  // namespace detail

/// The function `forward` with a gradient of your own: `backward(arguments ..., value, cotangent)` returns the
/// cotangent of the argument (a tensor or tree of its type), or of several as results, from the cotangent of the value.
/// How `forward` computes it is not differentiated, so that it may use ops without gradients. `backward` is a lambda
/// without captures, or a struct without members; values that `forward` uses besides its arguments get no cotangent. A
/// value that is no floating-point number has no cotangent either: return anything of its type, such as the argument.
/// Errors: `function_with_captures`, `gradient_of_another_type`, and those of `forward`.
template <class Forward, class Backward>
constexpr auto custom_gradient(const Forward& forward, const Backward& backward,
                               source_line where = source_line::current()) {
  static_cast<void>(backward);  // its type says all
  return detail::function_with_gradient<Forward, Backward, detail::user_gradient_of<Backward>::template op>{forward,
                                                                                                            where};
}

/// The function `f`, whose gradient computes again what it needs: between the forward pass and the gradient only the
/// arguments are kept. Less memory for up to a third more work. Of a loss whose logits are a product of rows and a
/// table, only a few rows of logits exist at a time: 2048 rows of 8192 classes in f32, with gradients, take 10.5 MB,
/// not 161. `f` is a lambda without captures, or a struct without members. (A whole loop's body: `scan(body, carry,
/// layers, recompute)`.) Errors: `function_with_captures`, and those of `f`.
template <class Function> constexpr auto checkpoint(const Function& f, source_line where = source_line::current()) {
  return detail::function_with_gradient<Function, Function, detail::repetition_of<Function>::template op>{f, where};
}

}  // namespace espalier
