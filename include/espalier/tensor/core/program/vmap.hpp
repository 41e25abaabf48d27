// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/map_over.hpp>

#include <type_traits>
#include <utility>

namespace espalier {

/// In place of a dimension: an argument of `vmap` that is the same in every call, or such a result.
inline constexpr int unmapped = -2'147'483'647;

/// The dimensions that are new in the results of `vmap`, one for each part of `results`, or one for all of them.
template <int... Dims> struct out_dims_t {};
template <int... Dims> inline constexpr out_dims_t<Dims...> out_dims{};

namespace detail {

/// An argument as the function gets it, if dimension Dim of it is mapped; `count` is the dimension's extent.
/// `mistake` is void, or the reason why it cannot be mapped.
template <class T, int Dim> struct one_call_of {
  using mistake = why::mapped_value_is_not_a_tensor<>;
  static constexpr int count = 0;
};
template <LoopValue T> struct one_call_of<T, unmapped> {
  using mistake = void;
  using type = T;
  static constexpr int count = 0;
};
template <class Mesh, class Tensor, int Dim>
  requires(Dim != unmapped)
struct one_call_of<symbol<Mesh, Tensor>, Dim> {
  static constexpr int dim = dimension(Dim, Tensor::rank);
  using mistake = std::conditional_t < dim<0, why::no_dimension_to_map<Tensor, why::dim<Dim>>, void>;
  static constexpr int count = dim < 0 ? 0 : static_cast<int>(Tensor::shape[dim < 0 ? 0 : dim]);
  static constexpr extents shape = without_dimension(Tensor::shape, dim);
  using type = symbol<Mesh, tensor_for<Tensor::type, shape>>;
};
template <ParameterTree Tree, int Dim>
  requires(Dim != unmapped)
struct one_call_of<Tree, Dim> {
  static constexpr bool is_mappable = Dim == 0 && is_stacked<Tree>;
  using mistake = std::conditional_t<is_mappable, void, why::tree_is_not_stacked<Tree>>;
  template <class T> struct whole {
    using type = T;
    static constexpr int count = 0;
  };
  using inside = std::conditional_t<is_mappable, inside_loop<Tree>, whole<Tree>>;
  static constexpr int count = inside::count;
  using type = typename inside::type;
};

/// The number of calls of some arguments: 0 if none is mapped, -1 if they differ.
[[nodiscard]] constexpr int same_count(const int* counts, int size) {
  int count = 0;
  for (int n = 0; n < size; ++n) {
    if (counts[n] == 0) continue;
    if (count != 0 && counts[n] != count) return -1;
    count = counts[n];
  }
  return count;
}
template <class... Parts, int Dim>
  requires(Dim != unmapped)
struct one_call_of<results<Parts...>, Dim> {
  static constexpr int counts[]{one_call_of<Parts, Dim>::count..., 0};
  static constexpr int count = same_count(&counts[0], static_cast<int>(sizeof...(Parts)));
  using mistake = typename first_mistake < typename one_call_of<Parts, Dim>::mistake...,
        std::conditional_t<count<0, why::mapped_sizes_differ<Parts...>, void>>::type;
  template <class Part> struct part { using type = Part; };
  template <class Part>
    requires std::is_void_v<typename one_call_of<Part, Dim>::mistake>
  struct part<Part> : std::type_identity<typename one_call_of<Part, Dim>::type> {
  };
  using type = results<typename part<Parts>::type...>;
};

/// A result of one call with the dimension of all calls, Dim.
template <class T, int Count, int Dim> struct all_calls_of { using mistake = why::mapped_value_is_not_a_tensor<>; };
template <LoopValue T, int Count> struct all_calls_of<T, Count, unmapped> {
  using mistake = void;
  using type = T;
  static constexpr int dim = unmapped;
};
template <class Mesh, class Tensor, int Count, int Dim>
  requires(Dim != unmapped)
struct all_calls_of<symbol<Mesh, Tensor>, Count, Dim> {
  static constexpr int dim = dimension(Dim, Tensor::rank + 1);
  static constexpr bool fits = Tensor::rank < max_rank;
  using mistake = std::conditional_t < dim<0 || !fits, why::no_such_out_dimension<Tensor, why::dim<Dim>>, void>;
  static constexpr extents shape =
      dim < 0 || !fits ? Tensor::shape : with_dimension(Tensor::shape, dim < 0 ? 0 : dim, Count);
  using type = symbol<Mesh, tensor_for<Tensor::type, shape>>;
};
template <ParameterTree Tree, int Count, int Dim>
  requires(Dim != unmapped)
struct all_calls_of<Tree, Count, Dim> {
  static constexpr int dim = 0;
  using mistake = std::conditional_t<Dim == 0, void, why::no_such_out_dimension<Tree, why::dim<Dim>>>;
  using type = typename outside_loop<Count, Tree>::type;
};
template <class... Parts, int Count, int Dim>
  requires(Dim != unmapped)
struct all_calls_of<results<Parts...>, Count, Dim> {
  using mistake = typename first_mistake<typename all_calls_of<Parts, Count, Dim>::mistake...>::type;
  template <class Part> struct part { using type = Part; };
  template <class Part>
    requires std::is_void_v<typename all_calls_of<Part, Count, Dim>::mistake>
  struct part<Part> : std::type_identity<typename all_calls_of<Part, Count, Dim>::type> {
  };
  using type = results<typename part<Parts>::type...>;
};

/// A value and the gradient of it are results as well.
template <class T> struct as_results {
  template <class Value> static constexpr const Value& of(const Value& value) { return value; }
};
template <class T>
  requires(!LoopValue<T> && !std::is_same_v<typename returned_as<T>::type, T>)
struct as_results<T> {
  static constexpr auto of(const T& value) { return static_cast<typename returned_as<T>::type>(value); }
};

template <class Function, class Dims, class Outs> struct mapped_function;
template <class Function, int... Dims, int... Outs>
struct mapped_function<Function, std::integer_sequence<int, Dims...>, out_dims_t<Outs...>> {
  Function function;
  source_line where;

  template <class... Arguments> constexpr auto operator()(const Arguments&... arguments) const {
    constexpr int given = static_cast<int>(sizeof...(Arguments));
    if constexpr (Failed<typename failure_in<results<Arguments...>>::type>) {
      return typename failure_in<results<Arguments...>>::type(failure_place(results(arguments...)));
    } else if constexpr (given == 0 || (sizeof...(Dims) != 0 && sizeof...(Dims) != given)) {
      return failed<
          why::dimensions_are_not_one_for_each<why::count<static_cast<int>(sizeof...(Dims))>, why::count<given>>>(
          where);
    } else if constexpr (sizeof...(Dims) == 0) {
      return call(std::integer_sequence<int, (static_cast<void>(sizeof(Arguments)), 0)...>{}, arguments...);
    } else {
      return call(std::integer_sequence<int, Dims...>{}, arguments...);
    }
  }

 private:
  template <int... Each, class... Arguments>
  constexpr auto call(std::integer_sequence<int, Each...> /*dims*/, const Arguments&... arguments) const {
    constexpr int counts[]{one_call_of<Arguments, Each>::count...};
    constexpr int count = same_count(&counts[0], static_cast<int>(sizeof...(Arguments)));
    using mistake = typename first_mistake<typename one_call_of<Arguments, Each>::mistake...>::type;
    if constexpr (!std::is_void_v<mistake>) {
      return failed<mistake>(where);
    } else if constexpr (count < 0) {
      return failed<why::mapped_sizes_differ<Arguments...>>(where);
    } else if constexpr (count == 0) {
      return failed<why::nothing_is_mapped<>>(where);
    } else if constexpr (!requires(const typename one_call_of<Arguments, Each>::type&... of_one) {
                           function(of_one...);
                         }) {
      return failed<why::mapped_function_not_callable<typename one_call_of<Arguments, Each>::type...>>(where);
    } else if constexpr (std::is_void_v<decltype(function(
                             std::declval<const typename one_call_of<Arguments, Each>::type&>()...))>) {
      return failed<why::function_returns_nothing<>>(where);
    } else {
      builder& b = *owner_of(results(arguments...));
      b.at(where);
      const results<Arguments...> whole(operands_of(b, arguments, where)...);
      const int begin = b.size();
      results<typename one_call_of<Arguments, Each>::type...> of_one;
      take_lanes<Each...>(b, whole, of_one);
      const auto returned = call_with(function, of_one);
      using returned_type = std::remove_cv_t<decltype(returned)>;
      if constexpr (Failed<typename failure_in<returned_type>::type>) {
        return typename failure_in<returned_type>::type(failure_place(returned));
      } else {
        return finish<count>(b, begin, as_results<returned_type>::of(returned));
      }
    }
  }

  template <int Dim, int... Rest, class Whole, class OfOne>
  constexpr void take_lanes(builder& b, const Whole& whole, OfOne& of_one) const {
    for_each_pair(of_one.first, whole.first, [&](auto& one, const auto& all) {
      one.owner = &b;
      one.seen = where;
      one.id = all.id;
      if constexpr (Dim != unmapped) one.id = emit_lane::of(b, all.id, Dim < 0 ? Dim + all.rank : Dim);
    });
    if constexpr (sizeof...(Rest) > 0) take_lanes<Rest...>(b, whole.rest, of_one.rest);
  }

  template <int Count, class Value> constexpr auto finish(builder& b, int begin, const Value& value) const {
    constexpr int outs = static_cast<int>(sizeof...(Outs));
    if constexpr (!LoopValue<Value>) {
      return failed<why::mapped_value_is_not_a_tensor<>>(where);
    } else if constexpr (outs <= 1) {
      using all = all_calls_of<Value, Count, only_out>;
      if constexpr (!std::is_void_v<typename all::mistake>) {
        return failed<typename all::mistake>(where);
      } else {
        const auto of_one = operands_of(b, value, where);
        mapping map(b, begin, Count);
        map.run();
        typename all::type result{};
        give_all<only_out>(b, map, of_one, result);
        return result;
      }
    } else {
      return finish_parts<Count>(b, begin, value);
    }
  }
  static constexpr int only_out = [] {
    const int outs[]{Outs..., 0};
    return outs[0];
  }();

  template <int Count, class... Parts>
  constexpr auto finish_parts(builder& b, int begin, const results<Parts...>& value) const {
    if constexpr (sizeof...(Parts) != sizeof...(Outs)) {
      return failed<why::dimensions_are_not_one_for_each<why::count<static_cast<int>(sizeof...(Outs))>,
                                                         why::count<static_cast<int>(sizeof...(Parts))>>>(where);
    } else {
      using mistake = typename first_mistake<typename all_calls_of<Parts, Count, Outs>::mistake...>::type;
      if constexpr (!std::is_void_v<mistake>) {
        return failed<mistake>(where);
      } else {
        const auto of_one = operands_of(b, value, where);
        mapping map(b, begin, Count);
        map.run();
        results<typename all_calls_of<Parts, Count, Outs>::type...> result;
        give_parts<Outs...>(b, map, of_one, result);
        return result;
      }
    }
  }
  template <int Count, class Value> constexpr auto finish_parts(builder&, int, const Value&) const {
    return failed<why::dimensions_are_not_one_for_each<why::count<static_cast<int>(sizeof...(Outs))>, why::count<1>>>(
        where);
  }
  template <int Out, int... Rest, class OfOne, class All>
  constexpr void give_parts(builder& b, mapping& map, const OfOne& of_one, All& result) const {
    give_all<Out>(b, map, of_one.first, result.first);
    if constexpr (sizeof...(Rest) > 0) give_parts<Rest...>(b, map, of_one.rest, result.rest);
  }

  template <int Out, class OfOne, class All>
  constexpr void give_all(builder& b, mapping& map, const OfOne& of_one, All& result) const {
    b.at(where);
    for_each_pair(result, of_one, [&](auto& all, const auto& one) {
      all.owner = &b;
      all.seen = where;
      if constexpr (Out == unmapped) {
        if (map.differs(one.id)) b.note(failed<why::result_is_mapped<>>(where));
        all.id = map.differs(one.id) ? emit::constant(b, one.type, one.shape, 0) : map.shared(one.id);
      } else {
        all.id = map.over_lanes(one.id, Out < 0 ? Out + all.rank : Out);
      }
    });
  }
};

}  // namespace detail

/// The function `f` over a dimension of its arguments: called once for each element of it, and all at once. Dims has
/// one dimension for each argument, `unmapped` for those that all calls share; none at all: dimension 0 of each. The
/// results have the dimension as their first, or where `out_dims` says; what is the same in all calls is repeated,
/// unless `out_dims` says `unmapped`. Arguments and results are tensors, parameter trees, or results(...) of these; of
/// a tree, dimension 0 of `tree<stacked<spec, N>>`.
///
/// The function is traced once, and each of its ops gets one more dimension: loops and branches as well, gradients
/// inside of it, and the gradient of all. A mesh axis may split the dimension; what is independent sends nothing. Where
/// calls disagree on a predicate, a branch is run for all, and a loop until the last has finished: those that have keep
/// what they have. A key gives each call its own numbers if it is mapped. Annotations inside of f say nothing of the
/// new dimension. A region by hand may be in f; and in a region the collectives of f send those of all calls together.
///
///     const auto scores = ep::vmap<0, ep::unmapped>([](auto x, auto w) { return ep::matmul(w, x); })(xs, w);
///     // xs f32<32, 64>, w f32<10, 64>: f32<32, 10>
///
/// Errors: `mapped_sizes_differ`, `no_dimension_to_map`, `tree_is_not_stacked`, `nothing_is_mapped`,
/// `dimensions_are_not_one_for_each`, `mapped_function_not_callable`, `mapped_value_is_not_a_tensor`,
/// `result_is_mapped`, `no_such_out_dimension`, `operator_cannot_be_mapped`, and those of f.
template <int... Dims, class Function>
constexpr auto vmap(const Function& f, source_line where = source_line::current()) {
  return detail::mapped_function<Function, std::integer_sequence<int, Dims...>, out_dims_t<>>{f, where};
}
template <int... Dims, class Function, int... Outs>
constexpr auto vmap(const Function& f, out_dims_t<Outs...> /*outs*/, source_line where = source_line::current()) {
  return detail::mapped_function<Function, std::integer_sequence<int, Dims...>, out_dims_t<Outs...>>{f, where};
}

}  // namespace espalier
