// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/core/program/common_subexpressions.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/tensor/core/program/normalise.hpp>

/// Both passes on a program of some 500 instructions, each in a constant evaluation of its own, within the compilers'
/// default limits.
namespace {

using namespace espalier;

constexpr extents square{2, {8, 8}};

/// A residual network with attention-like layers and a scan over three equal ones, and all its gradients.
constexpr graph make_network() {
  builder b;
  detail::list<int> wanted;
  int index = 0;
  const auto parameter = [&](const extents& shape) {
    const int id = emit::argument(b, dtype::f32, shape, index++);
    wanted.push_back(id);
    return id;
  };
  int x = parameter(square);
  const auto layer = [&](int from, int w) {
    const int scores = emit::softmax(
        b,
        emit::einsum(b, from, einsum_term('a' | 'b' << 8), w, einsum_term('b' | 'c' << 8), einsum_term('a' | 'c' << 8)),
        2);
    const int raised = b.append(ops::gelu, dtype::f32, square, scores);
    return emit::add(b, from, emit::multiply(b, raised, emit::scale(b, from, 0.5)));
  };
  for (int l = 0; l < 9; ++l) {
    x = layer(x, parameter(square));
    if (l % 3 == 1) x = b.append(ops::stop_gradient, dtype::f32, square, emit::add(b, x, x));
  }
  const int stacked = parameter(extents{3, {3, 8, 8}});
  emit::region_begin(b, 3, false, false);
  const int carry = emit::region_parameter(b, x);
  const int next = emit::region_yield(b, carry, layer(layer(carry, emit::loop_slice(b, stacked)), x));
  emit::region_end(b);
  x = emit::region_result(b, next);
  for (int l = 0; l < 6; ++l) x = layer(x, parameter(square));
  const int loss = emit::reduce_sum(b, x, 3);
  detail::list<int> gradients(wanted.size(), -1);
  differentiate(b, loss, wanted.data(), wanted.size(), gradients.data());
  emit::result(b, loss, 0);
  for (int k = 0; k < wanted.size(); ++k) emit::result(b, gradients[k], k + 1, wanted[k]);
  return b.result();
}

constexpr int size = make_network().code.size();
constexpr auto network = freeze<size, 0>(make_network());
constexpr int normal_size = normalise(network).code.size();
constexpr auto normal = freeze<normal_size, 0>(normalise(network));
constexpr int merged_size = merge_common_subexpressions(normal).code.size();
constexpr auto merged = freeze<merged_size, 0>(merge_common_subexpressions(normal));

static_assert(size >= 500);
static_assert(normal_size < size && merged_size < normal_size);
static_assert(normal_size > 400, "an evaluation of this size is what the limits are measured with");

template <int Size> constexpr int count(const fixed_graph<Size, 0>& g, const op_info& op) {
  int found = 0;
  for (const instruction& i : g.code) found += i.op == &op ? 1 : 0;
  return found;
}
static_assert(count(network, ops::stop_gradient) > 0 && count(normal, ops::stop_gradient) == 0);
static_assert(count(merged, ops::argument) == count(network, ops::argument));
static_assert(count(merged, ops::result) == count(network, ops::result));

// Nothing is left to do.
static_assert(normalise(merged).code.size() == merged_size);
static_assert(merge_common_subexpressions(merged).code.size() == merged_size);

}  // namespace
