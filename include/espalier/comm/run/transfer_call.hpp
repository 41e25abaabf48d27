// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

// A transfer says which boxes a rank sends and receives; a collective call says what the operation is. Which one a
// transfer is shows in the boxes of all ranks together, since on one of them all may be empty: every rank notes what
// speaks against an operation, and the notes of all ranks are united.

enum transfer_note : int {
  sends_different_boxes = 1,    ///< no all-gather
  receives_into_different = 2,  ///< no reduce-scatter
  sends_several_boxes = 4       ///< no permutation
};

[[nodiscard]] inline int notes_on(const transfer& moves) {
  int notes = 0;
  int sent = 0;
  for (std::size_t k = 0; k < moves.outgoing.size(); ++k) {
    const block& out = moves.outgoing[k];
    const block& first = moves.outgoing.front();
    const bool same_source =
        out.source_offset == first.source_offset &&
        std::equal(std::begin(out.extent), std::end(out.extent), std::begin(first.extent)) &&
        std::equal(std::begin(out.source_stride), std::end(out.source_stride), std::begin(first.source_stride));
    if (!same_source) notes |= sends_different_boxes;
    const block& in = moves.incoming[k];
    const block& other = moves.incoming.front();
    const bool same_target =
        in.target_offset == other.target_offset && in.elements() == other.elements() &&
        std::equal(std::begin(in.target_stride), std::end(in.target_stride), std::begin(other.target_stride));
    if (!same_target) notes |= receives_into_different;
    if (!out.empty() && ++sent > 1) notes |= sends_several_boxes;
  }
  return notes;
}

/// Returns the collective that a transfer with these notes is; nothing for permutations, which are no collective: every
/// rank sends to one.
[[nodiscard]] inline std::optional<collective> collective_of_notes(int notes) {
  if ((notes & sends_different_boxes) == 0) return collective::all_gather;
  if ((notes & receives_into_different) == 0) return collective::reduce_scatter;
  if ((notes & sends_several_boxes) != 0) return collective::all_to_all;
  return std::nullopt;
}

/// Returns the start of boxes that follow one another on one side, in their order; -1 if they don't.
template <class Start>
[[nodiscard]] std::int64_t common_start(const espalier::detail::plain_vector<block>& boxes, Start start) {
  std::int64_t first = -1;
  std::int64_t next = -1;
  for (const block& box : boxes) {
    if (box.empty()) continue;
    const std::int64_t here = start(box, 0, box.elements());
    if (here < 0 || (next >= 0 && here != next)) return -1;
    if (first < 0) first = here;
    next = here + box.elements();
  }
  return std::max<std::int64_t>(first, 0);
}

/// A transfer as a collective call: the call's input is the boxes that this rank sends, one after another, and its
/// output those that it receives. Boxes that already lie so are not copied.
class transfer_call {
 public:
  transfer_call() = default;
  /// @param sent  elements from each member to each, row by row; only for all-to-all
  transfer_call(const transfer& moves, collective what, std::vector<std::int64_t> sent)
      : kind_(what), input_(moves.outgoing), output_(moves.incoming) {
    const auto self = static_cast<std::size_t>(moves.self);
    call.kind = what;
    call.ranks = static_cast<int>(moves.members.size());
    if (what == collective::all_gather) {
      input_ = {moves.outgoing[self]};
      for (const block& box : moves.incoming) call.counts.push_back(box.elements());
    } else if (what == collective::reduce_scatter) {
      output_ = {moves.incoming[self]};
      for (const block& box : moves.outgoing) call.counts.push_back(box.elements());
    } else {
      call.counts = std::move(sent);
    }
    input_start_ = common_start(input_, &contiguous_source);
    output_start_ = common_start(output_, &contiguous_target);
    const std::int64_t element = size_of(moves.type);
    if (input_start_ < 0) packed_.reserve(static_cast<std::size_t>(elements(input_) * element));
    if (output_start_ < 0) arrived_.reserve(static_cast<std::size_t>(elements(output_) * element));
  }

  collective_call call;

  /// The call's input.
  [[nodiscard]] const void* gather_input(dtype type, const void* source) {
    const std::int64_t element = size_of(type);
    if (input_start_ >= 0) return static_cast<const std::byte*>(source) + input_start_ * element;
    packed_.resize(static_cast<std::size_t>(elements(input_) * element));
    std::byte* to = packed_.data();
    for (const block& box : input_) {
      pack(type, to, source, box);
      to += box.elements() * element;
    }
    return packed_.data();
  }
  /// Memory for the call's output.
  [[nodiscard]] void* output(dtype type, void* target) {
    const std::int64_t element = size_of(type);
    if (output_start_ >= 0) return static_cast<std::byte*>(target) + output_start_ * element;
    arrived_.resize(static_cast<std::size_t>(elements(output_) * element));
    return arrived_.data();
  }
  /// Afterwards: what has arrived goes to its place.
  void scatter_output(dtype type, void* target) const {
    if (output_start_ >= 0) return;
    const std::byte* from = arrived_.data();
    for (const block& box : output_) {
      unpack(type, target, from, box);
      from += box.elements() * size_of(type);
    }
  }

  [[nodiscard]] collective kind() const { return kind_; }

 private:
  [[nodiscard]] static std::int64_t elements(const espalier::detail::plain_vector<block>& boxes) {
    std::int64_t sum = 0;
    for (const block& box : boxes) sum += box.elements();
    return sum;
  }

  collective kind_ = collective::all_gather;
  espalier::detail::plain_vector<block> input_;
  espalier::detail::plain_vector<block> output_;
  std::int64_t input_start_ = 0;
  std::int64_t output_start_ = 0;
  std::vector<std::byte> packed_;
  std::vector<std::byte> arrived_;
};

}  // namespace espalier::comm::detail
