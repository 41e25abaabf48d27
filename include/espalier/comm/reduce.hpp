// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/layout.hpp>
#include <espalier/shape/extremum.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace espalier::comm {

/// Whether values of `type` can be combined by `kind`: a bool has `max` (or) and `min` (and), but no sum or product.
[[nodiscard]] constexpr bool is_reducible(dtype type, reduction kind) {
  return type != dtype::boolean || kind == reduction::max || kind == reduction::min;
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

// Partial results are kept in `computed_t`, so that a bf16 sum over many devices is rounded once, at its end.

template <reduction Kind, class T> [[nodiscard]] constexpr T combined(T a, T b) {
  if constexpr (Kind == reduction::max) {
    return espalier::detail::greater_of(a, b);
  } else if constexpr (Kind == reduction::min) {
    return espalier::detail::lesser_of(a, b);
  } else {
    // Integers wrap around on every device alike, where signed overflow would be undefined.
    const auto left = static_cast<wrapping_t<T>>(a);
    const auto right = static_cast<wrapping_t<T>>(b);
    if constexpr (Kind == reduction::sum) {
      return static_cast<T>(left + right);
    } else {
      return static_cast<T>(left * right);
    }
  }
}

/// `out[i] = a[i] op b[i]`; `out` may be the same buffer as `a` or `b`.
template <reduction Kind, class Wide, class Out, class A, class B>
void combine_run(Out* out, const A* a, const B* b, std::int64_t length) {
  ESPALIER_VECTORISE
  for (std::int64_t i = 0; i < length; ++i) {
    out[i] = static_cast<Out>(combined<Kind, Wide>(static_cast<Wide>(a[i]), static_cast<Wide>(b[i])));
  }
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Target side of the box = what is there, combined with the source side.
template <reduction Kind, class T> void reduce_block(T* target, const T* source, const block& box) {
  using partial_type = computed_t<T>;
  const std::int64_t from = box.source_stride[block_rank - 1];
  const std::int64_t to = box.target_stride[block_rank - 1];
  detail::for_each_run(box, 0, box.elements(), [&](std::int64_t s, std::int64_t t, std::int64_t length) {
    if (from == 1 && to == 1) {
      detail::combine_run<Kind, partial_type>(target + t, target + t, source + s, length);
      return;
    }
    for (std::int64_t i = 0; i < length; ++i) {
      const auto left = static_cast<partial_type>(target[t + i * to]);
      const auto right = static_cast<partial_type>(source[s + i * from]);
      target[t + i * to] = static_cast<T>(detail::combined<Kind, partial_type>(left, right));
    }
  });
}

/// One member's share of a reduction: a strided box (source side of `box`) or, with no box, contiguous elements.
struct contribution {
  const void* data = nullptr;
  const block* box = nullptr;
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// Elements reduced at a time: two scratch tiles, an accumulator and the output stay in the first-level cache.
inline constexpr std::int64_t reduce_tile = 1024;

/// `combine_run` by an operation known at run time: beside a tile, the choice costs nothing, and one loop over tiles
/// serves all operations. Signed and unsigned integers share what adds and multiplies: either may read and write the
/// other. @pre not a sum or product of bool
template <class Wide, class Out, class A, class B>
void combine_tile(reduction kind, Out* out, const A* a, const B* b, std::int64_t length) {
  if constexpr (!std::is_same_v<Wide, bool>) {
    using word = wrapping_t<Wide>;
    auto* const to = reinterpret_cast<wrapping_t<Out>*>(out);
    const auto* const left = reinterpret_cast<const wrapping_t<A>*>(a);
    const auto* const right = reinterpret_cast<const wrapping_t<B>*>(b);
    if (kind == reduction::sum) return combine_run<reduction::sum, word>(to, left, right, length);
    if (kind == reduction::prod) return combine_run<reduction::prod, word>(to, left, right, length);
  }
  if (kind == reduction::max) return combine_run<reduction::max, Wide>(out, a, b, length);
  combine_run<reduction::min, Wide>(out, a, b, length);
}

template <class T>
const T* contribution_view(const comm::contribution& part, std::int64_t first, std::int64_t done, std::int64_t length,
                           T* scratch) {
  const T* data = static_cast<const T*>(part.data);
  if (part.box == nullptr) return data + done;
  const std::int64_t start = contiguous_source(*part.box, first + done, length);
  if (start >= 0) return data + start;
  pack_range(scratch, data, *part.box, first + done, length);
  return scratch;
}

/// Elements [first, first + count) of the target side of `box` = the parts combined in their order. A part without a
/// box holds exactly those elements. The target may be the same buffer as one part, in the same places.
template <class T>
void reduce_range(reduction kind, T* target, const block& box, std::int64_t first, std::int64_t count,
                  const comm::contribution* parts, int members) {
  using partial_type = computed_t<T>;
  alignas(64) T left_scratch[reduce_tile];
  alignas(64) T right_scratch[reduce_tile];
  alignas(64) T out_scratch[reduce_tile];
  alignas(64) partial_type partial[reduce_tile];
  for (std::int64_t done = 0; done < count; done += reduce_tile) {
    const std::int64_t length = std::min(reduce_tile, count - done);
    const std::int64_t start = contiguous_target(box, first + done, length);
    T* out = start >= 0 ? target + start : out_scratch;
    const auto view = [&](int k, T* scratch) { return contribution_view(parts[k], first, done, length, scratch); };
    const T* left = view(0, left_scratch);
    if (members == 1) {
      if (out != left) std::memcpy(out, left, static_cast<std::size_t>(length) * sizeof(T));
    } else if (members == 2) {
      combine_tile<partial_type>(kind, out, left, view(1, right_scratch), length);
    } else {
      combine_tile<partial_type>(kind, partial, left, view(1, right_scratch), length);
      for (int k = 2; k + 1 < members; ++k)
        combine_tile<partial_type>(kind, partial, partial, view(k, right_scratch), length);
      combine_tile<partial_type>(kind, out, partial, view(members - 1, right_scratch), length);
    }
    if (start < 0) unpack_range(target, out_scratch, box, first + done, length);
  }
}

/// `reduce_range` where type and kind are known at run time.
/// @pre `comm::is_reducible(type, kind)`
inline void reduce_range(dtype type, reduction kind, void* target, const block& box, std::int64_t first,
                         std::int64_t count, const comm::contribution* parts, int members) {
  with_storage(type, [&]<class T>(T) {
    // Truth values as bytes: what lies in padding may be none.
    using element = std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>;
    reduce_range(kind, static_cast<element*>(target), box, first, count, parts, members);
  });
}

}  // namespace espalier::comm::detail
