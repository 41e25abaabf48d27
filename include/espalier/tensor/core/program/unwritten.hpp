// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/partition/factor_choice.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/program/called_places.hpp>
#include <espalier/tensor/core/program/collective_types.hpp>
#include <espalier/tensor/core/program/mistake_words.hpp>
#include <espalier/tensor/core/program/passes.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

/// Communication that a program in explicit mode does not write (program/explicit_mode.hpp).
namespace espalier::detail {

/// The kinds of collectives that need not be written where an instruction is.
[[nodiscard]] constexpr std::uint32_t allowed_at(const source_line& where, const source_line* callers) {
  for (int caller = where.caller; caller > 0; caller = callers[caller - 1].caller) {
    if (is_scope(callers[caller - 1])) return allowed_in_scope(callers[caller - 1]);
  }
  return all_kinds_allowed;
}

/// A collective that nobody wrote, in the program of a device; and the instruction of the traced program to which it
/// belongs: the one that makes the sum, or the one that needs an operand in another layout.
struct unwritten_collective {
  int id = -1;
  int at = -1;
  /// The value that moves, as it is before.
  int moved = -1;
};

class unwritten_search {
 public:
  constexpr unwritten_search(const mesh_shape& mesh, graph_view code, graph_view traced, const source_line* callers)
      : mesh_(mesh), code_(code), traced_(traced), callers_(callers) {}

  [[nodiscard]] constexpr unwritten_collective run() const {
    for (int id = 0; id < code_.size; ++id) {
      if (!communicates(code_[id])) continue;
      const unwritten_collective found = look(id);
      if (found.id >= 0) return found;
    }
    return {};
  }

 private:
  [[nodiscard]] constexpr unwritten_collective look(int id) const {
    const instruction& i = code_[id];
    const int kind = collective_index(i.op);
    if (mesh_.parts(attributes_of<collective_attributes>(i).axes) == 1) return {};
    int moved = i.operand[0];
    while (collective_index(code_[moved].op) >= 0) moved = code_[moved].operand[0];
    const bool reduces = facts_of(static_cast<collective>(kind)).reduces;
    int at = i.origin;
    if (reduces && is_computed(code_[moved].origin)) at = code_[moved].origin;
    const source_line& where = at >= 0 ? traced_[at].where : i.where;
    if ((allowed_at(where, callers_) >> static_cast<unsigned>(kind) & 1U) != 0) return {};
    if (i.origin >= 0 && is_written(i.origin)) return {};
    if (reduces && at >= 0 && gives_layout(at)) return {};
    return {id, at, moved};
  }
  [[nodiscard]] constexpr bool is_computed(int id) const {
    return id >= 0 && structure_of(traced_[id]) == structure::none;
  }
  /// Whether it is a request of the user's, or the gradient of one: what is laid out in the forward pass as the user
  /// says comes back as it was.
  [[nodiscard]] constexpr bool is_written(int id) const {
    const instruction& i = traced_[id];
    if (i.op->facts.is_written) return true;
    if (requests_of(i) != layout_request::as_operand) return false;
    for (int reader = 0; reader < id; ++reader) {
      const instruction& r = traced_[reader];
      if (r.op->facts.is_written && requests_of(r) != layout_request::annotation && r.operand[0] == i.operand[1])
        return true;
    }
    return false;
  }
  /// Whether the user says how the value is laid out, and that it is no partial. (It may be reduced later than where
  /// the user says so.)
  [[nodiscard]] constexpr bool gives_layout(int id) const {
    for (int reader = id + 1; reader < traced_.size; ++reader) {
      const instruction& r = traced_[reader];
      if (r.operand_count == 0 || r.operand[0] != id || !is_written(reader)) continue;
      if (r.annotation < 0 || traced_.annotations[r.annotation].placement.unreduced == 0) return true;
    }
    return false;
  }

  const mesh_shape& mesh_;
  graph_view code_;
  graph_view traced_;
  const source_line* callers_;
};

/// A layout that an instruction's result may have, the bytes that a device sends for it, and the operands that move for
/// it, with the layout that each is to have.
inline constexpr int most_moved_operands = 2;
struct legal_output {
  sharding placement = empty_sharding;
  std::int64_t bytes = 0;
  int moved_count = 0;
  int moved[most_moved_operands]{};
  sharding moved_to[most_moved_operands]{empty_sharding, empty_sharding};
};
inline constexpr int most_legal_outputs = 6;
struct legal_outputs {
  int count = 0;
  legal_output of[most_legal_outputs]{};

  /// Keeps the cheapest, in the order of their bytes; of a layout that there is already, the cheaper.
  constexpr void offer(const legal_output& one) {
    for (int n = 0; n < count; ++n) {
      if (!of[n].placement.same_layout(one.placement)) continue;
      if (of[n].bytes <= one.bytes) return;
      for (int m = n; m + 1 < count; ++m) of[m] = of[m + 1];
      --count;
      break;
    }
    int at = 0;
    while (at < count && of[at].bytes <= one.bytes) ++at;
    if (at == most_legal_outputs) return;
    if (count < most_legal_outputs) ++count;
    for (int m = count - 1; m > at; --m) of[m] = of[m - 1];
    of[at] = one;
  }
};

/// Finds the layouts that the result of an instruction may have.
class legal_output_search {
 public:
  constexpr legal_output_search(const mesh_shape& mesh, graph_view code, graph_view traced, const factor_rule* rules,
                                const sharding* of)
      : mesh_(mesh), code_(code), traced_(traced), rules_(rules), of_(of) {}

  [[nodiscard]] constexpr legal_outputs run(const unwritten_collective& found) {
    const instruction& i = code_[found.id];
    if (facts_of(static_cast<collective>(collective_index(i.op))).reduces) {
      const collective_attributes sum = attributes_of<collective_attributes>(i);
      const layout& held = code_.annotations[code_[found.moved].annotation];
      add_sums(held.shape, i.type, {held.placement}, sum.axes, sum.combine);
    } else if (found.at >= 0 && has_rule(traced_[found.at])) {
      const instruction& op = traced_[found.at];
      add_split(found.at, -1);
      for (int k = 0; k < op.operand_count && k < inline_operands; ++k) add_split(found.at, k);
    } else {
      const layout& held = code_.annotations[code_[found.moved].annotation];
      legal_output only;
      only.placement = found.at >= 0 ? of_[found.at] : code_.annotations[i.annotation].placement;
      only.placement.unreduced = held.placement.unreduced;
      only.bytes = reshard_bytes(mesh_, held.shape, i.type, held.placement, only.placement);
      found_.offer(only);
    }
    return found_;
  }

 private:
  [[nodiscard]] static constexpr bool has_rule(const instruction& i) {
    return structure_of(i) == structure::none && requests_of(i) == layout_request::none && i.op->factors != nullptr;
  }

  /// A partial as it is, if it is a sum; all-reduced; and reduced and scattered over each dimension that is as long as
  /// there are shards then.
  constexpr void add_sums(const extents& shape, dtype type, legal_output partial, axis_mask axes, reduction combine) {
    if (combine == reduction::sum) found_.offer(partial);
    const sharding terms = partial.placement;
    legal_output sum = partial;
    sum.placement.unreduced &= ~axes;
    const sharding whole = sum.placement;
    sum.bytes = partial.bytes + reshard_bytes(mesh_, shape, type, terms, sum.placement);
    found_.offer(sum);
    if (combine != reduction::sum) return;
    for (int d = 0; d < shape.rank; ++d) {
      sum.placement = whole;
      sum.placement.dim[d] = whole.dim[d].followed_by(list_of(axes));
      if (mesh_.parts(sum.placement.dim[d]) > shape[d]) continue;
      sum.bytes = partial.bytes + reshard_bytes(mesh_, shape, type, terms, sum.placement);
      found_.offer(sum);
    }
  }

  /// The op split as operand `leader` is, or as completion has its result if that is -1, and further as the other
  /// operands are, as far as these do not contradict it.
  constexpr void add_split(int id, int leader) {
    const instruction& i = traced_[id];
    const factor_rule& rule = rules_[id];
    split_ = factor_axes{};
    used_ = 0;
    if (leader < 0) {
      hear(id, of_[id], rule.result);
    } else {
      hear(id, of_[traced_.operand_at(i, leader)], rule.dims_of(leader));
    }
    for (int k = 0; k < i.operand_count; ++k) hear(id, of_[traced_.operand_at(i, k)], rule.dims_of(k));

    legal_output out;
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = traced_.operand_at(i, k);
      const sharding& held = of_[operand];
      sharding needed = required(mesh_, rule.dims_of(k), held.rank, rule, split_);
      needed.unreduced = held.unreduced;
      const std::int64_t bytes = reshard_bytes(mesh_, traced_[operand].shape, traced_[operand].type, held, needed);
      if (bytes == 0) continue;
      if (out.moved_count == most_moved_operands) return;
      out.moved[out.moved_count] = k;
      out.moved_to[out.moved_count++] = needed;
      out.bytes += bytes;
    }
    out.placement = required(mesh_, rule.result, i.shape.rank, rule, split_);
    axis_mask sums = 0;
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) sums |= split_[f].mask();
    }
    if (sums == 0) return found_.offer(out);
    out.placement.unreduced = sums;
    add_sums(i.shape, i.type, out, sums, rule.combine);
  }
  constexpr void hear(int id, const sharding& said, const factor_list* dims) {
    const factor_rule& rule = rules_[id];
    factor_axes heard;
    for (int d = 0; d < said.rank; ++d) {
      if (!said.dim[d].empty() && !dims[d].empty()) read_dimension(mesh_, rule, dims[d], said.dim[d], heard);
    }
    const std::uint32_t closed = closed_factors(id);
    for (int f = 0; f < rule.count; ++f) {
      const axis_list axes = heard[f];
      if (axes.empty() || (closed >> static_cast<unsigned>(f) & 1U) != 0 || !axes.starts_with(split_[f])) continue;
      const axis_mask added = axes.mask() & ~split_[f].mask();
      if (added == 0 || (added & used_) != 0) continue;
      split_.set(f, axes);
      used_ |= added;
    }
  }
  /// The factors that the op cannot split without moving something: those that must be whole, and those of windows,
  /// which need a halo.
  [[nodiscard]] constexpr std::uint32_t closed_factors(int id) const {
    const instruction& i = traced_[id];
    const factor_rule& rule = rules_[id];
    std::uint32_t closed = 0;
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::blocked) closed |= 1U << static_cast<unsigned>(f);
    }
    if (i.op->windows == nullptr) return closed;
    for (int k = 0; k < i.operand_count; ++k) {
      window of_dimension[max_rank];
      const std::uint32_t dims = i.op->windows(traced_.view(id), k, &of_dimension[0]);
      for (int d = 0; d < traced_.operand(id, k).shape.rank; ++d) {
        const factor_list factors = rule.dims_of(k)[d];
        if ((dims >> static_cast<unsigned>(d) & 1U) == 0) continue;
        for (int n = 0; n < factors.size(); ++n) closed |= 1U << static_cast<unsigned>(factors[n]);
      }
    }
    return closed;
  }

  const mesh_shape& mesh_;
  graph_view code_;
  graph_view traced_;
  const factor_rule* rules_;
  const sharding* of_;
  legal_outputs found_;
  factor_axes split_;
  axis_mask used_ = 0;
};

// --- in words -------------------------------------------------------------------------------------------------------

/// A list of sub-axes as the axes of the mesh, as far as they are all of an axis.
struct spelled_axes {
  int count = 0;
  int axis[max_axes]{};
  /// Of a sub-axis, the product of the sizes before it, and its own; else 0.
  int majors[max_axes]{};
  int size[max_axes]{};
};
[[nodiscard]] constexpr spelled_axes spell_axes(const axis_parts& parts, axis_list axes) {
  spelled_axes result;
  for (int n = 0; n < axes.size();) {
    const int all = parts.whole_axis_at(axes, n);
    const int at = result.count++;
    result.axis[at] = parts.axis[axes[n]];
    result.majors[at] = all == 0 ? parts.majors[axes[n]] : 0;
    result.size[at] = all == 0 ? parts.size[axes[n]] : 0;
    n += all == 0 ? 1 : all;
  }
  return result;
}
template <class Mesh, int Axis, int Majors, int Size> [[nodiscard]] constexpr auto spelled_axis() {
  using axis = typename axis_of_mesh<Mesh, Axis>::type;
  if constexpr (Size == 0) {
    return std::type_identity<axis>{};
  } else {
    return std::type_identity<why::sub_axis<axis, why::before<Majors>, why::size<Size>>>{};
  }
}
/// `Into<axes...>`. `Found` has the mesh, `mesh_of_user`, and its `parts`.
template <class Found, std::uint32_t Code, template <class...> class Into> struct axes_in_words {
  static constexpr spelled_axes value = spell_axes(Found::parts, axis_list::from_code(Code));
  template <std::size_t... I>
  static Into<typename decltype(spelled_axis<typename Found::mesh_of_user, value.axis[I], value.majors[I],
                                             value.size[I]>())::type...>
      all(std::index_sequence<I...>);
  using type = decltype(all(std::make_index_sequence<static_cast<std::size_t>(value.count)>{}));
};

/// What explicit mode finds in a program.
template <class Mesh, class Function, class... Arguments> struct unwritten_communication {
  using mesh_of_user = Mesh;
  using source = traced_graph<Mesh, Function, Arguments...>;
  using whole = completed<Mesh, simplified_graph<Mesh, source>>;
  using on_sub_axes = on_chosen_sub_axes<Mesh, simplified_graph<Mesh, source>>;
  using mesh = typename on_sub_axes::mesh;
  static constexpr const axis_parts& parts = on_sub_axes::sub_axes;
  using partition_pass = partitioned_graph<mesh, typename on_sub_axes::source>;
  using from = typename partition_pass::from;
  static constexpr const auto& code = frozen<device_graph<mesh, partition_pass>>::value;

  static constexpr int caller_count = count_callers(code, whole::program);
  [[nodiscard]] static constexpr caller_table<caller_count> list_callers() {
    caller_table<caller_count> table;
    const traced made = trace<Mesh, Function, Arguments...>();
    for (int n = 0; n < caller_count; ++n) table.of[n] = made.callers[n];
    return table;
  }
  static constexpr caller_table<caller_count> callers = list_callers();

  static constexpr unwritten_collective found =
      unwritten_search(mesh::value, code, whole::program, &callers.of[0]).run();
};
template <class Mesh, class Function, class... Arguments>
struct callers_of<unwritten_communication<Mesh, Function, Arguments...>> {
  static constexpr const auto& value = unwritten_communication<Mesh, Function, Arguments...>::callers;
};

/// The same as a mistake.
template <class Found> struct unwritten_words {
  static constexpr unwritten_collective at = Found::found;
  static constexpr const auto& code = Found::code;
  static constexpr const instruction& moves = code.code[at.id];
  [[nodiscard]] static constexpr legal_outputs find_outputs() {
    legal_outputs found = legal_output_search(Found::mesh::value, code, Found::from::program, &Found::from::rules.of[0],
                                              &Found::from::value.of[0])
                              .run(at);
    for (legal_output& one : found.of) {
      write_each(&one.placement.dim[0], max_rank);
      for (sharding& to : one.moved_to) write_each(&to.dim[0], max_rank);
    }
    return found;
  }
  static constexpr legal_outputs outputs = find_outputs();
  /// The bytes that a device sends in it; of a halo exchange, those of all that share its messages.
  [[nodiscard]] static constexpr std::int64_t sent() {
    const collective_facts& kind = facts_of(static_cast<collective>(collective_index(moves.op)));
    if (kind.sent != nullptr) {
      return kind.sent(bytes_of(code.code[moves.operand[0]]),
                       Found::mesh::value.parts(attributes_of<collective_attributes>(moves).axes));
    }
    int first = at.id;
    while (code.code[first].op->facts.travels_along) --first;
    return most_sent_in_messages(Found::mesh::value, code, first);
  }

  /// The layout of output N, or, if K is not -1, that of the K-th operand that moves for it.
  template <int N, int K> struct words_of_layout {
    static constexpr const sharding& value = K < 0 ? outputs.of[N].placement : outputs.of[N].moved_to[K < 0 ? 0 : K];
    template <int Dim>
    using dimension = typename axes_in_words<Found, value.dim[Dim].code(), dimension_entry>::type::type;
    template <class... Last, std::size_t... Dims>
    static why::annotated<dimension<static_cast<int>(Dims)>..., Last...> all(std::index_sequence<Dims...>);
    [[nodiscard]] static constexpr auto make() {
      using dims = std::make_index_sequence<static_cast<std::size_t>(value.rank)>;
      if constexpr (value.unreduced == 0) {
        return std::type_identity<decltype(all(dims{}))>{};
      } else {
        using sums = typename axes_in_words<Found, list_of(value.unreduced).code(), unreduced>::type;
        return std::type_identity<decltype(all<sums>(dims{}))>{};
      }
    }
    using type = typename decltype(make())::type;
  };
  template <int N, std::size_t... K>
  static why::output<
      typename words_of_layout<N, -1>::type, why::bytes<outputs.of[N].bytes>,
      why::moved<why::operand<outputs.of[N].moved[K]>, typename words_of_layout<N, static_cast<int>(K)>::type>...>
      output(std::index_sequence<K...>);
  template <std::size_t... N>
  static why::communication_not_written<
      typename type_of_collective<static_cast<collective>(moves.op->facts.moves)>::type,
      typename listed_axes<typename Found::mesh_of_user,
                           list_of(Found::parts.axes_of(attributes_of<collective_attributes>(moves).axes)).code(),
                           why::along>::type,
      tensor_for<moves.type, code.annotations[moves.annotation].shape>, why::bytes<sent()>,
      decltype(output<static_cast<int>(N)>(
          std::make_index_sequence<static_cast<std::size_t>(outputs.of[N].moved_count)>{}))...>
      all(std::index_sequence<N...>);
  using reason = decltype(all(std::make_index_sequence<static_cast<std::size_t>(outputs.count)>{}));

  [[nodiscard]] static constexpr auto place() {
    if constexpr (at.at < 0) {
      return place_of_instruction<code, at.id>{};
    } else {
      return called_place<Found, place_of_instruction<Found::whole::program, at.at>,
                          Found::whole::program.code[at.at].where.caller>();
    }
  }
};

/// Reports the first collective that nobody wrote of a program that is in explicit mode and has no other mistake.
template <class Mesh, class Function, class... Arguments> [[nodiscard]] constexpr auto report_unwritten() {
  using found = unwritten_communication<Mesh, Function, Arguments...>;
  if constexpr (found::found.id < 0) {
    return nothing_to_report{};
  } else {
    using words = unwritten_words<found>;
    return report<typename words::reason, decltype(words::place())>{};
  }
}

}  // namespace espalier::detail
