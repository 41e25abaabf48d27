// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/attribute_reader.hpp>
#include <espalier/tensor/core/graph/mapping.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/ops/reasons/vmap.hpp>
#include <espalier/tensor/core/program/custom_gradient.hpp>

#include <cstdint>

// A function over one more dimension. It is traced once, as a function of one lane; then each instruction of the trace
// is appended again over all lanes, if anything that it reads differs from lane to lane. How, its op has declared
// (graph/mapping.hpp). Regions stay regions, except a branch that only some lanes take: all lanes run it, and those
// keep what they had.

namespace espalier {

namespace detail {
/// Attributes of `lane`.
struct lane_attributes {
  /// The dimension of the lanes; -1 if the operand is the same for all.
  int dim = 0;
};
[[nodiscard]] constexpr factor_rule lane_factors(op_view v) {
  factor_rule rule;
  for (int d = 0; d < v.self().shape.rank; ++d) rule.result[d] = factor_list(rule.add(v.self().shape[d]));
  return rule;
}
}  // namespace detail

namespace ops {
/// One lane of a tensor, whichever: only while a function is traced that is mapped.
inline constexpr op_info lane{.name = "lane",
                              .facts = {.unique = true, .attributes = "dim"},
                              .factors = detail::lane_factors,
                              .gradient = detail::no_gradient,
                              .flops = detail::no_flops};
}  // namespace ops

namespace detail {

[[nodiscard]] constexpr extents without_dimension(const extents& shape, int at) {
  extents rest;
  for (int d = 0; d < shape.rank; ++d) {
    if (d != at) rest.append(shape[d]);
  }
  return rest;
}

/// An instruction with its operands' shapes, and nothing else: what the rules of an op read.
class lone_instruction {
 public:
  constexpr lone_instruction(const instruction& self, const placed_window* windows) : self_(self), windows_(windows) {}
  constexpr void add_operand(dtype type, const extents& shape) {
    instruction one;
    one.type = type;
    one.shape = shape;
    code_.push_back(one);
  }
  [[nodiscard]] constexpr op_view view() {
    self_.further = 0;
    for (int k = 0; k < self_.operand_count; ++k) {
      if (k < inline_operands) {
        self_.operand[k] = k;
      } else {
        further_.push_back(k);
      }
    }
    code_.push_back(self_);
    return {code_.data(), code_.size() - 1, windows_, further_.data()};
  }

 private:
  instruction self_;
  const placed_window* windows_;
  list<instruction> code_;
  list<int> further_;
};

/// Whether two factor rules are the same but for one dimension more in the second, which is a factor of its own that
/// passes. `one_size` is a factor of the first whose size may differ, or -1.
class rule_comparison {
 public:
  constexpr rule_comparison(const factor_rule& without, const factor_rule& with, int one_size = -1)
      : without_(without), with_(with), one_size_(one_size), matching_(max_factors, -1) {}

  /// @param at the place of the lanes in the second, or -1
  constexpr void compare(const factor_list* before, const factor_list* after, int rank, int at) {
    for (int d = 0; d < rank; ++d) {
      const factor_list one = before[d];
      const factor_list other = after[at >= 0 && d >= at ? d + 1 : d];
      if (one.size() != other.size()) {
        same_ = false;
        return;
      }
      for (int n = 0; n < one.size(); ++n) match(one[n], other[n]);
    }
    if (at < 0) return;
    if (after[at].size() != 1 || (lanes_ >= 0 && lanes_ != after[at][0])) {
      same_ = false;
      return;
    }
    lanes_ = after[at][0];
  }
  [[nodiscard]] constexpr bool is_same() const {
    if (!same_ || without_.combine != with_.combine) return false;
    for (int f = 0; f < without_.count; ++f) {
      if (matching_[f] >= 0 && matching_[f] == lanes_) return false;
    }
    return lanes_ < 0 || with_.kind[lanes_] == factor_kind::pass;
  }

 private:
  constexpr void match(int f, int other) {
    if (matching_[f] < 0) matching_[f] = other;
    same_ = same_ && matching_[f] == other && without_.kind[f] == with_.kind[other] &&
            (f == one_size_ || without_.size[f] == with_.size[other]);
  }

  const factor_rule& without_;
  const factor_rule& with_;
  int one_size_;
  list<int> matching_;
  int lanes_ = -1;
  bool same_ = true;
};

/// The instructions of a graph from `begin` on, appended again over lanes.
class mapping final : public map_context {
 public:
  /// @param begin the first of the `lane`s; what comes after all of them was traced with them
  constexpr mapping(builder& b, int begin, std::int64_t lanes)
      : b_(b), begin_(begin), lanes_(lanes), count_(b.size() - begin) {}

  constexpr void run() {
    regions_ = region_table(b_.result(), begin_);
    code_.reserve(count_);
    for (int n = 0; n < count_; ++n) code_.push_back(b_[begin_ + n]);
    // Where a gradient is being made that knows values by their numbers, these stay, and are dropped as dead code: as
    // zeros, since a lane has no meaning to whoever reads the code before that.
    if (b_.substitution_state() == nullptr) {
      b_.result().code.resize(begin_);
    } else {
      for (int n = 0; n < count_; ++n) {
        instruction& one = b_[begin_ + n];
        if (one.op == &ops::lane) become_zero(one);
      }
    }
    mapped_.resize(count_, false);
    masked_.resize(count_, false);
    value_.resize(count_);
    region_of_.resize(count_, -1);
    pending_.resize(count_, -1);
    mark();
    const int region = b_.region;
    const source_line where = b_.where;
    for (int n = 0; n < count_ && !has_failed_; ++n) {
      if (n > done_) rebuild_in_place(n);
    }
    if (has_failed_ && b_.substitution_state() == nullptr) b_.result().code.resize(begin_);
    b_.region = region;
    b_.where = where;
    if (b_.without_gradient >= begin_ && !has_failed_) {
      b_.without_gradient = value_[b_.without_gradient - begin_].id;
    }
    b_.gradient_over_lanes = gradient_of_mapped;
  }

  /// Whether some op could not be mapped.
  [[nodiscard]] constexpr bool has_failed() const { return has_failed_; }
  /// Whether a value of the function differs from lane to lane.
  [[nodiscard]] constexpr bool differs(int id) const { return id >= begin_ && mapped_[id - begin_]; }
  /// A value of the function that is the same for all lanes.
  [[nodiscard]] constexpr int shared(int id) {
    if (has_failed_) return emit::constant(b_, original(id).type, original(id).shape, 0);
    return id < begin_ ? id : value_[id - begin_].id;
  }
  /// A value of the function for all lanes, which are dimension `at` of it.
  [[nodiscard]] constexpr int over_lanes(int id, int at) {
    if (has_failed_) return emit::constant(b_, original(id).type, with_dimension(original(id).shape, at, lanes_), 0);
    return differs(id) ? moved(value_[id - begin_], at) : repeated(shared(id), at);
  }

  // What an op's own function sees.
  [[nodiscard]] constexpr builder& emit() override { return b_; }
  [[nodiscard]] constexpr op_view op() const override { return {view_.code, view_.id, windows(), view_.further}; }
  [[nodiscard]] constexpr std::int64_t lanes() const override { return lanes_; }
  [[nodiscard]] constexpr bool is_mapped(int k) const override { return differs(operand_id(code_[now_], k)); }
  [[nodiscard]] constexpr int operand(int k) override { return shared(operand_id(code_[now_], k)); }
  [[nodiscard]] constexpr int operand(int k, int at) override { return over_lanes(operand_id(code_[now_], k), at); }

  [[nodiscard]] constexpr mapped_value by_factors() override {
    const instruction& i = code_[now_];
    const bool is_plain =
        i.op->factors == &same_dimensions && i.op->windows == nullptr && i.op->carries_along == nullptr;
    const bool in_front = is_plain || passes_lanes(true);
    if (!in_front && !passes_lanes(false)) return {};
    list<int> operands;
    for (int k = 0; k < i.operand_count; ++k) {
      const int id = operand_id(i, k);
      operands.push_back(over_lanes(id, in_front ? 0 : shape_of(id).rank));
    }
    const instruction made = with_lanes(i, in_front);
    return {b_.append(made, operands.data(), operands.size()), in_front ? 0 : i.shape.rank};
  }

  [[nodiscard]] constexpr mapped_value merged_into(int dim) override {
    const instruction& i = code_[now_];
    const op_view v = op();
    const factor_rule rule = i.op->factors(v);
    const factor_list whole = rule.result[dim];
    if (whole.size() != 1 || rule.kind[whole[0]] != factor_kind::pass) return {};
    list<int> operands;
    for (int k = 0; k < i.operand_count; ++k) {
      const int id = operand_id(i, k);
      const extents shape = shape_of(id);
      int place = -1;
      for (int d = 0; d < shape.rank; ++d) {
        if (rule.dims_of(k)[d] == whole) place = d;
      }
      if (place < 0 && differs(id)) return {};
      if (place < 0) {
        operands.push_back(shared(id));
        continue;
      }
      const int value = over_lanes(id, place);
      extents merged = shape;
      merged[place] *= lanes_;
      operands.push_back(emit::reshape(b_, value, merged));
    }
    instruction made = i;
    made.shape[dim] *= lanes_;
    const int value = b_.append(made, operands.data(), operands.size());
    return {emit::reshape(b_, value, with_dimension(i.shape, dim, lanes_)), dim};
  }

 private:
  /// A region as it is over lanes.
  struct mapped_region {
    /// Its `region_begin`, or the loop around it if it is a branch that all lanes run.
    int region = -1;
    /// A truth value for each lane, whether it takes part, or -1 if all do.
    int mask = -1;
    bool is_dissolved = false;
    /// Its end is there: nothing more is computed in it.
    bool is_closed = false;
    /// The carries by which a loop knows which lanes go on, and how often it has run.
    int active = -1;
    int counter = -1;
  };

  [[nodiscard]] constexpr const placed_window* windows() const { return b_.result().windows.data(); }
  [[nodiscard]] constexpr int operand_id(const instruction& i, int k) const { return b_.operand_at(i, k); }
  [[nodiscard]] constexpr const instruction& original(int id) const {
    return id < begin_ ? b_[id] : code_[id - begin_];
  }
  [[nodiscard]] constexpr const extents& shape_of(int id) const { return original(id).shape; }
  [[nodiscard]] constexpr bool is_inside(int region) const { return region >= begin_; }
  [[nodiscard]] constexpr mapped_region& mapping_of(int region) { return mapped_regions_[region_of_[region - begin_]]; }
  [[nodiscard]] constexpr int made_region(int region) { return is_inside(region) ? mapping_of(region).region : region; }
  [[nodiscard]] constexpr bool is_dissolved(int region) { return is_inside(region) && mapping_of(region).is_dissolved; }
  [[nodiscard]] static constexpr bool is_until(const instruction& begin) {
    return tests_to_go_on(region_kind_of(begin));
  }

  // --- what differs from lane to lane ---

  constexpr void mark() {
    for (bool changed = true; changed;) {
      changed = false;
      const auto set = [&](bool& flag, bool value) {
        if (!value || flag) return;
        flag = changed = true;
      };
      for (int n = 0; n < count_; ++n) {
        const instruction& i = code_[n];
        switch (structure_of(i)) {
          case structure::region_begin: {
            bool masked = i.operand_count > 0 && differs(i.operand[0]);
            for (int region = i.region; is_until(i) && is_inside(region); region = code_[region - begin_].region)
              masked = masked || masked_[region - begin_];
            set(masked_[n], masked);
            break;
          }
          case structure::region_end:
            if (i.operand_count > 1) set(masked_[i.operand[0] - begin_], differs(i.operand[1]));
            break;
          case structure::region_parameter: set(mapped_[n], differs(i.operand[0]) || masked_[i.region - begin_]); break;
          case structure::region_yield:
            set(mapped_[i.operand[0] - begin_], differs(i.operand[1]));
            set(mapped_[n], differs(i.operand[0]));
            break;
          case structure::loop_stack:
          case structure::loop_sum: set(mapped_[n], differs(i.operand[0]) || is_selected(i)); break;
          default: {
            bool any = i.op == &ops::lane && attributes_of<lane_attributes>(i).dim >= 0;
            for (int k = 0; k < i.operand_count && !any; ++k) any = differs(operand_id(i, k));
            set(mapped_[n], any);
          }
        }
      }
    }
  }
  /// Whether a stack or sum has zeros for the lanes that take no part in an iteration. (What a loop stacks that runs
  /// until a condition holds is read only where it was written.)
  [[nodiscard]] constexpr bool is_selected(const instruction& collected) const {
    const int region = original(collected.operand[0]).region;
    if (!is_inside(region) || !masked_[region - begin_]) return false;
    return structure_of(collected) == structure::loop_sum || !is_until(code_[region - begin_]);
  }

  // --- values in other places ---

  /// The value with the lanes as dimension `at`, computed where the value is.
  constexpr int moved(const mapped_value& value, int at) {
    if (value.at == at) return value.id;
    axis_list order;
    int next = 0;
    for (int d = 0; d < b_[value.id].shape.rank; ++d) {
      if (d == at) {
        order = order.with(value.at);
        continue;
      }
      if (next == value.at) ++next;
      order = order.with(next++);
    }
    const int region = b_.region;
    b_.region = b_[value.id].region;
    const int made = emit::transpose(b_, value.id, order);
    b_.region = region;
    return made;
  }
  /// The value for each of the lanes, which are dimension `at`. What needs no operand is made in that shape.
  constexpr int repeated(int id, int at) {
    const extents shape = with_dimension(b_[id].shape, at, lanes_);
    if (b_[id].op->facts.values != pattern::none && b_[id].operand_count == 0) {
      instruction made = b_[id];
      made.shape = shape;
      made.label = nullptr;
      if (made.op->facts.values == pattern::index) {
        auto index = attributes_of<index_attributes>(made);
        if (index.dim >= at) ++index.dim;
        set_attributes(made, index);
      }
      return b_.append(made);
    }
    axis_list targets;
    for (int d = 0; d < b_[id].shape.rank; ++d) targets = targets.with(d < at ? d : d + 1);
    return b_.append(
        with_attributes(builder::make(ops::broadcast, b_[id].type, shape, id), broadcast_attributes{targets}));
  }

  // --- an op by its factors ---

  /// Whether the op means the same for each lane when all operands have them, in front or as their last dimension.
  [[nodiscard]] constexpr bool passes_lanes(bool in_front) {
    const instruction& i = code_[now_];
    const op_view before = op();
    lone_instruction lone(with_lanes(i, in_front), windows());
    for (int k = 0; k < i.operand_count; ++k) {
      const instruction& operand = original(operand_id(i, k));
      if (operand.shape.rank >= max_rank) return false;
      lone.add_operand(operand.type, with_dimension(operand.shape, in_front ? 0 : operand.shape.rank, lanes_));
    }
    const op_view after = lone.view();
    const factor_rule without = i.op->factors(before);
    const factor_rule with = i.op->factors(after);
    const auto place = [&](const extents& shape) { return in_front ? 0 : shape.rank; };
    // A reshape has no factor for a single lane.
    if (lanes_ > 1) {
      rule_comparison rules(without, with);
      rules.compare(&without.result[0], &with.result[0], i.shape.rank, place(i.shape));
      for (int k = 0; k < i.operand_count; ++k) {
        const extents& shape = shape_of(operand_id(i, k));
        rules.compare(without.dims_of(k), with.dims_of(k), shape.rank, place(shape));
      }
      for (int n = 1; now_ + n < count_ && is_further_result(code_[now_ + n]); ++n) {
        const extents& shape = code_[now_ + n].shape;
        rules.compare(without.dims_of_result(n), with.dims_of_result(n), shape.rank, place(shape));
      }
      if (!rules.is_same()) return false;
    }
    const unsigned shift = in_front ? 1 : 0;
    if (i.op->carries_along != nullptr && i.op->carries_along(after) != i.op->carries_along(before) << shift)
      return false;
    if (i.op->windows == nullptr) return true;
    for (int k = 0; k < i.operand_count; ++k) {
      window one[max_rank + 1]{};
      window other[max_rank + 1]{};
      const std::uint32_t dims = i.op->windows(before, k, &one[0]);
      if (i.op->windows(after, k, &other[0]) != dims << shift) return false;
      for (int d = 0; d < max_rank; ++d) {
        const window& a = one[d];
        const window& b = other[d + static_cast<int>(shift)];
        if ((dims >> static_cast<unsigned>(d) & 1U) != 0 &&
            (a.size != b.size || a.stride != b.stride || a.low != b.low || a.dilation != b.dilation ||
             a.base_dilation != b.base_dilation || a.wraps != b.wraps))
          return false;
      }
    }
    return true;
  }

  /// The instruction in its shape over lanes. Its attributes that number dimensions count the one in front.
  [[nodiscard]] constexpr instruction with_lanes(const instruction& i, bool in_front) {
    instruction made = i;
    made.shape = with_dimension(i.shape, in_front ? 0 : i.shape.rank, lanes_);
    if (made.annotation >= 0) made.annotation = annotation_with_lanes(made.annotation, in_front);
    if (!in_front) return made;
    attribute_reader attributes{i.op->facts.attributes};
    const char* form = nullptr;
    for (int n = 0; attributes.next(form, n);) {
      if (attribute_reader::is(form, "dimension")) {
        ++made.attribute[n];
      } else if (attribute_reader::is(form, "set")) {
        made.attribute[n] *= 2;
      } else if (attribute_reader::is(form, "dims")) {
        const axis_list dims = axis_list::from_code(static_cast<std::uint32_t>(made.attribute[n]));
        axis_list shifted(0);
        for (int d = 0; d < dims.size(); ++d) shifted = shifted.with(dims[d] + 1);
        made.attribute[n] = as_stored(shifted);
      }
    }
    return made;
  }
  /// An annotation says nothing of the lanes: they are split as completion finds best.
  [[nodiscard]] constexpr int annotation_with_lanes(int annotation, bool in_front) {
    const layout before = b_.result().annotations[annotation];
    const int at = in_front ? 0 : before.shape.rank;
    sharding placed = before.placement;
    placed.rank = before.shape.rank + 1;
    const std::uint32_t flags = before.placement.open & sharding::decided_early;
    placed.open = flags | 1U << static_cast<unsigned>(at);
    for (int d = 0; d < before.shape.rank; ++d) {
      const int to = d < at ? d : d + 1;
      placed.dim[to] = before.placement.dim[d];
      if (before.placement.is_open(d)) placed.open |= 1U << static_cast<unsigned>(to);
    }
    placed.dim[at] = {};
    return b_.annotate(with_dimension(before.shape, at, lanes_), placed, before.priority);
  }

  // --- one instruction ---

  static constexpr void become_zero(instruction& one) {
    instruction zero = builder::make(ops::constant, one.type, one.shape);
    zero.region = one.region;
    zero.where = one.where;
    one = zero;
  }
  /// After a mistake nothing more is appended; zeros are the results.
  constexpr void fail(const instruction& i) {
    b_.note(failed<why::operator_cannot_be_mapped<>>(i.where, i.op->name));
    has_failed_ = true;
  }

  constexpr void rebuild_in_place(int n) {
    b_.where = code_[n].where;
    b_.region = made_region(code_[n].region);
    rebuild(n);
  }
  constexpr void rebuild(int n) {
    const instruction& i = code_[n];
    now_ = n;
    if (mapped_[n] && i.op != &ops::lane && i.shape.rank >= max_rank) return fail(i);
    switch (structure_of(i)) {
      case structure::region_begin: return begin_region(n);
      case structure::region_end: return end_region(n);
      case structure::region_parameter: return carry(n);
      case structure::region_yield: return pass_on(n);
      case structure::region_result: return take_result(n);
      case structure::loop_slice: return slice_layer(n);
      case structure::loop_stack:
      case structure::loop_sum: return collect(n);
      default: break;
    }
    if (i.op == &ops::lane) {
      value_[n] = {shared(i.operand[0]), attributes_of<lane_attributes>(i).dim};
      return;
    }
    if (!mapped_[n]) return copy(n);
    if (is_further_result(i)) return further_result(n);
    if (requests_of(i) == layout_request::as_operand && !differs(i.operand[1])) {
      // The layout of what is the same for all lanes says nothing of them.
      value_[n] = value_[i.operand[0] - begin_];
      return;
    }
    if (i.op->facts.passes_operands) return pass_operands(n);
    lone_instruction lone(i, windows());
    for (int k = 0; k < i.operand_count; ++k) {
      const instruction& operand = original(operand_id(i, k));
      lone.add_operand(operand.type, operand.shape);
    }
    view_ = lone.view();
    const mapped_value made = i.op->map != nullptr ? i.op->map(*this) : by_factors();
    if (made.id < 0) return fail(i);
    if (i.label != nullptr) b_[made.id].label = i.label;
    value_[n] = made;
  }

  /// An instruction all of whose operands are the same for all lanes.
  constexpr void copy(int n) {
    const instruction& i = code_[n];
    list<int> operands;
    for (int k = 0; k < i.operand_count; ++k) operands.push_back(shared(operand_id(i, k)));
    value_[n] = {b_.append(i, operands.data(), operands.size()), 0};
  }

  constexpr void further_result(int n) {
    const instruction& i = code_[n];
    const mapped_value first = value_[i.operand[0] - begin_];
    // Lanes are in front in all results, or the last dimension of each.
    const int at = first.at == 0 ? 0 : i.shape.rank;
    const int number = attributes_of<further_result_attributes>(i).number;
    value_[n] = {emit::further_result(b_, first.id, number, i.type, with_dimension(i.shape, at, lanes_)), at};
    b_[value_[n].id].label = i.label;
  }

  /// An op that is there for its gradient, which knows by its attributes what differs (`gradient_of_mapped`).
  constexpr void pass_operands(int n) {
    const instruction& i = code_[n];
    lanes_attributes lanes = attributes_of<lanes_attributes>(i);
    int results = 1;
    while (n + results < count_ && is_further_result(code_[n + results])) ++results;
    if (i.operand_count > 62) return fail(i);
    list<int> operands;
    std::int64_t with = 0;
    for (int k = 0; k < i.operand_count; ++k) {
      const int id = operand_id(i, k);
      const bool had = (lanes.operands >> k & 1) != 0;
      if (k >= results && !had && !differs(id)) {
        operands.push_back(shared(id));
        continue;
      }
      with |= std::int64_t{1} << k;
      int value = over_lanes(id, 0);
      if (!had && lanes.lanes > 0) {
        // The lanes of an earlier map, which it does not differ in, come after the new ones.
        extents shape;
        axis_list targets(0);
        shape.append(lanes_);
        for (int d = 0; d < lanes.lanes; ++d) shape.append(i.shape[d]);
        for (int d = 1; d < b_[value].shape.rank; ++d) {
          targets = targets.with(shape.rank);
          shape.append(b_[value].shape[d]);
        }
        value = emit::broadcast(b_, value, shape, targets);
      }
      operands.push_back(value);
    }
    instruction made = i;
    made.shape = with_dimension(i.shape, 0, lanes_);
    set_attributes(made, lanes_attributes{lanes.lanes + 1, with, lanes.region});
    value_[n] = {b_.append(made, operands.data(), operands.size()), 0};
  }

  // --- regions ---

  /// Truth values of the lanes that run a place in this loop of the function, or -1 if all do.
  [[nodiscard]] constexpr int mask_of(int region) {
    for (; is_inside(region); region = code_[region - begin_].region) {
      if (mapping_of(region).mask >= 0) return mapping_of(region).mask;
    }
    return -1;
  }
  constexpr int both(int mask, int other) {
    return other < 0 ? mask : b_.append(ops::logical_and, dtype::boolean, b_[mask].shape, mask, other);
  }
  constexpr int any_lane(int mask) { return emit::reduce(b_, reduction::max, mask, 1); }
  /// Lanes that take part have the one, the others the other, of which the lanes are dimension `at`.
  constexpr int chosen(int mask, int yes, int no, int at) {
    return emit::select(b_, emit::broadcast(b_, mask, b_[yes].shape, axis_list(at)), yes, no);
  }

  constexpr void begin_region(int n) {
    const instruction& i = code_[n];
    const auto attributes = attributes_of<region_attributes>(i);
    region_of_[n] = mapped_regions_.size();
    mapped_regions_.push_back(mapped_region{});
    mapped_region& made = mapped_regions_.back();
    if (!masked_[n]) {
      copy(n);
      made.region = value_[n].id;
      b_[made.region].region = b_.region;
      return;
    }
    const int entry = over_lanes(i.operand[0], 0);
    if (attributes.kind == region_kind::branch) {
      made.is_dissolved = true;
      made.region = b_.region;
      int taken = entry;
      if (b_[entry].type != dtype::boolean) {
        const int number = emit::constant_like(b_, entry, static_cast<double>(branch_number(i)));
        taken = emit::compare(b_, ops::equal, entry, number);
      } else if (branch_number(i) == 0) {
        taken = b_.append(ops::logical_not, dtype::boolean, b_[entry].shape, entry);
      }
      made.mask = both(taken, mask_of(i.region));
      return;
    }
    instruction begin = i;
    if (attributes.kind == region_kind::up_to) {
      // Backwards or forwards, iteration k is one of the first `entry` or not.
      const int numbers = emit::iota(b_, b_[entry].type, with_dimension(extents{}, 0, attributes.iterations), 0);
      begin.operand[0] = emit::reduce(b_, reduction::max, entry, 1);
      const int region = b_.append(begin);
      b_[region].region = made_region(i.region);
      made.region = region;
      // A loop's carries come directly after its begin; between them is what they start with, which is outside.
      const list<int>& parameters = regions_.beginning_at(begin_ + n).parameters;
      const int last = parameters.empty() ? n : parameters.back() - begin_;
      for (int c = n + 1; c <= last && !has_failed_; ++c) rebuild_in_place(c);
      done_ = last;
      b_.where = i.where;
      b_.region = region;
      const int number = repeated(emit::loop_slice(b_, numbers), 0);
      mapping_of(begin_ + n).mask = emit::compare(b_, ops::less, number, entry);
      return;
    }
    const int active = both(entry, mask_of(i.region));
    const bool counts = attributes.kind == region_kind::until_or_at_most;
    const int zero = counts ? emit::constant(b_, dtype::i32, extents{}, 0) : -1;
    begin.operand[0] = any_lane(active);
    made.region = b_.region = b_.append(begin);
    b_[made.region].region = made_region(i.region);
    // The first carry of such a loop counts its iterations; the one that did counts those of each lane.
    if (counts) made.counter = emit::region_parameter(b_, zero);
    made.mask = made.active = emit::region_parameter(b_, active);
  }

  constexpr void end_region(int n) {
    const instruction& i = code_[n];
    const int begin = i.operand[0];
    const mapped_region made = mapping_of(begin);
    const int outside = b_.region;
    b_.region = made.region;
    // What is collected of the body is made in it. (Stacks of what inner loops have stacked come later, as they are.)
    for (const int id : regions_.beginning_at(begin).collected) {
      const int c = id - begin_;
      if (mapped_[c] && code_[c].operand[0] - begin_ < n) value_[c] = collected_value(c);
    }
    if (made.is_dissolved) return;
    int goes_on = i.operand_count > 1 && made.active < 0 ? shared(i.operand[1]) : -1;
    int counter = -1;
    if (made.active >= 0) {
      const int active = both(over_lanes(i.operand[1], 0), made.active);
      goes_on = any_lane(active);
      emit::region_yield(b_, made.active, active);
      if (made.counter >= 0) {
        const int one = emit::constant(b_, dtype::i32, extents{}, 1);
        counter = emit::region_yield(b_, made.counter, emit::add(b_, made.counter, one));
      }
    }
    b_.region = outside;
    value_[n] = {b_.append(ops::region_end, dtype::i32, extents{}, made.region, goes_on), 0};
    mapping_of(begin).is_closed = true;
    if (counter >= 0) emit::region_result(b_, counter);
  }

  constexpr void carry(int n) {
    const instruction& i = code_[n];
    if (value_[n].id >= 0) return;
    if (!mapped_[n]) return copy(n);
    const int init = over_lanes_outside(i.operand[0], i.region);
    value_[n] = {mapping_of(i.region).is_dissolved ? init : emit::region_parameter(b_, init), 0};
  }
  /// The first value of a carry, computed before its loop.
  constexpr int over_lanes_outside(int id, int region) {
    const int inside = b_.region;
    b_.region = made_region(code_[region - begin_].region);
    const int made = over_lanes(id, 0);
    b_.region = inside;
    return made;
  }

  constexpr void pass_on(int n) {
    const instruction& i = code_[n];
    if (!mapped_[n]) return copy(n);
    const mapped_region& made = mapping_of(i.region);
    const int before = value_[i.operand[0] - begin_].id;
    int next = over_lanes(i.operand[1], 0);
    if (made.mask >= 0 && next != before) next = chosen(made.mask, next, before, 0);
    // What a branch that all lanes run hands through may be another carry.
    const bool is_other_carry = next != before && structure_of(b_[next]) == structure::region_parameter;
    if (!made.is_dissolved && is_other_carry && b_[next].region == made.region) next = emit::copy(b_, next);
    if (made.is_dissolved) {
      value_[n] = {next, 0};
    } else {
      instruction passed = builder::make(ops::region_yield, i.type, b_[before].shape, before, next);
      value_[n] = {b_.append(passed), 0};
    }
  }
  constexpr void take_result(int n) {
    const instruction& i = code_[n];
    if (!mapped_[n]) return copy(n);
    const int next = value_[i.operand[0] - begin_].id;
    value_[n] = {is_dissolved(original(i.operand[0]).region) ? next : emit::region_result(b_, next), 0};
    if (i.label != nullptr) b_[value_[n].id].label = i.label;
  }

  constexpr void slice_layer(int n) {
    const instruction& i = code_[n];
    const bool is_only = is_dissolved(i.region);
    if (!mapped_[n]) {
      if (!is_only) return copy(n);
      value_[n] = {emit::reshape(b_, shared(i.operand[0]), i.shape), 0};
      return;
    }
    const int layers = over_lanes(i.operand[0], is_only ? 0 : 1);
    const extents shape = with_dimension(i.shape, 0, lanes_);
    value_[n] = {is_only ? emit::reshape(b_, layers, shape) : emit::loop_slice(b_, layers), 0};
  }

  /// The value whose stack or sum this is, with zeros for the lanes that take no part.
  constexpr mapped_value collected_value(int n) {
    const instruction& i = code_[n];
    const int id = i.operand[0];
    mapped_value value = differs(id) ? value_[id - begin_] : mapped_value{over_lanes(id, 0), 0};
    if (is_selected(i)) {
      const int zero = emit::constant_like(b_, value.id, 0);
      const mapped_region& made = mapping_of(original(id).region);
      value.id = chosen(made.mask, value.id, zero, value.at);
      // Of a branch that all lanes run it is the only layer, or term.
      if (made.is_dissolved && structure_of(i) == structure::loop_stack) {
        ++value.at;
        value.id = emit::reshape(b_, value.id, with_dimension(i.shape, value.at, lanes_));
      }
    }
    // What a branch that all lanes run hands through comes from outside of the loop that it is in.
    const int within = is_inside(original(id).region) ? mapping_of(original(id).region).region : original(id).region;
    if (within >= 0 && b_[value.id].region != within && !is_dissolved(original(id).region)) {
      const int outside = b_.region;
      b_.region = within;
      value.id = emit::copy(b_, value.id);
      b_.region = outside;
    }
    return value;
  }
  constexpr void collect(int n) {
    const instruction& i = code_[n];
    const bool is_stack = structure_of(i) == structure::loop_stack;
    const int region = original(i.operand[0]).region;
    if (mapped_[n] && value_[n].id < 0 && is_late(region)) return collect_late(n);
    if (is_dissolved(region)) {
      if (value_[n].id < 0) value_[n] = collected_value(n);
      return;
    }
    mapped_value value{shared(i.operand[0]), -1};
    if (mapped_[n]) value = value_[n].id >= 0 ? value_[n] : collected_value(n);
    value_[n] = {is_stack ? emit::loop_stack(b_, value.id) : emit::loop_sum(b_, value.id),
                 is_stack ? value.at + 1 : value.at};
  }

  /// Whether the loop of the function has been left, so that nothing more is computed in it.
  [[nodiscard]] constexpr bool is_late(int region) {
    while (is_dissolved(region)) region = code_[region - begin_].region;
    return is_inside(region) && mapping_of(region).is_closed;
  }
  /// A value of each of the `count` iterations of the loop `within`, the same if it is not computed there.
  constexpr int in_each_iteration(int id, int within, std::int64_t count) {
    if (b_[id].region == within) return emit::loop_stack(b_, id);
    axis_list targets;
    for (int d = 1; d <= b_[id].shape.rank; ++d) targets = targets.with(d);
    return emit::broadcast(b_, id, with_dimension(b_[id].shape, 0, count), targets);
  }
  /// A stack, of which the lanes that took no part become zero. @param taking_part [iterations ..., lanes]
  /// @param shape of one lane
  constexpr mapped_value zero_where_not(int taking_part, mapped_value value, const extents& shape) {
    const int iterations = b_[taking_part].shape.rank - 1;
    if (value.at < 0) value = {repeated(value.id, iterations), iterations};
    axis_list targets(0);
    for (int d = 1; d < iterations; ++d) targets = targets.with(d);
    const int mask = emit::broadcast(b_, taking_part, b_[value.id].shape, targets.with(value.at));
    value.id = emit::select(b_, mask, value.id, emit::constant_like(b_, value.id, 0));
    // Of branches that all lanes run each is the only layer.
    const int branches = shape.rank + 1 - b_[value.id].shape.rank;
    value.at += branches;
    if (branches > 0) value.id = emit::reshape(b_, value.id, with_dimension(shape, value.at, lanes_));
    return value;
  }
  /// A stack or sum of what a loop inside has collected, which is listed after the loop around it (as the residuals of
  /// a gradient are). Where lanes took no part is known from a stack of that; there it becomes zero, outside.
  constexpr void collect_late(int n) {
    const instruction& i = code_[n];
    const int id = i.operand[0];
    const mapped_region made = mapping_of(original(id).region);
    int mask = id >= begin_ ? pending_[id - begin_] : -1;
    int own = is_selected(i) ? made.mask : -1;
    mapped_value value = differs(id) ? value_[id - begin_] : mapped_value{shared(id), -1};
    if (made.is_dissolved) {
      // Lanes that run a branch inside of this one run this one.
      if (mask >= 0 && b_[mask].shape.rank > 1) return fail(i);
      value_[n] = value;
      pending_[n] = mask >= 0 ? mask : own;
      return;
    }
    const bool waits = is_late(i.region);
    const bool sums = structure_of(i) == structure::loop_sum;
    const auto is_outside = [&](int one) { return one >= 0 && b_[one].region != made.region; };
    const bool is_any_outside = is_outside(value.id) || is_outside(mask) || is_outside(own);
    if (sums && mask < 0 && own < 0 && !is_any_outside) {
      value_[n] = {emit::loop_sum(b_, value.id), value.at};
      return;
    }
    if (waits && (sums || is_any_outside || (mask >= 0 && own >= 0))) return fail(i);
    // Layers that no lane has run hold anything, and only a sum reads them all.
    const bool runs_fewer = region_kind_of(original(original(id).region)) != region_kind::counted;
    if (sums && (runs_fewer || i.shape.rank + 2 > max_rank)) return fail(i);
    const std::int64_t count = attributes_of<region_attributes>(original(original(id).region)).iterations;
    value = {in_each_iteration(value.id, made.region, count), value.at < 0 ? -1 : value.at + 1};
    if (mask >= 0) mask = in_each_iteration(mask, made.region, count);
    if (own >= 0) own = in_each_iteration(own, made.region, count);
    if (mask >= 0 && own >= 0) {
      const extents& shape = b_[mask].shape;
      mask = both(mask, emit::broadcast(b_, own, shape, axis_list(0).with(shape.rank - 1)));
    } else if (mask < 0) {
      mask = own;
    }
    if (waits || (mask < 0 && !sums)) {
      value_[n] = value;
      pending_[n] = mask;
      return;
    }
    if (mask >= 0) value = zero_where_not(mask, value, sums ? with_dimension(i.shape, 0, count) : i.shape);
    if (sums) value = {emit::reduce_sum(b_, value.id, 1), value.at - 1};
    value_[n] = value;
  }

  static constexpr void gradient_of_mapped(gradient_context& c);

  builder& b_;
  int begin_;
  std::int64_t lanes_;
  int count_;
  /// The trace of the function.
  list<instruction> code_;
  list<bool> mapped_;
  /// Of regions: whether lanes do not all take part.
  list<bool> masked_;
  list<mapped_value> value_;
  list<int> region_of_;
  list<mapped_region> mapped_regions_;
  /// Those of the function.
  region_table regions_;
  /// Of what was collected too late for zeros: the truth values of those that keep it, [iterations ..., lanes], or -1.
  list<int> pending_;
  /// The instruction that is being appended.
  int now_ = 0;
  /// The instructions up to this one have been appended before their turn.
  int done_ = -1;
  op_view view_;
  bool has_failed_ = false;
};

namespace emit_lane {
/// One lane of a value, to trace a function with. @param dim -1 if it is the same for all
constexpr int of(builder& b, int value, int dim) {
  const extents shape = dim < 0 ? b[value].shape : without_dimension(b[value].shape, dim);
  return b.append(with_attributes(builder::make(ops::lane, b[value].type, shape, value), lane_attributes{dim}));
}
}  // namespace emit_lane

/// The gradient of an op with a gradient of the user's, or of a checkpoint, over lanes: the same of one lane, mapped.
constexpr void mapping::gradient_of_mapped(gradient_context& c) {
  builder& b = c.emit;
  const instruction self = c.self();
  const auto lanes = attributes_of<lanes_attributes>(self);
  const std::int64_t count = self.shape[0];
  const int further = espalier::further_results(b.result().code.data(), b.size(), c.id);
  list<int> operands;
  for (int k = 0; k < self.operand_count; ++k) operands.push_back(c.operand(k));
  list<extents> shapes;
  list<dtype> types;
  for (int n = 1; n <= further; ++n) {
    shapes.push_back(without_dimension(b[c.id + n].shape, 0));
    types.push_back(b[c.id + n].type);
  }
  list<int> cotangents;
  for (int n = 0; n < further; ++n) cotangents.push_back(c.further_result_cotangent[n]);

  const int begin = b.size();
  list<int> of_lane;
  for (int k = 0; k < self.operand_count; ++k)
    of_lane.push_back(emit_lane::of(b, operands[k], (lanes.operands >> k & 1) != 0 ? 0 : -1));
  const int cotangent = emit_lane::of(b, c.cotangent, 0);
  for (int& one : cotangents) {
    if (one >= 0) one = emit_lane::of(b, one, 0);
  }
  instruction made = self;
  made.shape = without_dimension(self.shape, 0);
  made.label = nullptr;
  set_attributes(made, lanes_attributes{lanes.lanes - 1, lanes.lanes == 1 ? 0 : lanes.operands, lanes.region});
  const int id = b.append(made, of_lane.data(), of_lane.size());
  for (int n = 1; n <= further; ++n) emit::further_result(b, id, n, types[n - 1], shapes[n - 1]);
  gradient_context inner{b, id, cotangent};
  if (further > 0) inner.further_result_cotangent = cotangents.data();
  self.op->gradient(inner);

  mapping map(b, begin, count);
  map.run();
  for (int k = 0; k < self.operand_count; ++k) {
    const int value = inner.cotangent_of(k);
    if (value < 0) continue;
    const int over = map.over_lanes(value, 0);
    c.give(k, (lanes.operands >> k & 1) != 0 ? over : emit::reduce_sum(b, over, 1));
  }
}

}  // namespace detail

/// A traced program over lanes, as `vmap` makes it of a function: argument number k with `lanes` elements more as its
/// dimension dims[k], or as it is if that is -1. Every result has them as its first dimension.
/// Empty if some op cannot be mapped.
/// @pre no argument is donated
[[nodiscard]] constexpr graph map_program(graph_view g, const int* dims, std::int64_t lanes) {
  builder b;
  detail::copy_tables(b.result(), g);
  detail::list<int> number(g.size, -1);
  for (int id = 0; id < g.size; ++id) {
    if (structure_of(g[id]) != structure::argument) continue;
    const int dim = dims[attributes_of<border_attributes>(g[id]).number];
    instruction made = g[id];
    if (dim >= 0) {
      made.shape = detail::with_dimension(made.shape, dim, lanes);
      made.annotation = -1;
    }
    number[id] = b.result().code.push_back(made);
  }
  const int begin = b.size();
  for (int id = 0; id < g.size; ++id) {
    if (structure_of(g[id]) == structure::argument)
      number[id] = detail::emit_lane::of(b, number[id], dims[attributes_of<border_attributes>(g[id]).number]);
  }
  for (int id = 0; id < g.size; ++id) {
    instruction made = g[id];
    if (structure_of(made) == structure::argument || structure_of(made) == structure::result) continue;
    renumber(made, number, b.result().further.data());
    number[id] = b.size();
    b.result().code.push_back(made);
  }
  detail::mapping map(b, begin, lanes);
  map.run();
  if (b.mistake != nullptr) return graph{};
  for (int id = 0; id < g.size; ++id) {
    if (structure_of(g[id]) != structure::result) continue;
    const int value = map.over_lanes(number[g[id].operand[0]], 0);
    emit::result(b, value, attributes_of<border_attributes>(g[id]).number);
  }
  return static_cast<graph&&>(b.result());
}

}  // namespace espalier
