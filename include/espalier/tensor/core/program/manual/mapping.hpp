// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/attribute_reader.hpp>
#include <espalier/tensor/core/graph/called_from.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/program/manual/collectives.hpp>
#include <espalier/tensor/core/program/map_over.hpp>

#include <cstdint>

// Code for one shard as code for all: the graph of a region, whose tensors have the shapes of shards, becomes part of
// the graph around it, whose tensors are whole. A tensor that differs from device to device gets a leading dimension
// for each axis along which it does, which has an element for each device and is split over that axis: so a device
// holds its own shard. What is the same on all devices has no such dimension. A psum is a sum over it, a permutation
// moves its elements, an all_gather is a change of layout, and all passes work as ever.

namespace espalier::detail {

/// The mistakes that only the graph of a region shows.
enum class shard_fault : std::uint8_t {
  nothing,
  partial_in_nonlinear_op,
  product_of_partials,
  partial_meets_whole,
  laid_out_along_manual_axis,
  decision_varies,
  not_for_shards,
  too_many_dimensions,
};

/// Notes the mistake that a mapping has found. @tparam Details the axis that it is about
template <class... Details>
constexpr void note_shard_fault(builder& b, shard_fault fault, source_line where, const char* op) {
  switch (fault) {
    case shard_fault::nothing: break;
    case shard_fault::partial_in_nonlinear_op:
      b.note(failed<why::partial_in_nonlinear_op<Details...>>(where, op));
      break;
    case shard_fault::product_of_partials: b.note(failed<why::product_of_partials<Details...>>(where, op)); break;
    case shard_fault::partial_meets_whole: b.note(failed<why::partial_meets_whole<Details...>>(where, op)); break;
    case shard_fault::laid_out_along_manual_axis:
      b.note(failed<why::laid_out_along_manual_axis<Details...>>(where, op));
      break;
    case shard_fault::decision_varies: b.note(failed<why::decision_varies<Details...>>(where)); break;
    case shard_fault::not_for_shards: b.note(failed<why::not_for_shards<Details...>>(where, op)); break;
    case shard_fault::too_many_dimensions:
      b.note(failed<why::too_many_dimensions_by_hand<Details...>>(where, op));
      break;
  }
}

/// The positions of an op's attributes that say something about dimensions, from `op_facts::attributes`.
struct dimension_attributes {
  /// Numbers of dimensions, sets of them, and lists, a bit for each attribute.
  std::uint32_t numbers = 0;
  std::uint32_t sets = 0;
  std::uint32_t lists = 0;
  int windows = -1;
};
[[nodiscard]] constexpr dimension_attributes dimension_attributes_of(const op_info& op) {
  dimension_attributes found;
  attribute_reader attributes{op.facts.attributes};
  const char* form = nullptr;
  for (int n = 0; attributes.next(form, n);) {
    const unsigned bit = 1U << static_cast<unsigned>(n);
    if (attribute_reader::is(form, "dimension")) found.numbers |= bit;
    if (attribute_reader::is(form, "set")) found.sets |= bit;
    if (attribute_reader::is(form, "dims")) found.lists |= bit;
    if (attribute_reader::is(form, "windows")) found.windows = n;
  }
  return found;
}

/// Appends the instructions of a region to the graph around it.
class shard_mapping {
 public:
  /// @param own the axes that the region is by hand along, those of regions around it apart
  constexpr shard_mapping(const mesh_shape& mesh, axis_mask own, const builder& from, builder& to)
      : mesh_(mesh),
        own_(own),
        from_(from),
        to_(to),
        id_(from.size(), -1),
        lead_(from.size(), 0U),
        terms_(from.size(), 0U),
        varies_(from.size(), 0U) {}

  shard_fault fault = shard_fault::nothing;
  int fault_at = -1;
  axis_mask fault_axes = 0;

  /// Operand `id` of the graph around is the argument `argument` of the region, cut as `split` says for each dimension.
  constexpr void enter(int argument, int id, const sharding& split) {
    extents apart;
    axis_list order;
    axis_mask axes = split.tiled();
    int place[max_axes]{};
    axis_list rest;
    for (int d = 0; d < split.rank; ++d) {
      std::int64_t extent = to_[id].shape[d];
      for (int n = 0; n < split.dim[d].size(); ++n) {
        place[split.dim[d][n]] = apart.rank;
        apart.append(mesh_.size[split.dim[d][n]]);
        extent /= mesh_.size[split.dim[d][n]];
        if (apart.rank == max_rank) return too_many(argument, axes);
      }
      if (apart.rank == max_rank) return too_many(argument, axes);
      rest = rest.with(apart.rank);
      apart.append(extent);
    }
    for (int a = 0; a < mesh_.rank; ++a) {
      if (has_axis(axes, a)) order = order.with(place[a]);
    }
    const int whole = axes == 0 ? unchanged(to_, id) : id;
    const int cut = emit::transpose(to_, emit::reshape(to_, whole, apart), order.followed_by(rest));
    set(argument, pinned(cut, axes, ops::shard), axes);
  }

  /// Operand `id` of the graph around is the argument `argument` as it is: with a leading dimension for each of `lead`.
  constexpr void enter(int argument, int id, axis_mask lead) { set(argument, id, lead); }

  /// Finds along which axes each value has a leading dimension, and a partial's axes; a loop's carries have what they
  /// start with and what they get.
  constexpr void find_states() {
    const region_table regions(from_.result());
    for (bool changed = true; changed;) {
      changed = false;
      for (int id = 0; id < from_.size(); ++id) {
        const instruction& i = from_[id];
        if (structure_of(i) == structure::argument || marks_region(structure_of(i))) continue;
        axis_mask lead = 0;
        axis_mask terms = 0;
        axis_mask varies = 0;
        const auto add = [&](int operand) {
          lead |= lead_[operand];
          terms |= terms_[operand];
          varies |= varies_[operand];
        };
        if (const int passed = passed_on(id); passed >= 0) {
          add(passed);
          lead = varies;
        } else {
          for (int k = 0; k < i.operand_count; ++k) add(from_.operand_at(i, k));
        }
        if (i.op == &ops::by_hand) {
          const auto how = attributes_of<by_hand_attributes>(i);
          after_by_hand(how, lead, terms);
          after_by_hand(how, varies, terms);
          if (how.kind == by_hand_kind::vary) varies |= how.axes & own_;
        }
        if (structure_of(i) == structure::region_parameter && regions.yield_of(id) >= 0) add(regions.yield_of(id));
        if (lead == lead_[id] && terms == terms_[id] && varies == varies_[id]) continue;
        lead_[id] = lead;
        terms_[id] = terms;
        varies_[id] = varies;
        changed = true;
      }
    }
    for (int id = 0; id < from_.size() && fault == shard_fault::nothing; ++id) check_state(id);
  }

  /// Appends all instructions.
  /// @pre find_states() has found no fault
  constexpr void run() {
    const source_line where = to_.where;
    outside_ = to_.region;
    for (int id = 0; id < from_.size() && fault == shard_fault::nothing; ++id) {
      if (id_[id] >= 0) continue;
      to_.where = from_[id].where;
      // What does not change in a loop may be listed in it and belong to the outside.
      to_.region = made_region(from_[id].region);
      translate(id);
      if (id_[id] >= 0 && from_[id].label != nullptr) to_[id_[id]].label = from_[id].label;
    }
    to_.where = where;
    to_.region = outside_;
  }

  /// Value `id` of the region as a tensor of the graph around: shards joined as `split` says.
  /// @pre the value does not vary along axes of the region that `split` does not name
  constexpr int leave(int id, const sharding& split) {
    const axis_mask axes = split.tiled();
    if ((lead_[id] & ~axes) != 0) return failing(shard_fault::not_for_shards, id, lead_[id] & ~axes);
    const extents local = from_[id].shape;
    if (count_of(axes) + local.rank > max_rank) return failing(shard_fault::too_many_dimensions, id, axes);
    if (axes == 0) return unchanged(to_, id_[id]);
    const int value = pinned(led(id, axes), axes, ops::shard);
    axis_list order;
    extents joined;
    for (int d = 0; d < local.rank; ++d) {
      std::int64_t extent = local[d];
      for (int n = 0; n < split.dim[d].size(); ++n) {
        order = order.with(place_of(split.dim[d][n], axes));
        extent *= mesh_.size[split.dim[d][n]];
      }
      order = order.with(count_of(axes) + d);
      joined.append(extent);
    }
    return emit::reshape(to_, emit::transpose(to_, value, order), joined);
  }

  [[nodiscard]] constexpr int value(int id) const { return id_[id]; }
  /// The axes of the region that a value has leading dimensions of.
  [[nodiscard]] constexpr axis_mask lead(int id) const { return lead_[id]; }

 private:
  // --- states --------------------------------------------------------------------------------------------------------

  /// The value that an op with a gradient of the user's passes on as this result, or -1.
  [[nodiscard]] constexpr int passed_on(int id) const {
    const instruction& i = from_[id];
    if (i.op->facts.passes_operands) return from_.operand_at(i, 0);
    if (!is_further_result(i) || !from_[i.operand[0]].op->facts.passes_operands) return -1;
    return from_.operand_at(from_[i.operand[0]], attributes_of<further_result_attributes>(i).number);
  }
  constexpr void after_by_hand(const by_hand_attributes& how, axis_mask& lead, axis_mask& terms) const {
    const axis_mask axes = how.axes & own_;
    switch (how.kind) {
      case by_hand_kind::vary: break;
      case by_hand_kind::terms: terms |= axes; break;
      case by_hand_kind::sum:
      case by_hand_kind::max:
      case by_hand_kind::min:
      case by_hand_kind::gather:
      case by_hand_kind::broadcast:
        lead &= ~axes;
        terms &= ~axes;
        break;
      case by_hand_kind::scatter:
        lead |= axes;
        terms &= ~axes;
        break;
      case by_hand_kind::own_part:
      case by_hand_kind::exchange:
      case by_hand_kind::shift:
      case by_hand_kind::permute:
      case by_hand_kind::only_on:
      case by_hand_kind::index: lead |= axes; break;
    }
  }

  constexpr void check_state(int id) {
    const instruction& i = from_[id];
    if (marks_region(structure_of(i))) {
      // What they read decides: a region_end reads its region_begin, too.
      const int entry = i.operand_count > 0 ? i.operand[i.operand_count - 1] : -1;
      if (entry >= 0 && (lead_[entry] | terms_[entry]) != 0)
        failing(shard_fault::decision_varies, id, lead_[entry] | terms_[entry]);
      return;
    }
    if (i.op == &ops::by_hand || is_further_result(i)) return;
    axis_mask all = 0;
    axis_mask twice = 0;
    axis_mask common = ~axis_mask{0};
    axis_mask other_than_first = 0;
    for (int k = 0; k < i.operand_count; ++k) {
      const axis_mask terms = terms_[from_.operand_at(i, k)];
      twice |= all & terms;
      all |= terms;
      common &= terms;
      if (k > 0) other_than_first |= terms;
    }
    if (all == 0) return;
    switch (structure_of(i)) {
      case structure::region_parameter:
        if (terms_[i.operand[0]] != terms_[id])
          failing(shard_fault::partial_meets_whole, id, terms_[id] & ~terms_[i.operand[0]]);
        return;
      case structure::region_yield:
        if (terms_[i.operand[1]] != terms_[id])
          failing(shard_fault::partial_meets_whole, id, terms_[id] & ~terms_[i.operand[1]]);
        return;
      case structure::none: break;
      default: return;
    }
    switch (i.op->linear) {
      case linearity::none: failing(shard_fault::partial_in_nonlinear_op, id, all); break;
      case linearity::first:
        if (other_than_first != 0) failing(shard_fault::partial_in_nonlinear_op, id, other_than_first);
        break;
      case linearity::joint:
        if (common != all) failing(shard_fault::partial_meets_whole, id, all & ~common);
        break;
      case linearity::each:
        if (twice != 0) failing(shard_fault::product_of_partials, id, twice);
        break;
    }
  }

  // --- values with leading dimensions
  // ---------------------------------------------------------------------------------

  constexpr int failing(shard_fault what, int id, axis_mask axes) {
    if (fault == shard_fault::nothing) {
      fault = what;
      fault_at = id;
      fault_axes = axes;
    }
    return -1;
  }
  constexpr void too_many(int id, axis_mask axes) { failing(shard_fault::too_many_dimensions, id, axes); }
  constexpr void set(int id, int made, axis_mask lead) {
    id_[id] = made;
    lead_[id] = lead;
    varies_[id] |= lead;
  }

  /// The leading dimension of an axis, where there is one for each of `lead`.
  [[nodiscard]] static constexpr int place_of(int axis, axis_mask lead) { return count_of(lead & (bit_of(axis) - 1)); }
  [[nodiscard]] constexpr extents with_lead(axis_mask lead, const extents& local) const {
    extents shape;
    for (int a = 0; a < mesh_.rank; ++a) {
      if (has_axis(lead, a)) shape.append(mesh_.size[a]);
    }
    for (int d = 0; d < local.rank; ++d) shape.append(local[d]);
    return shape;
  }
  /// A value that has leading dimensions for `has`, repeated along those of `lead`.
  constexpr int led(int made, axis_mask has, axis_mask lead) {
    if (has == lead) return made;
    const extents from = to_[made].shape;
    extents local;
    for (int d = count_of(has); d < from.rank; ++d) local.append(from[d]);
    axis_list targets;
    for (int a = 0; a < mesh_.rank; ++a) {
      if (has_axis(has, a)) targets = targets.with(place_of(a, lead));
    }
    for (int d = 0; d < local.rank; ++d) targets = targets.with(count_of(lead) + d);
    return emit::broadcast(to_, made, with_lead(lead, local), targets);
  }
  constexpr int led(int id, axis_mask lead) { return led(id_[id], lead_[id], lead); }

  /// The value with each leading dimension split over its axis, whole along the other axes of the region, and its other
  /// dimensions open for the automatic ones.
  constexpr int pinned(int made, axis_mask lead, const op_info& op) {
    sharding placement = sharding::all_open(to_[made].shape.rank);
    placement.replicated = own_ & ~lead;
    for (int a = 0; a < mesh_.rank; ++a) {
      if (!has_axis(lead, a)) continue;
      placement.dim[place_of(a, lead)] = axis_list(a);
      placement.open &= ~(1U << static_cast<unsigned>(place_of(a, lead)));
    }
    return emit::annotated(to_, op, made, to_.annotate(to_[made].shape, placement));
  }
  constexpr int held(int made, axis_mask lead) {
    return requests_of(to_[made]) == layout_request::annotation ? made : pinned(made, lead, ops::shard);
  }
  [[nodiscard]] static constexpr std::int64_t bit_of_dimension(int d) { return std::int64_t{1} << d; }

  // --- one instruction
  // ------------------------------------------------------------------------------------------------

  constexpr void translate(int id) {
    const instruction i = from_[id];
    const axis_mask lead = lead_[id];
    if (count_of(lead) + i.shape.rank > max_rank) return too_many(id, lead);
    if (i.op->facts.passes_operands) return call_of_user(id);
    switch (structure_of(i)) {
      case structure::none: break;
      case structure::argument:
      case structure::result: return;
      case structure::region_begin: {
        instruction made = i;
        if (i.operand_count > 0) made.operand[0] = id_[i.operand[0]];
        id_[id] = to_.append(made);
        return;
      }
      case structure::region_end:
        to_.region = id_[i.operand[0]];
        emit::region_end(to_, i.operand_count > 1 ? id_[i.operand[1]] : -1);
        id_[id] = to_.size() - 1;
        if (ended_.empty()) ended_.resize(from_.size());
        ended_[i.operand[0]] = true;
        return;
      case structure::region_parameter: {
        const int region = leave_region(i.region);
        const int before = led(i.operand[0], lead);
        to_.region = region;
        return set(id, emit::region_parameter(to_, before), lead);
      }
      case structure::loop_slice: return slice_of_loop(id);
      case structure::region_yield:
        return set(id, emit::region_yield(to_, id_[i.operand[0]], led(i.operand[1], lead)), lead);
      case structure::region_result: return set(id, emit::region_result(to_, id_[i.operand[0]]), lead);
      case structure::loop_stack:
      case structure::loop_sum: return collect(id);
    }
    if (i.op == &ops::by_hand) return by_hand(id);
    if (i.op->facts.contracts && i.operand_count == 2) return product(id);
    if (lead != 0 && i.op->map != nullptr) return over_devices(id);
    ordinary(id);
  }

  /// An op that does the same for each element of the leading dimensions: the same op, with more dimensions.
  constexpr void ordinary(int id) {
    const instruction i = from_[id];
    const axis_mask lead = lead_[id];
    const int k = count_of(lead);
    instruction made = i;
    made.further = -1;
    made.annotation = -1;
    made.shape = with_lead(lead, i.shape);
    const dimension_attributes dims = dimension_attributes_of(*i.op);
    if (dims.windows >= 0) {
      if (dims.numbers == 0 && lead != 0) return over_devices(id);
      copy_windows(made, dims, k);
    }
    for (int n = 0; n < max_attributes && k > 0; ++n) {
      const unsigned bit = 1U << static_cast<unsigned>(n);
      if ((dims.numbers & bit) != 0 && made.attribute[n] >= 0) made.attribute[n] += k;
      if ((dims.sets & bit) != 0) made.attribute[n] <<= k;
      if ((dims.lists & bit) != 0) {
        const axis_list before = axis_list::from_code(static_cast<std::uint32_t>(made.attribute[n]));
        axis_list shifted;
        for (int d = 0; d < k; ++d) shifted = shifted.with(d);
        for (int d = 0; d < before.size(); ++d) shifted = shifted.with(before[d] + k);
        made.attribute[n] = shifted.code();
      }
    }
    if (i.annotation >= 0) {
      layout wanted = from_.result().annotations[i.annotation];
      const axis_mask by_hand = (wanted.placement.tiled() | wanted.placement.unreduced) & own_;
      if (by_hand != 0) {
        failing(shard_fault::laid_out_along_manual_axis, id, by_hand);
        return;
      }
      made.annotation = shifted_annotation(wanted, lead);
    }
    list<int> operands;
    for (int n = 0; n < i.operand_count; ++n) operands.push_back(led(from_.operand_at(i, n), lead));
    const int appended = to_.append(made, operands.data(), operands.size());
    set(id, appended, lead);
    // (What has no elements has no factors.)
    if (lead != 0 && !is_further_result(i) && i.shape.elements() > 0 && !is_mapped(id, k)) over_devices(id);
  }
  /// Puts the windows of an instruction of the region into the table of the graph around, for dimensions after k more.
  constexpr void copy_windows(instruction& made, const dimension_attributes& dims, int k) {
    if (dims.windows < 0) return;
    list<placed_window> windows;
    const int count = dims.numbers != 0 ? made.operand_count : made.shape.rank - k - 2;
    for (int n = 0; n < count; ++n) {
      placed_window one = from_.result().windows[static_cast<int>(made.attribute[dims.windows]) + n];
      if (dims.numbers != 0) one.dim += k;
      windows.push_back(one);
    }
    made.attribute[dims.windows] = to_.add_windows(windows.data(), count);
  }

  /// An op that says for itself how it is mapped (graph/mapping.hpp): the devices along each axis are lanes.
  constexpr void over_devices(int id) {
    const instruction i = from_[id];
    const axis_mask lead = lead_[id];
    list<int> operands;
    for (int k = 0; k < i.operand_count; ++k) operands.push_back(id_[from_.operand_at(i, k)]);
    int begin[max_axes]{};
    for (int a = 0; a < mesh_.rank; ++a) {
      if (!has_axis(lead, a)) continue;
      begin[a] = to_.size();
      for (int k = 0; k < i.operand_count; ++k)
        operands[k] = emit_lane::of(to_, operands[k], has_axis(lead_[from_.operand_at(i, k)], a) ? 0 : -1);
    }
    instruction made = i;
    copy_windows(made, dimension_attributes_of(*i.op), 0);
    list<int> results(1, to_.append(made, operands.data(), operands.size()));
    const int further = further_results(from_.result().code.data(), from_.size(), id);
    for (int n = 1; n <= further; ++n)
      results.push_back(emit::further_result(to_, results[0], n, from_[id + n].type, from_[id + n].shape));
    const reason_id* const mistake = to_.mistake;
    for (int a = mesh_.rank - 1; a >= 0; --a) {
      if (!has_axis(lead, a)) continue;
      mapping over(to_, begin[a], mesh_.size[a]);
      over.run();
      if (over.has_failed()) {
        to_.mistake = mistake;
        failing(shard_fault::not_for_shards, id, lead);
        return;
      }
      for (int& one : results) one = over.over_lanes(one, 0);
    }
    for (int n = 0; n <= further; ++n) set(id + n, results[n], lead);
  }

  /// An op that is there for its gradient, which is that of one shard (`gradient_of_shard`).
  constexpr void call_of_user(int id) {
    const instruction i = from_[id];
    call_by_hand call{&mesh_, own_, {i.attribute[0], i.attribute[1], copied_call(i.attribute[2])}, {}};
    list<int> operands;
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = from_.operand_at(i, k);
      const axis_mask lead = varies_[operand];
      if (count_of(lead) + from_[operand].shape.rank > max_rank) return too_many(id, lead);
      operands.push_back(led(operand, lead));
      call.lead.push_back(lead);
    }
    instruction made = i;
    made.shape = with_lead(call.lead[0], i.shape);
    set_attributes(made, lanes_attributes{0, 0, to_.calls_by_hand.push_back(call) + 1});
    to_.gradient_by_hand = gradient_of_shard;
    if (from_.gradient_over_lanes != nullptr) to_.gradient_over_lanes = from_.gradient_over_lanes;
    set(id, to_.append(made, operands.data(), operands.size()), call.lead[0]);
    const int further = further_results(from_.result().code.data(), from_.size(), id);
    for (int n = 1; n <= further; ++n) {
      const instruction& one = from_[id + n];
      const extents shape = with_lead(call.lead[n], one.shape);
      set(id + n, emit::further_result(to_, id_[id], n, one.type, shape), call.lead[n]);
    }
  }
  /// The call of a region inside of this one, in the table of the graph around. @param number one more than its place
  constexpr std::int64_t copied_call(std::int64_t number) {
    if (number == 0) return 0;
    call_by_hand call = from_.calls_by_hand[static_cast<int>(number) - 1];
    call.before[2] = copied_call(call.before[2]);
    return to_.calls_by_hand.push_back(call) + 1;
  }
  static constexpr void gradient_of_shard(gradient_context& c);

  constexpr int shifted_annotation(const layout& wanted, axis_mask lead) {
    const int k = count_of(lead);
    sharding placement = sharding::whole(wanted.placement.rank + k);
    placement.open = (wanted.placement.open & ~sharding::decided_early) << static_cast<unsigned>(k);
    placement.replicated = wanted.placement.replicated | (own_ & ~lead);
    placement.unreduced = wanted.placement.unreduced;
    for (int a = 0; a < mesh_.rank; ++a) {
      if (has_axis(lead, a)) placement.dim[place_of(a, lead)] = axis_list(a);
    }
    for (int d = 0; d < wanted.placement.rank; ++d) placement.dim[d + k] = wanted.placement.dim[d];
    return to_.annotate(with_lead(lead, wanted.shape), placement, wanted.priority);
  }

  /// Whether the op with k more dimensions does for each of their elements what it did without: each is a dimension of
  /// all operands and of the result that splits into parts, and the others correspond as before.
  [[nodiscard]] constexpr bool is_mapped(int id, int k) const {
    const instruction& i = from_[id];
    if (i.op->factors == nullptr) return false;
    const factor_rule before = i.op->factors(from_.view(id));
    if (before.count + k > max_factors) return false;
    const factor_rule after = i.op->factors(to_.view(id_[id]));
    int more = 0;
    for (int d = 0; d < k; ++d) {
      // A dimension of one device need not be a factor.
      if (!after.result[d].empty()) {
        if (after.result[d].size() != 1 || after.kind[after.result[d][0]] != factor_kind::pass) return false;
        ++more;
      } else if (to_[id_[id]].shape[d] != 1) {
        return false;
      }
      for (int n = 0; n < i.operand_count; ++n) {
        if (!(after.dims_of(n)[d] == after.result[d])) return false;
      }
    }
    if (after.count != before.count + more) return false;
    int same[max_factors];
    for (int& one : same) one = -1;
    const auto correspond = [&](const factor_list& one, const factor_list& other) {
      if (one.size() != other.size()) return false;
      for (int n = 0; n < one.size(); ++n) {
        if (same[one[n]] >= 0 && same[one[n]] != other[n]) return false;
        same[one[n]] = other[n];
        if (before.kind[one[n]] != after.kind[other[n]] || before.size[one[n]] != after.size[other[n]]) return false;
      }
      return true;
    };
    for (int d = 0; d < i.shape.rank; ++d) {
      if (!correspond(before.result[d], after.result[d + k])) return false;
    }
    for (int n = 0; n < i.operand_count; ++n) {
      for (int d = 0; d < from_[from_.operand_at(i, n)].shape.rank; ++d) {
        if (!correspond(before.dims_of(n)[d], after.dims_of(n)[d + k])) return false;
      }
    }
    return true;
  }

  /// The letters of a term, after one for each leading dimension.
  [[nodiscard]] constexpr einsum_term with_letters(axis_mask lead, const einsum_term& of) const {
    einsum_term made;
    for (int a = 0; a < mesh_.rank; ++a) {
      if (has_axis(lead, a)) made.append(static_cast<char>('0' + a));
    }
    for (int d = 0; d < of.size(); ++d) made.append(of[d]);
    return made;
  }
  /// A product of two: an operand that is the same on all devices is not repeated.
  constexpr void product(int id) {
    const instruction i = from_[id];
    const einsum_attributes terms = attributes_of<einsum_attributes>(i);
    const int left = i.operand[0];
    const int right = i.operand[1];
    if (count_of(lead_[left]) + terms.left.size() > max_rank || count_of(lead_[right]) + terms.right.size() > max_rank)
      return too_many(id, lead_[id]);
    const einsum_attributes mapped{with_letters(lead_[left], terms.left), with_letters(lead_[right], terms.right),
                                   with_letters(lead_[id], terms.result), terms.of_lone_head};
    set(id,
        to_.append(with_attributes(builder::make(*i.op, i.type, with_lead(lead_[id], i.shape), id_[left], id_[right]),
                                   mapped)),
        lead_[id]);
  }

  // --- loops
  // ----------------------------------------------------------------------------------------------------------

  [[nodiscard]] constexpr int made_region(int region) const { return region < 0 ? outside_ : id_[region]; }
  /// What carries start with, and what is taken layer by layer, gets its form before the loop. Returns the loop.
  constexpr int leave_region(int region) {
    const int inside = to_.region;
    to_.region = made_region(from_[region].region);
    return inside;
  }
  /// [layers, devices ..., rest] of [devices ..., layers, rest].
  constexpr int layers_first(int id) {
    const int k = count_of(lead_[id]);
    axis_list order(k);
    for (int d = 0; d < k + from_[id].shape.rank; ++d) {
      if (d != k) order = order.with(d);
    }
    return emit::transpose(to_, id_[id], order);
  }
  constexpr void slice_of_loop(int id) {
    const int stacked = from_[id].operand[0];
    const int layers = layers_of(stacked);
    const int region = leave_region(from_[id].region);
    const int whole = layers > 0 ? stacks_[stacked] : layers_first(stacked);
    to_.region = region;
    const int slice = emit::loop_slice(to_, whole);
    set(id, layers > 1 ? devices_first(slice, layers - 1, lead_[id]) : slice, lead_[id]);
  }
  /// The dimensions of layers that a stack has before those of devices, or 0 if it is no stack.
  [[nodiscard]] constexpr int layers_of(int id) const { return layers_.empty() ? 0 : layers_[id]; }
  /// [devices ..., layers ..., rest] of [layers ..., devices ..., rest].
  constexpr int devices_first(int made, int layers, axis_mask lead) {
    const int k = count_of(lead);
    axis_list order;
    for (int d = 0; d < k; ++d) order = order.with(layers + d);
    for (int d = 0; d < layers; ++d) order = order.with(d);
    for (int d = layers + k; d < to_[made].shape.rank; ++d) order = order.with(d);
    return emit::transpose(to_, made, order);
  }
  /// A stack or a sum. One that belongs to a loop that has ended, where nothing more is computed, is read by other such
  /// collections alone, and keeps its layers in front until then.
  constexpr void collect(int id) {
    const instruction& i = from_[id];
    const int from = i.operand[0];
    const bool stacks = structure_of(i) == structure::loop_stack;
    if (layers_.empty()) layers_.resize(from_.size());
    if (stacks_.empty()) stacks_.resize(from_.size());
    layers_[id] = layers_[from] + (stacks ? 1 : 0);
    const int value = layers_[from] > 0 ? stacks_[from] : id_[from];
    stacks_[id] = stacks ? emit::loop_stack(to_, value) : emit::loop_sum(to_, value);
    const bool is_late = i.region >= 0 && ended_[i.region];
    set(id, is_late ? stacks_[id] : devices_first(stacks_[id], layers_[id], lead_[id]), lead_[id]);
  }

  // --- functions of one shard
  // -----------------------------------------------------------------------------------------

  /// The same value. Inside of a loop, one of the loop's own.
  constexpr int same(int made) {
    return to_.region >= 0 && to_[made].region != to_.region ? emit::copy(to_, made) : made;
  }

  constexpr void by_hand(int id) {
    const instruction i = from_[id];
    // What moves here is written, whatever the mode around (program/explicit_mode.hpp).
    const int caller = to_.caller;
    to_.caller = i.where.caller;
    {
      const caller_entry scope(&to_, scope_entry(all_kinds_allowed));
      to_.where.caller = to_.caller;
      by_hand_in_scope(id);
    }
    to_.caller = caller;
  }
  constexpr void by_hand_in_scope(int id) {
    const instruction i = from_[id];
    by_hand_attributes how = attributes_of<by_hand_attributes>(i);
    const axis_mask mine = how.axes & own_;
    const axis_mask others = how.axes & ~own_;
    const int x = i.operand[0];
    int made = id_[x];
    axis_mask lead = lead_[x];
    if (mine != 0) made = by_hand(id, how, mine, made, lead);
    if (fault != shard_fault::nothing) return;
    if (others != 0) {
      // Along axes that the code around is by hand along: it is a function of that one.
      const int k = count_of(lead);
      how = how.with_dimensions(k);
      how.axes = others;
      made = emit::by_hand(to_, made, how, with_lead(lead, i.shape));
    }
    set(id, same(made), lead);
  }

  constexpr int by_hand(int id, const by_hand_attributes& how, axis_mask axes, int made, axis_mask& lead) {
    if (how.kind == by_hand_kind::vary || how.kind == by_hand_kind::terms) return made;
    const extents local = from_[from_[id].operand[0]].shape;
    const int axis = list_of(axes)[0];
    const int first = static_cast<int>(how.first);
    const auto need_lead = [&] {
      made = led(made, lead, lead | axes);
      lead |= axes;
    };
    // What comes after may have another layout; up to here shards are shards.
    if (lead != 0 && how.kind != by_hand_kind::index) made = held(made, lead);
    if (count_of(lead | axes) + local.rank + (how.kind == by_hand_kind::exchange ? 1 : 0) > max_rank)
      return failing(shard_fault::too_many_dimensions, id, lead | axes);
    switch (how.kind) {
      case by_hand_kind::vary:
      case by_hand_kind::terms: return made;
      case by_hand_kind::sum: return pinned(summed(made, axes, lead), lead, ops::shard);
      case by_hand_kind::max:
      case by_hand_kind::min: {
        const auto kind = how.kind == by_hand_kind::max ? reduction::max : reduction::min;
        made = emit::reduce(to_, kind, made, lead_dimensions(axes, lead));
        lead &= ~axes;
        return pinned(made, lead, ops::shard);
      }
      case by_hand_kind::gather: {
        need_lead();
        const int moved = lead_before(made, axis, lead, first);
        extents joined = local;
        joined[first] *= mesh_.size[axis];
        lead &= ~axes;
        return pinned(emit::reshape(to_, moved, with_lead(lead, joined)), lead, ops::shard_value);
      }
      case by_hand_kind::own_part: return own_part(made, axis, lead, first, local);
      case by_hand_kind::scatter: {
        const bool has_terms = (lead & axes) == axes;
        made = summed(made, axes, lead);
        // What is the same on all devices was no sum.
        if (!has_terms) return own_part(made, axis, lead, first, local);
        // Terms until here: otherwise the layout of the result would pass on to before the sum.
        sharding placement = sharding::all_open(to_[made].shape.rank);
        for (int a = 0; a < mesh_.rank; ++a) {
          if (has_axis(lead, a)) placement.dim[place_of(a, lead)] = axis_list(a);
        }
        placement.unreduced = axes;
        made = emit::annotated(to_, ops::shard, made, to_.annotate(to_[made].shape, placement));
        return own_part(made, axis, lead, first, local);
      }
      case by_hand_kind::exchange: {
        need_lead();
        return exchanged(made, axis, lead, first, static_cast<int>(how.second), local);
      }
      case by_hand_kind::shift:
        need_lead();
        return pinned(emit::roll(to_, made, place_of(axis, lead), how.first), lead, ops::shard);
      case by_hand_kind::permute:
        need_lead();
        return pinned(permuted(made, axis, lead, device_pairs(how.first, how.second)), lead, ops::shard);
      case by_hand_kind::broadcast: {
        need_lead();
        const int row = emit::slice(to_, made, place_of(axis, lead), how.first, 1);
        lead &= ~axes;
        return pinned(emit::reshape(to_, row, with_lead(lead, local)), lead, ops::shard_value);
      }
      case by_hand_kind::only_on: {
        need_lead();
        const int dim = place_of(axis, lead);
        const int here = emit::iota(to_, dtype::i32, to_[made].shape, dim);
        const int root = emit::constant_like(to_, here, static_cast<double>(how.first));
        return pinned(emit::keep_where(to_, emit::compare(to_, ops::equal, here, root), made), lead, ops::shard);
      }
      case by_hand_kind::index: {
        lead = axes;
        return pinned(emit::iota(to_, dtype::i32, with_lead(lead, extents{}), 0), lead, ops::shard);
      }
    }
    return made;
  }

  [[nodiscard]] constexpr std::int64_t lead_dimensions(axis_mask axes, axis_mask lead) const {
    std::int64_t dims = 0;
    for (int a = 0; a < mesh_.rank; ++a) {
      if (has_axis(axes & lead, a)) dims |= bit_of_dimension(place_of(a, lead));
    }
    return dims;
  }
  /// The sum over devices. What has no leading dimension is the same on all of them.
  constexpr int summed(int made, axis_mask axes, axis_mask& lead) {
    const std::int64_t copies = mesh_.parts(axes & ~lead);
    if (copies > 1) made = emit::scale(to_, made, static_cast<double>(copies));
    made = emit::reduce_sum(to_, made, lead_dimensions(axes, lead));
    lead &= ~axes;
    return made;
  }
  /// The leading dimension of an axis moved to directly before dimension `dim` of the shard.
  constexpr int lead_before(int made, int axis, axis_mask lead, int dim) {
    const int k = count_of(lead);
    axis_list order;
    for (int d = 0; d < to_[made].shape.rank; ++d) {
      if (d == k + dim) order = order.with(place_of(axis, lead));
      if (d != place_of(axis, lead)) order = order.with(d);
    }
    return emit::transpose(to_, made, order);
  }
  /// The device's own piece of dimension `dim` of what is the same on all devices.
  constexpr int own_part(int made, int axis, axis_mask& lead, int dim, const extents& local) {
    const int k = count_of(lead);
    extents apart;
    for (int d = 0; d < to_[made].shape.rank; ++d) {
      if (d == k + dim) apart.append(mesh_.size[axis]);
      apart.append(d == k + dim ? local[dim] / mesh_.size[axis] : to_[made].shape[d]);
    }
    const axis_mask with_axis = lead | bit_of(axis);
    axis_list order;
    for (int d = 0; d < apart.rank; ++d) {
      if (d == place_of(axis, with_axis)) order = order.with(k + dim);
      if (d != k + dim) order = order.with(d);
    }
    lead = with_axis;
    return pinned(emit::transpose(to_, emit::reshape(to_, made, apart), order), lead, ops::shard);
  }
  constexpr int exchanged(int made, int axis, axis_mask lead, int split, int concat, const extents& local) {
    const int k = count_of(lead);
    const int at = place_of(axis, lead);
    const int devices = mesh_.size[axis];
    extents apart;
    for (int d = 0; d < k + local.rank; ++d) {
      if (d == k + split) apart.append(devices);
      apart.append(d == k + split ? local[split] / devices : to_[made].shape[d]);
    }
    // Pieces have a dimension; now it is that one which is split over the axis.
    const int pieces = emit::reshape(to_, made, apart);
    sharding placement = sharding::all_open(apart.rank);
    placement.replicated = own_ & ~lead;
    const auto close = [&](int d, axis_list axes) {
      placement.dim[d] = axes;
      placement.open &= ~(1U << static_cast<unsigned>(d));
    };
    for (int a = 0; a < mesh_.rank; ++a) {
      if (has_axis(lead, a)) close(place_of(a, lead), a == axis ? axis_list{} : axis_list(a));
    }
    close(k + split, axis_list(axis));
    const int moved = emit::annotated(to_, ops::shard, pieces, to_.annotate(apart, placement));
    // Sources are joined along `concat`, whose number counts the new dimension.
    const int to_dim = k + concat + (concat >= split ? 1 : 0);
    axis_list order;
    for (int d = 0; d < apart.rank; ++d) {
      if (d == at) {
        order = order.with(k + split);
        continue;
      }
      if (d == k + split) continue;
      if (d == to_dim) order = order.with(at);
      order = order.with(d);
    }
    extents joined = local;
    joined[split] /= devices;
    joined[concat] *= devices;
    return pinned(emit::reshape(to_, emit::transpose(to_, moved, order), with_lead(lead, joined)), lead, ops::shard);
  }
  constexpr int permuted(int made, int axis, axis_mask lead, const device_pairs& pairs) {
    const int devices = mesh_.size[axis];
    const int dim = place_of(axis, lead);
    const extents shape = to_[made].shape;
    int total = -1;
    for (int by = 0; by < devices; ++by) {
      int here = -1;
      int count = 0;
      for (int device = 0; device < devices; ++device) {
        const int source = pairs.source_of(device);
        if (source < 0 || (device - source + devices) % devices != by) continue;
        const int index = emit::iota(to_, dtype::i32, shape, dim);
        const int number = emit::constant_like(to_, index, device);
        const int one = emit::compare(to_, ops::equal, index, number);
        here = here < 0 ? one : to_.append(ops::logical_or, dtype::boolean, shape, here, one);
        ++count;
      }
      if (count == 0) continue;
      const int rolled = emit::roll(to_, made, dim, by);
      const int kept = count == devices ? rolled : emit::keep_where(to_, here, rolled);
      total = total < 0 ? kept : emit::add(to_, total, kept);
    }
    return total;
  }

  const mesh_shape& mesh_;
  axis_mask own_;
  const builder& from_;
  builder& to_;
  /// Of each instruction of the region: its counterpart, the axes that this one has leading dimensions of, and those
  /// along which it is a partial.
  list<int> id_;
  list<axis_mask> lead_;
  list<axis_mask> terms_;
  /// Those along which a value varies by its type: more than the leading dimensions where it is the same on all devices
  /// after all (`pvary`).
  list<axis_mask> varies_;
  /// Of stacks, and sums of stacks, the value with its layers first, and how many dimensions these are.
  list<int> stacks_;
  list<int> layers_;
  /// The loops whose end has been appended.
  list<bool> ended_;
  /// The loop of the graph around that the region is in.
  int outside_ = -1;
};

/// The builder of a region's own graph, within that of the code around.
struct inner_trace {
  builder& around;
  builder inside;

  constexpr explicit inner_trace(builder& b) : around(b) {
    inside.where = b.where;
    inside.line_is_pinned = b.line_is_pinned;
    inside.callers = b.callers;
    inside.caller = b.caller;
    inside.sums_travel_as = b.sums_travel_as;
    inside.gradient_over_lanes = b.gradient_over_lanes;
    inside.gradient_by_hand = b.gradient_by_hand;
    inside.calls_by_hand = b.calls_by_hand;
  }
  inner_trace(const inner_trace&) = delete;
  inner_trace& operator=(const inner_trace&) = delete;

  /// Hands on what was noted inside. Returns whether that was a mistake.
  constexpr bool has_mistake() {
    around.callers = inside.callers;
    if (inside.mistake == nullptr) return false;
    if (around.mistake == nullptr) {
      around.mistake = inside.mistake;
      around.mistake_where = inside.mistake_where;
    }
    return true;
  }
};

/// The gradient of an op with a gradient of the user's, or of a checkpoint, in a region: the same of one shard, as code
/// by hand.
constexpr void shard_mapping::gradient_of_shard(gradient_context& c) {
  builder& b = c.emit;
  const instruction self = c.self();
  const auto how = attributes_of<lanes_attributes>(self);
  const call_by_hand call = b.calls_by_hand[how.region - 1];
  const int further = espalier::further_results(b.result().code.data(), b.size(), c.id);

  inner_trace trace(b);
  builder& inside = trace.inside;
  list<int> given;
  list<axis_mask> leads;
  const auto argument = [&](int id, axis_mask lead) {
    extents local;
    for (int d = count_of(lead); d < b[id].shape.rank; ++d) local.append(b[id].shape[d]);
    leads.push_back(lead);
    return emit::argument(inside, b[id].type, local, given.push_back(id));
  };
  list<int> operands;
  for (int k = 0; k < self.operand_count; ++k) operands.push_back(argument(c.operand(k), call.lead[k]));
  const int cotangent = argument(c.cotangent, call.lead[0]);
  list<int> cotangents;
  for (int n = 1; n <= further; ++n) {
    const int one = c.further_result_cotangent[n - 1];
    cotangents.push_back(one < 0 ? -1 : argument(one, call.lead[n]));
  }
  instruction made = self;
  made.shape = inside[cotangent].shape;
  made.label = nullptr;
  for (int n = 0; n < 3; ++n) made.attribute[n] = call.before[n];
  const int id = inside.append(made, operands.data(), operands.size());
  for (int n = 1; n <= further; ++n) {
    const instruction& value = inside[operands[n]];
    emit::further_result(inside, id, n, value.type, value.shape);
  }
  gradient_context inner{inside, id, cotangent};
  if (further > 0) inner.further_result_cotangent = cotangents.data();
  self.op->gradient(inner);
  if (trace.has_mistake()) return;

  shard_mapping map(*call.mesh, call.own, inside, b);
  for (int n = 0; n < given.size(); ++n) map.enter(n, given[n], leads[n]);
  map.find_states();
  if (map.fault == shard_fault::nothing) map.run();
  if (map.fault == shard_fault::nothing && inside.without_gradient >= 0 && b.without_gradient < 0)
    b.without_gradient = map.value(inside.without_gradient);
  for (int k = 0; k < self.operand_count && map.fault == shard_fault::nothing; ++k) {
    const int value = inner.cotangent_of(k);
    if (value < 0) continue;
    const axis_mask more = map.lead(value) & ~call.lead[k];
    // The gradient by what all devices have alike is alike.
    if (more != 0) map.failing(shard_fault::not_for_shards, id, more);
    if (more == 0) c.give(k, map.led(value, call.lead[k]));
  }
  if (map.fault != shard_fault::nothing) {
    const instruction& at = inside[map.fault_at];
    note_shard_fault(b, map.fault, at.where, at.op->name);
  }
}

}  // namespace espalier::detail
