// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/completed_program.hpp>
#include <espalier/tensor/core/partition/local_program.hpp>

namespace espalier::detail {

/// The program of one device, and which of its values hold those of the traced graph by now.
///
/// Floats of sixteen bits are added up in a wider type, which they have until all terms are in: terms of devices are
/// values of that type, and so is what linear ops make of them. The sum is rounded once.
class device_values {
 public:
  constexpr explicit device_values(const completed_program& traced)
      : program(traced.mesh, traced.g), value(traced.g.size, -1), terms(traced.g.size, -1), traced_(traced) {}
  /// Goes on with what an earlier evaluation made.
  template <int Size, int Room>
  constexpr device_values(const completed_program& traced, const partition_progress<Size, Room>& from)
      : program(traced.mesh, from), traced_(traced) {
    value.resize(traced.g.size);
    terms.resize(traced.g.size);
    int* const values = value.data();
    int* const terms_of = terms.data();
    for (int id = 0; id < traced.g.size; ++id) {
      values[id] = from.value[id];
      terms_of[id] = from.terms[id];
    }
    for (int n = 0; n < from.open_count; ++n) open.push_back(from.open[n]);
  }
  template <int Size, int Room> constexpr void save(partition_progress<Size, Room>& to) const {
    program.save(to);
    if (!to.program.fits) return;
    const int* const values = value.data();
    const int* const terms_of = terms.data();
    for (int id = 0; id < traced_.g.size; ++id) {
      to.value[id] = values[id];
      to.terms[id] = terms_of[id];
    }
    to.open_count = open.size();
    for (int n = 0; n < to.open_count; ++n) to.open[n] = open[n];
  }

  [[nodiscard]] constexpr const layout& layout_of(int held) const { return program.layout_of(held); }

  /// The value in another layout. Terms travel in the type that the program chooses, if they are wider; single numbers,
  /// such as a loss, as they are: they cost a message, whatever their type.
  constexpr int reshard(int held, const sharding& to, reduction combine = reduction::sum) {
    const bool adds_up = combine == reduction::sum && traced_.has_narrow_sums && to.unreduced == 0 &&
                         layout_of(held).placement.unreduced != 0 && program[held].shape.rank > 0;
    if (adds_up && is_floating(program[held].type) && size_of(program[held].type) > size_of(traced_.narrow_sums)) {
      held = program.converted(held, traced_.narrow_sums);
    }
    return program.reshard(held, to, combine);
  }
  /// A value of instruction `id`, of the type which that has: rounded, unless it is a partial.
  constexpr int rounded(int id, int held) {
    return layout_of(held).placement.unreduced != 0 ? held : program.converted(held, traced_.g[id].type);
  }
  /// Widens the result and all operands to the accumulating type if one of the operands has such wider terms.
  constexpr void widen(instruction& step, int* operands, int count) {
    bool is_wide = false;
    for (int k = 0; k < count; ++k) is_wide = is_wide || is_wider(operands[k], step.type);
    if (!is_wide) return;
    const dtype narrow = step.type;
    step.type = facts_of(narrow).accumulate;
    for (int k = 0; k < count; ++k) {
      if (program[operands[k]].type == narrow) operands[k] = program.converted(operands[k], step.type);
    }
  }

  local_program program;
  /// The value of `program` that holds each traced value now; for a carry that is still to come, its initial value.
  list<int> value;
  /// The terms of which each traced value is the sum, if it was a partial; or -1.
  list<int> terms;
  /// The sums that wait for more terms, at most `most_open_sums`.
  list<open_sum> open;

 private:
  /// Whether a value has terms of sums that are going to be rounded to `type`.
  [[nodiscard]] constexpr bool is_wider(int held, dtype type) const {
    return is_for_storage(type) && program[held].type == facts_of(type).accumulate &&
           layout_of(held).placement.unreduced != 0;
  }

  const completed_program& traced_;
};

}  // namespace espalier::detail
