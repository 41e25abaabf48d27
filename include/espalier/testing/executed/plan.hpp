// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/run/execute/item_executor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  schedule schedule_;
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
