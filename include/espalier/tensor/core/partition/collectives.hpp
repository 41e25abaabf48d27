// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/op.hpp>
#include <espalier/tensor/core/ops/reshape.hpp>
#include <espalier/tensor/core/partition/reshard.hpp>

#include <cstdint>
#include <exception>
#include <utility>

namespace espalier {

/// Attributes of what moves data (and of `local_slice`, which cuts it).
struct collective_attributes {
  /// The axes along which devices communicate.
  axis_mask axes = 0;
  /// The reduction, for collectives that combine elements.
  reduction combine = reduction::sum;
  /// The first of the graph's windows through which dimensions of the operand are read, and how many there are, for an
  /// exchange that receives a halo or a slice that cuts it out. A device's box of such a dimension is the interval that
  /// its shard of the window's factor needs.
  int first_window = 0;
  int window_count = 0;

  [[nodiscard]] friend constexpr bool operator==(const collective_attributes&, const collective_attributes&) = default;
};

/// Attributes of an exchange in which one device of each group has all that the others lack. Which one is known when
/// the program runs: operand 1, an i32 or i64, is the number of a row, and devices have `rows` of all `extent` rows
/// each, in the order of the group; a number before the first row, or after the last, stands for that. (Of 16 rows on
/// four devices, row 5 is the second device's, and row 20 the last one's.)
struct owner_attributes {
  /// As in `collective_attributes`, which passes read of every collective.
  axis_mask axes = 0;
  reduction combine = reduction::sum;
  std::int64_t rows = 1;
  std::int64_t extent = 1;

  /// The place of the owner in its group.
  [[nodiscard]] constexpr int owner_of(std::int64_t row) const {
    return static_cast<int>((row < 0 ? 0 : row < extent ? row : extent - 1) / rows);
  }
};

struct mask_attributes {
  /// The dimension whose padding is filled.
  int dim = 0;
};

namespace detail {

/// The instructions that are collectives, by kind. (In an array: constant evaluation in g++ 11 does not know that
/// variable templates lie at different addresses.)
struct collective_op_list {
  op_info of[collective_kinds];
};
/// @param travels_along whether they travel in the messages of the collective before them
template <int... Kind>
[[nodiscard]] constexpr collective_op_list make_collective_ops(std::integer_sequence<int, Kind...>,
                                                               bool travels_along) {
  return {{{.name = name_of(static_cast<collective>(Kind)),
            .facts = {.moves = static_cast<std::int8_t>(Kind),
                      .travels_along = travels_along,
                      .has_windows = facts_of(static_cast<collective>(Kind)).has_windows,
                      .attributes = "axes:axes combine:sum|prod|max|min windows:windows window_count:count"}}...}};
}
using all_collectives = std::make_integer_sequence<int, collective_kinds>;
[[nodiscard]] constexpr op_info make_owner_op(bool travels_along) {
  return {.name = "exchange_from_owner",
          .facts = {.moves = static_cast<std::int8_t>(collective::exchange),
                    .travels_along = travels_along,
                    .attributes = "axes:axes combine:sum|prod|max|min rows extent"}};
}
inline constexpr collective_op_list collective_ops = make_collective_ops(all_collectives{}, false);
inline constexpr collective_op_list travelling_ops = make_collective_ops(all_collectives{}, true);

}  // namespace detail

/// The instructions that only a partitioned program has. Operand and result are buffers of one device; what moves
/// follows from their layouts (`annotation` of the operand and of the instruction itself) and `collective_attributes`.
namespace ops {
inline constexpr const op_info& local_slice = detail::collective_ops.of[static_cast<int>(collective::local_slice)];
inline constexpr const op_info& all_reduce = detail::collective_ops.of[static_cast<int>(collective::all_reduce)];
inline constexpr const op_info& exchange = detail::collective_ops.of[static_cast<int>(collective::exchange)];
/// The owner of a row sends it to all others (`owner_attributes`): in equal pieces, which these pass on to one another,
/// so that no device sends more than the row. The second travels in the messages of one before it, of the same row.
inline constexpr op_info exchange_from_owner = detail::make_owner_op(false);
inline constexpr op_info exchange_along_from_owner = detail::make_owner_op(true);
}  // namespace ops

namespace detail {

/// Raised, or refused by the compiler, for a kind that only calls of the communicator have. (The standard's exceptions
/// with a text would bring all of std::string into core.hpp.)
class no_instruction_of_this_kind : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "no instruction is this collective"; }
};

/// The instruction that is a collective of this kind. @pre a program has it
[[nodiscard]] constexpr const op_info& op_of(collective kind) {
  if (!facts_of(kind).is_instruction) throw no_instruction_of_this_kind();
  return collective_ops.of[static_cast<int>(kind)];
}

/// The `collective` that an instruction is, or -1.
[[nodiscard]] constexpr int collective_index(const op_info* op) { return op->facts.moves; }
[[nodiscard]] constexpr bool is_collective(const op_info* op, collective kind) {
  return op->facts.moves == static_cast<int>(kind);
}

/// Returns the number of collectives that share the messages of instruction `id`: it and those directly after it that
/// travel along. 0 if it travels along itself, or is none.
[[nodiscard]] constexpr int travelling_together(const instruction* code, int size, int id) {
  if (collective_index(code[id].op) < 0 || code[id].op->facts.travels_along) return 0;
  int last = id + 1;
  while (last < size && code[last].op->facts.travels_along) ++last;
  return last - id;
}

/// Sets every element of one dimension beyond the real ones to `scalar`.
constexpr void evaluate_mask(const evaluation& e) {
  const int along = attributes_of<mask_attributes>(*e.self).dim;
  const std::int64_t inner = stride_of(e.self->shape, along);
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    const bool real = i / inner % e.self->shape[along] < e.boxes->result.dim[along].size;
    e.result[i] = real ? e.operand[0][i] : e.self->scalar;
  }
}

}  // namespace detail

namespace ops {
/// The operand's buffer as that of a tensor some of whose neighbouring dimensions are merged into one each; where the
/// parts of those were of whole rows, windows say so, as of an exchange (`collective_attributes`).
inline constexpr op_info merge_dimensions{
    .name = "merge_dimensions",
    .facts = {.shares_operand = true,
              .has_windows = true,
              .attributes = "axes:axes combine:sum|prod|max|min windows:windows window_count:count"},
    .evaluate = detail::evaluate_copy};
/// Makes the padding of an unevenly split dimension neutral for what follows.
inline constexpr op_info mask{
    .name = "mask", .facts = {.attributes = "dim value:scalar"}, .evaluate = detail::evaluate_mask, .positional = true};
}  // namespace ops

/// Whether the device that sends is known when the program runs (`owner_attributes`).
[[nodiscard]] constexpr bool has_owner(const instruction& i) {
  return i.op == &ops::exchange_from_owner || i.op == &ops::exchange_along_from_owner;
}

/// Whether an instruction moves data between devices.
[[nodiscard]] constexpr bool communicates(const instruction& i) {
  const int kind = detail::collective_index(i.op);
  return kind >= 0 && moves_tensors(static_cast<collective>(kind));
}
/// Whether it starts one: a collective that travels with another one is no further message.
[[nodiscard]] constexpr bool starts_collective(const instruction& i) {
  return communicates(i) && !i.op->facts.travels_along;
}

}  // namespace espalier
