// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/core/partition/row_regions.hpp>
#include <espalier/tensor/run/execute/item_executor.hpp>
#include <espalier/tensor/run/kernels/row_product.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

/// The plan of a program, made at run time.
namespace espalier::test {

/// A buffer of the arena, and where it is.
struct placed_buffer : buffer {
  std::int64_t offset = 0;
};

/// The parts of `detail::planned` and `detail::lowered`, in order.
class run_time_plan {
 public:
  /// `limits`: from where on rows are cut, and into which blocks.
  run_time_plan(const mesh_shape& mesh, graph_view g, row_limits limits = {}) : schedule_(make_schedule(g, limits)) {
    detail::form_row_regions(g, schedule_);
    memory_outline outline = outline_memory(mesh, g, schedule_);
    const auto size = static_cast<std::size_t>(g.size);
    const int count = outline.buffers.size();
    const int launches = schedule_.launches.size();
    buffers_.assign(outline.buffers.data(), outline.buffers.data() + count);
    offsets_.resize(buffers_.size());
    std::vector<int> order(buffers_.size());
    sort_buffers(buffers_.data(), count, order.data());
    tables_.arena_bytes = place_buffers(buffers_.data(), order.data(), 0, count, launches, offsets_.data());
    std::vector<std::int64_t> base(size, -1);
    for (std::size_t b = 0; b < buffers_.size(); ++b) base[static_cast<std::size_t>(buffers_[b].value)] = offsets_[b];
    copies_.assign(size, -1);
    saved_at_.assign(size, -1);
    for (int n = 0; n < outline.copies.size(); ++n) copies_[static_cast<std::size_t>(n)] = outline.copies[n];
    for (int id = 0; id < g.size; ++id) {
      if (outline.saved[id]) saved_at_[static_cast<std::size_t>(id)] = base[static_cast<std::size_t>(id)];
      location at = outline.within[id];
      if (outline.root[id] < 0) at = {};
      if (at.space == memory_space::arena) at.offset += base[static_cast<std::size_t>(outline.root[id])];
      where_.push_back(at);
      if (structure_of(g[id]) == structure::argument) {
        tables_.argument_count = std::max(tables_.argument_count, attributes_of<border_attributes>(g[id]).number + 1);
      }
      if (structure_of(g[id]) == structure::result) ++tables_.result_count;
    }
    root_ = std::move(outline.root);
    copied_ = std::move(outline.copied);
    tables_.mesh = mesh;
    tables_.code = g;
    tables_.launches = schedule_.launches.data();
    tables_.launch_count = launches;
    tables_.order = schedule_.order.data();
    tables_.launch_of = schedule_.launch_of.data();
    tables_.role = schedule_.role.data();
    tables_.stored = schedule_.stored.data();
    tables_.where = where_.data();
    tables_.root = root_.data();
    tables_.copied = copied_.data();
    tables_.copies = copies_.data();
    tables_.saved_at = saved_at_.data();
    fused_ = detail::fuser(g, tables_, limits).run();
    make_row_kernels(g);
    tables_.steps = fused_.steps.data();
    tables_.step_count = fused_.steps.size();
    tables_.chains = fused_.chains.data();
    tables_.shifted = fused_.shifted.data();
    tables_.shifts = &detail::all_shift_functions;
    tables_.reducer_of = &comm::reducer_of;
    tables_.transfers = detail::all_transfers();
  }
  run_time_plan(const run_time_plan&) = delete;
  run_time_plan& operator=(const run_time_plan&) = delete;

  [[nodiscard]] const program_tables& tables() const { return tables_; }
  [[nodiscard]] std::vector<placed_buffer> buffers() const {
    std::vector<placed_buffer> all;
    for (std::size_t b = 0; b < buffers_.size(); ++b) all.push_back({buffers_[b], offsets_[b]});
    return all;
  }

 private:
  /// The library's own kernels of products in row regions, of f64, or of f32 and bf16 in any mixture.
  static kernels::row_kernel row_kernel_of(const row_product& plan, const dtype (&type)[3]) {
    const auto of = [&]<dtype S, dtype X, dtype Y>() {
      using functions = detail::row_product_functions<S, X, Y>;
      return kernels::row_kernel{plan, &functions::run, &functions::scratch_bytes, -1};
    };
    constexpr dtype wide = dtype::f32;
    constexpr dtype half = dtype::bf16;
    if (type[0] == dtype::f64 && type[1] == dtype::f64 && type[2] == dtype::f64)
      return of.template operator()<dtype::f64, dtype::f64, dtype::f64>();
    for (const dtype one : type) {
      if (one != wide && one != half) throw std::logic_error("a row region of types without a kernel here");
    }
    const int which =
        (type[plan.scores] == wide ? 4 : 0) + (type[plan.x] == wide ? 2 : 0) + (type[plan.y] == wide ? 1 : 0);
    switch (which) {
      case 0: return of.template operator()<half, half, half>();
      case 1: return of.template operator()<half, half, wide>();
      case 2: return of.template operator()<half, wide, half>();
      case 3: return of.template operator()<half, wide, wide>();
      case 4: return of.template operator()<wide, half, half>();
      case 5: return of.template operator()<wide, half, wide>();
      case 6: return of.template operator()<wide, wide, half>();
      default: return of.template operator()<wide, wide, wide>();
    }
  }
  void make_row_kernels(graph_view g) {
    row_kernels_.resize(static_cast<std::size_t>(schedule_.launches.size()));
    row_kernel_at_.assign(row_kernels_.size() + 1, nullptr);
    for (int u = 0; u < schedule_.launches.size(); ++u) {
      const launch& what = schedule_.launches[u];
      if (what.scores < 0) continue;
      const int id = schedule_.order[what.first];
      const auto at = static_cast<std::size_t>(u);
      row_kernels_[at] = row_kernel_of(detail::row_product_of(g, id, what.scores),
                                       {g.operand(id, 0).type, g.operand(id, 1).type, g[id].type});
      row_kernel_at_[at] = &row_kernels_[at];
    }
    tables_.row_kernels = row_kernel_at_.data();
  }

  schedule schedule_;
  std::vector<kernels::row_kernel> row_kernels_;
  std::vector<const kernels::row_kernel*> row_kernel_at_;
  std::vector<buffer> buffers_;
  std::vector<std::int64_t> offsets_;
  std::vector<location> where_;
  detail::list<int> root_;
  detail::list<bool> copied_;
  std::vector<int> copies_;
  std::vector<std::int64_t> saved_at_;
  fused_program fused_;
  program_tables tables_;
};

}  // namespace espalier::test
