// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/ops/ops.hpp>

namespace espalier {

namespace emit {

/// log(sum of exp(logits)) - logits[target] over the last dimension. The target's logit is found by comparing, not by
/// looking it up, so a device that holds some of the classes needs no others: three reductions of one number per
/// target are all that a sharded class dimension costs.
/// In the type that logits are computed in.
constexpr int cross_entropy(builder& b, int given, int targets) {
  const int logits = widen(b, given);
  const extents shape = b[logits].shape;
  const std::int64_t classes = std::int64_t{1} << (shape.rank - 1);
  const int shifted = minus_maximum(b, logits, classes);
  const int raised = b.append(ops::exp, b[shifted].type, shape, shifted);
  const int total = reduce_sum(b, raised, classes);
  const int logarithm = b.append(ops::log, b[total].type, b[total].shape, total);
  const dtype type = detail::index_type(b[targets].type);
  const int number = iota(b, type, shape, shape.rank - 1);
  const int target = broadcast_along(b, convert(b, targets, type), shape, classes);
  const int is_target = compare(b, ops::equal, target, number);
  return subtract(b, logarithm, reduce_sum(b, keep_where(b, is_target, shifted), classes));
}

}  // namespace emit

namespace detail {

[[nodiscard]] constexpr bool are_targets_of(const extents& targets, const extents& logits) {
  if (targets.rank + 1 != logits.rank) return false;
  for (int d = 0; d < targets.rank; ++d) {
    if (targets[d] != logits[d]) return false;
  }
  return true;
}

/// The reduction of the losses to a result.
enum class loss_reduction : std::uint8_t { none, sum, mean };

/// The losses of all targets but those that equal `ignore`, if it is given, reduced and rounded once.
template <loss_reduction Reduction, bool Ignores, Traced Logits, Traced Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, std::int64_t ignore, source_line where,
                             const char* op) {
  if constexpr (Failed<Logits> || Failed<Targets>) {
    return first_failure(logits, targets);
  } else if constexpr (!is_integer(Targets::type)) {
    return failed<why::indices_are_not_integers<typename Targets::tensor>>(where, op);
  } else if constexpr (!is_floating(Logits::type)) {
    return failed<why::operand_is_not_floating<typename Logits::tensor>>(where, op);
  } else if constexpr (!are_targets_of(Targets::shape, Logits::shape)) {
    return failed<why::shape_mismatch<typename Logits::tensor, typename Targets::tensor>>(where, op);
  } else {
    builder& b = *logits.owner;
    const pinned_line line(b, where);
    const int target = operand_of(b, targets);
    int loss = emit::cross_entropy(b, operand_on<operands_mesh<Logits, Targets>>(b, logits), target);
    int counts = -1;
    if constexpr (Ignores) {
      counts = emit::compare(b, ops::not_equal, target, integer_constant(b, Targets::type, Targets::shape, ignore));
      loss = emit::keep_where(b, counts, loss);
    }
    if constexpr (Reduction == loss_reduction::none) {
      return symbol_like<Logits, tensor_for<Logits::type, Targets::shape>>(logits, emit::convert(b, loss, Logits::type),
                                                                           targets);
    } else {
      constexpr std::int64_t all = (std::int64_t{1} << Targets::rank) - 1;
      int total = emit::reduce_sum(b, loss, all);
      if constexpr (Reduction == loss_reduction::mean && Ignores) {
        const int number = emit::reduce_sum(b, emit::convert(b, counts, b[loss].type), all);
        // If no target counts, the sum is that of no losses: 0 / 1.
        const int divisor = emit::select(b, emit::compare(b, ops::equal, number, emit::constant_like(b, number, 0)),
                                         emit::constant_like(b, number, 1), number);
        total = emit::divide(b, total, divisor);
      } else if constexpr (Reduction == loss_reduction::mean) {
        total = emit::scale(b, total, 1 / static_cast<double>(Targets::shape.elements()));
      }
      return symbol_like<Logits, tensor_for<Logits::type, extents{}>>(logits, emit::convert(b, total, Logits::type),
                                                                      targets);
    }
  }
}

}  // namespace detail

namespace nn {

/// A label that `cross_entropy` and its kin do not count: `nn::cross_entropy(logits, targets, nn::ignore{-100})`, as
/// PyTorch's `ignore_index` does.
struct ignore {
  std::int64_t label;
};

/// The cross entropy of each target, in nats: logits [..., classes], targets integers [...] -> [...]. No logit
/// overflows. A target outside 0 ... classes - 1 counts as one of probability exp(max logit) / sum exp(logits). bf16
/// and f16 are computed in f32 and rounded once: within a unit in the last place, and so is the gradient; f32 and f64
/// within 8 roundings of the largest. Errors: `indices_are_not_integers`, `operand_is_not_floating`, `shape_mismatch`.
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy_each(const Logits& logits, const Targets& targets,
                                  source_line where = source_line::current()) {
  return detail::cross_entropy<detail::loss_reduction::none, false>(logits, targets, 0, where, "cross_entropy_each");
}
/// The same, and 0 for each target that is the label to ignore, whose logits get the gradient 0.
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy_each(const Logits& logits, const Targets& targets, const ignore& without,
                                  source_line where = source_line::current()) {
  return detail::cross_entropy<detail::loss_reduction::none, true>(logits, targets, without.label, where,
                                                                   "cross_entropy_each");
}

/// The sum of `cross_entropy_each` over all targets, a scalar, rounded once. Errors as for that.
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy_sum(const Logits& logits, const Targets& targets,
                                 source_line where = source_line::current()) {
  return detail::cross_entropy<detail::loss_reduction::sum, false>(logits, targets, 0, where, "cross_entropy_sum");
}
/// The same over all targets but those that are the label to ignore.
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy_sum(const Logits& logits, const Targets& targets, const ignore& without,
                                 source_line where = source_line::current()) {
  return detail::cross_entropy<detail::loss_reduction::sum, true>(logits, targets, without.label, where,
                                                                  "cross_entropy_sum");
}

/// The mean of `cross_entropy_each` over all targets, a scalar, rounded once. Errors as for that.
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, source_line where = source_line::current()) {
  return detail::cross_entropy<detail::loss_reduction::mean, false>(logits, targets, 0, where, "cross_entropy");
}
/// The same over all targets but those that are the label to ignore: of targets {2, -100, 0} and `nn::ignore{-100}`,
/// the mean of two losses. Where all are ignored it is 0, and so is the gradient. (PyTorch says NaN.)
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, const ignore& without,
                             source_line where = source_line::current()) {
  return detail::cross_entropy<detail::loss_reduction::mean, true>(logits, targets, without.label, where,
                                                                   "cross_entropy");
}

}  // namespace nn

}  // namespace espalier
