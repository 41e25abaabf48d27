// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace espalier::detail {

/// One dimension of a box seen from both sides; strides in elements.
struct box_dimension {
  std::int64_t extent;
  std::int64_t file_stride;
  std::int64_t memory_stride;
};

/// A box of a row-major tensor in a file and its place in memory, with as few dimensions as describe both.
struct box_walk {
  std::vector<box_dimension> dimensions;  // extents > 1 only, outermost first
  std::int64_t file_start = 0;            // of the box's first element, in elements
  std::int64_t elements = 1;

  /// `strides` are the memory's, in elements, one per dimension; empty: the box is contiguous in memory.
  /// @pre starts, extents and shape have one size, and the box lies within the shape.
  box_walk(std::span<const std::int64_t> shape, std::span<const std::int64_t> starts,
           std::span<const std::int64_t> extents, std::span<const std::int64_t> strides) {
    std::int64_t file_stride = 1;
    std::int64_t contiguous = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::int64_t memory_stride = strides.empty() ? contiguous : strides[d];
      file_start += starts[d] * file_stride;
      elements *= extents[d];
      if (extents[d] != 1) push_outer({extents[d], file_stride, memory_stride});
      file_stride *= shape[d];
      contiguous *= extents[d];
    }
    std::reverse(dimensions.begin(), dimensions.end());
  }

 private:
  // Neighbours that continue each other in the file and in memory are one dimension: longer runs, fewer system calls.
  void push_outer(box_dimension outer) {
    if (!dimensions.empty()) {
      box_dimension& inner = dimensions.back();
      if (outer.file_stride == inner.file_stride * inner.extent &&
          outer.memory_stride == inner.memory_stride * inner.extent) {
        inner.extent *= outer.extent;
        return;
      }
    }
    dimensions.push_back(outer);
  }
};

/// Calls `visit(file_offset, memory_offset)` for each index of `dimensions`, in row-major order.
template <class Visit>
void for_each_index(std::span<const box_dimension> dimensions, std::int64_t file, std::int64_t memory, Visit&& visit) {
  std::vector<std::int64_t> index(dimensions.size(), 0);
  while (true) {
    visit(file, memory);
    std::size_t d = dimensions.size();
    while (d > 0) {
      const box_dimension& dimension = dimensions[d - 1];
      file += dimension.file_stride;
      memory += dimension.memory_stride;
      if (++index[d - 1] < dimension.extent) break;
      index[d - 1] = 0;
      file -= dimension.file_stride * dimension.extent;
      memory -= dimension.memory_stride * dimension.extent;
      --d;
    }
    if (d == 0) return;
  }
}

/// Copies `count` elements of `size` bytes between places with strides in elements.
inline void copy_strided(std::byte* target, std::int64_t target_stride, const std::byte* source,
                         std::int64_t source_stride, std::int64_t count, std::int64_t size) {
  const auto run = [&]<std::size_t Size>() {
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(target + i * target_stride * static_cast<std::int64_t>(Size),
                  source + i * source_stride * static_cast<std::int64_t>(Size), Size);
  };
  switch (size) {  // a constant size makes each memcpy one load and one store
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    case 4: return run.template operator()<4>();
    default: return run.template operator()<8>();
  }
}

/// Reads a box of a file into memory, `direct(file_element, memory, elements)` at a time.
///
/// Long runs that are contiguous on both sides are read in place. Others are read in spans of up to 4 MiB with the
/// holes between them, and picked from there, as long as a hole takes no longer to read than another call does.
template <class Direct> void read_spans(const box_walk& box, std::byte* memory, std::int64_t size, Direct&& direct) {
  if (box.elements == 0) return;
  const std::span<const box_dimension> all(box.dimensions);
  if (all.empty()) return direct(box.file_start, memory, std::int64_t{1});
  const box_dimension& last = all.back();
  const bool in_place = last.file_stride == 1 && last.memory_stride == 1;
  if (in_place && (all.size() == 1 || last.extent * size >= (std::int64_t{1} << 16))) {
    for_each_index(all.first(all.size() - 1), box.file_start, 0,
                   [&](std::int64_t file, std::int64_t at) { direct(file, memory + at * size, last.extent); });
    return;
  }

  const std::int64_t room = (std::int64_t{1} << 22) / size;
  const std::int64_t hole = (std::int64_t{1} << 14) / size;
  // The dimensions from `first` on lie in one span; of the one before it, `several` indices.
  std::size_t first = all.size();
  std::int64_t span = 1;
  std::int64_t several = 1;
  while (first > 0) {
    const box_dimension& d = all[first - 1];
    if (d.file_stride - span > std::max(hole, span)) break;
    const std::int64_t whole = (d.extent - 1) * d.file_stride + span;
    if (whole > room) {
      several = std::max<std::int64_t>(1, (room - span) / d.file_stride + 1);
      break;
    }
    span = whole;
    --first;
  }

  std::vector<std::byte> buffer;
  std::vector<box_dimension> inner(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
  inner.insert(inner.begin(), first > 0 ? all[first - 1] : box_dimension{1, 1, 1});
  const std::int64_t indices = inner.front().extent;
  for_each_index(all.first(first > 0 ? first - 1 : 0), box.file_start, 0, [&](std::int64_t file, std::int64_t at) {
    for (std::int64_t i = 0; i < indices; i += several) {
      inner.front().extent = std::min(several, indices - i);
      const std::int64_t elements = (inner.front().extent - 1) * inner.front().file_stride + span;
      buffer.resize(static_cast<std::size_t>(elements * size));
      direct(file + i * inner.front().file_stride, buffer.data(), elements);
      const box_dimension& row = inner.back();
      for_each_index(std::span<const box_dimension>(inner).first(inner.size() - 1), 0,
                     at + i * inner.front().memory_stride, [&](std::int64_t from, std::int64_t to) {
                       copy_strided(memory + to * size, row.memory_stride, buffer.data() + from * size, row.file_stride,
                                    row.extent, size);
                     });
    }
  });
}

/// Calls `visit(file_element, memory_element, elements)` for the runs of the box that lie in elements [first, last) of
/// the tensor, in row-major order of their elements.
template <class Visit>
void for_each_run_within(const box_walk& box, std::int64_t first, std::int64_t last, const Visit& visit) {
  if (box.elements == 0) return;
  const std::span<const box_dimension> all(box.dimensions);
  std::vector<std::int64_t> spans(all.size() + 1, 1);  // of the dimensions from d on
  for (std::size_t d = all.size(); d-- > 0;) spans[d] = spans[d + 1] + (all[d].extent - 1) * all[d].file_stride;
  const auto walk = [&](const auto& self, std::size_t d, std::int64_t file, std::int64_t memory) -> void {
    if (d == all.size()) {
      if (file >= first && file < last) visit(file, memory, std::int64_t{1});
      return;
    }
    const box_dimension& one = all[d];
    // Index i holds elements [file + i stride, file + i stride + spans[d + 1]).
    const std::int64_t before = first - file - spans[d + 1];
    const std::int64_t begin = before < 0 ? 0 : before / one.file_stride + 1;
    const std::int64_t end =
        last <= file ? 0 : std::min(one.extent, (last - file + one.file_stride - 1) / one.file_stride);
    if (begin >= end) return;
    if (d + 1 == all.size() && one.file_stride == 1 && one.memory_stride == 1)
      return visit(file + begin, memory + begin, end - begin);
    for (std::int64_t i = begin; i < end; ++i)
      self(self, d + 1, file + i * one.file_stride, memory + i * one.memory_stride);
  };
  walk(walk, 0, box.file_start, 0);
}

/// Writes a box to a file in runs that are contiguous there.
///
/// `direct(file_element, memory, elements)` writes a run that is contiguous on both sides. A run that is not contiguous
/// in memory is gathered first, in a buffer of at most 1 MiB.
template <class Direct>
void write_runs(const box_walk& box, const std::byte* memory, std::int64_t size, Direct&& direct) {
  if (box.elements == 0) return;
  const std::span<const box_dimension> all(box.dimensions);
  if (all.empty()) return direct(box.file_start, memory, std::int64_t{1});

  // The most trailing dimensions that form one run in the file and fit the buffer.
  const box_dimension& last = all.back();
  const std::int64_t room = (std::int64_t{1} << 20) / size;
  std::size_t first = all.size();
  std::int64_t run = 1;
  while (first > 0 && all[first - 1].file_stride == run && run * all[first - 1].extent <= room)
    run *= all[--first].extent;

  // Rows that are contiguous on both sides go straight through, unless they are short and the buffer would join them.
  const bool joins = run > last.extent && last.extent * size < (std::int64_t{1} << 16);
  if (last.file_stride == 1 && last.memory_stride == 1 && !joins) {
    for_each_index(all.first(all.size() - 1), box.file_start, 0,
                   [&](std::int64_t file, std::int64_t at) { direct(file, memory + at * size, last.extent); });
    return;
  }

  std::vector<std::byte> buffer;
  const auto staged = [&](std::span<const box_dimension> inner, std::int64_t file, std::int64_t at,
                          std::int64_t elements) {
    buffer.resize(static_cast<std::size_t>(elements * size));
    const box_dimension& row = inner.back();
    std::byte* packed = buffer.data();
    for_each_index(inner.first(inner.size() - 1), 0, at, [&](std::int64_t, std::int64_t from) {
      copy_strided(packed, 1, memory + from * size, row.memory_stride, row.extent, size);
      packed += row.extent * size;
    });
    direct(file, buffer.data(), elements);
  };

  if (run > 1) {
    for_each_index(all.first(first), box.file_start, 0,
                   [&](std::int64_t file, std::int64_t at) { staged(all.subspan(first), file, at, run); });
  } else {
    // One dimension is longer than the buffer, or the box is a column of single elements: cut the last dimension.
    const std::int64_t longest = last.file_stride == 1 ? room : 1;
    for_each_index(all.first(all.size() - 1), box.file_start, 0, [&](std::int64_t file, std::int64_t at) {
      for (std::int64_t i = 0; i < last.extent; i += longest) {
        const box_dimension part{std::min(longest, last.extent - i), 1, last.memory_stride};
        staged(std::span(&part, 1), file + i * last.file_stride, at + i * last.memory_stride, part.extent);
      }
    });
  }
}

}  // namespace espalier::detail
