// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/optimizers/adamw.hpp>

#include <boost/hana/define_struct.hpp>

namespace espalier {

namespace detail {

/// The second moment of a leaf, which Muon keeps in addition to the momentum: that of a vector or scalar has its shape,
/// that of a matrix is a scalar that is not used.
template <class Tensor, bool IsMatrix> struct vector_moment {
  using type = tensor_for<computed_type(Tensor::type), Tensor::shape>;
};
template <class Tensor> struct vector_moment<Tensor, true> {
  using type = tensor_for<computed_type(Tensor::type), extents{}>;
};
template <class Tensor, class... Entries> struct vector_moment<sharded<Tensor, Entries...>, false> {
  using type = sharded<typename vector_moment<Tensor, false>::type, Entries...>;
};
template <class Tensor, class... Entries>
struct vector_moment<sharded<Tensor, Entries...>, true> : vector_moment<Tensor, true> {};

/// Leaves that are such moments, of leaves of another kind.
template <class Kind> struct vector_moments {
  template <class Tensor> using of = leaf<Kind, typename vector_moment<Tensor, (plain<Tensor>::rank >= 2)>::type>;
};

}  // namespace detail

// A stack of vectors is no matrix: leaves are told apart before they are stacked.
template <class Kind, int Count> struct stacked<detail::vector_moments<Kind>, Count> {
  template <class Tensor> using of = leaf<detail::vector_moments<stacked<Kind, Count>>, Tensor>;
};

namespace nn {

/// Muon's hyper-parameters (Jordan et al., kellerjordan.github.io/posts/muon; Liu et al., arXiv 2502.16982).
struct muon_settings {
  double momentum = 0.95;
  bool nesterov = true;
  int iterations = 5;  ///< of Newton and Schulz
  /// The root mean square of an update of a matrix [m, n] is about this: it is multiplied by size * sqrt(max(m, n)), so
  /// that rates are those of AdamW. With 0 it is multiplied by sqrt(max(1, m / n)), as in the first publication.
  double size = 0.2;
  /// Whether every device multiplies whole matrices: each is gathered once, and then nothing travels. Otherwise they
  /// are multiplied where they are, but for those that are split along the shorter of their dimensions, which would
  /// have to be gathered in each iteration.
  bool gather = false;
  /// Each step takes rate * weight_decay of every matrix away.
  double weight_decay = 0.1;
  /// The settings for vectors and scalars.
  adamw_settings others{};
};

/// The state that Muon carries from step to step for parameters `Tree<Leaf>`: the momentum, and a second moment of
/// vectors and scalars (of matrices a scalar that is not used). It is stored and updated as that of `adamw`.
template <template <class> class Tree> struct muon {
  template <class Leaf> struct state {
    BOOST_HANA_DEFINE_STRUCT(state, (Tree<Leaf>, parameters), (accumulators<Tree, Leaf>, momentum),
                             (Tree<detail::vector_moments<Leaf>>, second_moment), (leaf<Leaf, f32<>>, step));
  };
};

}  // namespace nn

namespace detail {

template <class Kind> struct stacking<vector_moments<Kind>> : stacking<Kind> {
  template <class Leaves> using with = vector_moments<typename stacking<Kind>::template with<Leaves>>;
};

template <class State>
concept MuonState = ParameterTree<State> && requires(State& state) {
  requires are_moments_of<decltype(state.momentum), decltype(state.parameters)>();
  requires std::is_same_v<decltype(state.second_moment),
                          rebind_tree<decltype(state.parameters), vector_moments<kind_of<decltype(state.parameters)>>>>;
  state.step;
};

/// A product of the last two dimensions of tensors, whose others are the same, over the dimension that both call `k`.
constexpr int matrix_product(builder& b, int x, const char* left, int y, const char* right) {
  einsum_term terms[3];
  const int others = b[x].shape.rank - 2;
  for (einsum_term& term : terms) {
    for (int d = 0; d < others; ++d) term.append(static_cast<char>('A' + d));
  }
  for (int d = 0; d < 2; ++d) {
    terms[0].append(left[d]);
    terms[1].append(right[d]);
  }
  terms[2].append('m');
  terms[2].append('n');
  return emit::einsum(b, x, terms[0], y, terms[1], terms[2]);
}

/// The last two dimensions whole on every device, as an annotation.
constexpr int whole_matrices(builder& b, const extents& shape) {
  sharding placement = sharding::all_open(shape.rank);
  placement.open &= ~(3U << static_cast<unsigned>(shape.rank - 2));
  return b.annotate(shape, placement);
}

/// Whether matrices of this shape are split along the shorter of their two dimensions, over which their products with
/// themselves are not sums. `id` has their layout, as far as an annotation says it.
[[nodiscard]] constexpr bool is_split_along_shorter(builder& b, int id, const extents& shape) {
  if (b[id].annotation < 0) return false;
  const bool is_wide = shape[shape.rank - 2] <= shape[shape.rank - 1];
  return !b.result().annotations[b[id].annotation].placement.dim[shape.rank - (is_wide ? 2 : 1)].empty();
}

/// The nearest semi-orthogonal matrix, nearly: singular values become about 1 (0.7 to 1.2), by `iterations` steps of
/// Newton and Schulz with Jordan's quintic, a x + b x^3 + c x^5. Of a matrix that is higher than wide the smaller of
/// the two products with its transpose is used. With `gather`, whole matrices are multiplied on each device, and the
/// result is where `like` is.
constexpr int orthogonalised(builder& b, int x, int iterations, bool gather, int like) {
  const extents shape = b[x].shape;
  const bool is_wide = shape[shape.rank - 2] <= shape[shape.rank - 1];
  const std::int64_t matrix = std::int64_t{3} << (shape.rank - 2);
  const int whole = gather ? whole_matrices(b, shape) : -1;
  const auto held = [&](int value) { return gather ? emit::annotated(b, ops::shard, value, whole) : value; };
  const int given = gather ? emit::annotated(b, ops::reshard, x, whole) : x;
  const int squares = emit::reduce_sum(b, emit::multiply(b, given, given), matrix);
  const int norm = b.append(ops::sqrt, b[squares].type, b[squares].shape, squares);
  const int least = emit::add(b, norm, emit::constant_like(b, norm, 1e-7));
  const int start = emit::divide(b, given, emit::broadcast_along(b, least, shape, matrix));
  emit::region_begin(b, iterations, false, false);
  const int carry = emit::region_parameter(b, start);
  const int now = held(carry);
  const int square = is_wide ? matrix_product(b, now, "mk", now, "nk") : matrix_product(b, now, "km", now, "kn");
  const int fourth = matrix_product(b, square, "mk", square, "kn");
  const int both = emit::add(b, emit::scale(b, square, -4.7750), emit::scale(b, fourth, 2.0315));
  const int turned = is_wide ? matrix_product(b, both, "mk", now, "kn") : matrix_product(b, now, "mk", both, "kn");
  const int next = emit::region_yield(b, carry, held(emit::add(b, emit::scale(b, now, 3.4445), turned)));
  emit::region_end(b);
  const int result = emit::region_result(b, next);
  return gather ? emit::match(b, held(result), like) : result;
}

/// Returns the factor of the update of a matrix of this shape.
constexpr double muon_scale(const extents& shape, double size) {
  const auto rows = static_cast<double>(shape[shape.rank - 2]);
  const auto columns = static_cast<double>(shape[shape.rank - 1]);
  if (size != 0) return size * square_root(rows > columns ? rows : columns);
  return square_root(rows > columns ? rows / columns : 1);
}

template <class State, class Gradients, class Rate>
using muon_mistake = step_mistake<MuonState<State>, State, Gradients, Rate, why::state_of_another_optimizer>;

}  // namespace detail

namespace nn {

/// One step of Muon: the momentum of each matrix, the last two dimensions of a leaf, is made semi-orthogonal by five
/// steps of Newton and Schulz (Jordan et al., kellerjordan.github.io/posts/muon), and is the update; of [layers, m, n]
/// each matrix is. Vectors (also stacked ones) and scalars take a step of AdamW with `settings.others` at the same
/// rate. Embeddings and the head, which AdamW serves better, belong into a tree with an optimizer of its own.
///
/// Computed in f32 (f64 of f64 parameters), parameters of sixteen bits rounded once. Arguments and errors as for
/// `adamw_step`. Of [m, n] with m <= n, split along n, or with m > n, split along m, the product of min(m, n) squared
/// numbers is summed once an iteration; one that is split along the other dimension is gathered once, as all are with
/// `settings.gather`.
template <class State, class Gradients, class Rate, class Place = like_parameters>
constexpr auto muon_step(const State& state, const Gradients& gradients, const Rate& rate,
                         const muon_settings& settings = {}, const Place& place = {},
                         source_line where = source_line::current()) {
  if constexpr (Failed<State> || Failed<Gradients> || Failed<Rate>) {
    return detail::first_failure(state, gradients, rate);
  } else if constexpr (!std::is_void_v<detail::muon_mistake<State, Gradients, Rate>>) {
    return failed<detail::muon_mistake<State, Gradients, Rate>>(where);
  } else {
    builder& b = *rate.owner;
    const pinned_line line(b, where);
    State next = detail::operands_of(b, state, where);
    const auto placed = [&](auto& one) { one = place(one, where); };
    detail::for_each_leaf(next.momentum, placed);
    detail::for_each_leaf(next.second_moment, placed);
    next.step = detail::next_step(next.step);
    const auto leaves = detail::optimizer_leaves(next.parameters, detail::operands_of(b, gradients, where));
    const int exact_rate = detail::rate_for(b, leaves, rate.id);
    const int kept = detail::kept_by_decay(b, exact_rate, settings.weight_decay);
    const emit::adamw_scalars others =
        emit::prepare_adamw(b, next.step.id, rate.id, b[exact_rate].type, settings.others);
    detail::list<int> momentum = detail::ids_of(next.momentum);
    detail::list<int> second = detail::ids_of(next.second_moment);
    detail::list<int> updated;
    for (int k = 0; k < leaves.size(); ++k) {
      const int before = momentum[k];
      const int gradient = detail::gradient_for(b, leaves[k], before);
      const extents shape = b[gradient].shape;
      if (b[second[k]].shape == shape) {
        const int update = emit::adamw_update(b, gradient, momentum[k], second[k], others, settings.others);
        updated.push_back(detail::updated_parameter(b, leaves[k], update, before, others.kept));
        continue;
      }
      const int old = emit::convert(b, before, b[gradient].type);
      const int now = emit::add(b, emit::scale(b, old, settings.momentum), gradient);
      momentum[k] = emit::convert(b, now, b[before].type);
      const int direction = settings.nesterov ? emit::add(b, gradient, emit::scale(b, now, settings.momentum)) : now;
      const int parameter = leaves[k].parameter;
      const bool gather = settings.gather || detail::is_split_along_shorter(
                                                 b, detail::is_annotated(b[before]) ? before : parameter, shape);
      const int turned = emit::scale(b, detail::orthogonalised(b, direction, settings.iterations, gather, parameter),
                                     detail::muon_scale(shape, settings.size));
      const int update = emit::multiply(b, emit::repeat_scalar(b, exact_rate, turned), turned);
      // A matrix that every device has had whole need not be put together again: its update is where it is.
      updated.push_back(detail::updated_parameter(b, leaves[k], update, gather ? parameter : before, kept));
    }
    detail::set_ids(next.momentum, momentum);
    detail::set_ids(next.second_moment, second);
    detail::set_ids(next.parameters, updated);
    return next;
  }
}

}  // namespace nn

}  // namespace espalier
