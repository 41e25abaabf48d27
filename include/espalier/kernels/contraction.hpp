// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>
#include <espalier/kernels/blas.hpp>
#include <espalier/kernels/kernel.hpp>
#include <espalier/shape/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>

#if defined(_OPENMP)
#include <omp.h>
#endif

// einsum of two operands on static extents. A plan is made at compile time (`plan_of`): which labels become the rows,
// columns and depth of a matrix product, which become loops around it, and which operands, if any, must first be
// rearranged in scratch. Running it (`contract`) is one function for all plans, so that each costs little to compile.

namespace espalier::kernels {

/// C[c labels] = sum over labels that are not in C of A[a labels] * B[b labels]; all three row-major and contiguous.
/// A label may be in A, B and C (batch), in A and C (rows), in B and C (columns) or in A and B (summed).
/// A label of A or B alone is not allowed: reduce that operand first. A label twice in A or in B means its diagonal.
struct contraction {
  static constexpr int max_labels = 12;
  static constexpr int max_rank = 8;
  int label_count = 0;
  std::int64_t extent[max_labels] = {};
  int rank_a = 0;
  int rank_b = 0;
  int rank_c = 0;
  signed char a[max_rank] = {};
  signed char b[max_rank] = {};
  signed char c[max_rank] = {};

  friend constexpr bool operator==(const contraction&, const contraction&) = default;
};

/// Reads "bsm,mnd->bsnd" with the shapes of both operands, for tests and for calls by hand.
/// An inconsistent text gives a contraction that `is_valid` refuses.
[[nodiscard]] constexpr contraction contraction_of(std::string_view text, std::initializer_list<std::int64_t> shape_a,
                                                   std::initializer_list<std::int64_t> shape_b) {
  contraction p;
  char names[contraction::max_labels] = {};
  const auto bad = [] {
    contraction none;
    none.label_count = -1;
    return none;
  };
  const auto read = [&](std::string_view part, const std::int64_t* shape, int& rank, signed char* dims) {
    for (const char name : part) {
      int label = 0;
      while (label < p.label_count && names[label] != name) ++label;
      if (rank == contraction::max_rank || label == contraction::max_labels) return false;
      if (label == p.label_count) {
        if (shape == nullptr) return false;
        names[p.label_count++] = name;
        p.extent[label] = shape[rank];
      }
      if (shape != nullptr && p.extent[label] != shape[rank]) return false;
      dims[rank++] = static_cast<signed char>(label);
    }
    return true;
  };
  const std::size_t comma = text.find(',');
  const std::size_t arrow = text.find("->");
  if (comma == std::string_view::npos || arrow == std::string_view::npos || comma > arrow) return bad();
  if (comma != shape_a.size() || arrow - comma - 1 != shape_b.size()) return bad();
  if (!read(text.substr(0, comma), shape_a.begin(), p.rank_a, p.a)) return bad();
  if (!read(text.substr(comma + 1, arrow - comma - 1), shape_b.begin(), p.rank_b, p.b)) return bad();
  if (!read(text.substr(arrow + 2), nullptr, p.rank_c, p.c)) return bad();
  return p;
}

}  // namespace espalier::kernels

namespace espalier::detail {

inline constexpr int operand_a = 0;
inline constexpr int operand_b = 1;
inline constexpr int operand_c = 2;

enum class label_class : std::uint8_t { batch, row, column, sum, invalid };

/// One index of the loop nest that defines a contraction. `stride` is 0 where the tensor does not have the label.
struct contraction_label {
  std::int64_t extent = 1;
  std::int64_t stride[3] = {};
  bool in[3] = {};

  [[nodiscard]] constexpr label_class kind() const {
    if (in[0] && in[1]) return in[2] ? label_class::batch : label_class::sum;
    if (!in[2]) return label_class::invalid;
    return in[0] ? label_class::row : in[1] ? label_class::column : label_class::invalid;
  }
};

struct label_list {
  int count = 0;
  contraction_label item[kernels::contraction::max_labels];
};

struct copy_axis {
  std::int64_t extent = 1;
  std::int64_t from = 0;
  std::int64_t to = 0;
};

/// A rearrangement; the axes are sorted so that the destination is written in order.
struct copy_plan {
  bool active = false;
  int rank = 0;
  copy_axis axis[kernels::contraction::max_rank];
  std::int64_t count = 0;   // elements
  std::int64_t offset = 0;  // elements from the start of scratch
};

struct loop_axis {
  std::int64_t extent = 1;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c = 0;
};

/// What the innermost product is.
enum class product_kind : std::uint8_t {
  empty,      // nothing to sum: C = beta C
  gemm,       // C[m,n] = A[m,k] B[k,n]
  gemv,       // C[m] = A[m,k] B[k]
  dots,       // C[m] = sum_k A[m,k] B[m,k]
  pointwise,  // C[m,n] = A[m,n] B[m,n], where a stride may be 0
};

}  // namespace espalier::detail

namespace espalier::kernels {

/// How a contraction is computed. Strides are in elements and belong to the operands in the order they are multiplied:
/// with `swapped`, "A" is the caller's B, since a column-major C is a row-major C^T = B^T A^T.
struct gemm_plan {
  detail::product_kind kind = detail::product_kind::empty;
  bool swapped = false;
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  std::int64_t a_row = 0;
  std::int64_t a_column = 0;
  std::int64_t b_row = 0;
  std::int64_t b_column = 0;
  std::int64_t c_row = 0;
  std::int64_t c_column = 0;
  int loop_count = 0;      // independent iterations, outermost first
  int sum_loop_count = 0;  // iterations that accumulate into the same C, inside the others
  detail::loop_axis loops[contraction::max_labels];
  detail::loop_axis sum_loops[contraction::max_labels];
  std::int64_t iterations = 1;
  std::int64_t sum_iterations = 1;
  detail::copy_plan copy[3];  // of the caller's A and B into scratch, and of C out of it
  std::int64_t scratch_elements = 0;
  std::int64_t c_count = 0;
  double cost = 0.0;  // the planner's estimate for one thread, ns

  [[nodiscard]] constexpr double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(iterations) * static_cast<double>(sum_iterations);
  }
};

/// Whether `p` is a contraction that `contract` can run: labels in range, C without repetition, no label in one operand
/// alone, and extents that fit a BLAS's 32-bit integers.
[[nodiscard]] constexpr bool is_valid(const contraction& p) {
  if (p.label_count < 0 || p.label_count > contraction::max_labels) return false;
  int seen[3][contraction::max_labels] = {};
  const auto mark = [&](int which, int rank, const signed char* dims) {
    if (rank < 0 || rank > contraction::max_rank) return false;
    for (int d = 0; d < rank; ++d) {
      if (dims[d] < 0 || dims[d] >= p.label_count) return false;
      ++seen[which][dims[d]];
    }
    return true;
  };
  if (!mark(0, p.rank_a, p.a) || !mark(1, p.rank_b, p.b) || !mark(2, p.rank_c, p.c)) return false;
  for (int l = 0; l < p.label_count; ++l) {
    if (p.extent[l] < 0 || p.extent[l] > 0x7fffffff) return false;
    const int tensors = (seen[0][l] > 0) + (seen[1][l] > 0) + (seen[2][l] > 0);
    if (tensors < 2 || seen[2][l] > 1) return false;
  }
  return true;
}

}  // namespace espalier::kernels

namespace espalier::detail {

/// The labels of `p` with their strides; labels of extent 1 are dropped, since they move no pointer.
[[nodiscard]] constexpr label_list labels_of(const kernels::contraction& p) {
  contraction_label all[kernels::contraction::max_labels];
  const auto add = [&](int which, int rank, const signed char* dims) {
    std::int64_t stride = 1;
    for (int d = rank - 1; d >= 0; --d) {
      contraction_label& label = all[dims[d]];
      label.in[which] = true;
      label.stride[which] += stride;
      stride *= p.extent[dims[d]];
    }
  };
  add(operand_a, p.rank_a, p.a);
  add(operand_b, p.rank_b, p.b);
  add(operand_c, p.rank_c, p.c);
  label_list list;
  for (int l = 0; l < p.label_count; ++l) {
    all[l].extent = p.extent[l];
    if (p.extent[l] != 1) list.item[list.count++] = all[l];
  }
  return list;
}

/// Whether `inner` continues `outer` in every tensor, so that both are one longer label.
[[nodiscard]] constexpr bool continues(const contraction_label& outer, const contraction_label& inner) {
  for (int t = 0; t < 3; ++t) {
    if (outer.in[t] != inner.in[t]) return false;
    if (outer.in[t] && outer.stride[t] != inner.stride[t] * inner.extent) return false;
  }
  return true;
}

constexpr void fuse(label_list& list) {
  for (int i = 0; i < list.count; ++i) {
    for (int j = 0; j < list.count; ++j) {
      if (i == j || !continues(list.item[i], list.item[j])) continue;
      list.item[j].extent *= list.item[i].extent;
      list.item[i] = list.item[--list.count];
      i = -1;  // what was fused may fuse again
      break;
    }
  }
}

/// Sorts by class, and within a class from the outermost label to the innermost as a tensor that is not packed has
/// them: a packed tensor that follows this order can then be walked together with it, without gaps.
constexpr void sort_labels(label_list& list, const bool (&packed)[3]) {
  const auto reference = [&packed](label_class kind) {
    switch (kind) {
      case label_class::batch: return !packed[2] ? 2 : !packed[0] ? 0 : 1;
      case label_class::row: return !packed[2] ? 2 : 0;
      case label_class::column: return !packed[2] ? 2 : 1;
      default: return !packed[0] ? 0 : 1;
    }
  };
  for (int i = 1; i < list.count; ++i) {
    for (int j = i; j > 0; --j) {
      contraction_label& left = list.item[j - 1];
      contraction_label& right = list.item[j];
      const label_class kind = right.kind();
      const int r = reference(kind);
      if (left.kind() < kind || (left.kind() == kind && left.stride[r] >= right.stride[r])) break;
      std::swap(left, right);
    }
  }
}

/// Gives each tensor of `packed` the layout [batch][rows or columns][sum] in the order of the list.
constexpr void lay_out_packed(label_list& list, const bool (&packed)[3]) {
  for (int t = 0; t < 3; ++t) {
    if (!packed[t]) continue;
    std::int64_t stride = 1;
    for (int i = list.count - 1; i >= 0; --i) {
      if (!list.item[i].in[t]) continue;
      list.item[i].stride[t] = stride;
      stride *= list.item[i].extent;
    }
  }
}

/// The rearrangement of tensor `t` between its own layout and scratch. `before` and `after` are the same labels.
[[nodiscard]] constexpr copy_plan copy_of(int t, const label_list& before, const label_list& after) {
  copy_plan copy;
  copy.active = true;
  copy.count = 1;
  for (int i = 0; i < after.count; ++i) {
    if (!after.item[i].in[t]) continue;
    copy_axis axis{after.item[i].extent, before.item[i].stride[t], after.item[i].stride[t]};
    if (t == operand_c) std::swap(axis.from, axis.to);
    copy.count *= axis.extent;
    int at = copy.rank++;
    for (; at > 0 && copy.axis[at - 1].to < axis.to; --at) copy.axis[at] = copy.axis[at - 1];
    copy.axis[at] = axis;
  }
  for (int i = copy.rank - 1; i > 0; --i) {
    copy_axis& outer = copy.axis[i - 1];
    const copy_axis& inner = copy.axis[i];
    if (outer.to != inner.to * inner.extent || outer.from != inner.from * inner.extent) continue;
    outer = {outer.extent * inner.extent, inner.from, inner.to};
    for (int j = i; j + 1 < copy.rank; ++j) copy.axis[j] = copy.axis[j + 1];
    --copy.rank;
  }
  return copy;
}

/// ns to rearrange on one thread. The constants of this and the next estimates are roundings of what an AVX-512 core
/// does; only their order of magnitude matters, because alternatives differ by factors.
[[nodiscard]] constexpr double copy_cost(const copy_plan& copy) {
  const bool rows = copy.rank == 0 || copy.axis[copy.rank - 1].from == 1;
  return 200.0 + static_cast<double>(copy.count) * (rows ? 0.3 : 0.8);
}

[[nodiscard]] constexpr double gemm_cost(double m, double n, double k) {
  return 300.0 + 2.0 * (m + 8.0) * (n + 8.0) * (k + 16.0) / 150.0 + 0.1 * (m * k + k * n + 2.0 * m * n);
}

/// Picks the innermost product and the loops around it for labels whose strides are settled.
class product_search {
 public:
  constexpr explicit product_search(const label_list& list) : list_(list) {
    for (int i = 0; i < list.count; ++i) total_ *= static_cast<double>(list.item[i].extent);
  }

  constexpr void run() {
    for (int i = 0; i < list_.count; ++i) {
      const label_class kind = list_.item[i].kind();
      if (kind == label_class::sum) {
        try_products(i);
        try_dots(i);
      } else {
        try_pointwise(i);
      }
    }
    if (list_.count == 0) offer(product_kind::pointwise, -1, -1, -1, 10.0);
  }

  [[nodiscard]] constexpr double cost() const { return cost_; }

  constexpr void write(kernels::gemm_plan& plan) const {
    plan.kind = kind_;
    plan.cost = cost_;
    const contraction_label none;
    const contraction_label& m = m_ < 0 ? none : list_.item[m_];
    const contraction_label& n = n_ < 0 ? none : list_.item[n_];
    const contraction_label& k = k_ < 0 ? none : list_.item[k_];
    const int x = swapped_ ? operand_b : operand_a;
    const int y = swapped_ ? operand_a : operand_b;
    plan.swapped = swapped_;
    plan.m = m.extent;
    plan.n = n.extent;
    plan.k = k.extent;
    plan.c_row = m.stride[operand_c];
    plan.c_column = n.stride[operand_c];
    plan.a_row = m.stride[x];
    switch (kind_) {
      case product_kind::gemm:
      case product_kind::gemv:
        plan.a_column = k.stride[x];
        plan.b_row = k.stride[y];
        plan.b_column = n.stride[y];
        break;
      case product_kind::dots:
        plan.a_column = k.stride[x];
        plan.b_row = m.stride[y];
        plan.b_column = k.stride[y];
        break;
      default:
        plan.a_column = n.stride[x];
        plan.b_row = m.stride[y];
        plan.b_column = n.stride[y];
        break;
    }
    for (int i = 0; i < list_.count; ++i) {
      if (i == m_ || i == n_ || i == k_) continue;
      const contraction_label& label = list_.item[i];
      const bool sums = label.kind() == label_class::sum;
      loop_axis* loops = sums ? plan.sum_loops : plan.loops;
      int& count = sums ? plan.sum_loop_count : plan.loop_count;
      (sums ? plan.sum_iterations : plan.iterations) *= label.extent;
      const loop_axis loop{label.extent, label.stride[x], label.stride[y], label.stride[operand_c]};
      // Neighbouring iterations should touch neighbouring memory: the longest step of C (or of A) goes outside.
      const auto step = [sums](const loop_axis& l) { return sums ? l.a : l.c; };
      int at = count++;
      for (; at > 0 && step(loops[at - 1]) < step(loop); --at) loops[at] = loops[at - 1];
      loops[at] = loop;
    }
  }

 private:
  [[nodiscard]] constexpr double extent(int label) const {
    return label < 0 ? 1.0 : static_cast<double>(list_.item[label].extent);
  }
  [[nodiscard]] constexpr std::int64_t stride(int label, int tensor) const {
    return label < 0 ? 0 : list_.item[label].stride[tensor];
  }
  [[nodiscard]] constexpr bool unit(int label, int tensor) const { return stride(label, tensor) == 1; }

  constexpr void offer(product_kind kind, int m, int n, int k, double each, bool swapped = false) {
    const double calls = total_ / (extent(m) * extent(n) * extent(k));
    if (cost_ >= 0.0 && calls * each >= cost_) return;
    cost_ = calls * each;
    kind_ = kind;
    m_ = m;
    n_ = n;
    k_ = k;
    swapped_ = swapped;
  }

  constexpr void try_products(int k) {
    for (int m = 0; m < list_.count; ++m) {
      const label_class kind = list_.item[m].kind();
      if (kind != label_class::row && kind != label_class::column) continue;
      const int matrix = kind == label_class::row ? operand_a : operand_b;
      if (!unit(m, matrix) && !unit(k, matrix)) continue;
      offer(product_kind::gemv, m, -1, k, 150.0 + 0.12 * extent(m) * extent(k), kind == label_class::column);
      if (kind != label_class::row) continue;
      for (int n = 0; n < list_.count; ++n) {
        if (list_.item[n].kind() != label_class::column) continue;
        if (!unit(n, operand_b) && !unit(k, operand_b)) continue;
        const double each = gemm_cost(extent(m), extent(n), extent(k));
        if (unit(n, operand_c)) offer(product_kind::gemm, m, n, k, each);
        if (unit(m, operand_c)) offer(product_kind::gemm, n, m, k, each, true);
      }
    }
  }

  constexpr void try_dots(int k) {
    const double each = 10.0 + extent(k) * (unit(k, operand_a) && unit(k, operand_b) ? 0.1 : 1.0);
    for (int m = -1; m < list_.count; ++m) {
      if (m >= 0 && list_.item[m].kind() == label_class::sum) continue;
      offer(product_kind::dots, m, -1, k, 15.0 + each * extent(m));
    }
  }

  constexpr void try_pointwise(int n) {
    const bool quick = unit(n, operand_c) && stride(n, operand_a) <= 1 && stride(n, operand_b) <= 1;
    const double each = 5.0 + extent(n) * (quick ? 0.15 : 1.0);
    for (int m = -1; m < list_.count; ++m) {
      if (m == n || (m >= 0 && list_.item[m].kind() == label_class::sum)) continue;
      offer(product_kind::pointwise, m, n, -1, 15.0 + each * extent(m));
    }
  }

  const label_list& list_;
  double total_ = 1.0;
  double cost_ = -1.0;
  product_kind kind_ = product_kind::empty;
  int m_ = -1;
  int n_ = -1;
  int k_ = -1;
  bool swapped_ = false;
};

/// The cheapest plan; tensors with `must_pack` go through scratch in any case (their elements need converting).
[[nodiscard]] constexpr kernels::gemm_plan make_plan(const kernels::contraction& p, const bool (&must_pack)[3]) {
  kernels::gemm_plan best;
  const label_list labels = labels_of(p);
  std::int64_t c_count = 1;
  bool nothing = false;
  for (int i = 0; i < labels.count; ++i) {
    if (labels.item[i].in[operand_c]) c_count *= labels.item[i].extent;
    if (labels.item[i].extent == 0) nothing = true;
  }
  best.c_count = c_count;
  if (nothing) return best;
  double best_cost = -1.0;
  for (int choice = 0; choice < 8; ++choice) {
    const bool packed[3] = {(choice & 1) != 0, (choice & 2) != 0, (choice & 4) != 0};
    if ((must_pack[0] && !packed[0]) || (must_pack[1] && !packed[1]) || (must_pack[2] && !packed[2])) continue;
    label_list before = labels;
    label_list after = labels;
    if (choice != 0) {
      sort_labels(before, packed);
      after = before;
      lay_out_packed(after, packed);
    }
    copy_plan copy[3];
    double cost = 0.0;
    std::int64_t scratch = 0;
    for (int t = 0; t < 3; ++t) {
      if (!packed[t]) continue;
      copy[t] = copy_of(t, before, after);
      copy[t].offset = scratch;
      scratch += (copy[t].count + 15) / 16 * 16;  // whole cache lines, for any type
      cost += copy_cost(copy[t]);
    }
    if (best_cost >= 0.0 && cost >= best_cost) continue;
    fuse(after);
    product_search search(after);
    search.run();
    cost += search.cost();
    if (best_cost >= 0.0 && cost >= best_cost) continue;
    best_cost = cost;
    best = kernels::gemm_plan{};
    best.c_count = c_count;
    search.write(best);
    best.cost = cost;
    for (int t = 0; t < 3; ++t) best.copy[t] = copy[t];
    best.scratch_elements = scratch;
  }
  return best;
}

template <class A, class B, class C>
using compute_t =
    std::conditional_t<std::is_same_v<A, double> || std::is_same_v<B, double> || std::is_same_v<C, double>, double,
                       float>;

/// Threads that a kernel may start from here: none inside a parallel region, else what the calling thread was given.
[[nodiscard]] inline int available_threads() {
#if defined(_OPENMP)
  return omp_in_parallel() != 0 ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

/// Work below this (elements or multiply-adds) is not worth waking a thread for.
inline constexpr double parallel_threshold = 32768.0;

[[nodiscard]] inline loop_axis locate(const loop_axis* loops, int count, std::int64_t index) {
  loop_axis at;
  for (int i = count - 1; i >= 0; --i) {
    const std::int64_t step = i == 0 ? index : index % loops[i].extent;
    index /= loops[i].extent;
    at.a += step * loops[i].a;
    at.b += step * loops[i].b;
    at.c += step * loops[i].c;
  }
  return at;
}

/// One slice of a rearrangement, `to = from + beta * to`: the destination's last axis and, where another axis is the
/// unit one in the source, that axis too, in tiles that keep both within L1.
template <class T, class From, class To>
inline void copy_slice(const copy_axis& row, const copy_axis& column, const From* ESPALIER_RESTRICT from,
                       To* ESPALIER_RESTRICT to, T beta) {
  constexpr std::int64_t tile = 32;
  const std::int64_t row_tile = row.from == 1 ? tile : 1;
  const std::int64_t column_tile = row.from == 1 ? tile : column.extent;
  for (std::int64_t r0 = 0; r0 < row.extent; r0 += row_tile) {
    const std::int64_t r1 = std::min(row.extent, r0 + row_tile);
    for (std::int64_t c0 = 0; c0 < column.extent; c0 += column_tile) {
      const std::int64_t count = std::min(column.extent - c0, column_tile);
      for (std::int64_t r = r0; r < r1; ++r) {
        const From* ESPALIER_RESTRICT in = from + r * row.from + c0 * column.from;
        To* ESPALIER_RESTRICT out = to + r * row.to + c0;
        if (beta != T(0)) {
          ESPALIER_OMP(simd)
          for (std::int64_t x = 0; x < count; ++x)
            out[x] = static_cast<To>(static_cast<T>(in[x * column.from]) + beta * static_cast<T>(out[x]));
        } else if (column.from == 1) {
          ESPALIER_OMP(simd)
          for (std::int64_t x = 0; x < count; ++x) out[x] = static_cast<To>(static_cast<T>(in[x]));
        } else {
          ESPALIER_OMP(simd)
          for (std::int64_t x = 0; x < count; ++x) out[x] = static_cast<To>(static_cast<T>(in[x * column.from]));
        }
      }
    }
  }
}

template <class T, class From, class To> void run_copy(const copy_plan& plan, const From* from, To* to, T beta) {
  const copy_axis column = plan.rank == 0 ? copy_axis{1, 1, 1} : plan.axis[plan.rank - 1];
  copy_axis row;
  loop_axis loops[kernels::contraction::max_rank];
  int count = 0;
  int row_axis = -1;
  for (int i = 0; i + 1 < plan.rank; ++i)
    if (plan.axis[i].from == 1 || row_axis < 0) row_axis = i;
  if (plan.rank > 1 && plan.axis[row_axis].from != 1) row_axis = plan.rank - 2;
  std::int64_t iterations = 1;
  for (int i = 0; i + 1 < plan.rank; ++i) {
    if (i == row_axis) {
      row = plan.axis[i];
      continue;
    }
    loops[count++] = {plan.axis[i].extent, plan.axis[i].from, 0, plan.axis[i].to};
    iterations *= plan.axis[i].extent;
  }
  const int threads = static_cast<double>(plan.count) < parallel_threshold ? 1 : available_threads();
  // Few slices are cut along their rows, or there would be nothing to share.
  const std::int64_t cuts = threads == 1 || iterations >= 4 * threads ? 1 : std::min<std::int64_t>(threads, row.extent);
  const std::int64_t total = iterations * cuts;
  const auto slice = [&](std::int64_t index) {
    const loop_axis at = locate(loops, count, index / cuts);
    const std::int64_t first = row.extent * (index % cuts) / cuts;
    const std::int64_t last = row.extent * (index % cuts + 1) / cuts;
    copy_slice<T>({last - first, row.from, row.to}, column, from + at.a + first * row.from, to + at.c + first * row.to,
                  beta);
  };
  if (threads == 1 || total == 1) {
    for (std::int64_t i = 0; i < total; ++i) slice(i);
    return;
  }
  ESPALIER_OMP(parallel for num_threads(threads) schedule(static))
  for (std::int64_t i = 0; i < total; ++i) slice(i);
}

template <class T>
inline void pointwise_row(std::int64_t n, T alpha, const T* ESPALIER_RESTRICT a, std::int64_t a_step,
                          const T* ESPALIER_RESTRICT b, std::int64_t b_step, T beta, T* ESPALIER_RESTRICT c,
                          std::int64_t c_step) {
  const auto each = [&](auto&& product) {
    if (c_step == 1 && beta == T(0)) {
      ESPALIER_OMP(simd)
      for (std::int64_t i = 0; i < n; ++i) c[i] = product(i);
    } else if (c_step == 1) {
      ESPALIER_OMP(simd)
      for (std::int64_t i = 0; i < n; ++i) c[i] = product(i) + beta * c[i];
    } else {
      ESPALIER_OMP(simd)
      for (std::int64_t i = 0; i < n; ++i) c[i * c_step] = product(i) + (beta == T(0) ? T(0) : beta * c[i * c_step]);
    }
  };
  if (a_step == 1 && b_step == 1) {
    each([=](std::int64_t i) { return alpha * a[i] * b[i]; });
  } else if (a_step == 1 && b_step == 0) {
    each([=, factor = alpha * b[0]](std::int64_t i) { return factor * a[i]; });
  } else if (a_step == 0 && b_step == 1) {
    each([=, factor = alpha * a[0]](std::int64_t i) { return factor * b[i]; });
  } else {
    each([=](std::int64_t i) { return alpha * a[i * a_step] * b[i * b_step]; });
  }
}

/// Part of a product: rows [row, row + rows) and columns [column, column + columns) of its result.
struct product_part {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
};

template <class Backend, class T>
void run_product(const kernels::gemm_plan& p, const T* a, const T* b, T* c, T alpha, T beta, const product_part& part) {
  c += part.row * p.c_row + part.column * p.c_column;
  a += part.row * p.a_row;
  switch (p.kind) {
    case product_kind::gemm:
      Backend::gemm(part.rows, part.columns, p.k, alpha, matrix_view<const T>{a, p.a_row, p.a_column},
                    matrix_view<const T>{b + part.column * p.b_column, p.b_row, p.b_column}, beta, c, p.c_row);
      break;
    case product_kind::gemv:
      Backend::gemv(part.rows, p.k, alpha, matrix_view<const T>{a, p.a_row, p.a_column}, b, p.b_row, beta, c, p.c_row);
      break;
    case product_kind::dots:
      b += part.row * p.b_row;
      for (std::int64_t i = 0; i < part.rows; ++i) {
        const T sum = alpha * strided_dot(p.k, a + i * p.a_row, p.a_column, b + i * p.b_row, p.b_column);
        T& out = c[i * p.c_row];
        out = beta == T(0) ? sum : sum + beta * out;
      }
      break;
    case product_kind::pointwise:
      a += part.column * p.a_column;
      b += part.row * p.b_row + part.column * p.b_column;
      for (std::int64_t i = 0; i < part.rows; ++i) {
        pointwise_row(part.columns, alpha, a + i * p.a_row, p.a_column, b + i * p.b_row, p.b_column, beta,
                      c + i * p.c_row, p.c_column);
      }
      break;
    case product_kind::empty: break;
  }
}

/// A product is cut along its longer side: the shorter operand is then read by every thread, and the longer by one.
[[nodiscard]] inline bool cuts_columns(const kernels::gemm_plan& p) {
  return (p.kind == product_kind::gemm || p.kind == product_kind::pointwise) && p.n > p.m;
}

/// The products of one iteration of the loops, each of which adds to the same part of C.
template <class Backend, class T>
void run_iteration(const kernels::gemm_plan& p, const T* a, const T* b, T* c, T alpha, T beta, std::int64_t iteration,
                   const product_part& part) {
  const loop_axis at = locate(p.loops, p.loop_count, iteration);
  for (std::int64_t s = 0; s < p.sum_iterations; ++s) {
    const loop_axis term = locate(p.sum_loops, p.sum_loop_count, s);
    run_product<Backend>(p, a + at.a + term.a, b + at.b + term.b, c + at.c, alpha, s == 0 ? beta : T(1), part);
  }
}

/// The loops around the innermost product, shared among threads. Where they do not share out evenly, each product is
/// cut into as many parts as there are threads: that scales better than a BLAS's own threads, which wait for each other
/// several times in a product.
template <class Backend, class T>
void run_products(const kernels::gemm_plan& p, const T* a, const T* b, T* c, T alpha, T beta) {
  const int threads = p.flops() < 2.0 * parallel_threshold ? 1 : available_threads();
  const bool by_columns = cuts_columns(p);
  const std::int64_t length = by_columns ? p.n : p.m;
  const bool even = p.iterations % threads == 0 || p.iterations >= 4 * threads;
  const std::int64_t cuts = even ? 1 : std::min<std::int64_t>(threads, length);
  const std::int64_t grain = p.kind != product_kind::gemm ? 1
                             : by_columns                 ? tile_sizes<T>::columns
                                                          : tile_sizes<T>::rows;
  const std::int64_t cut_length = ((length + cuts - 1) / cuts + grain - 1) / grain * grain;
  const std::int64_t total = p.iterations * cuts;
  const auto run = [&](std::int64_t index) {
    const std::int64_t first = index % cuts * cut_length;
    const std::int64_t count = std::min(cut_length, length - first);
    if (count <= 0) return;
    const product_part part = by_columns ? product_part{0, p.m, first, count} : product_part{first, count, 0, p.n};
    run_iteration<Backend>(p, a, b, c, alpha, beta, index / cuts, part);
  };
  if (threads == 1 || total == 1) {
    for (std::int64_t i = 0; i < total; ++i) run(i);
    return;
  }
  ESPALIER_OMP(parallel for num_threads(threads) schedule(static))
  for (std::int64_t i = 0; i < total; ++i) run(i);
}

template <class T, class Stored>
[[nodiscard]] const T* gather(const copy_plan& copy, const Stored* tensor, T* scratch) {
  if (copy.active) {
    run_copy<T>(copy, tensor, scratch + copy.offset, T(0));
    return scratch + copy.offset;
  }
  if constexpr (std::is_same_v<T, Stored>) return tensor;
  return nullptr;  // a tensor of another type is always copied
}

template <class Backend, class A, class B, class C>
void run_contraction(const kernels::gemm_plan& plan, const A* a, const B* b, C* c, compute_t<A, B, C> alpha,
                     compute_t<A, B, C> beta, void* scratch) {
  using T = compute_t<A, B, C>;
  if (plan.kind == product_kind::empty) {
    for (std::int64_t i = 0; i < plan.c_count; ++i)
      c[i] = beta == T(0) ? C(T(0)) : static_cast<C>(beta * static_cast<T>(c[i]));
    return;
  }
  T* const room = static_cast<T*>(scratch);
  const T* first = gather<T>(plan.copy[operand_a], a, room);
  const T* second = gather<T>(plan.copy[operand_b], b, room);
  if (plan.swapped) std::swap(first, second);
  const copy_plan& out = plan.copy[operand_c];
  if (out.active) {
    run_products<Backend>(plan, first, second, room + out.offset, alpha, T(0));
    run_copy<T>(out, room + out.offset, c, beta);
  } else if constexpr (std::is_same_v<T, C>) {
    run_products<Backend>(plan, first, second, c, alpha, beta);
  }
}

/// One iteration of a plan without scratch, on one thread; of a square one, if asked for, little more than the lower
/// triangle: a few blocks of whole tiles' columns, from the diagonal down.
template <class Backend, class A, class B, class C>
void run_contraction_part(const kernels::gemm_plan& plan, const A* a, const B* b, C* c, std::int64_t part,
                          bool lower_triangle) {
  using T = compute_t<A, B, C>;
  // A tensor of another type is converted in scratch, and such a plan has no parts.
  if constexpr (std::is_same_v<A, T> && std::is_same_v<B, T> && std::is_same_v<C, T>) {
    constexpr std::int64_t narrowest = std::max<std::int64_t>(tile_sizes<T>::columns, kernels::triangle_grain);
    constexpr std::int64_t most_blocks = 8;
    const std::int64_t tiles = (plan.n + most_blocks * narrowest - 1) / (most_blocks * narrowest);
    const std::int64_t block = lower_triangle ? tiles * narrowest : plan.n;
    for (std::int64_t j = 0; j < plan.n; j += block) {
      const product_part below{j, plan.m - j, j, std::min(block, plan.n - j)};
      run_iteration<Backend>(plan, plan.swapped ? b : a, plan.swapped ? a : b, c, T(1), T(0), part, below);
    }
  }
}

/// What products of floats are computed in: double if one of the three is, else float.
[[nodiscard]] constexpr dtype product_type(dtype a, dtype b, dtype c) {
  return a == dtype::f64 || b == dtype::f64 || c == dtype::f64 ? dtype::f64 : dtype::f32;
}
[[nodiscard]] constexpr kernels::gemm_plan plan_for(const kernels::contraction& p, dtype a, dtype b, dtype c) {
  const dtype computed = product_type(a, b, c);
  const bool must_pack[3] = {a != computed, b != computed, c != computed};
  return make_plan(p, must_pack);
}

template <kernels::contraction P, dtype A, dtype B, dtype C>
inline constexpr kernels::gemm_plan static_plan = plan_for(P, A, B, C);

}  // namespace espalier::detail

namespace espalier::kernels {

/// The plan of a contraction of f32 or f64 tensors (@pre `is_valid(p)`), or of tensors of three types of floats: one
/// that the product is not computed in (`detail::product_type`) is converted in scratch.
[[nodiscard]] constexpr gemm_plan plan_of(const contraction& p) {
  return detail::plan_for(p, dtype::f32, dtype::f32, dtype::f32);
}
[[nodiscard]] constexpr gemm_plan plan_of(const contraction& p, dtype a, dtype b, dtype c) {
  return detail::plan_for(p, a, b, c);
}

/// Bytes of scratch that `contract` needs for these element types; 0 where every operand is used where it lies.
[[nodiscard]] constexpr std::int64_t scratch_bytes(const contraction& p, dtype a, dtype b, dtype c) {
  return plan_of(p, a, b, c).scratch_elements * size_of(detail::product_type(a, b, c));
}
[[nodiscard]] constexpr std::int64_t scratch_bytes(const contraction& p, dtype type) {
  return scratch_bytes(p, type, type, type);
}

/// C = alpha * einsum(A, B) + beta * C; with beta = 0, C is written without being read.
///
/// A, B and C are row-major, contiguous, and do not overlap; each is float, double or for storage only. They are
/// multiplied and summed in double if one of them is, else in float, and rounded once. `scratch`:
/// `scratch_bytes` bytes aligned to 64 (null where that is 0). Nothing is allocated. Runs on up to
/// `omp_get_max_threads()` threads of the calling thread, and on one inside a parallel region.
template <contraction P, class A, class B, class C, class Backend = detail::default_backend>
void contract(const A* a, const B* b, C* c, detail::compute_t<A, B, C> alpha, detail::compute_t<A, B, C> beta,
              void* scratch) {
  static_assert(is_valid(P), "contract: each label must be in two or three of A, B and C, and once in C");
  detail::run_contraction<Backend>(detail::static_plan<P, dtype_of<A>, dtype_of<B>, dtype_of<C>>, a, b, c, alpha, beta,
                                   scratch);
}

/// Iteration `part` of the plan's loops alone, on one thread, with alpha 1 and beta 0. Of a lower triangle, row i has
/// at least the columns before the next multiple of `triangle_grain`; what is not computed is not written.
/// @pre `plan_of(P, ...)` needs no scratch, and 0 <= part < its `iterations`; for a lower triangle it is a gemm whose
/// m and n are equal
template <contraction P, class A, class B, class C, class Backend = detail::default_backend>
void contract_part(const A* a, const B* b, C* c, std::int64_t part, bool lower_triangle = false) {
  detail::run_contraction_part<Backend>(detail::static_plan<P, dtype_of<A>, dtype_of<B>, dtype_of<C>>, a, b, c, part,
                                        lower_triangle);
}

}  // namespace espalier::kernels
