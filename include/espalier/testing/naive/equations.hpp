// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive/loops.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

/// A second meaning of every op, written from its description and from nothing else: a tensor is a function of an
/// index, a program is a set of equations. It shares no code with `op_info::evaluate` and `interpret`, so that a
/// mistake in these is seen.
namespace espalier::test {

namespace naive {

/// The equations of all ops.
class equations : protected loop_equations {
 public:
  equations(graph_view g, const std::vector<tensor_value>& arguments, naive_storage storage)
      : loop_equations(g, arguments, storage) {}

  /// Whether every value that was computed is a whole number that its type holds, and so is every sum of some of the
  /// terms of a sum: then the order of additions and the types between them change nothing.
  [[nodiscard]] bool exact() const { return exact_; }

  [[nodiscard]] std::vector<tensor_value> results() {
    std::vector<tensor_value> made;
    for (int id = 0; id < g_.size; ++id) {
      if (g_[id].op != &ops::result) continue;
      const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(g_[id]).number);
      if (made.size() <= number) made.resize(number + 1);
      made[number] = value(g_[id].operand[0]);
    }
    return made;
  }

 protected:
  tensor_value computed(int id) override {
    const instruction& self = g_[id];
    const op_info* const op = self.op;
    if (auto result = source(id)) return *std::move(result);
    if (auto result = elementwise(id)) return *std::move(result);
    if (op == &ops::reshape) return {self.shape, operand(id, 0).data};
    // A function with a gradient of its own: the values are its first operands, one after the other.
    if (op->facts.passes_operands) return operand(id, 0);
    if (op == &ops::further_result && g_.operand(id, 0).op->facts.passes_operands)
      return operand(self.operand[0], static_cast<int>(attributes_of<further_result_attributes>(self).number));
    if (op == &ops::broadcast) return broadcast(id);
    if (op == &ops::transpose) return transpose(id);
    if (op == &ops::reduce_sum || op == &ops::reduce) return reduce(id);
    if (op == &ops::einsum) return einsum(id);
    if (op == &ops::slice) return slice(id);
    if (op == &ops::cumulate) return cumulate(id);
    if (op == &ops::pad) return pad(id);
    if (op == &ops::roll) return roll(id);
    if (op == &ops::concat) return concat(id);
    if (op == &ops::top_k) return top_k(id, id, false);
    if (op == &ops::further_result && g_.operand(id, 0).op == &ops::top_k) return top_k(id, self.operand[0], true);
    if (op == &ops::take_along || op == &ops::put_along) return moved_along(id);
    if (op == &ops::convolution) return convolution(id);
    if (op == &ops::convolution_input_gradient) return input_gradient(id);
    if (op == &ops::convolution_filter_gradient) return filter_gradient(id);
    if (op == &ops::sum_pool || op == &ops::max_pool) return pool(id);
    if (op == &ops::pool_equal) return pool_equal(id);
    if (op == &ops::spread_equal) return spread_equal(id);
    if (op == &ops::gather) return gather(id);
    if (op == &ops::scatter_add) return scatter_add(id);
    if (op == &ops::dynamic_slice) return dynamic_slice(id);
    if (op == &ops::dynamic_update_slice) return dynamic_update_slice(id);
    if (op == &ops::region_parameter) return carry(id);
    if (op == &ops::loop_slice) return loop_slice(id);
    if (op == &ops::region_result) return region_result(id);
    if (op == &ops::loop_stack) return loop_stack(id);
    if (op == &ops::loop_sum) return loop_sum(id);
    refuse(id, "has no meaning here");
  }
};

}  // namespace naive

/// Results, and whether every value on the way is a whole number that its type holds, however its terms are added: then
/// any right way of computing gives the same, to the last bit.
struct naive_outcome {
  std::vector<tensor_value> results;
  bool is_exact = false;
};
[[nodiscard]] inline naive_outcome naive_run(graph_view g, const std::vector<tensor_value>& arguments,
                                             naive_storage storage = naive_storage::exact) {
  naive::equations program(g, arguments, storage);
  naive_outcome made;
  made.results = program.results();
  made.is_exact = program.exact();
  return made;
}

/// The results of a traced program, as the builder made it, on one device. Integers are integers and truth values are
/// truth values in any case; floats are double precision, or with `typed` stored as their types after every op.
/// Throws std::invalid_argument where the program or its data make no sense, and for ops that no traced program has.
[[nodiscard]] inline std::vector<tensor_value> naive_interpret(graph_view g, const std::vector<tensor_value>& arguments,
                                                               naive_storage storage = naive_storage::exact) {
  return naive_run(g, arguments, storage).results;
}

}  // namespace espalier::test
