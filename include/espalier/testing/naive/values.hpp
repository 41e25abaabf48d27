// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/testing/naive/tensors.hpp>
#include <espalier/testing/naive/types.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// The values of a program that is a set of equations: each is computed when another one needs it.
namespace espalier::test {

/// Whether values are what the descriptions say, in double precision, or are stored as their own types after each op.
enum class naive_storage { exact, typed };

namespace naive {

/// A program as equations: the value of an instruction in one iteration of every loop around it is a function of its
/// operands' values. Computed where a result asks for it, and kept; the order of the instructions means nothing.
/// This is the first layer of `equations`; each further layer gives the meaning of one family of ops.
class equation_values {
 public:
  equation_values(const equation_values&) = delete;
  equation_values& operator=(const equation_values&) = delete;

 protected:
  equation_values(graph_view g, const std::vector<tensor_value>& arguments, naive_storage storage)
      : g_(g),
        arguments_(arguments),
        storage_(storage),
        iteration_(static_cast<std::size_t>(g.size), -1),
        passed_on_by_(static_cast<std::size_t>(g.size), -1),
        goes_on_(static_cast<std::size_t>(g.size), -1),
        known_(static_cast<std::size_t>(g.size)) {
    for (int id = 0; id < g.size; ++id) {
      if (g[id].op == &ops::region_yield) passed_on_by_[static_cast<std::size_t>(g[id].operand[0])] = id;
      if (g[id].op == &ops::region_end && g[id].operand_count > 1)
        goes_on_[static_cast<std::size_t>(g[id].operand[0])] = g[id].operand[1];
    }
  }
  ~equation_values() = default;

  /// The meaning of instruction `id`, in the current iterations.
  virtual tensor_value computed(int id) = 0;

  [[noreturn]] void refuse(int id, const std::string& why) const {
    throw std::invalid_argument("naive: %" + std::to_string(id) + " = " + g_[id].op->name + " " + why);
  }

  /// A result of this type, and the sum of its terms' sizes.
  void note(dtype type, double x, double size) {
    const auto [least, count] = naive::whole_numbers_of(type);
    double most = 0x1p53;
    if (type == dtype::bf16) most = 0x1p8;
    if (type == dtype::f16) most = 0x1p11;
    if (type == dtype::f32) most = 0x1p24;
    if (count != 0) most = std::min(most, least + (count - 1));
    exact_ = exact_ && x == std::trunc(x) && size <= most && (count == 0 || x >= least);
  }

  /// The most iterations that a loop can have: more than any test's, of one that says no number.
  [[nodiscard]] std::int64_t most_of(int region) const {
    const auto attributes = attributes_of<region_attributes>(g_[region]);
    return attributes.kind == region_kind::until ? 16 : attributes.iterations;
  }
  [[nodiscard]] bool runs_down(int region) const { return attributes_of<region_attributes>(g_[region]).reverse; }
  [[nodiscard]] std::int64_t& iteration(int region) { return iteration_[static_cast<std::size_t>(region)]; }

  /// The value of `id` in the current iterations of the loops around it.
  const tensor_value& value(int id) {
    std::size_t slots = 1;
    std::size_t at = 0;
    for (int region = g_[id].region; region >= 0; region = g_[region].region) {
      if (iteration(region) < 0) refuse(id, "is read outside its loop");
      at += slots * static_cast<std::size_t>(iteration(region));
      slots *= static_cast<std::size_t>(most_of(region));
    }
    std::vector<slot>& known = known_[static_cast<std::size_t>(id)];
    if (known.empty()) known.resize(slots);
    if (!known[at].known) {
      tensor_value made = computed(id);
      if (!(made.shape == g_[id].shape)) refuse(id, "comes out in another shape than it has");
      for (const double x : made.data) note(g_[id].type, x, std::abs(x));
      if (storage_ == naive_storage::typed || !is_floating(g_[id].type)) {
        for (double& x : made.data) x = in_memory(g_[id].type, x);
      }
      known[at].value = std::move(made);
      known[at].known = true;
    }
    return known[at].value;
  }

  const tensor_value& operand(int id, int k) {
    if (k >= g_[id].operand_count) refuse(id, "has too few operands");
    return value(g_.operand_at(g_[id], k));
  }

  const tensor_value& same_shape(int id, int k) {
    const tensor_value& found = operand(id, k);
    if (!(found.shape == g_[id].shape)) refuse(id, "has operands of other shapes");
    return found;
  }

  tensor_value argument(int id) const {
    const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(g_[id]).number);
    if (number >= arguments_.size()) refuse(id, "is missing");
    if (arguments_[number].data.size() != static_cast<std::size_t>(g_[id].shape.elements())) refuse(id, "is too small");
    return arguments_[number];
  }

  graph_view g_;
  const std::vector<tensor_value>& arguments_;
  naive_storage storage_;
  bool exact_ = true;
  /// The index, by `region_begin`, of the iteration whose values are being computed, -1 outside of it.
  std::vector<std::int64_t> iteration_;
  /// The `region_yield` of each `region_parameter`.
  std::vector<int> passed_on_by_;
  /// By `region_begin`, the truth value that says whether another iteration follows, or -1.
  std::vector<int> goes_on_;

 private:
  struct slot {
    bool known = false;
    tensor_value value;
  };

  /// Values by instruction, then by the iterations of the loops around it.
  std::vector<std::vector<slot>> known_;
};

}  // namespace naive

}  // namespace espalier::test
