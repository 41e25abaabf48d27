// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/simd.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>
#include <espalier/tensor/run/kernels/square.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// The library's own matrix product on one thread. After Goto and van de Geijn ("Anatomy of high-performance matrix
// multiplication"), but with the roles of caches turned: a strip of A stays in the first-level cache while a panel of B
// passes from the second. A is then as good as never rearranged, and B is while the first strip is multiplied, so that
// also products with one short side run near the speed of the multipliers.

namespace espalier::detail {

/// A matrix in memory: element (i, j) is at `data[i * row_stride + j * column_stride]`.
template <class T> struct matrix_view {
  T* data;
  std::int64_t row_stride;
  std::int64_t column_stride;

  [[nodiscard]] constexpr matrix_view at(std::int64_t i, std::int64_t j) const {
    return {data + i * row_stride + j * column_stride, row_stride, column_stride};
  }
};

/// Tile sizes of the matrix product: a `rows` x `columns` tile of C lives in registers, a strip of A (`rows` x `depth`)
/// in the first-level cache, a panel of B (`depth` x `width`) in the second. Both are on the stack of the thread that
/// works: 0.5 MB.
template <class T> struct tile_sizes {
#if defined(__AVX512F__)
  static constexpr int rows = 12;  // 24 of 32 registers accumulate
#elif defined(__AVX__)
  static constexpr int rows = 6;  // 12 of 16
#else
  static constexpr int rows = 4;  // SSE has no three-operand FMA: leave registers for products
#endif
  static constexpr int lanes = simd_bytes / static_cast<int>(sizeof(T));
  static constexpr int columns = 2 * lanes;
  static constexpr int depth = 256;
  static constexpr int width = 2048 / static_cast<int>(sizeof(T)) / columns * columns;
};

/// How a strip of A is read: element (i, p) is at
enum class strip_layout : std::uint8_t {
  kept_rows,  // a[i * depth + p], a copy
  rows,       // a[i * step + p]
  columns,    // a[i + p * step], copied or not
};

/// The addresses of a tile's factors. B's rows of `columns` elements are `b_step` apart.
template <class T> struct tile_factors {
  const T* a;
  std::int64_t a_step;
  const T* b;
  std::int64_t b_step;
  T* panel;  // where B is copied to, if it is
};

/// Element (i, p) of a strip, where `a` has moved on to column p. Three rows share a base, so that addresses need few
/// registers.
template <strip_layout Layout, class T>
[[nodiscard]] ESPALIER_ALWAYS_INLINE T strip_element(const T* const* base, std::int64_t step, int i) {
  if constexpr (Layout == strip_layout::kept_rows) return base[0][i * tile_sizes<T>::depth];
  if constexpr (Layout == strip_layout::columns) return base[0][i];
  return base[i / 3][i % 3 * step];
}

/// Cache lines to be fetched while a tile is multiplied, two with each portion of the work: the next portion's are
/// `step` elements on. There are as many portions as the tile has rows, or a few more; all lines at once would fill the
/// buffers that every load has to pass.
template <class T> struct fetched_lines {
  const T* first;
  const T* second;
  std::int64_t step;
};

/// C's tile = alpha A B + keep C; with keep = 0, C is not read. Meanwhile the tile's own lines are fetched, and `next`
/// unless the strip is read by rows: their addresses leave no registers for more.
template <class T, int Rows, strip_layout Layout, bool Packs>
[[gnu::noinline]] void multiply_tile(std::int64_t depth, const tile_factors<T>& of, const fetched_lines<T>& next,
                                     T alpha, T keep, T* c, std::int64_t ldc) {
  using sizes = tile_sizes<T>;
  constexpr int width = sizes::lanes;
  using vector = lanes<T, width>;
  constexpr std::int64_t ahead = 20;
  constexpr int bases = Layout == strip_layout::rows ? (Rows + 2) / 3 : 1;
  const auto read = [](const T* p) { return load_lanes<T, width>(p); };
  const auto write = [](T* p, vector value) { std::memcpy(p, &value, sizeof(value)); };
  const std::int64_t a_step = of.a_step;
  const T* a[bases];
  for (int i = 0; i < bases; ++i) a[i] = of.a + 3 * i * a_step;
  const T* b = of.b;
  T* panel = of.panel;
  vector sum[Rows][2] = {};
  const auto rows_each = static_cast<std::uint64_t>(larger_of<std::int64_t>(1, depth / sizes::rows));
  const std::int64_t between = static_cast<std::int64_t>(std::bit_floor(rows_each)) - 1;
  const T* output = c;
  const T* first = next.first;
  const T* second = next.second;
  for (std::int64_t p = 0; p < depth; ++p) {
    if ((p & between) == 0) {
      // These, like B's below, may be past the end: a hint does no harm.
      __builtin_prefetch(output, 1);
      __builtin_prefetch(output + width, 1);
      output += ldc;
      if constexpr (Layout != strip_layout::rows) {
        __builtin_prefetch(first, 0, 2);
        __builtin_prefetch(second, 0, 2);
        first += next.step;
        second += next.step;
      }
    }
    const vector left = read(b);
    const vector right = read(b + width);
    if constexpr (Packs) {
      // Rows of B may be pages apart, where no hardware prefetcher follows.
      __builtin_prefetch(b + ahead * of.b_step);
      __builtin_prefetch(b + ahead * of.b_step + width);
      write(panel, left);
      write(panel + width, right);
      panel += sizes::columns;
    }
    ESPALIER_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const T factor = strip_element<Layout>(&a[0], a_step, i);
      sum[i][0] += factor * left;
      sum[i][1] += factor * right;
    }
    ESPALIER_UNROLL
    for (int i = 0; i < bases; ++i) a[i] += Layout == strip_layout::columns ? a_step : 1;
    b += of.b_step;
  }
  ESPALIER_UNROLL
  for (int i = 0; i < Rows; ++i) {
    T* const out = c + i * ldc;
    if (keep == T(0)) {
      write(out, alpha * sum[i][0]);
      write(out + width, alpha * sum[i][1]);
    } else {
      write(out, alpha * sum[i][0] + keep * read(out));
      write(out + width, alpha * sum[i][1] + keep * read(out + width));
    }
  }
}

/// Prefetches lines while a strip is multiplied, a share with each tile: strips of A and rows of B lie too far apart
/// for a hardware prefetcher to follow.
template <class T> class strip_prefetcher {
 public:
  strip_prefetcher() = default;
  strip_prefetcher(matrix_view<const T> a, std::int64_t rows, std::int64_t depth, std::int64_t tiles) {
    // A share of a panel may have no rows.
    if (rows == 0) return;
    if (a.column_stride == 1) {
      left_ = (depth + line - 1) / line;
      from_ = a.data;
      step_ = a.row_stride;
      rows_ = rows;
      tile_step_ = line;
    } else {
      // The last row's: those above it are mostly in the line that the strip before has read.
      left_ = depth;
      from_ = a.data + rows - 1;
      step_ = a.column_stride;
      tile_step_ = step_;
    }
    share_ = (left_ + tiles - 1) / tiles;
  }

  /// A tile's share, at once.
  ESPALIER_ALWAYS_INLINE void fetch() {
    if (left_ > 0) fetch_block(0, 0, take());
  }

  /// A tile's share, to be fetched by the tile; what does not fit into two lines a portion, at once. Without a share
  /// it is `idle`, which is in the cache.
  [[nodiscard]] ESPALIER_ALWAYS_INLINE fetched_lines<T> spread(const T* idle) {
    if (left_ <= 0) return {idle, idle, 0};
    const block of = take();
    const bool wide = of.lines > 1;
    const std::int64_t rows = wide ? portions : 2 * portions;
    fetch_block(rows, 0, of);
    fetch_block(0, 2, {of.from, smaller_of(of.rows, rows), of.lines});
    return {of.from, of.from + (wide ? line : of.rows > portions ? portions * step_ : 0), step_};
  }

 private:
  static constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));
  static constexpr std::int64_t portions = tile_sizes<T>::rows;

  /// Rows `step_` apart, of each so many lines.
  struct block {
    const T* from;
    std::int64_t rows;
    std::int64_t lines;
  };

  [[nodiscard]] block take() {
    const std::int64_t count = smaller_of(share_, left_);
    const block taken = rows_ > 0 ? block{from_, rows_, count} : block{from_, count, 1};
    from_ += count * tile_step_;
    left_ -= count;
    return taken;
  }
  void fetch_block(std::int64_t row, std::int64_t at_line, const block& of) const {
    for (std::int64_t i = row; i < of.rows; ++i) {
      for (std::int64_t x = at_line; x < of.lines; ++x) __builtin_prefetch(of.from + i * step_ + x * line, 0, 2);
    }
  }

  const T* from_ = nullptr;
  std::int64_t step_ = 0;
  std::int64_t rows_ = 0;  // 0: columns are shared out
  std::int64_t tile_step_ = 0;
  std::int64_t left_ = 0;
  std::int64_t share_ = 0;
};

/// The product of strips of A with a panel of B, one strip after the other.
template <class T> class panel_product {
 public:
  using sizes = tile_sizes<T>;

  /// `b` has depth x b_columns elements, for as many of which `panel` has room, `strip` for rows x depth.
  panel_product(std::int64_t depth, std::int64_t b_columns, matrix_view<const T> b, T* panel, T* strip)
      : depth_(depth), width_(b_columns), b_(b), panel_(panel), strip_(strip) {
    // Copies the columns that the first strip does not copy as it goes.
    for (std::int64_t j = 0; j < width_; j += sizes::columns) {
      const std::int64_t columns = smaller_of<std::int64_t>(sizes::columns, width_ - j);
      if (columns < sizes::columns || b_.column_stride != 1) copy_columns(b_.at(0, j), columns, panel_ + j * depth_);
    }
  }

  /// The strip that `multiply` gets after the next one.
  void announce(matrix_view<const T> a, std::int64_t rows) {
    ahead_ = strip_prefetcher<T>(a, rows, depth_, (width_ + sizes::columns - 1) / sizes::columns);
  }

  /// Any rows that are to be fetched while the next strip is multiplied, and others.
  void announce_rows(matrix_view<const T> rows, std::int64_t count, std::int64_t depth) {
    ahead_ = strip_prefetcher<T>(rows, count, depth, (width_ + sizes::columns - 1) / sizes::columns);
  }
  void announce_more(matrix_view<const T> rows, std::int64_t count, std::int64_t depth) {
    beside_ = strip_prefetcher<T>(rows, count, depth, (width_ + sizes::columns - 1) / sizes::columns);
  }

  /// A strip that the caller has written to `strip`, in the layout of a copied one.
  template <strip_layout Layout> void multiply_written(std::int64_t rows, T alpha, T keep, T* c, std::int64_t ldc) {
    constexpr bool by_columns = Layout == strip_layout::columns;
    first_ = 0;
    last_ = depth_;
    tiles<Layout>(strip_, by_columns ? sizes::rows : 0, by_columns ? 1 : sizes::depth, rows, alpha, keep, c, ldc);
  }

  /// `rows` <= sizes::rows of A, from `a` on.
  ///
  /// Zeros at the end of all the rows, or at the start of all the columns, are not multiplied: that is half of what a
  /// causal mask leaves of attention's weights. (So an infinity they would have met makes no NaN.)
  void multiply(matrix_view<const T> a, std::int64_t rows, T alpha, T keep, T* c, std::int64_t ldc) {
    const bool copy = width_ > most_direct || (a.row_stride != 1 && a.column_stride != 1) || rows_share_a_set(a);
    first_ = 0;
    last_ = depth_;
    if (a.row_stride == 1 && a.column_stride != 1) {
      if (!copies_along()) first_ = zeros_at_start(a, rows);
      if (copy) copy_by_columns(a, rows);
      tiles<strip_layout::columns>(copy ? strip_ : a.data, copy ? sizes::rows : a.column_stride, 1, rows, alpha, keep,
                                   c, ldc);
      return;
    }
    if (!copies_along() && a.column_stride == 1) last_ = depth_ - zeros_at_end(a, rows);
    if (copy) {
      copy_by_rows(a, rows);
      tiles<strip_layout::kept_rows>(strip_, 0, sizes::depth, rows, alpha, keep, c, ldc);
    } else {
      tiles<strip_layout::rows>(a.data, a.row_stride, a.row_stride, rows, alpha, keep, c, ldc);
    }
  }

 private:
  /// Columns of C for which copying the strip does not pay.
  static constexpr std::int64_t most_direct = 8 * sizes::columns;

  /// Rows so many bytes apart fall into one set of a first-level cache, which is too small for a strip of them: a
  /// product that reads them where they are reaches 70 % of the speed of one with a copy.
  static constexpr std::int64_t set_stride = 4096;
  [[nodiscard]] static bool rows_share_a_set(matrix_view<const T> a) {
    return a.column_stride == 1 && a.row_stride * static_cast<std::int64_t>(sizeof(T)) % set_stride == 0;
  }

  /// Whether the next strip copies B where it multiplies with it, and therefore needs all of it.
  [[nodiscard]] bool copies_along() const { return !complete_ && b_.column_stride == 1; }

  template <int Count> using truth = decltype(lanes<T, Count>{} != 0);

  template <int Count> ESPALIER_ALWAYS_INLINE static void add_nonzero(const T* from, truth<Count>& seen) {
    lanes<T, Count> values;
    read_lanes<T, Count>(from, values);
    seen |= values != 0;
  }
  template <int Count> [[nodiscard]] ESPALIER_ALWAYS_INLINE static bool none(const truth<Count>& of) {
    auto any = of[0];
    for (int i = 1; i < Count; ++i) any |= of[i];
    return any == 0;
  }
  /// Columns that are zero in all rows, in whole vectors.
  [[nodiscard]] std::int64_t zeros_at_end(matrix_view<const T> a, std::int64_t rows) const {
    constexpr int width = sizes::lanes;
    std::int64_t count = 0;
    for (; count + width <= depth_; count += width) {
      const T* const from = a.data + depth_ - count - width;
      truth<width> seen{};
      for (std::int64_t i = 0; i < rows; ++i) add_nonzero<width>(from + i * a.row_stride, seen);
      if (!none<width>(seen)) break;
    }
    return count;
  }
  /// Columns, several at a time.
  [[nodiscard]] std::int64_t zeros_at_start(matrix_view<const T> a, std::int64_t rows) const {
    constexpr std::int64_t together = 8;
    constexpr int rest = sizes::rows > half_rows ? sizes::rows - half_rows : half_rows;
    if (rows != sizes::rows) return 0;
    std::int64_t count = 0;
    for (; count + together <= depth_; count += together) {
      const T* const from = a.data + count * a.column_stride;
      truth<half_rows> seen{};
      truth<rest> more{};
      for (std::int64_t p = 0; p < together; ++p) {
        add_nonzero<half_rows>(from + p * a.column_stride, seen);
        add_nonzero<rest>(from + p * a.column_stride + sizes::rows - rest, more);
      }
      if (!none<half_rows>(seen) || !none<rest>(more)) break;
    }
    return count;
  }

  void copy_by_rows(matrix_view<const T> a, std::int64_t rows) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* const from = a.data + i * a.row_stride;
      T* const to = strip_ + i * sizes::depth;
      std::int64_t p = 0;
      if (a.column_stride == 1) {
        for (; p + sizes::lanes <= depth_; p += sizes::lanes) { copy_lanes<sizes::lanes>(from + p, to + p); }
      }
      for (; p < depth_; ++p) to[p] = from[p * a.column_stride];
    }
  }
  /// A strip's rows fill this many lanes and a few more.
  static constexpr int half_rows = static_cast<int>(std::bit_floor(static_cast<unsigned>(sizes::rows)));

  template <int Count> ESPALIER_ALWAYS_INLINE static void copy_lanes(const T* from, T* to) {
    lanes<T, Count> values;
    read_lanes<T, Count>(from, values);
    std::memcpy(to, &values, sizeof(values));
  }
  void copy_by_columns(matrix_view<const T> a, std::int64_t rows) {
    if (rows == sizes::rows) {
      // Two vectors: g++ calls the library for 48 bytes.
      constexpr int most = half_rows;
      constexpr int rest = sizes::rows - most;
      for (std::int64_t p = 0; p < depth_; ++p) {
        const T* const from = a.data + p * a.column_stride;
        T* const to = strip_ + p * sizes::rows;
        copy_lanes<most>(from, to);
        if constexpr (rest > 0) copy_lanes<rest>(from + most, to + most);
      }
      return;
    }
    for (std::int64_t p = 0; p < depth_; ++p) {
      for (std::int64_t i = 0; i < rows; ++i) strip_[p * sizes::rows + i] = a.data[i + p * a.column_stride];
    }
  }

  template <strip_layout Layout>
  void tiles(const T* a, std::int64_t step, std::int64_t next_row, std::int64_t rows, T alpha, T keep, T* c,
             std::int64_t ldc) {
    constexpr int half = sizes::rows > 8 ? 8 : sizes::rows / 2;
    constexpr int quarter = half > 4 ? 4 : 2;  // enough independent sums to keep the multipliers busy
    if (rows == sizes::rows) {
      row_of_tiles<sizes::rows, Layout>(a, step, alpha, keep, c, ldc);
      complete_ = true;
      return;
    }
    while (rows > 0) {
      const int taken = rows >= half ? half : rows >= quarter ? quarter : rows >= 2 ? 2 : 1;
      if (taken == half) {
        row_of_tiles<half, Layout>(a, step, alpha, keep, c, ldc);
      } else if (taken == quarter) {
        row_of_tiles<quarter, Layout>(a, step, alpha, keep, c, ldc);
      } else if (taken == 2) {
        row_of_tiles<2, Layout>(a, step, alpha, keep, c, ldc);
      } else {
        row_of_tiles<1, Layout>(a, step, alpha, keep, c, ldc);
      }
      complete_ = true;
      a += taken * next_row;
      c += taken * ldc;
      rows -= taken;
    }
  }

  template <int Rows, strip_layout Layout>
  void row_of_tiles(const T* a, std::int64_t step, T alpha, T keep, T* c, std::int64_t ldc) {
    const bool packs = copies_along();
    const std::int64_t depth = last_ - first_;
    a += first_ * (Layout == strip_layout::columns ? step : 1);
    std::int64_t j = 0;
    for (; j + sizes::columns <= width_; j += sizes::columns) {
      T* const panel = panel_ + j * depth_;
      fetched_lines<T> next{a, a, 0};
      if constexpr (Layout == strip_layout::rows) {
        ahead_.fetch();
      } else {
        next = ahead_.spread(a);
      }
      beside_.fetch();
      if (packs) {
        multiply_tile<T, Rows, Layout, true>(depth, {a, step, b_.data + j, b_.row_stride, panel}, next, alpha, keep,
                                             c + j, ldc);
      } else {
        multiply_tile<T, Rows, Layout, false>(
            depth, {a, step, panel + first_ * sizes::columns, sizes::columns, nullptr}, next, alpha, keep, c + j, ldc);
      }
    }
    if (j == width_) return;
    alignas(64) T tile[Rows * sizes::columns];
    const T* const panel = panel_ + j * depth_ + first_ * sizes::columns;
    multiply_tile<T, Rows, Layout, false>(depth, {a, step, panel, sizes::columns, nullptr}, {a, a, 0}, alpha, T(0),
                                          &tile[0], sizes::columns);
    for (std::int64_t i = 0; i < Rows; ++i) {
      T* const out = c + i * ldc + j;
      for (std::int64_t x = 0; x < width_ - j; ++x) {
        const T value = tile[i * sizes::columns + x];
        out[x] = keep == T(0) ? value : value + keep * out[x];
      }
    }
  }

  /// Columns of B, filled up with zeros, to rows of `sizes::columns` elements.
  void copy_columns(matrix_view<const T> from, std::int64_t columns, T* to) const {
    constexpr int side = tile_side<typename word<static_cast<int>(sizeof(T))>::type>;
    std::int64_t p = 0;
    if (from.row_stride == 1 && columns == sizes::columns) {
      for (; p + side <= depth_; p += side) {
        for (std::int64_t x = 0; x < sizes::columns; x += side) {
          transpose_square(from.data + p + x * from.column_stride, from.column_stride, to + p * sizes::columns + x,
                           std::int64_t{sizes::columns}, std::make_index_sequence<static_cast<std::size_t>(side)>{});
        }
      }
    }
    for (; p < depth_; ++p) {
      T* const row = to + p * sizes::columns;
      for (std::int64_t x = 0; x < columns; ++x) row[x] = from.data[p * from.row_stride + x * from.column_stride];
      for (std::int64_t x = columns; x < sizes::columns; ++x) row[x] = T(0);
    }
  }

  std::int64_t depth_;
  std::int64_t width_;
  matrix_view<const T> b_;
  T* panel_;
  T* strip_;
  std::int64_t first_ = 0;  // what the current strip multiplies: columns [first, last) of A
  std::int64_t last_ = 0;
  strip_prefetcher<T> ahead_;
  strip_prefetcher<T> beside_;
  bool complete_ = false;  // whether all of B's panel has been copied
};

/// The panel that is multiplied next, fetched into the second-level cache while this one is: rows of B, or columns of a
/// transposed one, some with each strip.
template <class T> class panel_prefetcher {
 public:
  /// `panel` has depth x width elements; its turn is after `strips` strips.
  panel_prefetcher(matrix_view<const T> panel, std::int64_t depth, std::int64_t width, std::int64_t strips)
      : rows_(panel), count_(depth), length_(width), strips_(strips) {
    if (panel.row_stride == 1 && panel.column_stride != 1) {
      std::swap(rows_.row_stride, rows_.column_stride);
      std::swap(count_, length_);
    }
    // A few strips are over before so much is fetched.
    if (rows_.column_stride != 1 || strips < fewest_strips) count_ = 0;
  }

  void announce(std::int64_t strip, panel_product<T>& to) const {
    const std::int64_t from = count_ * strip / strips_;
    to.announce_more(rows_.at(from, 0), count_ * (strip + 1) / strips_ - from, length_);
  }

 private:
  static constexpr std::int64_t fewest_strips = 8;

  matrix_view<const T> rows_;
  std::int64_t count_;
  std::int64_t length_;
  std::int64_t strips_;
};

/// What follows a part of a product that begins at `row` and `column` of the whole.
struct part_tail {
  const kernels::product_tail* tail = nullptr;
  std::int64_t row = 0;
  std::int64_t column = 0;

  /// For rows and columns of the part.
  void run(std::int64_t first_row, std::int64_t rows, std::int64_t first_column, std::int64_t columns) const {
    if (tail != nullptr) tail->run(*tail, row + first_row, rows, column + first_column, columns);
  }
};

/// C = alpha A B + beta C on one thread; A is m x k, B is k x n, C is m x n with unit column stride; any strides for A
/// and B. With beta = 0, C is written without being read. Each element's sum has the same order whatever m and n are.
template <class T>
void blocked_gemm(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, matrix_view<const T> a,
                  matrix_view<const T> b, T beta, T* c, std::int64_t ldc, const part_tail& tail = {}) {
  using sizes = tile_sizes<T>;
  alignas(64) T panel[sizes::depth * sizes::width];
  alignas(64) T strip[sizes::rows * sizes::depth];
  const auto depth_at = [=](std::int64_t p) { return smaller_of<std::int64_t>(sizes::depth, k - p); };
  const auto width_at = [=](std::int64_t j) { return clamped<std::int64_t>(n - j, 0, sizes::width); };
  for (std::int64_t j = 0; j < n; j += sizes::width) {
    for (std::int64_t p = 0; p < k; p += sizes::depth) {
      const std::int64_t next_p = p + sizes::depth < k ? p + sizes::depth : 0;
      const std::int64_t next_j = next_p > 0 ? j : j + sizes::width;
      const panel_prefetcher<T> following(next_j < n ? b.at(next_p, next_j) : b, depth_at(next_p), width_at(next_j),
                                          (m + sizes::rows - 1) / sizes::rows);
      panel_product<T> product(depth_at(p), width_at(j), b.at(p, j), &panel[0], &strip[0]);
      for (std::int64_t i = 0; i < m; i += sizes::rows) {
        const std::int64_t rows = smaller_of<std::int64_t>(sizes::rows, m - i);
        const std::int64_t next = smaller_of<std::int64_t>(sizes::rows, m - i - rows);
        if (next > 0) product.announce(a.at(i + rows, p), next);
        following.announce(i / sizes::rows, product);
        product.multiply(a.at(i, p), rows, alpha, p == 0 ? beta : T(1), c + i * ldc + j, ldc);
        if (p + sizes::depth >= k) tail.run(i, rows, j, width_at(j));
      }
    }
  }
}

}  // namespace espalier::detail
