// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/optimizers/step.hpp>
#include <espalier/tensor/core/nn/trees.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>

#include <type_traits>

/// Gradients of large batches, in parts: within one call of a program, or over several.
namespace espalier {

namespace why {

template <class... Details> struct batch_is_not_in_parts {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "value_and_grad_in_parts: the first dimension of each batch must be a multiple of the number of "
                  "parts; the tensor stands here. Choose another number of parts, or pad the batch.");
  };
};

}  // namespace why

namespace detail {

/// [B, ...] as [Parts, B / Parts, ...]: part k has the rows k, k + Parts, ... Where rows are split, each device keeps
/// its own.
template <int Parts, class X> constexpr auto rows_in_parts(builder& b, const X& x, source_line where) {
  extents apart;
  axis_list order = axis_list(1).with(0);
  apart.append(X::shape[0] / Parts);
  apart.append(Parts);
  for (int d = 1; d < X::rank; ++d) {
    apart.append(X::shape[d]);
    order = order.with(d + 1);
  }
  return emit::transpose(b, emit::reshape(b, operand_of(b, x, where), apart), order);
}
template <int Parts, class X> struct in_parts;
template <int Parts, class Mesh, template <int...> class Tensor, int Rows, int... Rest>
struct in_parts<Parts, symbol<Mesh, Tensor<Rows, Rest...>>> {
  using type = symbol<Mesh, Tensor<Parts, Rows / Parts, Rest...>>;
};

template <int Parts, class X> [[nodiscard]] constexpr bool comes_in_parts() {
  if constexpr (Symbol<X>) {
    return X::rank >= 1 && X::extent(0) % Parts == 0;
  } else {
    return false;
  }
}
/// The first batch that does not, or void.
template <int Parts, class... Batches> struct not_in_parts { using type = void; };
template <int Parts, class First, class... Rest>
struct not_in_parts<Parts, First, Rest...>
    : std::conditional_t<comes_in_parts<Parts, First>(), not_in_parts<Parts, Rest...>, std::type_identity<First>> {};

template <int Parts, class Function> struct value_and_grad_in_parts_function {
  Function function;
  source_line where;

  template <class Parameters, class... Batches>
  constexpr auto operator()(const Parameters& parameters, const Batches&... batches) const {
    using wrong = typename not_in_parts<Parts, Batches...>::type;
    using mistake = typename failure_in<results<Parameters, Batches...>>::type;
    if constexpr (Failed<mistake>) {
      return value_and_gradient<mistake, mistake>{mistake(where), mistake(where)};
    } else if constexpr (!std::is_void_v<wrong>) {
      using reason = failed<why::batch_is_not_in_parts<wrong>>;
      owner_of(parameters)->note(reason(where));
      return value_and_gradient<reason, Parameters>{reason(where), parameters};
    } else {
      builder& b = *owner_of(parameters);
      const pinned_line line(b, where);
      const results<typename in_parts<Parts, Batches>::type...> parts(
          typename in_parts<Parts, Batches>::type(b, rows_in_parts<Parts>(b, batches, where))...);
      using loss_type = std::remove_cvref_t<decltype(call_with(function, results<Parameters, Batches...>{}))>;
      static_assert(Symbol<loss_type> && is_loss<loss_type>(),
                    "value_and_grad_in_parts: the function returns a scalar loss of floats.");
      using total_type = symbol<typename loss_type::mesh, tensor_for<computed_type(loss_type::type), extents{}>>;
      accumulators_like<Parameters> zeros{};
      for_each_leaf(zeros, [&](auto& one) {
        one.owner = &b;
        one.id = emit::constant(b, one.type, one.shape, 0);
      });
      const total_type nothing(b, emit::constant(b, total_type::type, extents{}, 0));
      const auto body = [&](const auto& carry, const auto& part) {
        const auto both = [&]<int... I>(std::integer_sequence<int, I...>) {
          return value_and_grad(function, where)(parameters, part.template get<I>()...);
        }
        (std::make_integer_sequence<int, static_cast<int>(sizeof...(Batches))>{});
        auto next = carry;
        next.first.id = emit::add(b, carry.first.id, emit::convert(b, both.value.id, total_type::type));
        add_leaves(b, next.rest.first, both.gradient);
        return next;
      };
      auto totals = espalier::scan(body, results(nothing, zeros), parts, where);
      if constexpr (Failed<decltype(totals)>) {
        return value_and_gradient<decltype(totals), decltype(totals)>{totals, totals};
      } else {
        for_each_leaf(totals, [&](auto& one) { one.id = emit::scale(b, one.id, 1.0 / Parts); });
        return value_and_gradient<total_type, accumulators_like<Parameters>>{totals.first, totals.rest.first};
      }
    }
  }

  /// Adds a tree to one of the types it is accumulated in.
  template <class Sum, class Tree> static constexpr void add_leaves(builder& b, Sum& sum, const Tree& tree) {
    for_each_pair(sum, tree, [&](auto& one, const auto& other) {
      one.id = emit::add(b, one.id, emit::convert(b, operand_of(b, other), one.type));
    });
  }
};

}  // namespace detail

namespace nn {

/// Computes `value_and_grad(f)(parameters, batches ...)` of a loss that is a mean over the rows of its batches, in
/// `Parts` chunks one after the other: only one chunk's values are in memory, and gradients are added up, in `f32`
/// where parameters are of sixteen bits. Each batch [B, ...] is cut into chunks of B / Parts rows, every Parts-th row
/// each, so that rows stay on their devices; the value and the gradient are the means over the chunks.
///
///     const auto [loss, gradient] = nn::value_and_grad_in_parts<4>(f)(state.parameters, x, labels);
///
/// Errors: `batch_is_not_in_parts`, and those of `value_and_grad`.
template <int Parts, class Function>
constexpr auto value_and_grad_in_parts(const Function& f, source_line where = source_line::current()) {
  static_assert(Parts >= 1, "value_and_grad_in_parts: there is at least one part.");
  return detail::value_and_grad_in_parts_function<Parts, Function>{f, where};
}

/// A sum of gradients, a tree `nn::accumulators<Tree, Leaf>` that a program carries, and one more gradient. Add until
/// it is time, divide by how many there are, step, and start from `zeros_like(sum)` again. Laid out like the
/// parameters. Errors: `trees_of_different_leaves`.
template <class Sum, class Gradients>
constexpr auto add_gradients(const Sum& sum, const Gradients& gradients, source_line where = source_line::current()) {
  if constexpr (Failed<Sum> || Failed<Gradients>) {
    return detail::first_failure(sum, gradients);
  } else if constexpr (!detail::are_moments_of<Sum, Gradients>()) {
    return failed<detail::difference_of_trees<Sum, Gradients, why::trees_of_different_leaves>>(where);
  } else {
    builder& b = *detail::owner_of(sum);
    const pinned_line line(b, where);
    Sum next = detail::operands_of(b, sum, where);
    detail::value_and_grad_in_parts_function<1, int>::add_leaves(b, next, gradients);
    return next;
  }
}

}  // namespace nn

}  // namespace espalier
