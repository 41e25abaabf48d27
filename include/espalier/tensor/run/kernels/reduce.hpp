// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/extremum.hpp>
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/reduce.hpp>
#include <espalier/tensor/run/kernels/lanes.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// Reductions: ops::reduce and ops::reduce_sum, which ops/broadcast.hpp declares. A sum is made of many partial sums
// that are added pairwise: that vectorises, it is more accurate than one running sum, and the order depends on the
// shape alone, never on the number of threads.

namespace espalier::detail {

/// The type that holds partial results for a result of type T, whatever the operand's type. Integer sums and products
/// wrap, which only unsigned integers may.
template <class T, reduction Kind>
using accumulator_t =
    std::conditional_t<Kind == reduction::sum || Kind == reduction::prod, wrapping_t<accumulate_t<T>>, accumulate_t<T>>;

template <class Acc, class T, reduction Kind> [[nodiscard]] constexpr Acc neutral() {
  if constexpr (Kind == reduction::sum) {
    return Acc(0);
  } else if constexpr (Kind == reduction::prod) {
    return Acc(1);
  } else {
    return element_cast<Acc>(element_of_scalar<computed_t<T>>(identity_of(Kind)));
  }
}

/// Combines two single elements, or two vectors lane by lane.
template <reduction Kind, class V> [[nodiscard]] ESPALIER_ALWAYS_INLINE V combined(V a, V b) {
  // A type narrower than int is converted back from int.
  if constexpr (Kind == reduction::sum) {
    return static_cast<V>(a + b);
  } else if constexpr (Kind == reduction::prod) {
    return static_cast<V>(a * b);
  } else if constexpr (Kind == reduction::max) {
    return greater_of(a, b);
  } else {
    return lesser_of(a, b);
  }
}

/// Folds lanes pairwise, taking in the `rest` (fewer than Count) elements that did not fill them.
template <reduction Kind, class Acc, int Count, class T>
[[nodiscard]] ESPALIER_ALWAYS_INLINE Acc fold_lanes(const lanes<Acc, Count>& v, const T* from, std::int64_t rest) {
  if constexpr (Count == 2) {
    const Acc folded = combined<Kind>(static_cast<Acc>(v[0]), static_cast<Acc>(v[1]));
    return rest > 0 ? combined<Kind>(folded, element_cast<Acc>(*from)) : folded;
  } else {
    constexpr int half = Count / 2;
    using half_lanes = std::make_index_sequence<static_cast<std::size_t>(half)>;
    lanes<Acc, half> folded =
        combined<Kind>(lower_half<Acc, Count>(v, half_lanes{}), upper_half<Acc, Count>(v, half_lanes{}));
    if (rest >= half) {
      folded = combined<Kind>(folded, load_lanes<Acc, half>(from));
      from += half;
      rest -= half;
    }
    return fold_lanes<Kind, Acc, half>(folded, from, rest);
  }
}

/// Combines neighbouring elements. Inlined with a static count, it has no loop control for short rows.
template <reduction Kind, class Acc, class T>
[[nodiscard]] ESPALIER_ALWAYS_INLINE Acc reduce_run(const T* from, std::int64_t count) {
  constexpr int width = full_lanes<Acc>;
  using vector = lanes<Acc, width>;
  const vector start = vector{} + neutral<Acc, T, Kind>();
  vector a = start;
  std::int64_t i = 0;
  if (count >= 4 * width) {
    vector b = start;
    vector c = start;
    vector d = start;
    for (; i + 4 * width <= count; i += 4 * width) {
      a = combined<Kind>(a, load_lanes<Acc, width>(from + i));
      b = combined<Kind>(b, load_lanes<Acc, width>(from + i + width));
      c = combined<Kind>(c, load_lanes<Acc, width>(from + i + 2 * width));
      d = combined<Kind>(d, load_lanes<Acc, width>(from + i + 3 * width));
    }
    a = combined<Kind>(combined<Kind>(a, b), combined<Kind>(c, d));
  }
  for (; i + width <= count; i += width) a = combined<Kind>(a, load_lanes<Acc, width>(from + i));
  return fold_lanes<Kind, Acc, width>(a, from + i, count - i);
}

template <reduction Kind, class Acc, class R, class T>
ESPALIER_ALWAYS_INLINE void accumulate_elements(R* to, const T* from, std::int64_t rows, std::int64_t row,
                                                std::int64_t columns) {
  const auto at = [](const T* x, std::int64_t i) { return element_cast<Acc>(x[i]); };
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const T* x = from + r * row;
    vector_loop(columns, [=](std::int64_t i) {
      const Acc left = combined<Kind>(at(x, i), at(x + row, i));
      const Acc right = combined<Kind>(at(x + 2 * row, i), at(x + 3 * row, i));
      to[i] = element_cast<R>(combined<Kind>(element_cast<Acc>(to[i]), combined<Kind>(left, right)));
    });
  }
  for (; r < rows; ++r) {
    const T* x = from + r * row;
    vector_loop(columns,
                [=](std::int64_t i) { to[i] = element_cast<R>(combined<Kind>(element_cast<Acc>(to[i]), at(x, i))); });
  }
}
/// f16 as floats, in the same order: so many rows at a time that only the last have no four together.
template <reduction Kind, class Acc, class R>
void accumulate_halves(R* to, const float16* from, std::int64_t rows, std::int64_t row, std::int64_t columns) {
  constexpr std::int64_t most = 1024;
  alignas(64) float room[most];
  for (std::int64_t c = 0; c < columns; c += most / 4) {
    const std::int64_t width = smaller_of(most / 4, columns - c);
    const std::int64_t height = most / width / 4 * 4;
    for (std::int64_t r = 0; r < rows; r += height) {
      const std::int64_t count = smaller_of(height, rows - r);
      convert_rows(from + r * row + c, row, &room[0], width, count, width);
      accumulate_elements<Kind, Acc>(to + c, static_cast<const float*>(&room[0]), count, width, width);
    }
  }
}
/// Combines rows into `to`, column by column.
template <reduction Kind, class Acc, class R, class T>
ESPALIER_ALWAYS_INLINE void accumulate_rows(R* to, const T* from, std::int64_t rows, std::int64_t row,
                                            std::int64_t columns) {
  if constexpr (std::is_same_v<T, float16>) {
    accumulate_halves<Kind, Acc>(to, from, rows, row, columns);
  } else {
    accumulate_elements<Kind, Acc>(to, from, rows, row, columns);
  }
}

/// One result per row.
template <reduction Kind, std::int64_t Columns, class R, class T> void reduce_rows(const kernels::block_call& call) {
  const auto* from = static_cast<const T*>(call.operand[0].data);
  auto* to = static_cast<R*>(call.result.data);
  const std::int64_t columns = columns_of_block<Columns>(call);
  for (std::int64_t r = 0; r < call.rows; ++r) {
    to[r * call.result.row] =
        element_cast<R>(reduce_run<Kind, accumulator_t<R, Kind>>(from + r * call.operand[0].row, columns));
  }
}
/// Reduces all rows to one. Short rows are accumulated elsewhere, where no store can touch elements still to be read.
template <reduction Kind, std::int64_t Columns, class Acc, class T>
void reduce_columns(const kernels::block_call& call) {
  auto* to = static_cast<Acc*>(call.result.data);
  const auto* from = static_cast<const T*>(call.operand[0].data);
  if constexpr (Columns > 0 && Columns <= unrolled_row) {
    Acc sums[Columns];
    for (std::int64_t c = 0; c < Columns; ++c) sums[c] = to[c];
    accumulate_rows<Kind, Acc>(&sums[0], from, call.rows, call.operand[0].row, Columns);
    for (std::int64_t c = 0; c < Columns; ++c) to[c] = sums[c];
  } else {
    accumulate_rows<Kind, Acc>(to, from, call.rows, call.operand[0].row, columns_of_block<Columns>(call));
  }
}

/// See `fused_reduction_attributes`. Accumulators are of `accumulator_t`, so that a bf16 sum is rounded once, at its
/// end.
struct reduce_block {
  template <kernels::block_key Key> static void run(const kernels::block_call& call) {
    constexpr auto attributes = attributes_of<fused_reduction_attributes>(Key);
    constexpr reduction kind = attributes.kind;
    using from = storage_t<Key.operand_type[0]>;
    using to = storage_t<Key.type>;
    static_assert(Key.wide[0] || Key.columns == 1, "a row reduction needs an element per column");
    if constexpr (attributes.accumulates) {
      static_assert(Key.result_wide || Key.columns == 1, "a column reduction has a result per column");
      reduce_columns<kind, Key.columns, accumulator_t<to, kind>, from>(call);
    } else {
      reduce_rows<kind, Key.columns, to, from>(call);
    }
  }
};

/// How a tensor is reduced: loops over results around loops over what is combined in each. Either the results have a
/// run, of neighbours both in source and result, or what is combined has.
struct reduction_plan {
  run_nest kept;
  run_nest gone;
  /// Parts that a few long reductions are cut into, whatever the number of threads.
  std::int64_t splits = 1;
  std::int64_t results = 1;

  /// Columns that are accumulated together: their accumulators stay in the first-level cache.
  static constexpr std::int64_t chunk = 1024;
  [[nodiscard]] constexpr std::int64_t chunks() const { return ceil_div(kept.run, chunk); }
  [[nodiscard]] constexpr std::int64_t tasks() const { return kept.iterations() * chunks() * splits; }
};

[[nodiscard]] constexpr reduction_plan plan_reduction(const extents& from, std::int64_t dims) {
  reduction_plan plan;
  std::int64_t total = 1;
  for (int d = 0; d < from.rank; ++d) {
    if ((dims >> d & 1) != 0) {
      total *= from[d];
    } else {
      plan.results *= from[d];
    }
  }
  std::int64_t kept = plan.results;
  std::int64_t gone = total;
  for (int d = 0; d < from.rank; ++d) {
    const bool reduced = (dims >> d & 1) != 0;
    std::int64_t& left = reduced ? gone : kept;
    left /= from[d];
    (reduced ? plan.gone : plan.kept).append({from[d], stride_of(from, d), left});
  }
  for (run_nest* nest : {&plan.kept, &plan.gone}) {
    if (nest->rank > 0 && nest->axis[nest->rank - 1].from == 1) nest->close();
  }
  constexpr std::int64_t wanted_tasks = 16;
  constexpr std::int64_t worth_a_task = 16384;
  const std::int64_t possible = total * plan.results / worth_a_task;
  const std::int64_t wanted = ceil_div(wanted_tasks, plan.tasks());
  const std::int64_t longest = plan.gone.rank > 0 ? plan.gone.iterations() : plan.gone.run;
  plan.splits = larger_of<std::int64_t>(1, smaller_of(possible, wanted, longest));
  return plan;
}

/// The part of a reduction that one task makes.
struct reduction_range {
  std::int64_t first = 0, last = 0;  // iterations of the loops
  std::int64_t begin = 0, end = 0;   // elements of the run
};
[[nodiscard]] inline reduction_range range_of(const reduction_plan& plan, std::int64_t split) {
  const std::int64_t iterations = plan.gone.iterations();
  const std::int64_t run = plan.gone.run;
  if (plan.gone.rank > 0) { return {iterations * split / plan.splits, iterations * (split + 1) / plan.splits, 0, run}; }
  return {0, 1, run * split / plan.splits, run * (split + 1) / plan.splits};
}

/// One result, from runs. `Run` is the length of a single short one, or 0.
template <reduction Kind, int Run, class Acc, class T>
[[nodiscard]] ESPALIER_ALWAYS_INLINE Acc reduce_runs(const reduction_plan& plan, const reduction_range& range,
                                                     const T* from) {
  if constexpr (Run > 0) return reduce_run<Kind, Acc>(from, Run);
  if (plan.gone.rank == 0) return reduce_run<Kind, Acc>(from + range.begin, range.end - range.begin);
  Acc total = neutral<Acc, T, Kind>();
  nest_walker at(plan.gone, range.first);
  for (std::int64_t i = range.first; i < range.last; ++i, ++at) {
    total = combined<Kind>(total, reduce_run<Kind, Acc>(from + (*at).from + range.begin, range.end - range.begin));
  }
  return total;
}

/// Rows that follow one another without a gap are taken several at a time while they are short: `to` has room for as
/// many. Returns how many rows remain.
template <reduction Kind, class Acc, class T>
[[nodiscard]] std::int64_t accumulate_short_rows(Acc* to, const T* from, std::int64_t rows, std::int64_t columns) {
  const std::int64_t together = reduction_plan::chunk / 2 / columns;
  if (together < 2 || rows < 2 * together) return rows;
  const std::int64_t wide = together * columns;
  fill_run(to + columns, wide - columns, neutral<Acc, T, Kind>());
  accumulate_rows<Kind, Acc>(to, from, rows / together, wide, wide);
  accumulate_rows<Kind, Acc>(to, to + columns, together - 1, columns, columns);
  return rows % together;
}

/// A chunk of neighbouring results.
template <reduction Kind, class Acc, class T>
void reduce_chunk(const reduction_plan& plan, const reduction_range& range, const T* from, Acc* to,
                  std::int64_t columns) {
  fill_run(to, columns, neutral<Acc, T, Kind>());
  const run_axis inner = plan.gone.rank > 0 ? plan.gone.axis[plan.gone.rank - 1] : run_axis{};
  for (std::int64_t i = range.first; i < range.last;) {
    const std::int64_t rows = smaller_of(inner.extent - i % inner.extent, range.last - i);
    const nest_walker at(plan.gone, i);
    const T* first = from + (*at).from;
    const std::int64_t left = inner.from == columns ? accumulate_short_rows<Kind>(to, first, rows, columns) : rows;
    accumulate_rows<Kind, Acc>(to, first + (rows - left) * inner.from, left, inner.from, columns);
    i += rows;
  }
}

/// Tasks [first, last); `store(result, split, values, count)` takes what they make.
template <reduction Kind, int Run, class Acc, class T, class Store>
void reduce_tasks(const reduction_plan& plan, const T* from, std::int64_t first, std::int64_t last, Store store) {
  const std::int64_t chunks = plan.chunks();
  for (std::int64_t task = first; task < last;) {
    const std::int64_t split = task / (plan.kept.iterations() * chunks);
    const std::int64_t in_split = task % (plan.kept.iterations() * chunks);
    const std::int64_t end = smaller_of(last, task - in_split + plan.kept.iterations() * chunks);
    const reduction_range range = range_of(plan, split);
    nest_walker at(plan.kept, in_split / chunks);
    if (plan.kept.run == 1) {
      for (; task < end; ++task, ++at) {
        const Acc value = reduce_runs<Kind, Run, Acc>(plan, range, from + (*at).from);
        store((*at).to, split, &value, 1);
      }
      continue;
    }
    alignas(64) Acc buffer[reduction_plan::chunk];
    for (; task < end; ++task) {
      const std::int64_t start = task % chunks * reduction_plan::chunk;
      const std::int64_t columns = smaller_of(reduction_plan::chunk, plan.kept.run - start);
      reduce_chunk<Kind, Acc>(plan, range, from + (*at).from + start, &buffer[0], columns);
      store((*at).to + start, split, &buffer[0], columns);
      if ((task + 1) % chunks == 0) ++at;
    }
  }
}

/// `write(at, values, count)` takes the results.
template <reduction Kind, int Run, class Acc, class T, class Write>
void reduce_tensor_by(const reduction_plan& plan, const T* from, void* scratch, const Write& write) {
  const std::int64_t work = plan.kept.iterations() * plan.kept.run * plan.gone.iterations() * plan.gone.run;
  auto* partial = static_cast<Acc*>(scratch);
  parallel_ranges(plan.tasks(), work, [&](std::int64_t first, std::int64_t last) {
    reduce_tasks<Kind, Run, Acc>(
        plan, from, first, last,
        [=, &plan](std::int64_t at, std::int64_t split, const Acc* values, std::int64_t count) {
          if (plan.splits == 1) {
            write(at, values, count);
          } else {
            Acc* out = partial + split * plan.results + at;
            vector_loop(count, [=](std::int64_t i) { out[i] = values[i]; });
          }
        });
  });
  if (plan.splits == 1) return;
  for (std::int64_t i = 0; i < plan.results; ++i) {
    Acc total = partial[i];
    for (std::int64_t s = 1; s < plan.splits; ++s) total = combined<Kind>(total, partial[s * plan.results + i]);
    write(i, &total, 1);
  }
}

/// Stores results as elements of R.
template <class R> struct result_writer {
  R* to;
  template <class Acc>
  ESPALIER_ALWAYS_INLINE void operator()(std::int64_t at, const Acc* values, std::int64_t count) const {
    R* const out = to + at;
    if constexpr (std::is_same_v<R, float16>) {
      convert_run(values, out, count);
    } else {
      vector_loop(count, [=](std::int64_t i) { out[i] = element_cast<R>(values[i]); });
    }
  }
};
template <reduction Kind, int Run, class R, class T>
void reduce_tensor(const reduction_plan& plan, const T* from, R* to, void* scratch) {
  reduce_tensor_by<Kind, Run, accumulator_t<R, Kind>>(plan, from, scratch, result_writer<R>{to});
}

struct reduce_kernel {
  static constexpr std::int64_t scratch_bytes(const kernels::kernel_key& key) {
    const reduction_plan plan = plan_reduction(key.operand_shape[0], attributes_of<reduction_attributes>(key).dims);
    return plan.splits == 1 ? 0 : plan.splits * plan.results * size_of(facts_of(key.type).accumulate);
  }
  template <kernels::kernel_key Key> static void run(const kernels::kernel_call& call) {
    using from = storage_t<Key.operand_type[0]>;
    using to = storage_t<Key.type>;
    constexpr auto attributes = attributes_of<reduction_attributes>(Key);
    static constexpr reduction_plan plan = plan_reduction(Key.operand_shape[0], attributes.dims);
    constexpr int shared = kernels::shared_reduction(attributes.kind, Key.operand_type[0], Key.type);
    if constexpr (kernels::shares_kernels && shared >= 0) {
      kernels::processor_kernels().reduce[shared](plan, call.operand[0], call.result, call.scratch);
    } else {
      constexpr int run = plan.gone.rank == 0 && plan.splits == 1 ? static_run(plan.gone) : 0;
      reduce_tensor<attributes.kind, run>(plan, static_cast<const from*>(call.operand[0]),
                                          static_cast<to*>(call.result), call.scratch);
    }
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::reduce> : detail::reduce_kernel {};
template <> struct kernel<&ops::reduce_sum> : detail::reduce_kernel {};
template <> struct block_kernel<&ops::reduce> : detail::reduce_block {};
template <> struct block_kernel<&ops::reduce_sum> : detail::reduce_block {};

}  // namespace espalier::kernels
