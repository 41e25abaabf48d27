// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/partition/row_product.hpp>
#include <espalier/tensor/run/kernels/contraction.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/gemm.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>
#include <espalier/tensor/run/kernels/kernel_set.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// Products in a row region (partition/row_regions.hpp): for a few rows of scores at a time, on one thread. What all
// rows of an item read, y, is rearranged for the tiles of the library's own product (kernels/gemm.hpp) once for each
// item.

namespace espalier::kernels {

/// A few rows of one item of a `row_product`.
struct row_call {
  const void* operand[2]{};
  void* result = nullptr;
  std::int64_t item = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  /// Of each row of scores, only the first so many count.
  std::int64_t keys = 0;
  /// Of row r of an item, only those before the next multiple of `triangle_grain` after r do, and as many more are zero
  /// as the row after it has.
  bool lower_triangle = false;
  /// The thread comes to the item.
  bool begins_item = false;
  /// These are the first, or the last, rows of all that are summed up to the same result.
  bool begins_sum = false;
  bool ends_sum = false;
  /// Of what is summed up over rows, only every `parts`th tile of keys, from number `part` on: threads share the
  /// others.
  int part = 0;
  int parts = 1;
  /// The thread's own, for this product: stays as it is from call to call. Aligned to 64.
  void* scratch = nullptr;
};

/// A product in a row region: what it does, and the bytes of scratch for so many rows. `shared`: the index of its
/// functions in a kernel set, or -1: then they are here.
struct row_kernel {
  row_product plan;
  void (*own_run)(const row_product& plan, const row_call& call) = nullptr;
  std::int64_t (*own_scratch)(const row_product& plan, std::int64_t rows) = nullptr;
  int shared = -1;

  void run(const row_call& call) const {
    if constexpr (has_kernel_sets) {
      if (shared >= 0) return processor_kernels().products[shared].rows(plan, call);
    }
    own_run(plan, call);
  }
  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows) const {
    if constexpr (has_kernel_sets) {
      if (shared >= 0) return processor_kernels().products[shared].row_scratch(plan, rows);
    }
    return own_scratch(plan, rows);
  }
};

/// The rows of a tile of a product of f32, of which regions best take multiples.
[[nodiscard]] inline std::int64_t rows_of_tile() {
  if constexpr (has_kernel_sets) {
    return processor_kernels().tile_rows;
  } else {
    return detail::tile_sizes<float>::rows;
  }
}

}  // namespace espalier::kernels

namespace espalier::detail {

/// Products in T of matrices that are stored as S (scores), X and Y.
template <class T, class S, class X, class Y> class row_multiplication {
 public:
  using sizes = tile_sizes<T>;

  row_multiplication(const row_product& p, const kernels::row_call& call) : p_(p), call_(call) {
    std::int64_t rest = call.item;
    for (int d = p.item_dims - 1; d >= 0; --d) {
      const std::int64_t index = rest % p.item_extent[d];
      rest /= p.item_extent[d];
      x_at_ += index * p.x_item[d];
      y_at_ += index * p.y_item[d];
    }
    x_at_ += call.first_row * p.x_row;
    scores_at_ = (call.item * p.rows + call.first_row) * p.keys;
  }

  void run() {
    switch (p_.role) {
      case row_role::makes: return make();
      case row_role::keeps: return keep();
      case row_role::sums: return sum();
      case row_role::none: return;
    }
  }

  [[nodiscard]] static std::int64_t scratch_bytes(const row_product& p, std::int64_t rows) {
    const std::int64_t features = whole_tiles(p.features);
    const auto element = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t tile = std::int64_t{sizes::depth} * sizes::columns;
    switch (p.role) {
      case row_role::makes:
        return ((keeps_panels(p) ? whole_tiles(p.keys) * p.features : tile) + strips(rows) * strip_elements) * element;
      case row_role::keeps:
        return (keeps_panels(p) ? p.keys * features + strip_elements : tile + strips(rows) * strip_elements) * element +
               rows * p.features * element;
      case row_role::sums:
        return (rows * features + (is_plain<S> ? 0 : rows * p.keys) + (is_plain<Y> ? 0 : p.keys * p.features) +
                (p.y_feature == 1 ? 0 : std::int64_t{sizes::rows} * p.features)) *
               element;
      case row_role::none: break;
    }
    return 0;
  }

 private:
  template <class Stored> static constexpr bool is_plain = std::is_same_v<Stored, T>;
  static constexpr std::int64_t strip_elements = std::int64_t{sizes::rows} * sizes::depth;

  /// Whether y is rearranged once for each item. A larger one, as the table of a loss, is for each block of rows, a
  /// tile at a time: every thread would keep a copy of it.
  [[nodiscard]] static bool keeps_panels(const row_product& p) {
    constexpr std::int64_t most_bytes = 8 << 20;
    return p.keys * p.features * static_cast<std::int64_t>(sizeof(T)) <= most_bytes;
  }
  [[nodiscard]] static std::int64_t whole_tiles(std::int64_t columns) {
    return (columns + sizes::columns - 1) / sizes::columns * sizes::columns;
  }
  [[nodiscard]] static std::int64_t strips(std::int64_t rows) { return (rows + sizes::rows - 1) / sizes::rows; }

  [[nodiscard]] const S* scores() const { return static_cast<const S*>(call_.operand[p_.scores]) + scores_at_; }
  [[nodiscard]] const X* x() const { return static_cast<const X*>(call_.operand[p_.x]) + x_at_; }
  [[nodiscard]] const Y* y() const { return static_cast<const Y*>(call_.operand[p_.y]) + y_at_; }
  [[nodiscard]] T* room() const { return static_cast<T*>(call_.scratch); }

  /// scores = x y^T. The panels of all features come first, then those of the next ones, if there are so many.
  void make() {
    const bool keeps = keeps_panels(p_);
    T* const panels = room();
    const std::int64_t padded = whole_tiles(p_.keys);
    T* const strip = panels + (keeps ? padded * p_.features : std::int64_t{sizes::depth} * sizes::columns);
    const auto depth_at = [&](std::int64_t f) { return smaller_of<std::int64_t>(sizes::depth, p_.features - f); };
    const auto pack_tile = [&](std::int64_t f, std::int64_t k, T* to) {
      pack(y() + f * p_.y_feature + k * p_.y_key, depth_at(f), p_.y_feature, columns_at(k, p_.keys), p_.y_key, to);
      scale<Y>(p_.y, to, depth_at(f) * sizes::columns);
    };
    if (keeps && call_.begins_item) {
      for (std::int64_t f = 0; f < p_.features; f += sizes::depth) {
        for (std::int64_t k = 0; k < p_.keys; k += sizes::columns)
          pack_tile(f, k, panels + f * padded + k * depth_at(f));
      }
    }
    S* const to = static_cast<S*>(call_.result) + scores_at_;
    for (std::int64_t f = 0; f < p_.features; f += sizes::depth) {
      const std::int64_t depth = depth_at(f);
      for (std::int64_t i = 0; i < call_.rows; ++i) {
        copy_row(x() + i * p_.x_row + f * p_.x_feature, p_.x_feature, depth, strip + i * sizes::depth);
        scale<X>(p_.x, strip + i * sizes::depth, depth);
      }
      for (std::int64_t k = 0; k < call_.keys; k += sizes::columns) {
        T* const panel = keeps ? panels + f * padded + k * depth : panels;
        if (!keeps) pack_tile(f, k, panel);
        for (std::int64_t i = first_strip_with(k); i < call_.rows; i += sizes::rows) {
          multiply<strip_layout::kept_rows>(rows_at(i), depth, strip + i * sizes::depth, 0, panel,
                                            columns_at(k, p_.keys), f > 0, to + i * p_.keys + k, p_.keys);
        }
      }
    }
  }

  /// x = scores y.
  void keep() {
    if (!keeps_panels(p_)) return keep_by_tiles();
    T* const panels = room();
    T* const strip = panels + p_.keys * whole_tiles(p_.features);
    T* const sums = strip + strip_elements;
    if (call_.begins_item) {
      for (std::int64_t f = 0; f < p_.features; f += sizes::columns) {
        pack(y() + f * p_.y_feature, p_.keys, p_.y_key, columns_at(f, p_.features), p_.y_feature, panels + f * p_.keys);
      }
      scale<Y>(p_.y, panels, p_.keys * whole_tiles(p_.features));
    }
    for (std::int64_t k = 0; k < call_.keys; k += sizes::depth) {
      for (std::int64_t i = first_strip_with(k); i < call_.rows; i += sizes::rows) {
        const std::int64_t depth = copy_strip(i, k, strip);
        for (std::int64_t f = 0; f < p_.features; f += sizes::columns)
          multiply_into_x(i, k, f, depth, strip, panels + f * p_.keys + k * sizes::columns, sums);
      }
    }
    store_x(sums);
  }
  /// The same with a tile of y at a time.
  void keep_by_tiles() {
    T* const panel = room();
    T* const strip = panel + std::int64_t{sizes::depth} * sizes::columns;
    T* const sums = strip + strips(call_.rows) * strip_elements;
    for (std::int64_t k = 0; k < call_.keys; k += sizes::depth) {
      for (std::int64_t i = first_strip_with(k); i < call_.rows; i += sizes::rows)
        (void)copy_strip(i, k, strip + i * sizes::depth);
      const std::int64_t depth = smaller_of<std::int64_t>(sizes::depth, p_.keys - k);
      for (std::int64_t f = 0; f < p_.features; f += sizes::columns) {
        pack(y() + k * p_.y_key + f * p_.y_feature, depth, p_.y_key, columns_at(f, p_.features), p_.y_feature, panel);
        scale<Y>(p_.y, panel, depth * sizes::columns);
        for (std::int64_t i = first_strip_with(k); i < call_.rows; i += sizes::rows)
          multiply_into_x(i, k, f, depth_of_strip(i, k), strip + i * sizes::depth, panel, sums);
      }
    }
    store_x(sums);
  }
  [[nodiscard]] std::int64_t depth_of_strip(std::int64_t i, std::int64_t k) const {
    return smaller_of<std::int64_t>(sizes::depth, keys_of_strip(i) - k);
  }
  /// Copies the scores of the strip of rows from `i` on, from key `k` on; returns how many of each row count.
  std::int64_t copy_strip(std::int64_t i, std::int64_t k, T* strip) const {
    const std::int64_t depth = depth_of_strip(i, k);
    for (std::int64_t r = 0; r < rows_at(i); ++r)
      copy_row(scores() + (i + r) * p_.keys + k, 1, depth, strip + r * sizes::depth);
    return depth;
  }
  void multiply_into_x(std::int64_t i, std::int64_t k, std::int64_t f, std::int64_t depth, const T* strip,
                       const T* panel, T* sums) const {
    const std::int64_t columns = columns_at(f, p_.features);
    if constexpr (is_plain<X>) {
      X* const to = static_cast<X*>(call_.result) + x_at_;
      multiply<strip_layout::kept_rows>(rows_at(i), depth, strip, 0, panel, columns, k > 0, to + i * p_.x_row + f,
                                        p_.x_row);
    } else {
      multiply<strip_layout::kept_rows>(rows_at(i), depth, strip, 0, panel, columns, k > 0, sums + i * p_.features + f,
                                        p_.features);
    }
  }
  void store_x([[maybe_unused]] const T* sums) const {
    if constexpr (!is_plain<X>) {
      X* const to = static_cast<X*>(call_.result) + x_at_;
      for (std::int64_t i = 0; i < call_.rows; ++i) store_row(sums + i * p_.features, to + i * p_.x_row);
    }
  }

  /// y += scores^T x.
  void sum() {
    // The sums stay where they are, however few rows the last block has.
    T* const sums = room();
    T* const panels = sums + (is_plain<Y> ? 0 : p_.keys * p_.features);
    T* const wide = panels + call_.rows * whole_tiles(p_.features);
    T* const one = wide + (is_plain<S> ? 0 : call_.rows * p_.keys);
    for (std::int64_t f = 0; f < p_.features; f += sizes::columns) {
      pack(x() + f * p_.x_feature, call_.rows, p_.x_row, columns_at(f, p_.features), p_.x_feature,
           panels + f * call_.rows);
    }
    scale<X>(p_.x, panels, call_.rows * whole_tiles(p_.features));
    const T* from = nullptr;
    if constexpr (is_plain<S>) {
      from = scores();
    } else {
      for_each_tile([&](std::int64_t k, std::int64_t count) {
        count = smaller_of(count, call_.keys - k);
        for (std::int64_t i = 0; i < call_.rows && count > 0; ++i)
          copy_row(scores() + i * p_.keys + k, 1, count, wide + i * p_.keys + k);
      });
      from = wide;
    }
    Y* const to = static_cast<Y*>(call_.result) + y_at_;
    for_each_tile([&](std::int64_t k, std::int64_t count) {
      if constexpr (is_plain<Y>) {
        if (p_.y_feature == 1) return add_tile(k, count, from, panels, call_.begins_sum, to + k * p_.y_key, p_.y_key);
        // Elements of one feature lie closer to each other.
        add_tile(k, count, from, panels, true, one, p_.features);
        turn_tile(count, one, !call_.begins_sum, to + k * p_.y_key);
      } else {
        T* const rows = sums + k * p_.features;
        add_tile(k, count, from, panels, call_.begins_sum, rows, p_.features);
        if (!call_.ends_sum) return;
        if (p_.y_feature != 1) return turn_tile(count, rows, false, to + k * p_.y_key);
        for (std::int64_t n = 0; n < count; ++n) store_row(rows + n * p_.features, to + (k + n) * p_.y_key);
      }
    });
  }
  /// Adds what `count` keys from `k` on sum up to rows of features, which are zero before, if `begins`.
  void add_tile(std::int64_t k, std::int64_t count, const T* from, const T* panels, bool begins, T* to,
                std::int64_t step) const {
    for (std::int64_t n = 0; n < count && begins; ++n)
      std::memset(to + n * step, 0, static_cast<std::size_t>(p_.features) * sizeof(T));
    const std::int64_t first = first_row_with(k);
    if (k >= call_.keys || first >= call_.rows) return;
    for (std::int64_t f = 0; f < p_.features; f += sizes::columns) {
      multiply<strip_layout::columns>(smaller_of(count, call_.keys - k), call_.rows - first, from + first * p_.keys + k,
                                      p_.keys, panels + f * call_.rows + first * sizes::columns,
                                      columns_at(f, p_.features), true, to + f, step);
    }
  }
  /// Stores, or adds, rows of features to a y whose features lie anyhow.
  void turn_tile(std::int64_t count, const T* rows, bool adds, Y* to) const {
    for (std::int64_t f = 0; f < p_.features; ++f) {
      Y* const line = to + f * p_.y_feature;
      for (std::int64_t n = 0; n < count; ++n) {
        const T sum = rows[n * p_.features + f];
        line[n * p_.y_key] = element_cast<Y>(adds ? element_cast<T>(line[n * p_.y_key]) + sum : sum);
      }
    }
  }
  /// Calls `f(first, count)` for the tiles of keys that are this call's.
  template <class F> void for_each_tile(const F& f) const {
    for (std::int64_t k = std::int64_t{call_.part} * sizes::rows; k < p_.keys;
         k += std::int64_t{call_.parts} * sizes::rows) {
      f(k, smaller_of<std::int64_t>(sizes::rows, p_.keys - k));
    }
  }

  /// The first row of the block that has a key from number `k` on: in a lower triangle rows before it have none.
  [[nodiscard]] std::int64_t first_row_with(std::int64_t k) const {
    constexpr std::int64_t grain = kernels::triangle_grain;
    if (!call_.lower_triangle) return 0;
    return larger_of<std::int64_t>(0, k / grain * grain - call_.first_row);
  }
  [[nodiscard]] std::int64_t first_strip_with(std::int64_t k) const {
    return first_row_with(k) / sizes::rows * sizes::rows;
  }
  /// Of the strip of rows from `i` on, so many keys count.
  [[nodiscard]] std::int64_t keys_of_strip(std::int64_t i) const {
    constexpr std::int64_t grain = kernels::triangle_grain;
    if (!call_.lower_triangle) return call_.keys;
    return smaller_of(call_.keys, ((call_.first_row + i + rows_at(i) - 1) / grain + 1) * grain);
  }

  [[nodiscard]] std::int64_t rows_at(std::int64_t i) const {
    return smaller_of<std::int64_t>(sizes::rows, call_.rows - i);
  }
  [[nodiscard]] static std::int64_t columns_at(std::int64_t j, std::int64_t columns) {
    return smaller_of<std::int64_t>(sizes::columns, columns - j);
  }

  /// A strip of A with a panel of B: C = A B, or C += A B.
  template <strip_layout Layout, class C>
  static void multiply(std::int64_t rows, std::int64_t depth, const T* a, std::int64_t step, const T* panel,
                       std::int64_t columns, bool adds, C* c, std::int64_t c_step) {
    constexpr int half = sizes::rows > 8 ? 8 : sizes::rows / 2;
    constexpr int quarter = half > 4 ? 4 : 2;
    while (rows > 0) {
      int taken = 1;
      if (rows == sizes::rows) {
        taken = sizes::rows;
        tile<sizes::rows, Layout>(depth, a, step, panel, columns, adds, c, c_step);
      } else if (rows >= half) {
        taken = half;
        tile<half, Layout>(depth, a, step, panel, columns, adds, c, c_step);
      } else if (rows >= quarter) {
        taken = quarter;
        tile<quarter, Layout>(depth, a, step, panel, columns, adds, c, c_step);
      } else {
        tile<1, Layout>(depth, a, step, panel, columns, adds, c, c_step);
      }
      a += taken * (Layout == strip_layout::columns ? 1 : sizes::depth);
      c += taken * c_step;
      rows -= taken;
    }
  }
  template <int Rows, strip_layout Layout, class C>
  static void tile(std::int64_t depth, const T* a, std::int64_t step, const T* panel, std::int64_t columns, bool adds,
                   C* c, std::int64_t c_step) {
    const tile_factors<T> factors{a, step, panel, sizes::columns, nullptr};
    const fetched_lines<T> none{a, a, 0};
    if constexpr (std::is_same_v<T, C>) {
      if (columns == sizes::columns) {
        multiply_tile<T, Rows, Layout, false>(depth, factors, none, T(1), adds ? T(1) : T(0), c, c_step);
        return;
      }
    }
    alignas(64) T made[Rows * sizes::columns];
    multiply_tile<T, Rows, Layout, false>(depth, factors, none, T(1), T(0), &made[0], sizes::columns);
    for (std::int64_t i = 0; i < Rows; ++i) {
      const T* const from = &made[i * sizes::columns];
      C* const to = c + i * c_step;
      if (adds) {
        for (std::int64_t j = 0; j < columns; ++j) to[j] = element_cast<C>(from[j] + element_cast<T>(to[j]));
      } else {
        for (std::int64_t j = 0; j < columns; ++j) to[j] = element_cast<C>(from[j]);
      }
    }
  }

  /// Up to a tile's columns of B, filled up with zeros, to rows of as many elements.
  template <class From>
  static void pack(const From* from, std::int64_t depth, std::int64_t row, std::int64_t columns, std::int64_t column,
                   T* to) {
    std::int64_t p = 0;
    if constexpr (is_plain<From>) {
      if (columns == sizes::columns && row == 1) {
        constexpr int side = tile_side<typename word<static_cast<int>(sizeof(T))>::type>;
        for (; p + side <= depth; p += side) {
          for (std::int64_t j = 0; j < sizes::columns; j += side) {
            transpose_square(from + p + j * column, column, to + p * sizes::columns + j, std::int64_t{sizes::columns},
                             std::make_index_sequence<static_cast<std::size_t>(side)>{});
          }
        }
      }
    }
    for (; p < depth; ++p) {
      T* const line = to + p * sizes::columns;
      if (column == 1) {
        for (std::int64_t j = 0; j < columns; ++j) line[j] = element_cast<T>(from[p * row + j]);
      } else {
        for (std::int64_t j = 0; j < columns; ++j) line[j] = element_cast<T>(from[p * row + j * column]);
      }
      for (std::int64_t j = columns; j < sizes::columns; ++j) line[j] = T(0);
    }
  }
  template <class From> static void copy_row(const From* from, std::int64_t step, std::int64_t count, T* to) {
    if (step == 1) {
      if constexpr (is_plain<From>) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
      } else {
        for (std::int64_t p = 0; p < count; ++p) to[p] = element_cast<T>(from[p]);
      }
    } else {
      for (std::int64_t p = 0; p < count; ++p) to[p] = element_cast<T>(from[p * step]);
    }
  }
  /// Scales what has been read of an operand of type `From`, in place.
  template <class From> void scale(int operand, T* at, std::int64_t count) const {
    const operand_scale& by = p_.scale[operand];
    if (!by.is_needed) return;
    using computed = computed_t<From>;
    const auto number = static_cast<computed>(by.number);
    const auto rounded = [](computed x) { return element_cast<T>(element_cast<From>(x)); };
    if (by.divides) {
      for (std::int64_t p = 0; p < count; ++p) at[p] = rounded(static_cast<computed>(at[p]) / number);
    } else {
      for (std::int64_t p = 0; p < count; ++p) at[p] = rounded(static_cast<computed>(at[p]) * number);
    }
  }
  template <class To> void store_row(const T* from, To* to) const {
    for (std::int64_t f = 0; f < p_.features; ++f) to[f] = element_cast<To>(from[f]);
  }

  const row_product& p_;
  const kernels::row_call& call_;
  std::int64_t x_at_ = 0;
  std::int64_t y_at_ = 0;
  std::int64_t scores_at_ = 0;
};

/// The functions for elements of these types, of scores, x and y.
template <dtype S, dtype X, dtype Y> struct row_product_functions {
  using multiplication = row_multiplication<storage_t<product_type(S, X, Y)>, storage_t<S>, storage_t<X>, storage_t<Y>>;
  static void run(const row_product& plan, const kernels::row_call& call) { multiplication(plan, call).run(); }
  static std::int64_t scratch_bytes(const row_product& plan, std::int64_t rows) {
    return multiplication::scratch_bytes(plan, rows);
  }
};

/// The kernel of a product whose scores are tensor number `Scores`.
template <kernels::kernel_key Key, int Scores> struct row_kernel_of {
  static constexpr row_product plan = row_product_of(attributes_of<einsum_attributes>(Key), Key.operand_shape[0],
                                                     Key.operand_shape[1], Key.shape, Scores);
  [[nodiscard]] static constexpr dtype type_of(int tensor) {
    return tensor == 2 ? Key.type : Key.operand_type[tensor < 2 ? tensor : 0];
  }
  [[nodiscard]] static constexpr kernels::row_kernel make() {
    constexpr dtype s = type_of(plan.scores);
    constexpr dtype x = type_of(plan.x);
    constexpr dtype y = type_of(plan.y);
    if constexpr (kernels::shares_kernels && kernels::shared_product(s, x, y) >= 0) {
      return {plan, nullptr, nullptr, kernels::shared_product(s, x, y)};
    } else {
      using functions = row_product_functions<s, x, y>;
      return {plan, &functions::run, &functions::scratch_bytes, -1};
    }
  }
  static constexpr kernels::row_kernel value = make();
};

}  // namespace espalier::detail
