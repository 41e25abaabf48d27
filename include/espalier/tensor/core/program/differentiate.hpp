// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/ops/scan.hpp>
#include <espalier/tensor/core/program/reverse_sweep.hpp>

namespace espalier {

/// A function's value and its gradient. A program that returns this has both as its results.
template <class Value, class Gradient> struct value_and_gradient {
  Value value;
  Gradient gradient;

  constexpr operator results<Value, Gradient>() const { return results<Value, Gradient>(value, gradient); }  // NOLINT
};

namespace detail {

template <class Value, class Gradient> struct returned_as<value_and_gradient<Value, Gradient>> {
  using type = results<Value, Gradient>;
};

/// Replaces a tree's tensors by equal values with no other reader: the derivative is by these alone, and the same value
/// reached in another way is a constant.
template <class Tree> constexpr void set_apart(Tree& tree, builder& b, source_line where) {
  for_each_leaf(tree, [&](auto& one) {
    if constexpr (Symbol<std::remove_cvref_t<decltype(one)>>) {
      one.id = b.append(ops::reshape, one.type, one.shape, operand_of(b, one, where));
      one.owner = &b;
    }
  });
}

/// The return type of a function that is differentiated: a loss, or results(loss, others ...).
template <class T> struct loss_in { using type = T; };
template <class First, class... Rest> struct loss_in<results<First, Rest...>> { using type = First; };
template <class T> [[nodiscard]] constexpr bool is_loss() {
  if constexpr (Symbol<T>) {
    return T::rank == 0 && is_floating(T::type);
  } else {
    return false;
  }
}

/// `function` of arguments, calls it.
template <class Function, class... Arguments>
constexpr auto call_with(const Function& function, const results<Arguments...>& arguments) {
  return [&]<int... I>(std::integer_sequence<int, I...>) { return function(arguments.template get<I>()...); }
  (std::make_integer_sequence<int, static_cast<int>(sizeof...(Arguments))>{});
}

/// The arguments by which a function is differentiated: one as it is, several as results.
template <int... Numbers> struct chosen_arguments {
  template <class Arguments> static constexpr auto of(const Arguments& arguments) {
    return results(arguments.template get<Numbers>()...);
  }
  template <class Arguments, class F> static constexpr void for_each(Arguments& arguments, const F& f) {
    (f(arguments.template get<Numbers>()), ...);
  }
};
template <int Number> struct chosen_arguments<Number> {
  template <class Arguments> static constexpr auto of(const Arguments& arguments) {
    return arguments.template get<Number>();
  }
  template <class Arguments, class F> static constexpr void for_each(Arguments& arguments, const F& f) {
    f(arguments.template get<Number>());
  }
};
template <> struct chosen_arguments<> : chosen_arguments<0> {};

template <class Function, int... Numbers> struct value_and_grad_function {
  Function function;
  source_line where;

  template <class... Arguments> constexpr auto operator()(const Arguments&... given) const {
    constexpr int count = static_cast<int>(sizeof...(Arguments));
    static_assert(count > 0, "value_and_grad, grad: the function needs an argument to be differentiated by");
    static_assert(((Numbers >= 0 && Numbers < count) && ...),
                  "value_and_grad, grad: there is no argument of this number. They count from 0.");
    using chosen = chosen_arguments<Numbers...>;
    results<Arguments...> arguments(given...);
    auto gradient = chosen::of(arguments);
    using gradient_type = decltype(gradient);
    using given_mistake = typename failure_in<results<gradient_type>>::type;
    if constexpr (Failed<given_mistake>) {
      const given_mistake made(failure_place(gradient));
      return value_and_gradient<given_mistake, given_mistake>{made, made};
    } else {
      builder& b = *owner_of(gradient);
      chosen::for_each(arguments, [&](auto& one) { set_apart(one, b, where); });
      const auto wanted = chosen::of(arguments);
      if constexpr (std::is_void_v<decltype(call_with(function, arguments))>) {
        // A body with an error in it returns nothing, says g++.
        using reason = failed<why::function_returns_nothing<Function>>;
        b.note(reason(where));
        return value_and_gradient<reason, gradient_type>{reason(where), gradient};
      } else {
        const auto value = call_with(function, arguments);
        using value_type = std::remove_cv_t<decltype(value)>;
        using loss_type = typename loss_in<value_type>::type;
        using mistake = typename failure_in<value_type>::type;
        // A gradient with a mistake keeps its type, so that what the caller does with its leaves compiles.
        if constexpr (Failed<mistake>) {
          b.note(mistake(failure_place(value)));
          return value_and_gradient<value_type, gradient_type>{value, gradient};
        } else if constexpr (!is_loss<loss_type>()) {
          using reason = failed<why::loss_is_not_scalar<value_type>>;
          b.note(reason(where));
          return value_and_gradient<reason, gradient_type>{reason(where), gradient};
        } else {
          list<int> ids;
          for_each_leaf(wanted, [&](const auto& one) { ids.push_back(one.id); });
          list<int> gradients(ids.size(), -1);
          // An op without a gradient is noted in the graph: `program` reports it with its line.
          const int missing =
              differentiate(b, operand_of(b, loss_of(value), where), ids.data(), ids.size(), gradients.data());
          if (missing >= 0 && b.without_gradient < 0) b.without_gradient = missing;
          int k = 0;
          for_each_leaf(gradient, [&](auto& one) {
            one.owner = &b;
            one.id = gradients[k++];
          });
          return value_and_gradient<value_type, gradient_type>{value, gradient};
        }
      }
    }
  }

 private:
  template <class Value> static constexpr const auto& loss_of(const Value& value) {
    if constexpr (is_results<Value>) {
      return value.first;
    } else {
      return value;
    }
  }
};

template <class Function, int... Numbers> struct grad_function {
  value_and_grad_function<Function, Numbers...> both;
  template <class... Arguments> constexpr auto operator()(const Arguments&... arguments) const {
    return both(arguments...).gradient;
  }
};

/// A value of its own for each tensor of a tree: nothing is known of it but that other things depend on it.
template <class Tree> constexpr Tree placeholders(builder& b, const Tree& like) {
  Tree made = like;
  for_each_leaf(made, [&](auto& one) { one.id = emit::constant(b, one.type, one.shape, 0); });
  return made;
}

template <class Function> struct jvp_function {
  Function function;
  source_line where;

  template <class Point, class Tangent> constexpr auto operator()(const Point& point, const Tangent& tangent) const {
    using mistake = typename failure_in<results<Point, Tangent>>::type;
    if constexpr (Failed<mistake>) {
      const mistake made(failure_place(results(point, tangent)));
      return results(made, made);
    } else if constexpr (!std::is_same_v<Point, Tangent>) {
      const failed<why::tangent_of_another_type<Point, Tangent>> made(where);
      return results(made, made);
    } else {
      builder& b = *owner_of(point);
      b.at(where);
      Point argument = point;
      set_apart(argument, b, where);
      const auto value = call(argument);
      using value_type = std::remove_cv_t<decltype(value)>;
      if constexpr (Failed<typename failure_in<value_type>::type>) {
        return results(value, value);
      } else {
        return results(value, slope_of(b, argument, tangent, value));
      }
    }
  }

 private:
  template <class Point> constexpr auto call(const Point& argument) const {
    if constexpr (is_results<Point>) {
      return call_with(function, argument);
    } else {
      return function(argument);
    }
  }

  /// Returns the tangent of the value. The cotangent of the argument is a linear function of the cotangent of the
  /// value; the reverse of that function, applied to the argument's tangent, is the value's tangent. Nothing of the
  /// first reverse is left then.
  template <class Point, class Value>
  constexpr Value slope_of(builder& b, const Point& argument, const Point& tangent, const Value& value) const {
    const pinned_line line(b, where);
    const Value into = placeholders(b, value);
    list<cotangent_of> seeds;
    list<int> cotangents;
    for_each_pair(value, into, [&](const auto& one, const auto& placeholder) {
      if (is_floating(one.type)) seeds.push_back({operand_of(b, one, where), placeholder.id});
      cotangents.push_back(placeholder.id);
    });
    list<int> arguments;
    for_each_leaf(argument, [&](const auto& one) { arguments.push_back(one.id); });
    list<int> back(arguments.size(), -1);
    note(b, pull_back(b, seeds, arguments.data(), arguments.size(), back.data()));

    list<cotangent_of> forward;
    int k = 0;
    for_each_leaf(tangent, [&](const auto& one) {
      if (back[k] >= 0) forward.push_back({back[k], operand_of(b, one, where)});
      ++k;
    });
    list<int> slopes(cotangents.size(), -1);
    note(b, pull_back(b, forward, cotangents.data(), cotangents.size(), slopes.data()));
    Value slope = value;
    k = 0;
    for_each_leaf(slope, [&](auto& one) {
      one.owner = &b;
      one.id = slopes[k] >= 0 ? slopes[k] : emit::constant(b, one.type, one.shape, 0);
      ++k;
    });
    return slope;
  }
  static constexpr void note(builder& b, int without_rule) {
    if (without_rule >= 0 && b.without_gradient < 0) b.without_gradient = without_rule;
  }
};

}  // namespace detail

/// The function that returns `f`'s value and its gradient by the first argument, a tensor or a parameter tree:
/// `const auto [loss, gradient] = value_and_grad(f)(parameters, batch);`
/// With numbers of arguments, by these: `value_and_grad<0, 2>(f)` has the gradients as results, `value_and_grad<1>(f)`
/// one gradient. A function that returns results(loss, others ...) has all of them as its value.
/// Each gradient is laid out like its parameter, so the reduction over data-parallel devices happens once, there.
/// Errors: `loss_is_not_scalar`, `op_without_gradient`, and those of what `f` does.
template <int... Arguments, class Function>
constexpr auto value_and_grad(const Function& f, source_line where = source_line::current()) {
  return detail::value_and_grad_function<Function, Arguments...>{f, where};
}

/// The function that returns the gradient alone: `const auto gradient = grad(f)(parameters, batch);` Arguments and
/// errors as for `value_and_grad`.
template <int... Arguments, class Function>
constexpr auto grad(const Function& f, source_line where = source_line::current()) {
  return detail::grad_function<Function, Arguments...>{{f, where}};
}

/// The function that returns `f`'s value at a point and its derivative there in a direction, as results: `const auto
/// [y, slope] = jvp(f)(x, dx);` Several arguments are given as results: `jvp(f)(results(x, w), results(dx, dw))` calls
/// f(x, w). Value and derivative are what f returns, a tensor, a tree, or results. A value that is no floating-point
/// number has derivative 0.
/// Errors: `tangent_of_another_type`, `op_without_gradient`, and those of what `f` does.
template <class Function> constexpr auto jvp(const Function& f, source_line where = source_line::current()) {
  return detail::jvp_function<Function>{f, where};
}

}  // namespace espalier
