// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/layout.hpp>
#include <espalier/shape/extremum.hpp>

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

/// What partial results are kept in: a bf16 sum over many devices is rounded once, at its end.
template <class T> struct term_sum { using type = T; };
template <> struct term_sum<bfloat16> { using type = float; };
template <class T> using term_sum_t = typename term_sum<T>::type;

template <reduction Kind, class T> [[nodiscard]] constexpr T combined(T a, T b) {
  if constexpr (Kind == reduction::max) {
    return espalier::detail::greater_of(a, b);
  } else if constexpr (Kind == reduction::min) {
    return espalier::detail::lesser_of(a, b);
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    // Integers wrap around on every device alike, where signed overflow would be undefined.
    const auto left = static_cast<std::uint32_t>(a);
    const auto right = static_cast<std::uint32_t>(b);
    return static_cast<T>(Kind == reduction::sum ? left + right : left * right);
  } else if constexpr (Kind == reduction::sum) {
    return a + b;
  } else {
    return a * b;
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
  using partial_type = detail::term_sum_t<T>;
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
template <reduction Kind, class T>
void reduce_range(T* target, const block& box, std::int64_t first, std::int64_t count, const comm::contribution* parts,
                  int members) {
  using partial_type = term_sum_t<T>;
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
      combine_run<Kind, partial_type>(out, left, view(1, right_scratch), length);
    } else {
      combine_run<Kind, partial_type>(partial, left, view(1, right_scratch), length);
      for (int k = 2; k + 1 < members; ++k)
        combine_run<Kind, partial_type>(partial, partial, view(k, right_scratch), length);
      combine_run<Kind, partial_type>(out, partial, view(members - 1, right_scratch), length);
    }
    if (start < 0) unpack_range(target, out_scratch, box, first + done, length);
  }
}

/// `reduce_range` where type and kind are known at run time.
/// @pre `comm::is_reducible(type, kind)`
inline void reduce_range(dtype type, reduction kind, void* target, const block& box, std::int64_t first,
                         std::int64_t count, const comm::contribution* parts, int members) {
  with_storage(type, [&]<class T>(T) {
    T* out = static_cast<T*>(target);
    switch (kind) {
      case reduction::max: return reduce_range<reduction::max>(out, box, first, count, parts, members);
      case reduction::min: return reduce_range<reduction::min>(out, box, first, count, parts, members);
      case reduction::sum:
        if constexpr (!std::is_same_v<T, bool>) reduce_range<reduction::sum>(out, box, first, count, parts, members);
        return;
      case reduction::prod:
        if constexpr (!std::is_same_v<T, bool>) reduce_range<reduction::prod>(out, box, first, count, parts, members);
        return;
    }
  });
}

}  // namespace espalier::comm::detail
