// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

/// A tensor at run time, in double precision whatever its element type: what the oracle of all tests computes with.
struct tensor_value {
  extents shape;
  std::vector<double> data;
};

/// Everything one device holds while a program is interpreted.
class device_state {
 public:
  device_state(graph_view g, std::vector<tensor_value> arguments)
      : g_(g),
        arguments_(std::move(arguments)),
        value_(static_cast<std::size_t>(g.size)),
        iteration_(static_cast<std::size_t>(g.size), 0) {}

  [[nodiscard]] const tensor_value& operator[](int id) const { return value_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] tensor_value& operator[](int id) { return value_[static_cast<std::size_t>(id)]; }

  /// Computes instruction `id`; `boxes` says which parts of their tensors its values are, if the op is positional.
  /// Throws std::invalid_argument for an argument that is missing or has another shape, and for an op that the
  /// interpreter cannot evaluate.
  void execute(int id, const instruction_boxes& boxes) {
    const instruction& self = g_[id];
    if (structure_of(self) == structure::argument) {
      (*this)[id] = argument(id);
    } else if (structure_of(self) == structure::loop_slice) {
      slice(id);
    } else if (structure_of(self) == structure::region_result) {
      (*this)[id] = (*this)[parameter_of(g_[yield_of_result(self)])];
    } else if (structure_of(self) != structure::region_parameter && structure_of(self) != structure::region_yield &&
               !is_further_result(self)) {
      evaluate(id, boxes);
    }
  }

  void start_region(const region& of) {
    for (const int next : of.yields) {
      const int carry = parameter_of(g_[next]);
      (*this)[carry] = (*this)[initial_of(g_[carry])];
    }
    for (const int id : of.collected) (*this)[id] = zeros(g_[id].shape);
  }

  void start_iteration(const region& of, std::int64_t index) { iteration_[static_cast<std::size_t>(of.first)] = index; }

  /// Collects this iteration's values and hands all carries on at once: one may be passed on as another.
  void finish_iteration(const region& of, std::int64_t index) {
    for (const int id : of.collected) {
      const std::vector<double>& from = (*this)[g_[id].operand[0]].data;
      const std::size_t start =
          structure_of(g_[id]) == structure::loop_stack ? static_cast<std::size_t>(index) * from.size() : 0;
      for (std::size_t i = 0; i < from.size(); ++i) (*this)[id].data[start + i] += from[i];
    }
    std::vector<tensor_value> passed;
    for (const int next : of.yields) passed.push_back((*this)[yielded_by(g_[next])]);
    for (std::size_t k = 0; k < passed.size(); ++k)
      (*this)[parameter_of(g_[of.yields[static_cast<int>(k)]])] = std::move(passed[k]);
  }

 private:
  [[nodiscard]] static tensor_value zeros(const extents& shape) {
    return {shape, std::vector<double>(static_cast<std::size_t>(shape.elements()), 0.0)};
  }

  [[nodiscard]] const tensor_value& argument(int id) const {
    const auto index = static_cast<std::size_t>(attributes_of<border_attributes>(g_[id]).number);
    const std::string name = "argument " + std::to_string(index);
    if (index >= arguments_.size()) throw std::invalid_argument("interpret: " + name + " is missing");
    const tensor_value& given = arguments_[index];
    if (!(given.shape == g_[id].shape) || given.data.size() != static_cast<std::size_t>(g_[id].shape.elements())) {
      throw std::invalid_argument("interpret: " + name + " has another shape than the program's");
    }
    return given;
  }

  void slice(int id) {
    (*this)[id] = zeros(g_[id].shape);
    const std::vector<double>& from = (*this)[g_[id].operand[0]].data;
    std::vector<double>& to = (*this)[id].data;
    const std::size_t start = static_cast<std::size_t>(iteration_[static_cast<std::size_t>(g_[id].region)]) * to.size();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[start + i];
  }

  void evaluate(int id, const instruction_boxes& boxes) {
    const instruction& self = g_[id];
    if (self.op->evaluate == nullptr) {
      throw std::invalid_argument(std::string("interpret: the op ") + self.op->name + " has no function `evaluate`");
    }
    evaluation e;
    e.self = &self;
    for (int k = 0; k < self.operand_count; ++k) {
      const int operand = g_.operand_at(self, k);
      e.operand[k] = (*this)[operand].data.data();
      e.operand_shape[k] = &(*this)[operand].shape;
      e.operand_type[k] = g_[operand].type;
    }
    tensor_value made = zeros(self.shape);
    e.result = made.data.data();
    std::vector<double*> further;
    for (int n = further_results(g_.code, g_.size, id); n > 0; --n) {
      tensor_value& next = (*this)[id + n];
      next = zeros(g_[id + n].shape);
      further.insert(further.begin(), next.data.data());
    }
    e.further_result = further.data();
    e.boxes = &boxes;
    e.windows = g_.windows;
    self.op->evaluate(e);
    (*this)[id] = std::move(made);
  }

  graph_view g_;
  std::vector<tensor_value> arguments_;
  std::vector<tensor_value> value_;
  /// The index of the iteration that is running, of each loop by its `region_begin`.
  std::vector<std::int64_t> iteration_;
};

/// Runs a program on simulated devices in lockstep: the order of instructions and iterations is the same on all.
/// `execute(id)` computes an instruction on every device; carries, stacks and sums are kept up to date here.
template <class Execute> class lockstep {
 public:
  lockstep(graph_view g, std::vector<device_state>& devices, Execute execute)
      : g_(g), devices_(devices), execute_(std::move(execute)), regions_(g) {}

  void run() { run_region(-1, 0, g_.size); }

 private:
  [[nodiscard]] static bool is_collected(const instruction& i) { return collects(structure_of(i)); }

  /// The instructions of region `within` itself among the instructions [first, last). An instruction that stands inside
  /// an inner loop without belonging to it runs before that loop.
  void run_region(int within, int first, int last) {
    for (int id = first; id < last; ++id) {
      if (g_[id].region != within || is_collected(g_[id])) continue;
      if (structure_of(g_[id]) == structure::region_begin) {
        const region& inner = regions_.beginning_at(id);
        run_region(within, id + 1, inner.last);
        run_iterations(inner);
        id = inner.last;
      } else {
        execute_(id);
      }
    }
  }

  void run_iterations(const region& of) {
    const bool is_reverse = attributes_of<region_attributes>(g_[of.first]).reverse;
    const std::int64_t count = most_iterations(g_[of.first], of.entry < 0 ? 0 : agreed(of.entry));
    for (device_state& device : devices_) device.start_region(of);
    bool goes_on = true;
    for (std::int64_t k = 0; k < count && goes_on; ++k) {
      const std::int64_t index = is_reverse ? count - 1 - k : k;
      for (device_state& device : devices_) device.start_iteration(of, index);
      run_region(of.first, of.first + 1, of.last);
      goes_on = of.goes_on < 0 || agreed(of.goes_on) != 0;
      for (device_state& device : devices_) device.finish_iteration(of, index);
    }
  }
  /// The value that decides on all devices alike how often a region runs.
  [[nodiscard]] std::int64_t agreed(int id) const {
    const double value = devices_[0][id].data.at(0);
    for (const device_state& device : devices_) {
      if (device[id].data.at(0) != value)
        throw std::logic_error("devices do not agree on %" + std::to_string(id) + ", on which a region depends");
    }
    return static_cast<std::int64_t>(value);
  }

  graph_view g_;
  std::vector<device_state>& devices_;
  Execute execute_;
  region_table regions_;
};

/// The parts of the program's results that device `state` holds, in the order of their numbers.
[[nodiscard]] inline std::vector<tensor_value> results_of(graph_view g, const device_state& state) {
  std::vector<tensor_value> results;
  for (int id = 0; id < g.size; ++id) {
    if (structure_of(g[id]) != structure::result) continue;
    const auto index = static_cast<std::size_t>(attributes_of<border_attributes>(g[id]).number);
    if (index >= results.size()) results.resize(index + 1);
    results[index] = state[id];
  }
  return results;
}

/// Runs a program on one device, in double precision, and returns its results. Only `convert` rounds.
/// The graph need not be normalised. Throws std::invalid_argument as `device_state::execute` does.
[[nodiscard]] inline std::vector<tensor_value> interpret(graph_view g, const std::vector<tensor_value>& arguments) {
  std::vector<device_state> devices{device_state(g, arguments)};
  const auto whole = [&](int id) {
    instruction_boxes boxes;
    boxes.result = detail::whole_box(g[id].shape);
    boxes.whole = g[id].shape;
    for (int k = 0; k < g[id].operand_count; ++k) boxes.operand[k] = detail::whole_box(g.operand(id, k).shape);
    return boxes;
  };
  lockstep program(g, devices, [&](int id) { devices[0].execute(id, whole(id)); });
  program.run();
  return results_of(g, devices[0]);
}

}  // namespace espalier
