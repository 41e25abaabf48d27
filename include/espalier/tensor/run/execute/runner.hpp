// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/graph/named_leaves.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/element_conversion.hpp>
#include <espalier/tensor/run/execute/print.hpp>
#include <espalier/tensor/run/execute/program_runner.hpp>

#if defined(ESPALIER_CHECK_PASSES)
#include <espalier/tensor/core/program/check_passes.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace espalier::detail {

/// Whether an argument or a result holds partial sums.
[[nodiscard]] constexpr bool has_partial_borders(graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    const structure part = structure_of(g[id]);
    if (part != structure::argument && part != structure::result) continue;
    if (g.annotations[g[id].annotation].placement.unreduced != 0) return true;
  }
  return false;
}

/// The run-time data for what a program declares or returns.
template <class T> struct data_for { using type = sharded_array<plain<T>>; };
template <class T> struct data_for<donated<T>> : data_for<T> {};
template <class Mesh, class Tensor> struct data_for<symbol<Mesh, Tensor>> { using type = sharded_array<Tensor>; };
template <ParameterTree Tree> struct data_for<Tree> { using type = with_leaves<Tree, arrays>; };
template <class... Parts> struct data_for<results<Parts...>> {
  using type = results<typename data_for<Parts>::type...>;
};

/// A whole tensor that `run` accepts in place of an array, and of which it copies each device's part. Defined here for
/// numbers, as scalars; io/xtensor.hpp adds its own, and trees of them.
template <class Given> struct whole_tensor { template <class Array> static constexpr bool fits = false; };
template <class Number>
  requires(std::is_arithmetic_v<Number>)
struct whole_tensor<Number> {
  template <class Array>
  static constexpr bool fits = Array::tensor::rank == 0 && converts_elements<Number, typename Array::value_type>;
  /// Errors: `argument_error` for an integer that the scalar's type cannot hold.
  template <class Tensor> static void copy(Number value, const sharded_array<Tensor>& into) {
    using element_type = storage_t<Tensor::type>;
    if (!fits_element<element_type>(value)) refuse_element(std::to_string(value), Tensor::type);
    into.for_each(
        [value](element_type& element, std::int64_t /*index*/) { element = converted_element<element_type>(value); });
  }
};
template <class Given, class Taken> inline constexpr bool is_whole_tensor = false;
template <class Given, class Tensor>
inline constexpr bool is_whole_tensor<Given, sharded_array<Tensor>> =
    whole_tensor<Given>::template fits<sharded_array<Tensor>>;

template <class Given, class Taken> struct argument_pair {};
/// The first argument of a call that is not of the type that the program takes, as a report.
template <int Index, class First, class... Rest> [[nodiscard]] constexpr auto find_argument_mistake() {
  return []<class Given, class Taken>(argument_pair<Given, Taken>) {
    if constexpr (!std::is_same_v<Given, Taken> && !is_whole_tensor<Given, Taken>) {
      return report<why::run_argument_of_another_type<Given, Taken>, why::argument<Index>>{};
    } else if constexpr (sizeof...(Rest) > 0) {
      return find_argument_mistake<Index + 1, Rest...>();
    } else {
      return nothing_to_report{};
    }
  }(First{});
}

/// A substitute for the arrays of a program with a mistake: no use of it adds an error to the one that counts.
template <std::size_t Parts = 2> class no_array : public sharded_array<f32<>> {
 public:
  template <std::size_t I> [[nodiscard]] const no_array& get() const { return *this; }
  template <class F> void for_each(const F& /*f*/) const {}
};
template <class Argument> struct argument_data { using type = no_array<>; };
template <class Argument>
  requires(has_data<Argument>())
&&requires { typename data_for<Argument>::type; }
struct argument_data<Argument> : data_for<Argument> {};

template <std::size_t Parts> struct data_for<no_result<Parts>> { using type = no_array<Parts>; };

}  // namespace espalier::detail

template <std::size_t Parts>
struct std::tuple_size<espalier::detail::no_array<Parts>> : std::integral_constant<std::size_t, Parts> {};
template <std::size_t I, std::size_t Parts> struct std::tuple_element<I, espalier::detail::no_array<Parts>> {
  using type = const espalier::detail::no_array<Parts>;
};

namespace espalier {

/// Runs a program on a world. Making one allocates everything the program needs; calling it allocates nothing unless
/// you keep earlier results.
///
///     runner<step> run(world);
///     auto x = run.argument<0>();               // zeros, laid out as the program wants them: fill them
///     const auto& y = run(x, w_in, w_out);
///
/// A result taken by value (`auto y = run(x)`) stays as it is: while an array holds the memory of a result, the next
/// call writes into other memory. A reference (`const auto& y = run(x)`) is the runner's own array, and shows the
/// result of the last call.
///
/// A donated argument's result takes its memory. `state = run(state)` makes no memory and copies nothing, and
/// `run(state)` alone changes `state` in place. Once another array has taken the result, as in `auto next =
/// run(state)`, the array `state` is spent for good: to use it again is an `argument_error` with the line of that call.
/// An array that shares the memory of a donated one (`best = state`) keeps its values: the runner copies them into new
/// memory first. `peak_bytes_per_device` does not count what you keep so.
///
/// Whatever arrays are the same, each argument is read as it was before the call. `x = run(x)` and `run(y)` for a
/// result y of the last call are right: results then go to a second set of buffers, which the first such call
/// allocates. So is an array given twice, once of it donated: it is copied for each call.
template <class Program> class runner {
  // Before the program itself is made from here.
  static_assert(sizeof(typename decltype(detail::verify_types(static_cast<const Program*>(nullptr)))::raised) > 0);

 public:
  using result_type = typename detail::data_for<typename Program::result_type>::type;
  template <int I>
  using argument_type = typename detail::argument_data<typename Program::template argument_at<I>>::type;
  static constexpr int arity = Program::arity;

 private:
  template <class... Given, int... I> static constexpr auto check_types(std::integer_sequence<int, I...> /*all*/) {
    constexpr int given = static_cast<int>(sizeof...(Given));
    if constexpr (!Program::is_sound) {
      return detail::reported_by_compiler{};
    } else if constexpr (given != arity) {
      return detail::report<why::run_takes_other_arguments<why::takes<arity>, why::given<given>>, why::program>{};
    } else if constexpr (arity == 0) {
      return detail::nothing_to_report{};
    } else {
      return detail::find_argument_mistake<0, detail::argument_pair<Given, argument_type<I>>...>();
    }
  }

  /// The mistake in a call's arguments. Each operator() asserts it itself, so that the user's line comes right after
  /// it.
  template <class... Given>
  using mistake_in = decltype(check_types<std::remove_cvref_t<Given>...>(std::make_integer_sequence<int, arity>{}));

 public:
  /// Errors: `launch_error` if the world's mesh is not the program's; in Debug builds `graph_error` if a pass has made
  /// a mistake.
  explicit runner(world& where)
      : core_(where, tables_of<Program>(), facts(std::make_integer_sequence<int, arity + 1>{})) {
    if constexpr (Program::is_sound) {
#if defined(ESPALIER_CHECK_PASSES)
      check_passes<Program>();
#endif
      detail::visit_arrays(results_, detail::result_lister{core_});
      core_.start();
    }
  }
  /// Makes a runner of a program that `compile` returned: `runner run(world, step)`.
  runner(world& where, const Program& /*program*/) : runner(where) {}
  runner(const runner&) = delete;
  runner& operator=(const runner&) = delete;

  /// Argument I, all zeros.
  template <int I> [[nodiscard]] argument_type<I> argument() const {
    argument_type<I> made;
    detail::visit_arrays(made, detail::argument_maker{core_, Program::template first_leaf<I>()});
    return made;
  }

  /// Each argument is an array or a tree of arrays as the program wants it; of a tensor also the whole of it, which
  /// every process has and each device takes its part of: a number for a scalar, and with
  /// espalier/xtensor.hpp any array, view or expression of xtensor's, and of a tree the tree of
  /// `whole_tensors`. It is copied at every call. Elements are converted as NumPy does by itself
  /// (`same_kind`): to a type of the same kind or of a later one of bool, natural, integer, floating.
  ///
  /// Errors: `argument_error` if an array is empty, of another world or laid out in another way than the program wants
  /// it, if one array is given for two arguments that both change, if a whole tensor is of another shape, or has an
  /// integer that the argument's type cannot hold; then nothing has run.
  template <class... Arguments> const result_type& operator()(Arguments&&... arguments) {
    static_assert(sizeof(typename mistake_in<Arguments...>::raised) > 0);
    return call(source_line{}, arguments...);
  }
  template <class A> const result_type& operator()(A&& a, source_line where = source_line::current()) {
    static_assert(sizeof(typename mistake_in<A>::raised) > 0);
    return call(where, a);
  }
  template <class A, class B> const result_type& operator()(A&& a, B&& b, source_line where = source_line::current()) {
    static_assert(sizeof(typename mistake_in<A, B>::raised) > 0);
    return call(where, a, b);
  }
  template <class A, class B, class C>
  const result_type& operator()(A&& a, B&& b, C&& c, source_line where = source_line::current()) {
    static_assert(sizeof(typename mistake_in<A, B, C>::raised) > 0);
    return call(where, a, b, c);
  }
  template <class A, class B, class C, class D>
  const result_type& operator()(A&& a, B&& b, C&& c, D&& d, source_line where = source_line::current()) {
    static_assert(sizeof(typename mistake_in<A, B, C, D>::raised) > 0);
    return call(where, a, b, c, d);
  }

  /// Bytes that calls have copied on a device so that arrays keep their values: of an array given twice, once of it
  /// donated, and of a donated one whose memory another array shares. 0 after any number of `state = run(state)`.
  [[nodiscard]] std::int64_t copied_bytes() const { return core_.copied_bytes(); }

 private:
  template <class... Arguments> const result_type& call(source_line where, const Arguments&... arguments) {
    if constexpr (!mistake_in<Arguments...>::is_mistake) {
      core_.forget_arguments();
      add_arguments(std::make_integer_sequence<int, arity>{}, arguments...);
      core_.call(where);
    }
    return results_;
  }

  template <int... I, class... Arguments>
  void add_arguments(std::integer_sequence<int, I...> /*all*/, const Arguments&... arguments) {
    (add_argument<I>(arguments), ...);
  }
  template <int I, class Argument> void add_argument(const Argument& given) {
    if constexpr (detail::is_whole_tensor<Argument, argument_type<I>>) {
      make_own_arguments<I>();
      int leaf = Program::template first_leaf<I>();
      const argument_type<I> arrays;  // their types
      detail::for_each_pair(given, arrays, [&]<class Whole, class Array>(const Whole& whole, const Array& /*type*/) {
        const any_array& own = *core_.own_argument(leaf++);
        detail::whole_tensor<Whole>::copy(whole, static_cast<const Array&>(own));
        core_.add_argument(own);
      });
    } else {
      detail::visit_arrays(given, detail::argument_lister{core_});
    }
  }

  /// Makes arrays for the leaves of an argument that is given whole, unless they have one that no other array shares.
  template <int I> void make_own_arguments() {
    int leaf = Program::template first_leaf<I>();
    bool is_missing = false;
    const argument_type<I> arrays;
    detail::visit_arrays(arrays, [&](const any_array& /*type*/, const leaf_path& /*path*/) {
      is_missing |= core_.own_argument(leaf++) == nullptr;
    });
    if (!is_missing) return;
    const argument_type<I> made = argument<I>();
    leaf = Program::template first_leaf<I>();
    detail::for_each_leaf(made, [&]<class Array>(const Array& array) {
      std::shared_ptr<any_array>& own = core_.own_argument(leaf++);
      if (own == nullptr) own = std::make_shared<Array>(array);
    });
  }

  template <int... I> static detail::runner_facts facts(std::integer_sequence<int, I...> /*all*/) {
    static constexpr int first_leaf[]{Program::template first_leaf<I>()...};
    detail::runner_facts made{&Program::mesh::value, &Program::parts, &first_leaf[0], arity, nullptr, nullptr};
    if constexpr (Program::is_sound) {
      if constexpr (detail::has_partial_borders(Program::code)) detail::expect_partial_sums();
      made.make_device = detail::device_maker_of<Program>();
      if constexpr (first_leaf[arity] != arity) made.leaf_name = &name_of<I...>;
    }
    return made;
  }

  /// "blocks.up.weight" for a leaf of a tree, nothing for an array.
  template <int... I> static std::string name_of(int leaf) {
    std::string name;
    const auto look = [&]<int Argument>(std::integral_constant<int, Argument>) {
      if constexpr (Argument < arity) {
        if constexpr (ParameterTree<argument_type<Argument>>) {
          int number = Program::template first_leaf<Argument>();
          const argument_type<Argument> made;
          detail::visit_arrays(made, detail::leaf_namer{number, leaf, name});
        }
      }
    };
    (look(std::integral_constant<int, I>{}), ...);
    return name;
  }

  result_type results_;
  detail::program_runner core_;
};

}  // namespace espalier
