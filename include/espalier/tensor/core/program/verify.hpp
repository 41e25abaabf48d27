// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/program/check_arguments.hpp>
#include <espalier/tensor/core/program/check_call.hpp>
#include <espalier/tensor/core/program/mistake_words.hpp>
#include <espalier/tensor/core/program/passes.hpp>
#include <espalier/tensor/core/program/unwritten.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace espalier {
template <class Mesh, class Function, class... Arguments> class program;
}

/// Everything that can be wrong with a program, looked for in the order of the passes.
namespace espalier::detail {

/// The first annotation `unreduced<...>` of something that is no sum along these axes, or -1. A value may be a partial
/// where a dimension that its op sums over is split, or where a linear op works on the terms of one.
[[nodiscard]] constexpr int find_unfounded_sum(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                                               const sharding* of) {
  axis_mask annotated = 0;
  for (int n = 0; n < g.annotation_count; ++n) annotated |= g.annotations[n].placement.unreduced;
  if (annotated == 0) return -1;
  list<axis_mask> partial(g.size, 0);
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    const axis_mask wanted = i.annotation >= 0 ? g.annotations[i.annotation].placement.unreduced : 0;
    partial[id] = wanted;
    if (i.operand_count > 0 && i.annotation >= 0) {
      for (int axis = 0; axis < mesh.rank; ++axis) {
        if (mesh.size[axis] > 1 && has_axis(wanted & ~partial[i.operand[0]], axis)) return id;
      }
      continue;
    }
    for (int k = 0; k < i.operand_count; ++k) {
      if (i.op->linear != linearity::none) partial[id] |= partial[g.operand_at(i, k)];
      const sharding& from = of[g.operand_at(i, k)];
      for (int d = 0; d < from.rank; ++d) {
        const factor_list dims = rules[id].dims_of(k)[d];
        if (from.dim[d].empty() || dims.empty()) continue;
        factor_axes split;
        read_dimension(mesh, rules[id], dims, from.dim[d], split);
        for (int n = 0; n < dims.size(); ++n) {
          if (rules[id].kind[dims[n]] == factor_kind::reduce) partial[id] |= split[dims[n]].mask();
        }
      }
    }
  }
  return -1;
}
template <class Mesh, class Completed> struct unfounded_sum {
  static constexpr int at =
      find_unfounded_sum(Mesh::value, Completed::program, &Completed::rules.of[0], &Completed::value.of[0]);
};

template <class Mesh, class Source> [[nodiscard]] constexpr auto check_passes() {
  using given = completed<Mesh, simplified_graph<Mesh, Source, 1>>;
  if constexpr (given::conflict.first >= 0) {
    constexpr int first = given::conflict.first;
    constexpr int second = given::conflict.second;
    return report<why::conflicting_annotations<typename annotation_words<Mesh, given::program, first>::type,
                                               place_of_instruction<given::program, first>,
                                               typename annotation_words<Mesh, given::program, second>::type>,
                  place_of_instruction<given::program, second>>{};
  } else if constexpr (given::without_rule >= 0) {
    return report<why::op_without_rule<op_of_instruction<given::program, given::without_rule>>,
                  place_of_instruction<given::program, given::without_rule>>{};
  } else {
    using whole = completed<Mesh, simplified_graph<Mesh, Source>>;
    using on_sub_axes = on_chosen_sub_axes<Mesh, simplified_graph<Mesh, Source>>;
    using partition_pass = partitioned_graph<typename on_sub_axes::mesh, typename on_sub_axes::source>;
    using sums = unfounded_sum<typename on_sub_axes::mesh, typename partition_pass::from>;
    // The instructions of both have the same numbers, and what the user wrote names axes.
    if constexpr (sums::at >= 0) {
      return report<why::not_a_pending_sum<typename annotation_words<Mesh, whole::program, sums::at>::type>,
                    place_of_instruction<whole::program, sums::at>>{};
    } else if constexpr (partition_pass::last.fault == partition_fault::no_partial_sum) {
      return report<
          why::not_a_pending_sum<typename annotation_words<Mesh, whole::program, partition_pass::last.fault_at>::type>,
          place_of_instruction<whole::program, partition_pass::last.fault_at>>{};
    } else if constexpr (partition_pass::last.fault_at >= 0) {
      return report<why::pending_sum_dropped<op_of_instruction<whole::program, partition_pass::last.fault_at>>,
                    place_of_instruction<whole::program, partition_pass::last.fault_at>>{};
    } else {
      return nothing_to_report{};
    }
  }
}

/// The mistakes that only the passes tell, and those of explicit mode.
template <class Findings, class Mesh, class Function, class... Arguments>
[[nodiscard]] constexpr auto check_compiled() {
  using found = decltype(check_passes<Mesh, traced_graph<Mesh, Function, Arguments...>>());
  if constexpr (found::is_mistake || !Findings::value.is_explicit) {
    return found{};
  } else {
    return report_unwritten<Mesh, Function, Arguments...>();
  }
}

/// Whether a traced function can be called. Asked a second time, clang says no if the body had errors, and g++ if what
/// it returns had.
template <class Mesh, class Function, class... Arguments> [[nodiscard]] constexpr bool compiles() {
  return requires(const Function& f, const traced_t<Mesh, Arguments>&... given) { f(given...); };
}

/// Reports a function that returns something else than tensors.
template <class Function, class Result> [[nodiscard]] constexpr auto report_result() {
  if constexpr (requires { std::tuple_size<Result>::value; }) {
    return report<why::results_in_another_class<Function, typename printed<Result>::type>, why::program>{};
  } else {
    return report<why::not_a_tensor<Function, Result>, why::program>{};
  }
}

/// g++ tells whether a call is a constant without an error, and at no cost (see `find_by_tracing`). So it is asked
/// first, and a call that is none is evaluated where the compiler's reasons take the fewest messages.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__EDG__)
inline constexpr bool constants_are_checked = true;
#else
inline constexpr bool constants_are_checked = false;
#endif
struct no_constant : reported_by_compiler {};
template <class Mesh, class Function, class... Arguments> [[nodiscard]] constexpr auto check_constant() {
  if constexpr (requires { typename std::bool_constant<(find_by_tracing<Mesh, Function, Arguments...>(), true)>; }) {
    return nothing_to_report{};
  } else {
    return no_constant{};
  }
}

/// The first mistake of a program before it is traced, as a `report`, or `nothing_to_report`. `Checked` is what was
/// found in the arguments. `IsCallable` is what `compiles` says, asked by the caller: an ordinary C++ error in the
/// traced function comes with a message for every function between it and the user's line. After one of those, nothing
/// of ours follows.
template <class Checked, bool IsCallable, class Mesh, class Function, class... Arguments>
[[nodiscard]] constexpr auto verify_call() {
  if constexpr (Checked::is_mistake) {
    return Checked{};
  } else if constexpr (!std::is_default_constructible_v<Function>) {
    return report<why::function_without_default<Function>, why::program>{};
  } else if constexpr (!IsCallable) {
    if constexpr (fits<typename written_function<Function>::type, Arguments...>()) {
      return reported_by_compiler{};
    } else {
      return explain_call<typename written_function<Function>::type, Arguments...>();
    }
  } else if constexpr (!compiles<Mesh, Function, Arguments...>()) {
    return reported_by_compiler{};
  } else {
    using result_type = traced_result<Mesh, Function, Arguments...>;
    if constexpr (std::is_void_v<result_type>) {
      return report<why::function_returns_nothing<Function>, why::program>{};
    } else if constexpr (std::is_void_v<typename failure_in<result_type>::type> && !returns_tensors<result_type>()) {
      return report_result<Function, result_type>();
    } else if constexpr (constants_are_checked) {
      return check_constant<Mesh, Function, Arguments...>();
    } else {
      return nothing_to_report{};
    }
  }
}

template <class... Donated> struct donated_types {};
/// The number of entries of a list that are `Added`, and the list with it.
template <class List, class Added> struct with_donated;
template <class... Donated, class Added> struct with_donated<donated_types<Donated...>, Added> {
  static constexpr int taken = (0 + ... + (std::is_same_v<Added, Donated> ? 1 : 0));
  using type = donated_types<Donated..., Added>;
};
/// Returns the number of results of the type `Traced` in what a function returns.
template <class Traced, class Returned> [[nodiscard]] constexpr int count_results() {
  if constexpr (!is_results<Returned>) {
    return std::is_same_v<Traced, Returned> ? 1 : 0;
  } else if constexpr (std::is_same_v<Returned, results<>>) {
    return 0;
  } else {
    return count_results<Traced, decltype(Returned::first)>() + count_results<Traced, decltype(Returned::rest)>();
  }
}
/// The first donated argument that no result takes the place of: results take those of their type in order. `Before`
/// are the donated ones before argument `Index`.
template <class Mesh, class Returned, int Index, class Before> [[nodiscard]] constexpr auto check_donated() {
  return nothing_to_report{};
}
template <class Mesh, class Returned, int Index, class Before, class First, class... Rest>
[[nodiscard]] constexpr auto check_donated() {
  if constexpr (!argument_traits<First>::is_donated) {
    return check_donated<Mesh, Returned, Index + 1, Before, Rest...>();
  } else {
    using traced = traced_t<Mesh, First>;
    using among = with_donated<Before, traced>;
    if constexpr (among::taken >= count_results<traced, Returned>()) {
      return report<why::donated_without_result<typename argument_traits<First>::type>, why::argument<Index>>{};
    } else {
      return check_donated<Mesh, Returned, Index + 1, typename among::type, Rest...>();
    }
  }
}

/// The first mistake that tracing found. `Findings::value` is a `trace_content`.
template <class Findings, class Mesh, class Function, class... Arguments> [[nodiscard]] constexpr auto verify_trace() {
  using failure = typename failure_in<traced_result<Mesh, Function, Arguments...>>::type;
  if constexpr (!requires { typename std::bool_constant<Findings::value.gradient_is_missing>; }) {
    return reported_by_compiler{};
  } else if constexpr (!std::is_void_v<failure>) {
    return report_of<typename failure::reason, place_of_mistake<typename Findings::failure_place>>{};
  } else if constexpr (Findings::value.mistake != nullptr) {
    using noted = decltype(reason_of(reason_at<Findings::value.mistake>{}));
    return report_of<typename noted::reason, place_of_mistake<typename Findings::mistake_place>>{};
  } else if constexpr (Findings::value.gradient_is_missing) {
    return report<why::op_without_gradient<typename spelled_text<typename Findings::gradient_op, why::op>::type>,
                  spelled<typename Findings::gradient_line>>{};
  } else if constexpr ((argument_traits<Arguments>::is_donated || ...)) {
    using unused =
        decltype(check_donated<Mesh, traced_result<Mesh, Function, Arguments...>, 0, donated_types<>, Arguments...>());
    if constexpr (unused::is_mistake) {
      return unused{};
    } else {
      return check_compiled<Findings, Mesh, Function, Arguments...>();
    }
  } else {
    return check_compiled<Findings, Mesh, Function, Arguments...>();
  }
}

/// The mistakes that remain to be found after `verify_call`.
template <class Called, class Findings, class Mesh, class Function, class... Arguments>
[[nodiscard]] constexpr auto verify_after() {
  if constexpr (Called::is_mistake) {
    return Called{};
  } else {
    return verify_trace<Findings, Mesh, Function, Arguments...>();
  }
}
/// The mistakes that types alone tell, before anything is evaluated. Code that instantiates a program for a user
/// reports these itself, so that the user's line comes one message sooner: for this the program is an argument, null,
/// and needs no class between.
template <class Mesh, class Function, class... Arguments>
[[nodiscard]] constexpr auto verify_types(const program<Mesh, Function, Arguments...>* /*program*/) {
  using checked = decltype(check_arguments<Mesh, 0, Arguments...>());
  using called = decltype(verify_call<checked,
                                      requires(const function_for<checked, Function>& f,
                                               const traced_for<checked, Mesh, Arguments>&... given) { f(given...); },
                                      Mesh, Function, Arguments...>());
  if constexpr (called::is_mistake) {
    return called{};
  } else if constexpr (std::is_void_v<typename failure_in<traced_result<Mesh, Function, Arguments...>>::type>) {
    return nothing_to_report{};
  } else {
    return verify_trace<trace_findings<Mesh, Function, Arguments...>, Mesh, Function, Arguments...>();
  }
}
[[nodiscard]] constexpr auto verify_types(const void* /*no program*/) { return nothing_to_report{}; }

/// All mistakes.
template <class Mesh, class Function, class... Arguments> [[nodiscard]] constexpr auto verify() {
  // Qualified: found by argument-dependent lookup, it would need the program's definition.
  using mistake = decltype(detail::verify_types(static_cast<const program<Mesh, Function, Arguments...>*>(nullptr)));
  if constexpr (mistake::is_mistake) {
    return mistake{};
  } else {
    return verify_trace<trace_findings<Mesh, Function, Arguments...>, Mesh, Function, Arguments...>();
  }
}

/// A program's call of its function, as an object for `content_of_call`.
struct no_call {};
template <class Mesh, class Function, class... Arguments> struct checked_call {};
template <bool IsMistake, class Mesh, class Function, class... Arguments> struct call_of {
  using type = std::conditional_t<constants_are_checked, checked_call<Mesh, Function, Arguments...>,
                                  made_call<Mesh, Function, std::index_sequence_for<Arguments...>, Arguments...>>;
};
template <class Mesh, class Function, class... Arguments> struct call_of<true, Mesh, Function, Arguments...> {
  using type = no_call;
};
template <class Call> [[nodiscard]] constexpr trace_content content_of_call(Call&& made) {
  return content_of(made.call.finish(made.out));
}
template <class Mesh, class Function, class... Arguments>
[[nodiscard]] constexpr trace_content content_of_call(checked_call<Mesh, Function, Arguments...> /*made*/) {
  return find_by_tracing<Mesh, Function, Arguments...>();
}
[[nodiscard]] constexpr trace_content content_of_call(no_call /*none*/) { return {}; }

/// Evaluates a call that is no constant, for g++ to say why.
template <class Called, class Mesh, class Function, class... Arguments> struct explained_call {
  template <std::size_t... I> [[nodiscard]] static constexpr bool explain(std::index_sequence<I...> /*all*/) {
    if constexpr (std::is_same_v<Called, no_constant>) {
      traced_call<Mesh, Arguments...> call;
      const Function function{};
      static_cast<void>(function(call.arguments.template get<I>()...));
    }
    return true;
  }
};

/// The graph that passes see of a program with a mistake, so that nothing else goes wrong after it: one number.
struct stand_in_graph {
  [[nodiscard]] static constexpr graph make() {
    builder b;
    b[emit::argument(b, dtype::f32, extents{}, 0)].annotation = b.annotate(extents{}, sharding::whole(0));
    return b.result();
  }
};

/// The result of a program with a mistake: nothing that is asked of it is one more mistake. `Parts` are as many as a
/// structured binding has names for, as far as that is known.
template <std::size_t Parts = 2> struct no_result {};

/// The graph and the result type that a program goes on with. `Called`: its function could be called, whatever was
/// found then.
template <bool Sound, bool Called, class Mesh, class Function, class... Arguments> struct accepted {
  using source = traced_graph<Mesh, Function, Arguments...>;
  using result_type = traced_result<Mesh, Function, Arguments...>;
};
template <class Mesh, class Function, class... Arguments> struct accepted<false, false, Mesh, Function, Arguments...> {
  using source = stand_in_graph;
  using result_type = no_result<>;
};
template <class Mesh, class Function, class... Arguments> struct accepted<false, true, Mesh, Function, Arguments...> {
  using source = stand_in_graph;
  template <class Returned> struct no_results_of { using type = no_result<>; };
  template <class... Part> struct no_results_of<results<Part...>> { using type = no_result<sizeof...(Part)>; };
  using result_type = typename no_results_of<traced_result<Mesh, Function, Arguments...>>::type;
};

}  // namespace espalier::detail
