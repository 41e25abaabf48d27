// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace espalier::test {

[[nodiscard]] inline extents shape_of(const std::vector<std::int64_t>& sizes) {
  extents shape;
  for (const std::int64_t size : sizes) shape.append(size);
  return shape;
}

/// Writes programs at run time as a user writes them: shapes in braces, shardings as `sharding_of` reads them.
class model {
 public:
  builder b;
  std::vector<tensor_value> arguments;

  int argument(const std::vector<std::int64_t>& shape, const std::string& placement = "") {
    return add_argument(dtype::f32, random_tensor(random_, shape_of(shape)), placement);
  }
  /// Whole numbers below `high`.
  int indices(const std::vector<std::int64_t>& shape, int high, const std::string& placement = "") {
    return add_argument(dtype::i32, random_integers(random_, shape_of(shape), 0, high - 1), placement);
  }

  int shard(int x, const std::string& placement) { return annotated(ops::shard, x, placement); }
  int reshard(int x, const std::string& placement) { return annotated(ops::reshard, x, placement); }
  int einsum(const std::string& formula, int x, int y) {
    einsum_term term[3];
    int t = 0;
    for (const char c : formula) {
      if (c == ',' || c == '-') ++t;
      if (detail::is_letter(c)) term[t].append(c);
    }
    return emit::einsum(b, x, term[0], y, term[1], term[2]);
  }
  int unary(const op_info& op, int x) { return b.append(op, b[x].type, b[x].shape, x); }
  int relu(int x) { return emit::keep_where(b, emit::compare(b, ops::less, emit::constant_like(b, x, 0), x), x); }
  int add(int x, int y) { return emit::add(b, x, emit::broadcast_to(b, y, b[x].shape)); }
  int multiply(int x, int y) { return emit::multiply(b, x, emit::broadcast_to(b, y, b[x].shape)); }
  int sum(int x, std::int64_t dims) { return emit::reduce_sum(b, x, dims); }
  int total(int x) { return sum(x, (std::int64_t{1} << b[x].shape.rank) - 1); }
  int mean(int x) { return emit::scale(b, total(x), 1.0 / static_cast<double>(b[x].shape.elements())); }
  int reshape(int x, const std::vector<std::int64_t>& shape) { return emit::reshape(b, x, shape_of(shape)); }
  int transpose(int x, std::initializer_list<int> order) {
    axis_list list;
    for (const int d : order) list = list.with(d);
    return emit::transpose(b, x, list);
  }
  /// x normalised along its last dimension to mean 0 and variance 1.
  int normalised(int x) {
    const extents shape = b[x].shape;
    const std::int64_t last = std::int64_t{1} << (shape.rank - 1);
    const double share = 1.0 / static_cast<double>(shape[shape.rank - 1]);
    const int mean = emit::scale(b, sum(x, last), share);
    const int centred = emit::subtract(b, x, emit::broadcast_along(b, mean, shape, last));
    const int variance = emit::scale(b, sum(emit::multiply(b, centred, centred), last), share);
    const int shifted = emit::add(b, variance, emit::constant_like(b, variance, 1e-3));
    const int inverse = unary(ops::rsqrt, shifted);
    return emit::multiply(b, centred, emit::broadcast_along(b, inverse, shape, last));
  }

  /// `replaces` is an argument whose place the result takes.
  void result(int x, int replaces = -1) { emit::result(b, x, results_++, replaces); }
  std::vector<int> gradients(int loss, const std::vector<int>& by) {
    std::vector<int> made(by.size());
    differentiate(b, loss, by.data(), static_cast<int>(by.size()), made.data());
    return made;
  }
  /// Results: the loss, and its gradients.
  void train(int loss, const std::vector<int>& by) {
    result(loss);
    for (const int gradient : gradients(loss, by)) result(gradient);
  }

 private:
  int annotated(const op_info& op, int x, const std::string& placement) {
    return emit::annotated(b, op, x, b.annotate(b[x].shape, sharding_of(placement)));
  }
  int add_argument(dtype type, tensor_value data, const std::string& placement) {
    const int id = emit::argument(b, type, data.shape, static_cast<int>(arguments.size()));
    if (!placement.empty()) b[id].annotation = b.annotate(data.shape, sharding_of(placement));
    arguments.push_back(std::move(data));
    return id;
  }

  random_source random_{7};
  int results_ = 0;
};

[[nodiscard]] inline spmd_program checked(const std::vector<int>& sizes, const model& m, spmd_program program) {
  const std::string fault = fault_of(program, interpret(m.b.result(), m.arguments), m.arguments);
  if (!fault.empty()) INFO(program.text());
  CAPTURE(sizes, program.summary());
  REQUIRE(fault == "");
  return program;
}

/// Partitions for a mesh of these sizes, runs, and requires what one device computes.
[[nodiscard]] inline spmd_program run_on(const std::vector<int>& sizes, const model& m) {
  return checked(sizes, m, partitioned_program(mesh_of(sizes), m.b.result()));
}
/// The same after collectives have been merged.
[[nodiscard]] inline spmd_program run_merged_on(const std::vector<int>& sizes, const model& m) {
  return checked(sizes, m, merged_program(partitioned_program(mesh_of(sizes), m.b.result())));
}

inline constexpr axis_mask x_axis = 1;
inline constexpr axis_mask y_axis = 2;

}  // namespace espalier::test
