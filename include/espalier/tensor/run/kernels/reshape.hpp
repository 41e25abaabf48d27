// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/reshape.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/kernel_set.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include <cstdint>
#include <cstring>

namespace espalier::detail {

/// One loop of a copy: its length and the distances it moves in source and result, in elements.
struct run_axis {
  std::int64_t extent = 1;
  std::int64_t from = 0;
  std::int64_t to = 0;
};

/// Loops around runs of elements that are neighbours in the result: what slices, joins, repetitions and permutations
/// have in common.
struct run_nest {
  int rank = 0;
  run_axis axis[max_rank + 2]{};
  std::int64_t run = 1;
  /// The distance between the sources of a run's elements; 0 repeats one element.
  std::int64_t step = 1;

  [[nodiscard]] constexpr std::int64_t iterations() const {
    std::int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= axis[i].extent;
    return count;
  }
  /// Adds a loop inside those there are, joining it with the last where that loop continues it.
  constexpr void append(const run_axis& inner) {
    if (inner.extent == 1) return;
    if (rank > 0) {
      run_axis& outer = axis[rank - 1];
      if (outer.from == inner.from * inner.extent && outer.to == inner.to * inner.extent) {
        outer = {outer.extent * inner.extent, inner.from, inner.to};
        return;
      }
    }
    axis[rank++] = inner;
  }
  /// The innermost loop becomes the run, if it writes neighbours.
  constexpr void close() {
    if (rank == 0 || axis[rank - 1].to != 1) return;
    --rank;
    run = axis[rank].extent;
    step = axis[rank].from;
  }
};

/// The elements at which an iteration of a loop nest reads and writes.
struct run_place {
  std::int64_t from = 0;
  std::int64_t to = 0;
};

/// Walks the loops of a nest in order, from any iteration.
class nest_walker {
 public:
  nest_walker(const run_nest& nest, std::int64_t iteration) : nest_(nest) {
    for (int i = nest.rank - 1; i >= 0; --i) {
      index_[i] = iteration % nest.axis[i].extent;
      iteration /= nest.axis[i].extent;
      at_.from += index_[i] * nest.axis[i].from;
      at_.to += index_[i] * nest.axis[i].to;
    }
  }
  [[nodiscard]] const run_place& operator*() const { return at_; }
  nest_walker& operator++() {
    for (int i = nest_.rank - 1; i >= 0; --i) {
      const run_axis& axis = nest_.axis[i];
      at_.from += axis.from;
      at_.to += axis.to;
      if (++index_[i] < axis.extent) break;
      at_.from -= axis.from * axis.extent;
      at_.to -= axis.to * axis.extent;
      index_[i] = 0;
    }
    return *this;
  }

 private:
  const run_nest& nest_;
  run_place at_;
  std::int64_t index_[max_rank + 2]{};
};

template <class T> ESPALIER_ALWAYS_INLINE void fill_run(T* to, std::int64_t count, T value) {
  vector_loop(count, [=](std::int64_t i) { to[i] = value; });
}

/// A call of memcpy costs as much as copying a few vectors.
inline constexpr std::int64_t short_run = 32;

template <class T> ESPALIER_ALWAYS_INLINE void copy_run(T* to, const T* from, std::int64_t count, std::int64_t step) {
  if (step == 0) {
    fill_run(to, count, *from);
  } else if (step == 1 && count > short_run) {
    if (to != from) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  }
}

/// Copies by a nest. `Run` is the length of a short run, or 0: then it is the nest's. Few long runs are cut, or there
/// would be nothing to share among threads.
template <class T, int Run> void copy_nest(const run_nest& nest, const T* from, T* to) {
  const std::int64_t iterations = nest.iterations();
  const std::int64_t run = Run == 0 ? nest.run : Run;
  const std::int64_t step = nest.step;
  const std::int64_t threads = threads_for(iterations * run, iterations * run);
  const std::int64_t cuts = Run == 0 && iterations < 4 * threads ? smaller_of(threads, run) : 1;
  parallel_ranges(iterations * cuts, iterations * run, [&](std::int64_t first, std::int64_t last) {
    nest_walker at(nest, first / cuts);
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t begin = run * (i % cuts) / cuts;
      const std::int64_t end = run * (i % cuts + 1) / cuts;
      const run_place place = *at;
      if constexpr (Run == 0) {
        copy_run(to + place.to + begin, from + place.from + begin * step, end - begin, step);
      } else {
        for (int k = 0; k < Run; ++k) to[place.to + k] = from[place.from + k * step];
      }
      if ((i + 1) % cuts == 0) ++at;
    }
  });
}

[[nodiscard]] constexpr int static_run(const run_nest& nest) {
  return nest.run <= short_run ? static_cast<int>(nest.run) : 0;
}

/// @pre neither tensor overlaps the other, unless they are the same memory and the nest moves nothing.
template <class T> void copy_by(const run_nest& nest, const void* from, void* to) {
  if constexpr (kernels::shares_kernels) {
    kernels::processor_kernels().copy[kernels::word_index(sizeof(T))](nest, from, to);
  } else {
    copy_nest<T, 0>(nest, static_cast<const T*>(from), static_cast<T*>(to));
  }
}
/// The same where the nest is static: programs that have the code themselves have more of it for short runs.
template <class T, run_nest Nest> void copy_by(const void* from, void* to) {
  static constexpr run_nest nest = Nest;
  if constexpr (kernels::shares_kernels) {
    copy_by<T>(nest, from, to);
  } else {
    copy_nest<T, static_run(Nest)>(nest, static_cast<const T*>(from), static_cast<T*>(to));
  }
}

template <class T> void copy_all(std::int64_t count, const void* from, void* to) {
  if (from == to) return;
  const auto* source = static_cast<const T*>(from);
  auto* target = static_cast<T*>(to);
  parallel_ranges(count, count, [=](std::int64_t first, std::int64_t last) {
    std::memcpy(target + first, source + first, static_cast<std::size_t>(last - first) * sizeof(T));
  });
}

template <class T> void fill_all(std::int64_t count, T* to, T value) {
  parallel_ranges(count, count,
                  [=](std::int64_t first, std::int64_t last) { fill_run(to + first, last - first, value); });
}

/// The kernel of the ops whose result has the operand's elements in the operand's order.
struct copy_kernel : kernels::no_scratch {
  template <kernels::kernel_key Key> static void run(const kernels::kernel_call& call) {
    copy_all<storage_t<Key.type>>(Key.shape.elements(), call.operand[0], call.result);
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::reshape> : detail::copy_kernel {};
template <> struct block_kernel<&ops::reshape> : detail::copy_block {};

}  // namespace espalier::kernels
