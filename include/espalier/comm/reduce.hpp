// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/extremum.hpp>
#include <espalier/base/half_runs.hpp>
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/comm/layout.hpp>

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
  using espalier::detail::is_sixteen_bits;
  constexpr bool has_halves = is_sixteen_bits<Out> || is_sixteen_bits<A> || is_sixteen_bits<B>;
  if constexpr (has_halves) {
    constexpr std::int64_t tile = 256;
    float left_room[tile];
    float right_room[tile];
    for (std::int64_t done = 0; done < length; done += tile) {
      const std::int64_t count = espalier::detail::smaller_of(tile, length - done);
      const float* const left = espalier::detail::as_floats(a + done, count, &left_room[0]);
      const float* const right = espalier::detail::as_floats(b + done, count, &right_room[0]);
      if constexpr (is_sixteen_bits<Out>) {
        combine_run<Kind, float>(&left_room[0], left, right, count);
        espalier::detail::convert_run(&left_room[0], out + done, count);
      } else {
        combine_run<Kind, float>(out + done, left, right, count);
      }
    }
  } else {
    const auto combine = [=](std::int64_t i) {
      out[i] = static_cast<Out>(combined<Kind, Wide>(static_cast<Wide>(a[i]), static_cast<Wide>(b[i])));
    };
    if constexpr (std::is_arithmetic_v<Out> && std::is_arithmetic_v<A> && std::is_arithmetic_v<B>) {
      ESPALIER_SIMD
      for (std::int64_t i = 0; i < length; ++i) combine(i);
    } else {
      // g++ makes no vectors of a class's elements where OpenMP asks for them.
      ESPALIER_VECTORISE
      for (std::int64_t i = 0; i < length; ++i) combine(i);
    }
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

/// The type in which a reduction keeps its elements: signed and unsigned integers share the code that adds and
/// multiplies, since either type may be read and written as the other; truth values are bytes, since padding may hold
/// bytes that are no truth value.
template <reduction Kind, class T>
using lane_t =
    std::conditional_t<std::is_same_v<T, bool>, unsigned char,
                       std::conditional_t<Kind == reduction::sum || Kind == reduction::prod, wrapping_t<T>, T>>;

/// The operands and result of a tile that are partial results, in `computed_t`; the rest are elements.
enum class partial_sides : std::uint8_t { none, result, both, left };

using tile_function = void (*)(partial_sides partial, void* out, const void* left, const void* right,
                               std::int64_t length);

/// `combine_run` on a tile, whose sides are told apart at run time.
template <reduction Kind, class T>
void combine_tile(partial_sides partial, void* out, const void* left, const void* right, std::int64_t length) {
  using wide = computed_t<T>;
  const auto run = [&]<class Out, class Left>(Out*, Left*) {
    combine_run<Kind, wide>(static_cast<Out*>(out), static_cast<const Left*>(left), static_cast<const T*>(right),
                            length);
  };
  constexpr T* element = nullptr;
  if constexpr (std::is_same_v<T, wide>) {
    run(element, element);
  } else {
    constexpr wide* kept = nullptr;
    switch (partial) {
      case partial_sides::none: return run(element, element);
      case partial_sides::result: return run(kept, element);
      case partial_sides::both: return run(kept, kept);
      case partial_sides::left: return run(element, kept);
    }
  }
}

}  // namespace espalier::comm::detail

namespace espalier::comm::host {

struct fold_job;  // in host/fold.hpp
using fold_function = void (*)(const fold_job&);

}  // namespace espalier::comm::host

namespace espalier::comm {

/// Combines messages of elements of one type: `target[i] = own[i] op incoming[i]`, or `incoming[i] op own[i]`. The
/// target may be `own`; `incoming` is memory of the transport, and may be overwritten.
using combine_function = void (*)(const void* state, void* target, const void* own, void* incoming, std::int64_t count,
                                  bool incoming_left);

/// How elements of a type are combined, and the code that does it: code that names a reduction brings it along, so that
/// a program has no code for types and operations that it never reduces. Made by `reducer_of`, in comm/reducer.hpp.
struct reducer {
  dtype type = dtype::f32;
  reduction kind = reduction::sum;
  // None where `is_reducible` says no.
  detail::tile_function tile = nullptr;
  combine_function combine = nullptr;
  host::fold_function fold = nullptr;
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// Elements reduced at a time: two scratch tiles, an accumulator and the output stay in the first-level cache.
inline constexpr std::int64_t reduce_tile = 1024;

/// Returns where elements [done, done + length) of a part are: in place if they lie in one piece, otherwise in
/// `scratch`.
inline const std::byte* contribution_view(dtype type, const comm::contribution& part, std::int64_t first,
                                          std::int64_t done, std::int64_t length, std::byte* scratch) {
  const auto* const data = static_cast<const std::byte*>(part.data);
  if (part.box == nullptr) return data + done * size_of(type);
  const std::int64_t start = contiguous_source(*part.box, first + done, length);
  if (start >= 0) return data + start * size_of(type);
  pack_range(type, scratch, data, *part.box, first + done, length);
  return scratch;
}

/// Elements [first, first + count) of the target side of `box` = the parts combined in their order. A part without a
/// box holds exactly those elements. The target may be the same buffer as one part, in the same places.
/// @pre `comm::is_reducible(by.type, by.kind)`
inline void reduce_range(const reducer& by, void* target, const block& box, std::int64_t first, std::int64_t count,
                         const comm::contribution* parts, int members) {
  constexpr std::size_t tile_bytes = reduce_tile * 8;  // of the largest elements and partial results
  alignas(64) std::byte left_scratch[tile_bytes];
  alignas(64) std::byte right_scratch[tile_bytes];
  alignas(64) std::byte out_scratch[tile_bytes];
  alignas(64) std::byte partial[tile_bytes];
  const std::int64_t element = size_of(by.type);
  for (std::int64_t done = 0; done < count; done += reduce_tile) {
    const std::int64_t length = espalier::detail::smaller_of(reduce_tile, count - done);
    const std::int64_t start = contiguous_target(box, first + done, length);
    std::byte* const out = start >= 0 ? static_cast<std::byte*>(target) + start * element : out_scratch;
    const auto view = [&](int k, std::byte* scratch) {
      return contribution_view(by.type, parts[k], first, done, length, scratch);
    };
    const std::byte* const left = view(0, left_scratch);
    if (members == 1) {
      if (out != left) std::memcpy(out, left, static_cast<std::size_t>(length * element));
    } else if (members == 2) {
      by.tile(partial_sides::none, out, left, view(1, right_scratch), length);
    } else {
      by.tile(partial_sides::result, partial, left, view(1, right_scratch), length);
      for (int k = 2; k + 1 < members; ++k)
        by.tile(partial_sides::both, partial, partial, view(k, right_scratch), length);
      by.tile(partial_sides::left, out, partial, view(members - 1, right_scratch), length);
    }
    if (start < 0) unpack_range(by.type, target, out_scratch, box, first + done, length);
  }
}

}  // namespace espalier::comm::detail
