// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/argument.hpp>
#include <espalier/tensor/core/program/custom_gradient.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace espalier {

/// An argument whose memory the program may reuse: the first result of the same type takes its place, with the same
/// layout, so that parameters are updated where they are.
template <class Argument> struct donated {};

namespace detail {

template <class Argument> struct argument_traits {
  using type = Argument;
  static constexpr bool is_donated = false;
};
template <class Argument> struct argument_traits<donated<Argument>> {
  using type = Argument;
  static constexpr bool is_donated = true;
};

/// The value that the traced function gets for an argument.
template <class Mesh, class Argument> struct traced_argument { using type = symbol<Mesh, plain<Argument>>; };
template <class Mesh, ParameterTree Tree> struct traced_argument<Mesh, Tree> {
  using type = with_leaves<Tree, symbols<Mesh>>;
};
template <class Mesh, class Argument>
using traced_t = typename traced_argument<Mesh, typename argument_traits<Argument>::type>::type;

/// The annotation of an argument's leaf, if it has one.
template <class Mesh, class Leaf> struct leaf_annotation { static constexpr bool present = false; };
template <class Mesh, class Tensor, class... Entries> struct leaf_annotation<Mesh, sharded<Tensor, Entries...>> {
  static constexpr bool present = true;
  static constexpr read_annotation value = annotation_of<Mesh, Entries...>(Tensor::rank);
  using wrong_rank = why::annotation_of_wrong_rank<Tensor, Entries...>;
  using unknown_axis = why::unknown_mesh_axis<Mesh, Entries...>;
  using axis_twice = why::axis_used_twice<Tensor, Entries...>;
};

template <class Mesh, class Leaf> constexpr int argument_leaf(builder& b, int index) {
  using tensor = plain<Leaf>;
  const int id = emit::argument(b, tensor::type, tensor::shape, index);
  if constexpr (leaf_annotation<Mesh, Leaf>::present) {
    constexpr read_annotation read = leaf_annotation<Mesh, Leaf>::value;
    // `program` has reported the mistake; this is for callers that trace without one.
    static_assert(read.fault == annotation_fault::nothing, "sharded<...>: not an annotation of this tensor.");
    b[id].annotation = b.annotate(tensor::shape, read.placement, read.priority);
  }
  return id;
}

template <class Mesh, class Argument> constexpr traced_t<Mesh, Argument> make_argument(builder& b, int& index) {
  using declared = typename argument_traits<Argument>::type;
  traced_t<Mesh, Argument> result{};
  const auto make = [&](auto& one, const auto& leaf) {
    one.owner = &b;
    one.id = argument_leaf<Mesh, std::remove_cvref_t<decltype(leaf)>>(b, index++);
    one.seen = b.where;
  };
  if constexpr (ParameterTree<declared>) {
    const declared specs{};
    for_each_pair(result, specs, make);
  } else {
    make(result, declared{});
  }
  return result;
}

/// An argument of a traced call, and whether it is donated and still without a successor.
template <class Mesh, class Argument, std::size_t I> struct argument_slot {
  traced_t<Mesh, Argument> value;
  bool open = argument_traits<Argument>::is_donated;

  constexpr argument_slot(builder& b, int& index) : value(make_argument<Mesh, Argument>(b, index)) {}
};

/// The arguments of a traced call.
template <class Mesh, class Indices, class... Arguments> struct argument_slots;
template <class Mesh, std::size_t... I, class... Arguments>
struct argument_slots<Mesh, std::index_sequence<I...>, Arguments...> : argument_slot<Mesh, Arguments, I>... {
  // Bases are made in their order, which is that of the arguments.
  constexpr argument_slots(builder& b, int& index) : argument_slot<Mesh, Arguments, I>(b, index)... {}

  template <std::size_t J, class Argument>
  static constexpr const auto& value_of(const argument_slot<Mesh, Argument, J>& slot) {
    return slot.value;
  }
  template <std::size_t J> constexpr const auto& get() const { return value_of<J>(*this); }

  /// Lists the arguments whose place a result of this type takes, if a donated one is left.
  template <class Part> constexpr bool replace(const Part& part, list<int>& arguments) {
    return (replace_one(static_cast<argument_slot<Mesh, Arguments, I>&>(*this), part, arguments) || ...);
  }

 private:
  template <class Slot, class Part>
  static constexpr bool replace_one(Slot& slot, const Part& /*part*/, list<int>& arguments) {
    if constexpr (std::is_same_v<Part, decltype(slot.value)>) {
      if (slot.open) {
        slot.open = false;
        for_each_leaf(slot.value, [&](const auto& one) { arguments.push_back(one.id); });
        return true;
      }
    }
    return false;
  }
};
template <class Mesh, class... Arguments>
using argument_pack = argument_slots<Mesh, std::index_sequence_for<Arguments...>, Arguments...>;

template <class T> [[nodiscard]] constexpr bool returns_tensors() {
  if constexpr (is_results<T>) {
    if constexpr (std::is_same_v<T, results<>>) {
      return true;
    } else {
      return returns_tensors<decltype(T::first)>() && returns_tensors<decltype(T::rest)>();
    }
  } else {
    return Symbol<T> || ParameterTree<T>;
  }
}

}  // namespace detail

/// The result of tracing: the graph, or the place of a mistake.
struct traced {
  graph program;
  mistake_place failure;
  int without_gradient = -1;
  source_line without_gradient_line;
  /// The list that `source_line::caller` of an instruction is a place in.
  detail::list<source_line> callers;
  /// A mistake that was noted by value (see `builder::note`), and where.
  const detail::reason_id* mistake = nullptr;
  mistake_place mistake_where;
};

namespace detail {

template <class Mesh, class Function, class... Arguments>
using traced_result = typename returned_as<decltype(std::declval<const Function&>()(
    std::declval<const traced_t<Mesh, Arguments>&>()...))>::type;

template <class Part, class Pack> constexpr void emit_results(builder& b, const Part& part, Pack& pack, int& index) {
  if constexpr (is_results<Part>) {
    if constexpr (!std::is_same_v<Part, results<>>) {
      emit_results(b, part.first, pack, index);
      emit_results(b, part.rest, pack, index);
    }
  } else {
    list<int> replaced;
    const bool donated = pack.replace(part, replaced);
    int k = 0;
    for_each_leaf(part, [&](const auto& one) {
      const int id = operand_of(b, one, {});
      // A result has the line of its value: what has to be communicated for it belongs there.
      b.at(b[id].where);
      emit::result(b, id, index++, donated ? replaced[k] : -1);
      ++k;
    });
  }
}

/// Returns the number of tensors that an argument of a program is: a tree counts by its leaves.
template <class Argument> [[nodiscard]] constexpr int leaf_count() {
  using declared = typename argument_traits<Argument>::type;
  if constexpr (ParameterTree<declared>) {
    int count = 0;
    const declared specs{};
    for_each_leaf(specs, [&](const auto&) { ++count; });
    return count;
  } else {
    return 1;
  }
}

/// A call of the function on symbols.
template <class Mesh, class... Arguments> struct traced_call {
  builder b;
  int arguments_made = 0;
  argument_pack<Mesh, Arguments...> arguments;

  constexpr traced_call() : arguments(b, arguments_made) {}
  traced_call(const traced_call&) = delete;  // arguments point to b

  /// Returns the result of the trace, given what the traced function returned.
  template <class Out> constexpr traced finish(const Out& out) {
    traced result;
    if constexpr (!std::is_void_v<typename failure_in<Out>::type>) {
      result.failure = failure_place(out);
    } else if constexpr (returns_tensors<Out>()) {
      int results_made = 0;
      emit_results(b, out, arguments, results_made);
      mark_lone_heads(b, 0, b.size());
      result.without_gradient = b.without_gradient;
      if (b.without_gradient >= 0) result.without_gradient_line = b[b.without_gradient].where;
      result.program = b.result();
      result.callers = b.callers;
    }
    result.mistake = b.mistake;
    result.mistake_where = b.mistake_where;
    return result;
  }
};

/// The call as an object, made where it is initialised: no function of ours is between, each of which would be one more
/// message about code that is not constexpr. (Not for g++, in whose constants no object can point to itself so.)
template <class Mesh, class Function, class Indices, class... Arguments> struct made_call;
template <class Mesh, class Function, std::size_t... I, class... Arguments>
struct made_call<Mesh, Function, std::index_sequence<I...>, Arguments...> {
  traced_call<Mesh, Arguments...> call;
  Function function{};
  traced_result<Mesh, Function, Arguments...> out = std::as_const(function)(call.arguments.template get<I>()...);
};

template <class Mesh, class Function, class... Arguments, std::size_t... I>
constexpr traced trace_indexed(std::index_sequence<I...> /*all*/) {
  traced_call<Mesh, Arguments...> call;
  const Function function{};
  return call.template finish<traced_result<Mesh, Function, Arguments...>>(
      function(call.arguments.template get<I>()...));
}
/// Calls the function once, on symbols.
template <class Mesh, class Function, class... Arguments> constexpr traced trace() {
  return trace_indexed<Mesh, Function, Arguments...>(std::index_sequence_for<Arguments...>{});
}

}  // namespace detail

}  // namespace espalier
