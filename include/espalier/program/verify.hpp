// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/diagnostics/report.hpp>
#include <espalier/program/passes.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace espalier {
template <class Mesh, class Function, class... Arguments> class program;
}

/// Everything that can be wrong with a program, looked for in the order of the passes.
namespace espalier::detail {

// --- what messages say -----------------------------------------------------------------------------------------------

/// What is printed of a detail: of a traced tensor its type, without the mesh that all of them share.
template <class T> struct printed { using type = T; };
template <class Mesh, class Tensor> struct printed<symbol<Mesh, Tensor>> { using type = Tensor; };
template <class First, class Second> struct printed<std::pair<First, Second>> {
  using type = std::pair<typename printed<First>::type, typename printed<Second>::type>;
};
template <class... Parts> struct printed<results<Parts...>> { using type = results<typename printed<Parts>::type...>; };

template <class Reason> struct printed_reason { using type = Reason; };
template <template <class...> class Reason, class... Details> struct printed_reason<Reason<Details...>> {
  using type = Reason<typename printed<Details>::type...>;
};

/// A mistake at its place, or nothing where the compiler has spoken already.
template <class Reason, class Where>
using report_of = std::conditional_t<std::is_same_v<Reason, reported>, reported_by_compiler,
                                     report<typename printed_reason<Reason>::type, Where>>;

template <class Place> struct op_of_place { static constexpr const char* value = Place::value.op; };
/// Where a mistake was made, as a type: a line, or the program as a whole where none is known; and the op.
template <class Place> [[nodiscard]] constexpr auto spelled_place() {
  if constexpr (Place::value.line == 0) {
    return why::program{};
  } else if constexpr (Place::value.op == nullptr) {
    return spelled<Place>{};
  } else {
    return why::in<typename spelled_text<op_of_place<Place>, why::op>::type, spelled<Place>>{};
  }
}
template <class Place> using place_of_mistake = decltype(spelled_place<Place>());

/// An instruction's place in the user's source. Arguments have none: they are declared in the program's own type.
/// Neither have results: theirs is where the value is made.
template <const auto& Program, int Id> struct line_of_instruction {
  static constexpr source_line value = Program.code[Id].where;
};
template <const auto& Program, int Id> [[nodiscard]] constexpr auto place_of() {
  if constexpr (part_of(Program.code[Id]) == structure::argument) {
    return why::argument_leaf<attributes_of<border_attributes>(Program.code[Id]).number>{};
  } else if constexpr (part_of(Program.code[Id]) == structure::result) {
    return place_of<Program, Program.code[Id].operand[0]>();
  } else if constexpr (Program.code[Id].where.line == 0) {
    return why::program{};
  } else {
    return spelled<line_of_instruction<Program, Id>>{};
  }
}
template <const auto& Program, int Id> using place_of_instruction = decltype(place_of<Program, Id>());

template <const auto& Program, int Id> struct name_of_instruction {
  static constexpr const char* value = Program.code[Id].op->name;
};
template <const auto& Program, int Id>
using op_of_instruction = typename spelled_text<name_of_instruction<Program, Id>, why::op>::type;

/// A mesh axis given by its number, as the user's type.
template <class Mesh, int Axis> struct axis_of_mesh;
template <class First, class... Rest, int Axis>
struct axis_of_mesh<mesh<First, Rest...>, Axis> : axis_of_mesh<mesh<Rest...>, Axis - 1> {};
template <class First, class... Rest> struct axis_of_mesh<mesh<First, Rest...>, 0> { using type = First; };

/// `Into<axes...>`, with the axes of a list.
template <class Mesh, std::uint32_t Code, template <class...> class Into> struct listed_axes {
  template <std::size_t... I>
  static Into<typename axis_of_mesh<Mesh, axis_list::from_code(Code)[static_cast<int>(I)]>::type...> all(
      std::index_sequence<I...>);
  using type = decltype(all(std::make_index_sequence<static_cast<std::size_t>(axis_list::from_code(Code).size())>{}));
};
template <class... Axes> struct dimension_entry { using type = axes<Axes...>; };
template <class Axis> struct dimension_entry<Axis> { using type = Axis; };
template <> struct dimension_entry<> { using type = none; };

/// A layout of a graph's annotations in the words of `shard<...>`.
template <class Mesh, const auto& Program, int Id> struct annotation_words {
  static constexpr sharding value = Program.annotations[Program.code[Id].annotation].placement;
  template <int Dim> [[nodiscard]] static constexpr auto dimension() {
    using split = typename listed_axes<Mesh, value.dim[Dim].code(), dimension_entry>::type::type;
    if constexpr (value.dim[Dim].empty() && value.is_open(Dim)) {
      return std::type_identity<open>{};
    } else {
      return std::type_identity<split>{};
    }
  }
  template <class... Last, std::size_t... Dims>
  static why::annotated<typename decltype(dimension<static_cast<int>(Dims)>())::type..., Last...> all(
      std::index_sequence<Dims...>);
  [[nodiscard]] static constexpr auto words() {
    using dims = std::make_index_sequence<static_cast<std::size_t>(value.rank)>;
    if constexpr (value.unreduced == 0) {
      return all(dims{});
    } else {
      return all<typename listed_axes<Mesh, list_of(value.unreduced).code(), unreduced>::type>(dims{});
    }
  }
  using type = decltype(words());
};

// --- arguments -------------------------------------------------------------------------------------------------------

template <class Argument> [[nodiscard]] constexpr bool is_argument() {
  using declared = typename argument_traits<Argument>::type;
  if constexpr (ParameterTree<declared>) {
    return std::is_default_constructible_v<declared>;
  } else {
    return TensorType<plain<declared>> && std::is_default_constructible_v<declared>;
  }
}

/// What is wrong with the annotation of one argument, or void.
template <class Mesh, class Leaf> struct leaf_mistake { using type = void; };
template <class Mesh, class Tensor, class... Entries> struct leaf_mistake<Mesh, sharded<Tensor, Entries...>> {
  [[nodiscard]] static constexpr auto find() {
    constexpr annotation_fault fault = annotation_of<Mesh, Entries...>(Tensor::rank).fault;
    if constexpr (fault == annotation_fault::wrong_rank) {
      return std::type_identity<why::annotation_of_wrong_rank<sharded<Tensor, Entries...>>>{};
    } else if constexpr (fault == annotation_fault::unknown_axis) {
      return std::type_identity<why::unknown_mesh_axis<Mesh, sharded<Tensor, Entries...>>>{};
    } else if constexpr (fault == annotation_fault::axis_used_twice) {
      return std::type_identity<why::axis_used_twice<sharded<Tensor, Entries...>>>{};
    } else {
      return std::type_identity<void>{};
    }
  }
  using type = typename decltype(find())::type;
};

template <class... Found> struct first_found { using type = void; };
template <class First, class... Rest>
struct first_found<First, Rest...>
    : std::conditional_t<std::is_void_v<First>, first_found<Rest...>, std::type_identity<First>> {};

template <class Mesh, class Tree> struct tree_mistake;
template <class Mesh, class Part>
using part_mistake =
    typename std::conditional_t<ParameterTree<Part>, tree_mistake<Mesh, Part>, leaf_mistake<Mesh, Part>>::type;
template <class Mesh, class Tree> struct tree_mistake {
  static constexpr auto search = [](const auto&... member) {
    return first_found<
        part_mistake<Mesh, std::remove_cvref_t<decltype(boost::hana::second(member)(std::declval<Tree&>()))>>...>{};
  };
  using type = typename decltype(boost::hana::unpack(boost::hana::accessors<Tree>(), search))::type;
};

/// The first member of a tree that is no leaf, though it should be one, or void: of a tree whose leaves are symbols,
/// something that is neither a symbol nor a tree.
template <class Tree> struct loose_member;
template <class Member> struct loose_part { using type = std::conditional_t<Symbol<Member>, void, Member>; };
template <ParameterTree Member> struct loose_part<Member> : loose_member<Member> {};
template <class Tree> struct loose_member {
  static constexpr auto search = [](const auto&... member) {
    return first_found<typename loose_part<
        std::remove_cvref_t<decltype(boost::hana::second(member)(std::declval<Tree&>()))>>::type...>{};
  };
  using type = typename decltype(boost::hana::unpack(boost::hana::accessors<Tree>(), search))::type;
};
template <class Mesh, class Argument> struct member_mistake { using type = void; };
template <class Mesh, ParameterTree Tree>
struct member_mistake<Mesh, Tree> : loose_member<with_leaves<Tree, symbols<Mesh>>> {};

/// Whether a tensor type has an extent below 1, read from its name: the type itself would be an error.
template <class Argument> inline constexpr bool has_impossible_extent = false;
template <template <int...> class Tensor, int... Extents>
inline constexpr bool has_impossible_extent<Tensor<Extents...>> = ((Extents < 1) || ...);
template <class Tensor, class... Entries>
inline constexpr bool has_impossible_extent<sharded<Tensor, Entries...>> = has_impossible_extent<Tensor>;
template <class Argument>
inline constexpr bool has_impossible_extent<donated<Argument>> = has_impossible_extent<Argument>;

/// Whether arrays can be made for an argument, as far as its type tells.
template <class Argument> [[nodiscard]] constexpr bool has_data() {
  if constexpr (has_impossible_extent<Argument>) {
    return false;
  } else {
    return std::is_void_v<typename member_mistake<mesh<>, typename argument_traits<Argument>::type>::type>;
  }
}

/// The first mistake among the arguments: `Index` is the number of the first of them.
template <class Mesh, int Index> [[nodiscard]] constexpr auto check_arguments() { return nothing_to_report{}; }
template <class Mesh, int Index, class First, class... Rest> [[nodiscard]] constexpr auto check_arguments() {
  using declared = typename argument_traits<First>::type;
  if constexpr (has_impossible_extent<declared>) {
    return report<why::extent_is_not_positive<declared>, why::argument<Index>>{};
  } else if constexpr (!is_argument<First>()) {
    return report<why::argument_is_not_a_tensor<declared>, why::argument<Index>>{};
  } else if constexpr (!std::is_void_v<part_mistake<Mesh, declared>>) {
    return report<part_mistake<Mesh, declared>, why::argument<Index>>{};
  } else if constexpr (!std::is_void_v<typename member_mistake<Mesh, declared>::type>) {
    return report<why::member_is_no_leaf<declared, typename member_mistake<Mesh, declared>::type>,
                  why::argument<Index>>{};
  } else {
    return check_arguments<Mesh, Index + 1, Rest...>();
  }
}

/// The function and its arguments, as they are called if nothing is wrong with the arguments.
struct no_function {};
template <class Checked, class Function>
using function_for = std::conditional_t<Checked::is_mistake, no_function, Function>;
template <class Checked, class Mesh, class Argument> struct checked_argument { using type = no_function; };
template <class Mesh, class Argument> struct checked_argument<nothing_to_report, Mesh, Argument> {
  using type = traced_t<Mesh, Argument>;
};
template <class Checked, class Mesh, class Argument>
using traced_for = typename checked_argument<Checked, Mesh, Argument>::type;

// --- the call --------------------------------------------------------------------------------------------------------

template <class Member> struct member_arity { static constexpr int value = -1; };
template <class F, class Result, class... Parameters> struct member_arity<Result (F::*)(Parameters...)> {
  static constexpr int value = static_cast<int>(sizeof...(Parameters));
};
template <class F, class Result, class... Parameters>
struct member_arity<Result (F::*)(Parameters...) const> : member_arity<Result (F::*)(Parameters...)> {};

/// Can be called with Count arguments of any type. Beside a function template that can be called so too, the call is
/// ambiguous: that tells how many arguments the template takes without instantiating its body, which would be full of
/// errors. (With the last parameter, no constraint decides between the two.)
template <int Count> struct other_call_operator;
template <> struct other_call_operator<1> { template <class A, class = void> void operator()(A) const; };
template <> struct other_call_operator<2> { template <class A, class B, class = void> void operator()(A, B) const; };
template <> struct other_call_operator<3> {
  template <class A, class B, class C, class = void> void operator()(A, B, C) const;
};
template <> struct other_call_operator<4> {
  template <class A, class B, class C, class D, class = void> void operator()(A, B, C, D) const;
};
template <> struct other_call_operator<5> {
  template <class A, class B, class C, class D, class E, class = void> void operator()(A, B, C, D, E) const;
};
template <> struct other_call_operator<6> {
  template <class A, class B, class C, class D, class E, class F, class = void> void operator()(A, B, C, D, E, F) const;
};
template <class Function, int Count> struct with_other_call_operator : Function, other_call_operator<Count> {
  using Function::operator();
  using other_call_operator<Count>::operator();
};
template <class Function, class... Given> [[nodiscard]] constexpr bool takes_these() {
  return !requires(const with_other_call_operator<Function, static_cast<int>(sizeof...(Given))>& f,
                   const Given&... given) {
    f(given...);
  };
}
template <class Function, int Count> [[nodiscard]] constexpr bool takes() {
  struct anything {};
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return takes_these<Function, std::conditional_t<I == 0, anything, anything>...>();
  }
  (std::make_index_sequence<static_cast<std::size_t>(Count)>{});
}

/// How many arguments a function object takes, or -1 if that cannot be told.
template <class Function> [[nodiscard]] constexpr int arity_of() {
  if constexpr (requires { &Function::operator(); }) {
    return member_arity<decltype(&Function::operator())>::value;
  } else if constexpr (std::is_class_v<Function> && !std::is_final_v<Function>) {
    return takes<Function, 1>()   ? 1
           : takes<Function, 2>() ? 2
           : takes<Function, 3>() ? 3
           : takes<Function, 4>() ? 4
           : takes<Function, 5>() ? 5
           : takes<Function, 6>() ? 6
                                  : -1;
  } else {
    return -1;
  }
}

/// Whether arguments of these types fit a function that cannot be called with them: then something in its body is no
/// C++, of which the compiler has spoken. Asked with another mesh, since clang forgets what it found to be wrong.
struct any_axis : axis<"any", 1> {};
template <class Function, class... Arguments> [[nodiscard]] constexpr bool fits() {
  constexpr int count = static_cast<int>(sizeof...(Arguments));
  if constexpr (std::is_class_v<Function> && !std::is_final_v<Function> && count >= 1 && count <= 6) {
    return takes_these<Function, traced_t<mesh<any_axis>, Arguments>...>();
  } else {
    return false;
  }
}

/// Whether a function takes the types that describe tensors, where it should take tensors of a trace. (Of a template it
/// cannot be asked without making its body.)
template <class Function, class... Arguments> [[nodiscard]] constexpr bool takes_tensor_types() {
  if constexpr (requires { &Function::operator(); }) {
    return std::is_invocable_v<const Function&, plain<typename argument_traits<Arguments>::type>...>;
  } else {
    return false;
  }
}

/// For a function that cannot be called with these arguments.
template <class Function, class... Arguments> [[nodiscard]] constexpr auto explain_call() {
  constexpr int given = static_cast<int>(sizeof...(Arguments));
  constexpr int arity = arity_of<Function>();
  if constexpr (arity >= 0 && arity != given) {
    return report<why::wrong_argument_count<Function, why::takes<arity>, why::given<given>>, why::program>{};
  } else if constexpr (takes_tensor_types<Function, Arguments...>()) {
    return report<why::parameter_is_a_tensor_type<Function, Arguments...>, why::program>{};
  } else {
    return report<why::function_not_callable<Function, Arguments...>, why::program>{};
  }
}

// --- what the passes found -------------------------------------------------------------------------------------------

/// The first annotation `unreduced<...>` of something that is no sum along these axes, or -1. A value may be a pending
/// sum where a dimension that its op sums over is split, or where a linear op works on the terms of one.
[[nodiscard]] constexpr int find_unfounded_sum(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                                               const sharding* of) {
  axis_mask annotated = 0;
  for (int n = 0; n < g.annotation_count; ++n) annotated |= g.annotations[n].placement.unreduced;
  if (annotated == 0) return -1;
  list<axis_mask> pending(g.size, 0);
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    const axis_mask wanted = i.annotation >= 0 ? g.annotations[i.annotation].placement.unreduced : 0;
    pending[id] = wanted;
    if (i.operand_count > 0 && i.annotation >= 0) {
      for (int axis = 0; axis < mesh.rank; ++axis) {
        if (mesh.size[axis] > 1 && has_axis(wanted & ~pending[i.operand[0]], axis)) return id;
      }
      continue;
    }
    for (int k = 0; k < i.operand_count; ++k) {
      if (i.op->linear != linearity::none) pending[id] |= pending[g.operand_at(i, k)];
      const sharding& from = of[g.operand_at(i, k)];
      for (int d = 0; d < from.rank; ++d) {
        const factor_list dims = rules[id].dims_of(k)[d];
        if (from.dim[d].empty() || dims.empty()) continue;
        factor_axes split;
        read_dimension(mesh, rules[id], dims, from.dim[d], split);
        for (int n = 0; n < dims.size(); ++n) {
          if (rules[id].kind[dims[n]] == factor_kind::reduce) pending[id] |= split[dims[n]].mask();
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
    using on_parts = on_wanted_parts<Mesh, simplified_graph<Mesh, Source>>;
    using parts = partitioned_graph<typename on_parts::mesh, typename on_parts::source>;
    using sums = unfounded_sum<typename on_parts::mesh, typename parts::from>;
    // The instructions of both have the same numbers, and what the user wrote names axes.
    if constexpr (sums::at >= 0) {
      return report<why::not_a_pending_sum<typename annotation_words<Mesh, whole::program, sums::at>::type>,
                    place_of_instruction<whole::program, sums::at>>{};
    } else if constexpr (parts::found.fault == partition_fault::no_sum_pending) {
      return report<
          why::not_a_pending_sum<typename annotation_words<Mesh, whole::program, parts::found.fault_at>::type>,
          place_of_instruction<whole::program, parts::found.fault_at>>{};
    } else if constexpr (parts::found.fault_at >= 0) {
      return report<why::pending_sum_dropped<op_of_instruction<whole::program, parts::found.fault_at>>,
                    place_of_instruction<whole::program, parts::found.fault_at>>{};
    } else {
      return nothing_to_report{};
    }
  }
}

/// Whether a traced function can be called. Asked a second time, clang says no if the body had errors, and g++ if what
/// it returns had.
template <class Mesh, class Function, class... Arguments> [[nodiscard]] constexpr bool compiles() {
  return requires(const Function& f, const traced_t<Mesh, Arguments>&... given) { f(given...); };
}

/// For a function that returns something else than tensors.
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
    if constexpr (fits<Function, Arguments...>()) {
      return reported_by_compiler{};
    } else {
      return explain_call<Function, Arguments...>();
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
/// How many of a list are `Added`, and the list with it.
template <class List, class Added> struct with_donated;
template <class... Donated, class Added> struct with_donated<donated_types<Donated...>, Added> {
  static constexpr int taken = (0 + ... + (std::is_same_v<Added, Donated> ? 1 : 0));
  using type = donated_types<Donated..., Added>;
};
/// How many results of the type `Traced` there are in what a function returns.
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
    using wanted = traced_t<Mesh, First>;
    using among = with_donated<Before, wanted>;
    if constexpr (among::taken >= count_results<wanted, Returned>()) {
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
      return check_passes<Mesh, traced_graph<Mesh, Function, Arguments...>>();
    }
  } else {
    return check_passes<Mesh, traced_graph<Mesh, Function, Arguments...>>();
  }
}

/// What is still to be found after `verify_call`.
template <class Called, class Findings, class Mesh, class Function, class... Arguments>
[[nodiscard]] constexpr auto verify_after() {
  if constexpr (Called::is_mistake) {
    return Called{};
  } else {
    return verify_trace<Findings, Mesh, Function, Arguments...>();
  }
}
/// The mistakes that types alone tell, before anything is evaluated. Whoever instantiates a program for somebody else
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
  // Qualified: looked for beside its argument, it would need the program's definition.
  using found = decltype(detail::verify_types(static_cast<const program<Mesh, Function, Arguments...>*>(nullptr)));
  if constexpr (found::is_mistake) {
    return found{};
  } else {
    return verify_trace<trace_findings<Mesh, Function, Arguments...>, Mesh, Function, Arguments...>();
  }
}

/// How a program calls its function, as an object for `content_of_call`.
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

/// For g++: evaluates a call that is no constant, for the compiler to say why.
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

/// What the passes see of a program with a mistake, so that nothing else goes wrong behind it: one number.
struct stand_in_graph {
  [[nodiscard]] static constexpr graph make() {
    builder b;
    b[emit::argument(b, dtype::f32, extents{}, 0)].annotation = b.annotate(extents{}, sharding::whole(0));
    return b.result();
  }
};

/// What a program with a mistake returns: nothing that is asked of it is one more mistake. `Parts` are as many as a
/// structured binding has names for, as far as that is known.
template <std::size_t Parts = 2> struct no_result {};

/// What a program goes on with. `Called`: its function could be called, whatever was found then.
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
  template <class Returned> struct parts_of { using type = no_result<>; };
  template <class... Part> struct parts_of<results<Part...>> { using type = no_result<sizeof...(Part)>; };
  using result_type = typename parts_of<traced_result<Mesh, Function, Arguments...>>::type;
};

}  // namespace espalier::detail
