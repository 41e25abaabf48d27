// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/ops/ops.hpp>

namespace espalier {

namespace emit {

/// log(sum of exp(logits)) - logits[target] over the last dimension. The target's logit is found by comparing, not by
/// looking it up, so a device that holds some of the classes needs no others: three reductions of one number per
/// target are all that a sharded class dimension costs.
constexpr int cross_entropy(builder& b, int logits, int targets) {
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

}  // namespace detail

namespace nn {

/// The cross entropy of each target, in nats: logits [..., classes], targets integers [...] -> [...]. No logit
/// overflows. A target outside 0 ... classes - 1 counts as one of probability exp(max logit) / sum exp(logits). Errors:
/// `indices_are_not_integers`, `operand_is_not_floating`, `shape_mismatch`.
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy_each(const Logits& logits, const Targets& targets,
                                  source_line where = source_line::current()) {
  if constexpr (Failed<Logits> || Failed<Targets>) {
    return detail::first_failure(logits, targets);
  } else if constexpr (!is_integer(Targets::type)) {
    return failed<why::indices_are_not_integers<typename Targets::tensor>>(where, "cross_entropy_each");
  } else if constexpr (!is_floating(Logits::type)) {
    return failed<why::operand_is_not_floating<typename Logits::tensor>>(where, "cross_entropy_each");
  } else if constexpr (!detail::are_targets_of(Targets::shape, Logits::shape)) {
    return failed<why::shape_mismatch<typename Logits::tensor, typename Targets::tensor>>(where, "cross_entropy_each");
  } else {
    builder& b = *logits.owner;
    const pinned_line line(b, where);
    return detail::symbol_like<Logits, tensor_for<Logits::type, Targets::shape>>(
        logits, emit::cross_entropy(b, logits.id, detail::operand_of(b, targets)));
  }
}

/// The sum of `cross_entropy_each` over all targets, a scalar. Errors as for that.
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy_sum(const Logits& logits, const Targets& targets,
                                 source_line where = source_line::current()) {
  return sum(cross_entropy_each(logits, targets, where), where);
}

/// The mean of `cross_entropy_each` over all targets, a scalar. Errors as for that.
template <Traced Logits, Traced Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, source_line where = source_line::current()) {
  return mean(cross_entropy_each(logits, targets, where), where);
}

}  // namespace nn

}  // namespace espalier
