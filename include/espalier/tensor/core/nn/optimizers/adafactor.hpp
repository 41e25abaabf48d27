// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/constant_math.hpp>
#include <espalier/tensor/core/nn/optimizers/step.hpp>

#include <boost/hana/define_struct.hpp>

namespace espalier {

namespace detail {

/// The shape without dimension `dim`, counted from the end.
[[nodiscard]] constexpr extents shape_without(const extents& shape, int dim) {
  extents result;
  for (int d = 0; d < shape.rank; ++d) {
    if (d != shape.rank + dim) result.append(shape[d]);
  }
  return result;
}

/// The second moment that Adafactor keeps of a leaf: of matrices, the last two dimensions, the means of the rows and of
/// the columns; of vectors and scalars all of it, in the place of the rows.
template <class Tensor, bool Rows> struct factored_moment {
  static constexpr extents shape = Tensor::rank >= 2 ? shape_without(Tensor::shape, Rows ? -1 : -2)
                                   : Rows            ? Tensor::shape
                                                     : extents{};
  using type = tensor_for<computed_type(Tensor::type), shape>;
};
template <class Tensor, class... Entries, bool Rows>
struct factored_moment<sharded<Tensor, Entries...>, Rows> : factored_moment<Tensor, Rows> {};

/// Leaves that are such means, of leaves of another kind.
template <class Kind, bool Rows> struct factored {
  template <class Tensor> using of = leaf<Kind, typename factored_moment<Tensor, Rows>::type>;
};

}  // namespace detail

// A stack of vectors is no matrix: leaves are told apart before they are stacked.
template <class Kind, bool Rows, int Count> struct stacked<detail::factored<Kind, Rows>, Count> {
  template <class Tensor> using of = leaf<detail::factored<stacked<Kind, Count>, Rows>, Tensor>;
};

namespace nn {

/// Adafactor's hyper-parameters (Shazeer and Stern, arXiv 1804.04235), with the paper's values.
struct adafactor_settings {
  double decay_power = 0.8;  ///< of the second moments: beta2 = 1 - t^-decay_power at step t
  double epsilon1 = 1e-30;   ///< added to squares of gradients
  double epsilon2 = 1e-3;    ///< the least size of a parameter for its relative step
  double clip = 1;           ///< the root mean square beyond which an update is scaled down; 0: none
  /// Whether the rate is multiplied by the root mean square of each parameter.
  bool relative = true;
  double weight_decay = 0;
};

/// The state that Adafactor carries from step to step for parameters `Tree<Leaf>`: of a matrix [m, n], m + n numbers;
/// of [layers, m, n] and the like, the same of each matrix; of vectors and scalars as many as they have elements (whose
/// `columns` are a scalar that is not used). Leaves are `f32`, or `f64` of `f64` parameters. It is stored and updated
/// as that of `adamw`.
template <template <class> class Tree> struct adafactor {
  template <class Leaf> struct state {
    BOOST_HANA_DEFINE_STRUCT(state, (Tree<Leaf>, parameters), (Tree<detail::factored<Leaf, true>>, rows),
                             (Tree<detail::factored<Leaf, false>>, columns), (leaf<Leaf, f32<>>, step));
  };
};

}  // namespace nn

namespace detail {

template <class Kind, bool Rows> struct stacking<factored<Kind, Rows>> : stacking<Kind> {
  template <class Leaves> using with = factored<typename stacking<Kind>::template with<Leaves>, Rows>;
};

template <class State>
concept AdafactorState = ParameterTree<State> && requires(State& state) {
  requires std::is_same_v < decltype(state.rows), rebind_tree < decltype(state.parameters),
      factored < kind_of<decltype(state.parameters)>,
  true >>> ;
  requires std::is_same_v < decltype(state.columns), rebind_tree < decltype(state.parameters),
      factored < kind_of<decltype(state.parameters)>,
  false >>> ;
  state.step;
};

/// The mean over dimensions, given as bits.
constexpr int mean_over(builder& b, int x, std::int64_t dims) {
  const int sum = emit::reduce_sum(b, x, dims);
  return sum == x
             ? x
             : emit::scale(b, sum,
                           static_cast<double>(b[sum].shape.elements()) / static_cast<double>(b[x].shape.elements()));
}
/// The dimensions of a tensor from `first` on, as bits.
[[nodiscard]] constexpr std::int64_t dimensions_from(int first, int rank) {
  return (std::int64_t{1} << rank) - (std::int64_t{1} << first);
}
/// The root of the mean of the squares over dimensions, given as bits.
constexpr int root_mean_square(builder& b, int x, std::int64_t dims) {
  const int mean = mean_over(b, emit::multiply(b, x, x), dims);
  return b.append(ops::sqrt, b[mean].type, b[mean].shape, mean);
}

template <class State, class Gradients, class Rate>
using adafactor_mistake = step_mistake<AdafactorState<State>, State, Gradients, Rate, why::state_of_another_optimizer>;

}  // namespace detail

namespace nn {

/// One step of Adafactor (Shazeer and Stern, arXiv 1804.04235, algorithms 4 and 5): second moments as rows' and
/// columns' means, an update that is clipped to a root mean square of `clip`, a decay that grows with the step. With
/// `nn::relative_step(state.step)` as the rate it is the paper's; means in the place of its sums give the same update.
/// The paper's rule for a matrix is applied to each matrix, the last two dimensions, of a leaf with more.
///
/// Computed in f32 (f64 of f64 parameters), and rounded once to parameters of sixteen bits. State and update are laid
/// out as the parameters are: of a matrix whose rows are split, the columns' sums travel, of one whose columns are, the
/// rows', and of each a few scalars. Arguments and errors as for `adamw_step`; without `place`, as the state is small.
template <class State, class Gradients, class Rate>
constexpr auto adafactor_step(const State& state, const Gradients& gradients, const Rate& rate,
                              const adafactor_settings& settings = {}, source_line where = source_line::current()) {
  if constexpr (Failed<State> || Failed<Gradients> || Failed<Rate>) {
    return detail::first_failure(state, gradients, rate);
  } else if constexpr (!std::is_void_v<detail::adafactor_mistake<State, Gradients, Rate>>) {
    return failed<detail::adafactor_mistake<State, Gradients, Rate>>(where);
  } else {
    builder& b = *rate.owner;
    const pinned_line line(b, where);
    State next = detail::operands_of(b, state, where);
    next.step = detail::next_step(next.step);
    const auto leaves = detail::optimizer_leaves(next.parameters, detail::operands_of(b, gradients, where));
    const int exact_rate = detail::rate_for(b, leaves, rate.id);
    const int kept = detail::kept_by_decay(b, exact_rate, settings.weight_decay);
    // 1 - beta2 = t^-decay_power.
    const int t = emit::convert(b, next.step.id, dtype::f64);
    const int power = emit::constant_like(b, t, -settings.decay_power);
    const int fresh = b.append(ops::pow, dtype::f64, extents{}, t, power);
    detail::list<int> rows = detail::ids_of(next.rows);
    detail::list<int> columns = detail::ids_of(next.columns);
    detail::list<int> updated;
    for (int k = 0; k < leaves.size(); ++k) {
      const int gradient = emit::convert(b, leaves[k].gradient, detail::computed_type(b[leaves[k].parameter].type));
      const dtype type = b[gradient].type;
      const extents shape = b[gradient].shape;
      const auto unary = [&](const op_info& op, int x) { return b.append(op, b[x].type, b[x].shape, x); };
      const auto average = [&](int old, int now) {
        const int part = emit::multiply(b, emit::repeat_scalar(b, fresh, old), emit::subtract(b, now, old));
        return emit::add(b, old, part);
      };
      // Added to the means, it is no less than added to each square: the mean of those is as exact.
      const auto with_epsilon = [&](int x) { return emit::add(b, x, emit::constant_like(b, x, settings.epsilon1)); };
      const int squares = emit::multiply(b, gradient, gradient);
      int scaled = -1;
      const bool is_vector = b[rows[k]].shape == shape;
      // Layers of a stack are apart: of vectors, the columns have no other dimensions.
      const std::int64_t own =
          detail::dimensions_from(is_vector ? b[columns[k]].shape.rank : shape.rank - 2, shape.rank);
      if (is_vector) {
        rows[k] = average(rows[k], with_epsilon(squares));
        scaled = emit::multiply(b, gradient, unary(ops::rsqrt, rows[k]));
      } else {
        const std::int64_t last = std::int64_t{1} << (shape.rank - 1);
        const std::int64_t before_last = std::int64_t{1} << (shape.rank - 2);
        rows[k] = average(rows[k], with_epsilon(detail::mean_over(b, squares, last)));
        columns[k] = average(columns[k], with_epsilon(detail::mean_over(b, squares, before_last)));
        const int whole = detail::mean_over(b, rows[k], before_last);
        const int of_rows = emit::divide(b, rows[k], emit::broadcast_along(b, whole, b[rows[k]].shape, before_last));
        const int by_rows = emit::broadcast_along(b, unary(ops::rsqrt, of_rows), shape, last);
        const int by_columns = emit::broadcast_along(b, unary(ops::rsqrt, columns[k]), shape, before_last);
        scaled = emit::multiply(b, emit::multiply(b, gradient, by_rows), by_columns);
      }
      // One factor of each matrix: the rate, the parameter's size, and what clips the update.
      const int parameter = emit::convert(b, leaves[k].parameter, type);
      int factor = emit::convert(b, exact_rate, type);
      const auto times = [&](int per_matrix) {
        factor = emit::multiply(b, emit::broadcast_to(b, factor, b[per_matrix].shape), per_matrix);
      };
      const auto at_least = [&](int x, double least) {
        const int bound = emit::constant_like(b, x, least);
        return b.append(ops::maximum, type, b[x].shape, x, bound);
      };
      if (settings.relative) times(at_least(detail::root_mean_square(b, parameter, own), settings.epsilon2));
      if (settings.clip > 0) {
        const int size = emit::scale(b, detail::root_mean_square(b, scaled, own), 1 / settings.clip);
        const int divisor = at_least(size, 1);
        times(emit::divide(b, emit::constant_like(b, divisor, 1), divisor));
      }
      if (b[factor].shape.rank == 0) factor = emit::broadcast_to(b, factor, detail::reduced_shape(shape, own, false));
      const int update = emit::multiply(b, emit::broadcast_along(b, factor, shape, own), scaled);
      updated.push_back(detail::updated_parameter(b, leaves[k], update, update, kept));
    }
    detail::set_ids(next.rows, rows);
    detail::set_ids(next.columns, columns);
    detail::set_ids(next.parameters, updated);
    return next;
  }
}

}  // namespace nn

}  // namespace espalier
