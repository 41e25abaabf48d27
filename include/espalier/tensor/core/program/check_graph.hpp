// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/graph/text.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// The stage that a graph has reached: each stage promises more.
enum class graph_stage : std::uint8_t {
  /// The traced graph: stacked outputs and loop invariants may still be inside of loops.
  traced,
  /// Whole tensors, after the first of `passes_on_tensors`.
  tensors,
  /// Partitioned: every value has a layout and is the buffer of one device.
  buffers,
};

/// A graph that no pass may make. The message names the pass and the instruction:
/// `after normalise, %3 = add %0, %1 : f32[4]: its loop is not the one that it is in`.
class graph_error : public std::logic_error {
 public:
  graph_error(const std::string& message, int id) : std::logic_error(message), id_(id) {}
  /// The instruction.
  [[nodiscard]] int id() const { return id_; }

 private:
  int id_;
};

namespace detail {

class graph_check {
 public:
  graph_check(const mesh_shape& mesh, graph_view g, graph_stage stage, std::string_view pass)
      : mesh_(mesh), g_(g), stage_(stage), pass_(pass) {}

  void run() {
    for (id_ = 0; id_ < g_.size; ++id_) {
      check_operands();
      check_place();
      check_region();
      check_further_result();
      check_border();
      check_layout();
      check_extents();
    }
    if (!open_.empty()) {
      id_ = open_.back();
      fail("no region_end closes it");
    }
    check_yields();
  }

 private:
  [[nodiscard]] const instruction& self() const { return g_[id_]; }
  [[nodiscard]] bool is_partitioned() const { return stage_ == graph_stage::buffers; }
  [[noreturn]] void fail(const char* fault) const {
    const std::string text = to_text(mesh_, axis_parts::whole(mesh_), g_, id_);
    throw graph_error(
        joined({pass_.empty() ? "" : "after ", std::string(pass_), pass_.empty() ? "" : ", ", text, ": ", fault}), id_);
  }
  void require(bool holds, const char* fault) const {
    if (!holds) fail(fault);
  }
  /// The extents of the whole tensor.
  [[nodiscard]] const extents& whole(int id) const {
    return g_[id].annotation >= 0 ? g_.annotations[g_[id].annotation].shape : g_[id].shape;
  }
  [[nodiscard]] bool same_tensor(int a, int b) const { return g_[a].type == g_[b].type && whole(a) == whole(b); }
  [[nodiscard]] int innermost() const { return open_.empty() ? -1 : open_.back(); }

  // --- operands and loops --------------------------------------------------------------------------------------------

  void check_operands() const {
    for (int k = 0; k < self().operand_count; ++k) {
      const int operand = g_.operand_at(self(), k);
      if (operand < 0 || operand >= id_) {
        // Its text would name what is not there.
        throw graph_error(
            joined({pass_.empty() ? "" : "after ", std::string(pass_), pass_.empty() ? "" : ", ", "%", id_, " = ",
                    self().op->name, ": operand ", k, " is %", operand, ", which is not an instruction before it"}),
            id_);
      }
    }
    for (int k = 0; k < self().operand_count; ++k)
      require(in_scope(g_.operand_at(self(), k)), "an operand is computed in a loop that it is not in");
  }
  [[nodiscard]] bool in_scope(int operand) const {
    if (reads_region(structure_of(self()))) return true;
    const bool ends = structure_of(self()) == structure::region_end;
    if (ends && operand == self().operand[0]) return true;
    // What decides whether a loop goes on is computed in it.
    for (int l = ends ? self().operand[0] : self().region; l < id_; l = g_[l].region) {
      if (l == g_[operand].region) return true;
      if (l < 0) return false;
    }
    return false;
  }

  /// The loop that it names is the one that it is in.
  void check_place() {
    if (structure_of(self()) == structure::region_end) {
      require(!open_.empty() && self().operand[0] == open_.back(), "it does not end the innermost open loop");
      open_.pop_back();
    }
    const bool is_in_place = self().region == innermost() || (stage_ == graph_stage::traced && may_move());
    require(is_in_place, "its loop is not the one that it is in");
    if (structure_of(self()) == structure::region_begin) open_.push_back(id_);
  }

  /// True if the instruction may name a loop further out than the one that it is in: a traced graph has stacked outputs
  /// and loop invariants where they were traced, and they name the loop that normalise moves them to.
  [[nodiscard]] bool may_move() const {
    if (reads_region(structure_of(self()))) return true;
    for (int l = innermost(); l >= 0; l = g_[l].region) {
      if (l == self().region) return true;
    }
    return self().region < 0;
  }

  void check_region() const {
    const int operand = self().operand_count > 0 ? self().operand[0] : -1;
    switch (structure_of(self())) {
      case structure::region_begin: {
        const bool is_counted = region_kind_of(self()) == region_kind::counted;
        require(self().operand_count == (is_counted ? 0 : 1), "it reads another number of values than its kind does");
        require(is_counted || decides(operand, !tests_to_go_on(region_kind_of(self()))),
                "what decides how often it runs is no single truth value or whole number");
        return;
      }
      case structure::region_end: {
        const bool tests = tests_to_go_on(region_kind_of(g_[operand]));
        require(self().operand_count == (tests ? 2 : 1), "it reads another number of values than its loop's kind does");
        require(!tests || decides(self().operand[1], false), "what decides if the loop goes on is no truth value");
        return;
      }
      case structure::region_parameter:
        require(self().region >= 0, "it is in no loop");
        require(is_before_region(operand), "a carry starts with a value from before its loop");
        require(same_tensor(id_, operand), "a carry has the type of what it starts with");
        return;
      case structure::loop_slice:
        require(self().region >= 0, "it is in no loop");
        require(is_before_region(operand), "what is sliced is a value from before the loop");
        require(is_part_of_stack(id_, operand, self().region), "it is not one iteration's slice of its operand");
        return;
      case structure::region_yield: return check_next();
      case structure::region_result:
        require(structure_of(g_[operand]) == structure::region_yield, "it reads no region_yield");
        require(same_tensor(id_, operand), "it has another type than the carry");
        return check_reader(operand);
      case structure::loop_stack:
      case structure::loop_sum:
        require(g_[operand].region >= 0, "its operand is in no loop");
        if (structure_of(self()) == structure::loop_stack) {
          require(is_part_of_stack(operand, id_, g_[operand].region), "it is not the stack of its operand");
        } else {
          require(whole(id_) == whole(operand), "a sum over iterations has the shape of what is summed");
        }
        return check_reader(operand);
      default: return;
    }
  }
  [[nodiscard]] bool decides(int value, bool may_count) const {
    const bool fits = g_[value].type == dtype::boolean || (may_count && is_integer(g_[value].type));
    return fits && whole(value).rank == 0 &&
           (!is_partitioned() || g_.annotations[g_[value].annotation].placement.unreduced == 0);
  }
  [[nodiscard]] bool is_before_region(int operand) const {
    return operand < self().region || (stage_ == graph_stage::traced && g_[operand].region != self().region);
  }
  /// It reads a loop that has been closed, right outside of it.
  void check_reader(int operand) const {
    const int region = g_[operand].region;
    require(self().region == g_[region].region, "it is not right outside of the loop that it reads");
    if (stage_ == graph_stage::traced) return;
    for (const int open : open_) require(open != region, "the loop that it reads is not closed yet");
  }
  void check_next() const {
    require(self().region >= 0, "it is in no loop");
    const int carry = self().operand[0];
    const int value = self().operand[1];
    require(structure_of(g_[carry]) == structure::region_parameter && g_[carry].region == self().region,
            "operand 0 is not a carry of its loop");
    require(same_tensor(carry, value), "the value that is passed on has another type than the carry");
    require(
        value == carry || structure_of(g_[value]) != structure::region_parameter || g_[value].region != self().region,
        "another carry is passed on without a copy, and would be overwritten");
    if (is_partitioned() && g_[carry].annotation >= 0 && g_[value].annotation >= 0) {
      require(
          g_.annotations[g_[carry].annotation].placement.same_layout(g_.annotations[g_[value].annotation].placement),
          "the value that is passed on has another layout than the carry");
    }
  }
  /// Each parameter has one.
  void check_yields() {
    const region_table regions(g_);
    for (const region& one : regions) {
      for (const int yield : one.yields) {
        id_ = yield;
        require(regions.yield_of(parameter_of(self())) == yield, "its carry has a region_yield already");
      }
      for (const int parameter : one.parameters) {
        id_ = parameter;
        require(regions.yield_of(parameter) >= 0, "no region_yield of its loop says what the next iteration gets");
      }
    }
  }
  [[nodiscard]] bool is_part_of_stack(int slice, int stack, int region) const {
    const extents& all = whole(stack);
    const extents& one = whole(slice);
    if (all.rank != one.rank + 1 || all[0] != attributes_of<region_attributes>(g_[region]).iterations) return false;
    for (int d = 0; d < one.rank; ++d) {
      if (all[d + 1] != one[d]) return false;
    }
    return true;
  }

  // --- results, border -----------------------------------------------------------------------------------------------

  void check_further_result() const {
    if (!is_further_result(self())) return;
    require(id_ > 0 && (self().operand[0] == id_ - 1 ||
                        (is_further_result(g_[id_ - 1]) && g_[id_ - 1].operand[0] == self().operand[0])),
            "a further result follows the instruction that makes it");
  }
  void check_border() const {
    if (structure_of(self()) == structure::argument) require(self().operand_count == 0, "an argument has no operands");
    if (structure_of(self()) != structure::result) return;
    require(same_tensor(id_, self().operand[0]), "a result has the type of its value");
    if (self().operand_count < 2) return;
    require(structure_of(g_.operand(id_, 1)) == structure::argument && same_tensor(id_, self().operand[1]),
            "a result takes the place of an argument of its type");
  }

  // --- layouts and shapes --------------------------------------------------------------------------------------------

  void check_layout() const {
    require(self().annotation < g_.annotation_count, "its layout is not in the graph's table");
    require(!is_partitioned() || self().annotation >= 0, "it has no layout");
    if (self().op->facts.travels_along) check_company();
    if (self().annotation < 0) return;
    const layout& l = g_.annotations[self().annotation];
    require(l.placement.rank == l.shape.rank, "its layout is of another rank");
    if (!is_partitioned()) {
      require(l.shape == self().shape, "its layout is that of another shape");
    } else if (!reads_windows(self())) {
      require(self().shape == local_shape(mesh_, l.shape, l.placement), "its buffer does not fit its layout");
    }
    axis_mask used = l.placement.unreduced;
    for (int d = 0; d < l.placement.rank; ++d) {
      require((used & l.placement.dim[d].mask()) == 0, "its layout uses an axis twice");
      used |= l.placement.dim[d].mask();
    }
    require((used >> static_cast<unsigned>(mesh_.rank)) == 0, "its layout names an axis that the mesh has not");
  }
  /// Requires that a collective that travels with another one is of the same kind, in the same loop, and is computed
  /// from no collective of the group.
  void check_company() const {
    int first = id_;
    while (first > 0 && g_[first].op->facts.travels_along) --first;
    const collective_attributes mine = attributes_of<collective_attributes>(self());
    const collective_attributes other = attributes_of<collective_attributes>(g_[first]);
    require(self().op->facts.moves == g_[first].op->facts.moves && mine.axes == other.axes &&
                mine.combine == other.combine && self().region == g_[first].region,
            "it travels with another kind of collective");
    require(self().operand[0] < first, "it travels with what it is computed from");
  }

  /// Shapes agree as the operator's rule says; of a partitioned graph those of local buffers.
  void check_extents() const {
    const instruction& i = self();
    if (collective_index(i.op) >= 0 || i.op->factors == nullptr || structure_of(i) == structure::region_end) return;
    // It is there for its gradient, whose operands and results have any shapes.
    if (i.op->facts.passes_operands || (is_further_result(i) && g_.operand(id_, 0).op->facts.passes_operands)) return;
    if (is_partitioned() && i.op->facts.shares_operand && structure_of(i) == structure::none) {
      // Its factors are those of whole tensors: between buffers that do not fit there are none.
      require(i.shape.elements() == g_.operand(id_, 0).shape.elements(), "its buffers differ in size");
      return;
    }
    const factor_rule rule = i.op->factors(g_.view(id_));
    check_dimensions(rule, rule.result, i.shape, 0);
    for (int k = 0; k < i.operand_count; ++k) {
      window windows[max_rank];
      const std::uint32_t windowed = i.op->windows == nullptr ? 0 : i.op->windows(g_.view(id_), k, &windows[0]);
      check_dimensions(rule, rule.dims_of(k), g_.operand(id_, k).shape, windowed);
    }
  }
  void check_dimensions(const factor_rule& rule, const factor_list* dims, const extents& shape,
                        std::uint32_t windowed) const {
    for (int d = 0; d < shape.rank; ++d) {
      if ((windowed >> static_cast<unsigned>(d) & 1U) != 0) continue;
      std::int64_t product = 1;
      bool blocked = false;
      for (int n = 0; n < dims[d].size(); ++n) {
        product *= rule.size[dims[d][n]];
        blocked = blocked || rule.kind[dims[d][n]] == factor_kind::blocked;
      }
      require(blocked || dims[d].empty() || product == shape[d], is_partitioned()
                                                                     ? "its operands' buffers do not fit together"
                                                                     : "its operands' shapes do not fit together");
    }
  }

  const mesh_shape& mesh_;
  graph_view g_;
  graph_stage stage_;
  std::string_view pass_;
  /// The `region_yield` of each carry.
  std::vector<int> next_of_;
  std::vector<int> open_;
  int id_ = 0;
};

}  // namespace detail

/// Checks what every graph promises: operands come before their users and are in scope, loops are closed, carries are
/// passed on once and in place, further results follow what makes them, layouts name axes of the mesh once, and types,
/// shapes and layouts agree. Throws `graph_error`. `mesh` is the one that layouts name axes of, `pass` what made the
/// graph.
inline void check(const mesh_shape& mesh, graph_view g, graph_stage stage, std::string_view pass = "") {
  detail::graph_check(mesh, g, stage, pass).run();
}

}  // namespace espalier
