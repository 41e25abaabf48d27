// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

// First, so that a message about a mistake need not list the way here.
#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/ops/reasons.hpp>

#include <espalier/tensor/core/diagnostics/missing.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/partition/plan.hpp>
#include <espalier/tensor/core/partition/run_price.hpp>
#include <espalier/tensor/core/program/collective_types.hpp>
#include <espalier/tensor/core/program/passes.hpp>
#include <espalier/tensor/core/program/unanswered.hpp>
#include <espalier/tensor/core/program/verify.hpp>

#include <type_traits>

namespace espalier {

namespace detail {

/// The labels of a program as types, for messages.
template <const auto& Program> struct program_labels {
  static constexpr int most = 16;
  struct table {
    int count = 0;
    int id[most]{};
  };
  /// A value of each label: the first sixteen of them.
  static constexpr table of = [] {
    table found;
    for (int id = 0; id < Program.size && found.count < most; ++id) {
      const char* const label = Program.code[id].label;
      bool is_new = label != nullptr && !Program.code[id].op->facts.looks;
      for (int n = 0; n < found.count && is_new; ++n) is_new = !same_text(Program.code[found.id[n]].label, label);
      if (is_new) found.id[found.count++] = id;
    }
    return found;
  }();
  template <int N> struct nth { static constexpr const char* value = Program.code[of.id[N]].label; };
  template <std::size_t... N>
  static why::labels<typename spelled_text<nth<static_cast<int>(N)>, why::text>::type...> all(
      std::index_sequence<N...>);
  using type = decltype(all(std::make_index_sequence<static_cast<std::size_t>(of.count)>{}));
};

template <int I, class First, class... Rest> struct nth_type : nth_type<I - 1, Rest...> {};
template <class First, class... Rest> struct nth_type<0, First, Rest...> { using type = First; };

struct as_value {};

}  // namespace detail

/// A function of tensors, compiled for one mesh: `program<mesh, mlp, f32<64, 256>, f32<256, 1024>>`. An argument is a
/// tensor type, `sharded<type, ...>`, a parameter tree of either (`dense<spec>`), or `donated<...>` of these. One that
/// the function does not use is an argument all the same.
///
/// Instantiating it traces, differentiates, completes, partitions and plans; mistakes are compile errors that name
/// the user's line. All members are constants.
template <class Mesh, class Function, class... Arguments> class program {
  using checked = decltype(detail::check_arguments<Mesh, 0, Arguments...>());
  using called = decltype(detail::verify_call<checked,
                                              requires(const detail::function_for<checked, Function>& f,
                                                       const detail::traced_for<checked, Mesh, Arguments>&... given) {
                                                f(given...);
                                              },
                                              Mesh, Function, Arguments...>());
  // The call itself. A compiler that finds something in it that is no constant prints this name first, and then the
  // line it is on: with a type of its own, the variable would need a message more.
  static constexpr auto the_function_and_what_it_calls_must_be_constexpr =
      detail::content_of_call(typename detail::call_of<called::is_mistake, Mesh, Function, Arguments...>::type{});

 public:
  // This deleted constructor is for g++, which explains a constant here in fewer messages than that of a variable.
  explicit(detail::explained_call<called, Mesh, Function, Arguments...>::explain(
      std::index_sequence_for<Arguments...>{})) program(detail::as_value /*tag*/, detail::as_value /*tag*/) = delete;
  /// A mistake: a program is a type.
  template <class Program = program> constexpr program() {
    static_assert(
        why::is_made_of<Program>::this_program,
        "program: is a type, and nothing is made of it. Ask step::flops(), where step is the program, and "
        "run it with runner<step> run(world); run(x, w). A program as a value is what compile<...>(f) gives.");
  }
  // A program as a value: what `compile` returns.
  constexpr explicit program(detail::as_value /*tag*/) {}

 private:
  using findings = detail::findings_at<the_function_and_what_it_calls_must_be_constexpr>;
  using finding = decltype(detail::verify_after<called, findings, Mesh, Function, Arguments...>());
  // Reports a mistake, from here: nothing comes between the reason and the user's line in the message.
  static_assert(sizeof(typename finding::raised) > 0);
  using accepted = detail::accepted<!finding::is_mistake, !called::is_mistake, Mesh, Function, Arguments...>;
  using on_sub_axes = detail::on_chosen_sub_axes<Mesh, detail::simplified_graph<Mesh, typename accepted::source>>;
  using source = typename on_sub_axes::source;

 public:
  /// False when a mistake was reported: then nothing here describes the function, and nothing more need be said.
  static constexpr bool is_sound = !finding::is_mistake;
  /// Answers to questions: of a program with a mistake, every comparison of one is true.
  using number = std::conditional_t<is_sound, std::int64_t, detail::unanswered>;
  using layout_found = std::conditional_t<is_sound, const layout&, detail::unanswered_layout>;
  using mesh = Mesh;
  using function = Function;
  /// The mesh as the program uses it, which all layouts and collectives below are about: `mesh` itself, unless the
  /// program splits dimensions by parts of an axis (`axis_parts`). Then these parts are the axes, in the place of
  /// theirs; devices have the same numbers.
  using device_mesh = typename on_sub_axes::mesh;
  static constexpr const axis_parts& parts = on_sub_axes::sub_axes;
  /// The passes, as `frozen` takes them: tracing (its graph is not simplified yet), completion and partitioning.
  using trace_pass = typename accepted::source;
  using completion_pass = typename on_sub_axes::completion;
  using partition_pass = detail::partitioned_graph<device_mesh, source>;
  /// The traced and simplified program of one device, and the partitioned program of each.
  static constexpr const auto& traced = completion_pass::program;
  using device_program = detail::scheduled_graph<device_mesh, partition_pass>;
  static constexpr const auto& code = detail::frozen<device_program>::value;
  static constexpr const auto& plan = detail::planned<device_mesh, detail::frozen<device_program>::value>::value;
  using result_type = typename accepted::result_type;
  /// The number of arguments it takes (a tree is one), the declared type of each, and the number of its first leaf.
  static constexpr int arity = static_cast<int>(sizeof...(Arguments));
  template <int I> using argument_at = typename detail::nth_type<I, Arguments...>::type;
  template <int I> [[nodiscard]] static constexpr int first_leaf() {
    int count = 0;
    if constexpr (is_sound) {
      constexpr int leaves[]{detail::leaf_count<Arguments>()..., 0};
      for (int k = 0; k < I; ++k) count += leaves[k];
    }
    return count;
  }

  /// Returns the number of collectives of a kind that a device takes part in per run (those in loops once per
  /// iteration, in a `while_loop` without at_most_iterations once, of branches those of the one with most, and those
  /// that travel together once); with axes, only those along all of these.
  template <CollectiveKind Kind, MeshAxis... Axes> [[nodiscard]] static constexpr number collectives() {
    return answer([] {
      detail::run_total count(code);
      visit_collectives<Kind, Axes...>([&](int id) { count.add(id, 1); });
      return count.total();
    });
  }
  /// Bytes a device sends per run in collectives of a kind: the most of all devices where shards are uneven, else the
  /// most of each collective, added up.
  template <CollectiveKind Kind, MeshAxis... Axes> [[nodiscard]] static constexpr number bytes() {
    return answer([] {
      std::int64_t most = 0;
      for (int device = 0; device < Mesh::devices; ++device) {
        detail::run_total sum(code);
        visit_collectives<Kind, Axes...>(
            [&](int id) { sum.add(id, evenly_split ? sent_bytes_of(id) : sent_bytes_of(id, device)); });
        const std::int64_t sent = sum.total();
        most = sent > most ? sent : most;
        if (evenly_split) break;
      }
      return most;
    });
  }
  /// Mistakes: axes are types.
  template <CollectiveKind Kind, detail::fixed_string Axis> [[nodiscard]] static constexpr auto collectives() {
    static_assert(
        why::is_named_so<Kind>,
        "collectives: axes are types, not names. Write step::collectives<all_gather, data>(), where struct data "
        ": axis<\"data\", 2> {}.");
    return detail::unanswered{};
  }
  template <CollectiveKind Kind, detail::fixed_string Axis> [[nodiscard]] static constexpr auto bytes() {
    static_assert(why::is_named_so<Kind>,
                  "bytes: axes are types, not names. Write step::bytes<all_gather, data>(), where struct data : "
                  "axis<\"data\", 2> {}.");
    return detail::unanswered{};
  }
  /// All collectives.
  [[nodiscard]] static constexpr number collectives() {
    return answer([] {
      detail::run_total sum(code);
      for (int id = 0; id < code.size; ++id) {
        if (starts_collective(code.code[id])) sum.add(id, 1);
      }
      return sum.total();
    });
  }
  /// Floating-point operations of one device per run.
  [[nodiscard]] static constexpr number flops() {
    return answer([] {
      const graph_view g = code;
      detail::run_total sum(g);
      for (int id = 0; id < g.size; ++id) {
        if (g[id].op->flops != nullptr) sum.add(id, g[id].op->flops(g.view(id)));
      }
      return sum.total();
    });
  }
  /// Bytes of the buffers of arguments and of results that take no argument's place, on each device.
  [[nodiscard]] static constexpr number argument_bytes() {
    return answer([] { return border_bytes(structure::argument); });
  }
  [[nodiscard]] static constexpr number result_bytes() {
    return answer([] { return border_bytes(structure::result); });
  }
  /// Bytes of everything computed on the way.
  [[nodiscard]] static constexpr number arena_bytes() {
    return answer([] { return std::int64_t{plan.arena_bytes}; });
  }
  /// Bytes a device needs to run: arguments, results and arena. Arrays that the caller keeps beyond these, such as
  /// results of earlier calls and copies of a donated state, are not counted.
  [[nodiscard]] static constexpr number peak_bytes_per_device() {
    return argument_bytes() + result_bytes() + arena_bytes();
  }

  /// The layout, on `device_mesh`, of argument or result number `index` (leaves of trees count singly), or of the
  /// labelled value. Annotated ones have all parts of an axis where the annotation has the axis.
  /// Errors: none has this number or label; in a constant a compile error that names those there are, at run time a
  /// `no_such_value`.
  [[nodiscard]] static constexpr layout_found argument_layout(int index) {
    if constexpr (is_sound) {
      const int found = border_value(structure::argument, index);
      if (found < 0) why::no_argument_has_this_number<why::count<border_count(structure::argument)>>(index);
      return code.annotations[code.code[found].annotation];
    } else {
      return {};
    }
  }
  [[nodiscard]] static constexpr layout_found result_layout(int index) {
    if constexpr (is_sound) {
      const int found = border_value(structure::result, index);
      if (found < 0) why::no_result_has_this_number<why::count<border_count(structure::result)>>(index);
      return code.annotations[code.code[found].annotation];
    } else {
      return {};
    }
  }
  [[nodiscard]] static constexpr layout_found layout_of(const char* label) {
    if constexpr (is_sound) {
      const int found = labelled_value(label);
      if (found < 0) why::no_value_has_this_label(label, typename detail::program_labels<code>::type{});
      return code.annotations[code.code[found].annotation];
    } else {
      return {};
    }
  }
  // Constants: a call at run time would bring the graph into the program, and with it the rules of its ops.
  [[nodiscard]] static constexpr int argument_count() {
    constexpr int count = border_count(structure::argument);
    return count;
  }
  [[nodiscard]] static constexpr int result_count() {
    constexpr int count = border_count(structure::result);
    return count;
  }

  /// The axes of `mesh` along which a collective moves something, those included of which it is one part.
  [[nodiscard]] static constexpr axis_mask axes_of(const instruction& i) {
    const axis_mask axes = attributes_of<collective_attributes>(i).axes;
    return std::is_same_v<device_mesh, Mesh> ? axes : parts.axes_of(axes);
  }
  /// Bytes device `device` sends when it executes instruction `id` once: a collective and all that travel with it. One
  /// that travels with another sends nothing itself.
  [[nodiscard]] static constexpr std::int64_t sent_bytes_of(int id, int device) {
    return detail::sent_in_messages(device_mesh::value, code, id, device);
  }
  /// Returns the bytes that the device that moves most sends then, or receives if it is a permutation or an exchange.
  /// (If shards are uneven the first device holds the largest.)
  [[nodiscard]] static constexpr std::int64_t sent_bytes_of(int id) {
    return detail::most_sent_in_messages(device_mesh::value, code, id);
  }

 private:
  template <CollectiveKind Kind, MeshAxis... Axes, class F> static constexpr void visit_collectives(const F& f) {
    static_assert((detail::is_own<Mesh, Axes>() && ...), "this axis does not belong to the program's mesh");
    constexpr axis_mask wanted = (axis_mask{0} | ... | detail::axes_behind<Mesh, Axes>().mask());
    for (int id = 0; id < code.size; ++id) {
      const instruction& i = code.code[id];
      if (!starts_collective(i) || detail::collective_index(i.op) != static_cast<int>(Kind::kind)) continue;
      if ((axes_of(i) & wanted) == wanted) f(id);
    }
  }
  static constexpr bool evenly_split = detail::all_even(device_mesh::value, code);
  [[nodiscard]] static constexpr std::int64_t border_bytes(structure part) {
    std::int64_t sum = 0;
    for (const instruction& i : code.code) {
      if (structure_of(i) == part && (part == structure::argument || i.operand_count == 1)) sum += bytes_of(i);
    }
    return sum;
  }
  [[nodiscard]] static constexpr int border_count(structure part) {
    int count = 0;
    for (const instruction& i : code.code) count += structure_of(i) == part ? 1 : 0;
    return count;
  }
  template <class Count> [[nodiscard]] static constexpr number answer(const Count& count) {
    if constexpr (is_sound) {
      return count();
    } else {
      return {};
    }
  }
  [[nodiscard]] static constexpr int border_value(structure part, int index) {
    for (int id = 0; id < code.size; ++id) {
      const instruction& i = code.code[id];
      if (structure_of(i) == part && attributes_of<border_attributes>(i).number == index) return id;
    }
    return -1;
  }
  /// The last one, should several have the label.
  [[nodiscard]] static constexpr int labelled_value(const char* label) {
    for (int id = code.size - 1; id >= 0 && label != nullptr; --id) {
      if (detail::same_text(code.code[id].label, label) && !code.code[id].op->facts.looks) return id;
    }
    return -1;
  }
};

/// The program of a function that has no name, a lambda without captures:
/// `constexpr auto step = compile<mesh, f32<64, 256>, f32<256>>([](auto x, auto b) { return relu(x + b); });`
/// What it returns is empty: questions go to it (`step.flops()`), and `runner run(world, step)` runs it.
/// Errors: as of `program`.
template <class Mesh, class... Arguments, class Function>
constexpr program<Mesh, Function, Arguments...> compile(const Function& /*function*/) {
  return program<Mesh, Function, Arguments...>(detail::as_value{});
}

/// The same as a type, from a constant: `program_of<mesh, step, f32<64, 256>, f32<256>>`, where step is a constexpr
/// lambda, or written in its place.
template <class Mesh, auto Function, class... Arguments>
using program_of = program<Mesh, std::remove_cv_t<decltype(Function)>, Arguments...>;

}  // namespace espalier
