// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/base/dtype.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/comm/reduce.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

namespace espalier::comm::detail {

/// The upper bits of a message's tag: the collective that its ranks are in. Messages of different collectives so never
/// meet.
///
/// MPI guarantees the lower 15 bits of a tag alone, which number operations. Above them are, where tags are longer, the
/// name, type and operation of the collective, and 8 bits that follow from the count.
class mpi_label {
 public:
  static constexpr int first_bit = 15;
  static constexpr int plain = (1 << first_bit) - 1;

  /// `bound`: the largest tag.
  void limit(int bound) { mask_ = bound >= everything ? everything : bound >= names_only ? names_only : plain; }
  /// Whether tags have room for labels.
  [[nodiscard]] bool is_seen() const { return mask_ != plain; }
  [[nodiscard]] int bits() const { return bits_; }

  template <collective Kind> void set(dtype type, reduction kind, std::int64_t count) {
    constexpr auto place = std::find(std::begin(labelled), std::end(labelled), Kind) - std::begin(labelled);
    static_assert(place < kinds, "a kind of collective that has no label");
    const int names =
        (static_cast<int>(place) * dtype_count + static_cast<int>(type)) * reductions + static_cast<int>(kind);
    const auto sized = static_cast<std::uint64_t>(count) * 0x9E3779B97F4A7C15U >> 56U;
    bits_ = (names | static_cast<int>(sized) << 8) << first_bit & mask_;
  }

  /// "all_reduce of f32, max"
  static std::string describe(int tag) {
    const int names = tag >> first_bit & 255;
    const int place = names / (reductions * dtype_count);
    if (place >= kinds) return "another collective";
    const collective kind = labelled[place];
    const bool combines = kind == collective::reduce_exchange || kind == collective::all_reduce;
    std::string text = name_of(kind);
    if (combines || kind == collective::exchange) {
      espalier::detail::append_text(text, {" of ", name_of(static_cast<dtype>(names / reductions % dtype_count))});
    }
    if (combines) espalier::detail::append_text(text, {", ", name_of(static_cast<reduction>(names % reductions))});
    return text;
  }

 private:
  static constexpr collective labelled[]{collective::exchange, collective::reduce_exchange, collective::all_reduce,
                                         collective::barrier, collective::broadcast};
  static constexpr int kinds = static_cast<int>(std::size(labelled));
  static constexpr int reductions = static_cast<int>(reduction::min) + 1;
  static_assert(kinds * dtype_count * reductions <= 256, "name, type and operation have 8 bits");
  static constexpr int names_only = (1 << 23) - 1;
  static constexpr int everything = 0x7FFFFFFF;

  int bits_ = 0;
  int mask_ = plain;
};

}  // namespace espalier::comm::detail
