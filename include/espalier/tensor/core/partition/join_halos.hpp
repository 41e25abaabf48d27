// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/core/partition/lacking.hpp>
#include <espalier/tensor/core/partition/local_program.hpp>

#include <cstdint>

namespace espalier {

namespace detail {

/// The elements that exchanges read of one value: dimensions through windows, the others as `placement` says.
struct read_region {
  /// The value, and the exchange that asks for the region first.
  int value = -1;
  int exchange = -1;
  sharding placement;
  placed_windows windows;
  /// It is computed from what is around the values that the value is computed from.
  bool is_computed = false;
  /// The instruction of the result that has it, or -1 as long as there is none.
  int id = -1;
};

/// The rows of the shortest shard that has any of `rows` rows, of a chunk of `chunk` at most, that axes (their code)
/// split: of 13 rows on 4 devices the last one's, 1.
[[nodiscard]] constexpr std::int64_t rows_of_shortest(const mesh_shape& mesh, std::int64_t chunk, std::int64_t rows,
                                                      std::uint32_t axes) {
  if (axes == 0 || rows == 0) return rows;
  const std::int64_t block = ceil_div(chunk, mesh.size[(axes & 15U) - 1U]);
  const std::int64_t rest = rows % block;
  std::int64_t shortest = rows;
  if (rows >= block) shortest = rows_of_shortest(mesh, block, block, axes >> 4U);
  if (rest != 0) shortest = smaller_of(shortest, rows_of_shortest(mesh, block, rest, axes >> 4U));
  return shortest;
}

/// Whether a device would bring rows that it has not and that neither of two windows reads, which lie between those of
/// the one and of the other: of a shard of 1 row, windows 1 and 5 rows before it read 2, and what contains both is 5.
[[nodiscard]] constexpr bool leaves_hole(const placed_window& a, const placed_window& b, std::int64_t extent,
                                         std::int64_t shortest) {
  // What all rows of the shortest shard read, from its first row.
  const std::int64_t rows = ceil_div(a.stride * (shortest - 1), a.base_dilation);
  const bool a_is_first = shorter_way(a, extent) >= shorter_way(b, extent);
  const placed_window& first = a_is_first ? a : b;
  const placed_window& second = a_is_first ? b : a;
  std::int64_t end = first.reach() - shorter_way(first, extent) + rows;
  const std::int64_t begin = -shorter_way(second, extent);
  // Its own rows are there.
  const bool has_own = a.stride == 1 && a.base_dilation == 1 && a.extent == extent;
  if (has_own && end >= -1) end = larger_of(end, rows);
  if (has_own && begin > 0 && end < -1) return true;
  return begin > end + 1;
}

/// The window that reads through all taps of two, and what lies between them; of size 0 if there is none: windows that
/// step differently, or over different factors, or that have a hole between them (`leaves_hole`).
[[nodiscard]] constexpr placed_window hull_of(const mesh_shape& mesh, const placed_window& a, const placed_window& b,
                                              std::int64_t extent) {
  placed_window both = a;
  both.size = 0;
  const bool alike = a.dim == b.dim && a.extent == b.extent && a.axes == b.axes && a.stride == b.stride &&
                     a.base_dilation == b.base_dilation && a.wraps == b.wraps;
  if (!alike || a.stride < 1 || leaves_hole(a, b, extent, rows_of_shortest(mesh, a.extent, a.extent, a.axes)))
    return both;
  const std::int64_t low_of_a = shorter_way(a, extent);
  const std::int64_t low_of_b = shorter_way(b, extent);
  both.low = larger_of(low_of_a, low_of_b);
  both.dilation = 1;
  both.size = larger_of(a.reach() - low_of_a, b.reach() - low_of_b) + both.low + 1;
  // One tap is the window that an op makes itself.
  if (both.wraps && both.low < 0) both.low += extent;
  return both;
}

/// Lets exchanges share what they bring (`join_halos`).
class halo_joiner {
 public:
  constexpr explicit halo_joiner(graph&& program, const mesh_shape& mesh)
      : mesh_(mesh), from_(static_cast<graph&&>(program)), g_(from_) {}

  constexpr graph run() {
    int exchanges = 0;
    for (int id = 0; id < g_.size; ++id) exchanges += is_halo(id) ? 1 : 0;
    if (exchanges == 0) return static_cast<graph&&>(from_);
    if (exchanges == 1) return with_what_is_read();
    for (int id = 0; id < g_.size; ++id) {
      if (is_halo(id)) ask(g_[id].operand[0], g_[id].annotation, windows_of(g_[id]), id);
    }
    const int direct = regions_.size();
    if (direct == exchanges && !compute_some()) return with_what_is_read();
    if (direct != exchanges) compute_some();
    rebuild();
    edit_.drop_unread(may_go);
    return edit_.finish();
  }

 private:
  /// The most instructions from an exchanged value back to those that are exchanged instead.
  static constexpr int most_steps = 32;

  [[nodiscard]] constexpr bool is_halo(int id) const {
    return is_collective(g_[id].op, collective::exchange) && reads_windows(g_[id]) &&
           !reads_windows(g_.operand(id, 0)) && g_[id].region == g_.operand(id, 0).region;
  }
  [[nodiscard]] constexpr const layout& layout_of(int id) const { return g_.annotations[g_[id].annotation]; }
  [[nodiscard]] constexpr placed_windows windows_of(const instruction& i) const {
    placed_windows windows;
    const auto moves = attributes_of<collective_attributes>(i);
    for (int n = 0; n < moves.window_count; ++n) windows.add(g_.windows[moves.first_window + n]);
    return windows;
  }
  [[nodiscard]] static constexpr const placed_window* window_in(const placed_windows& windows, int dim) {
    for (int n = 0; n < windows.count; ++n) {
      if (windows.window[n].dim == dim) return &windows.window[n];
    }
    return nullptr;
  }
  [[nodiscard]] static constexpr bool has_dim(const placed_windows& windows, int dim) {
    return (windows.dims >> static_cast<unsigned>(dim) & 1U) != 0;
  }

  // --- regions -------------------------------------------------------------------------------------------------------

  /// The region that contains two of one value; of no windows if there is none, or it would be more than both.
  [[nodiscard]] constexpr read_region hull_of_regions(const read_region& a, const read_region& b) const {
    read_region none;
    if (a.value != b.value || a.is_computed || b.is_computed) return none;
    const bool a_is_larger = (a.windows.dims & b.windows.dims) == b.windows.dims;
    if (!a_is_larger) {
      if ((a.windows.dims & b.windows.dims) != a.windows.dims) return none;
      return hull_of_regions(b, a);
    }
    const layout& held = layout_of(a.value);
    read_region both = a;
    both.windows = placed_windows{};
    for (int d = 0; d < a.placement.rank; ++d) {
      if (!has_dim(a.windows, d)) {
        if (!(a.placement.dim[d] == b.placement.dim[d])) return none;
        continue;
      }
      const placed_window& wide = *window_in(a.windows, d);
      placed_window other{1, 1, 0, 1, 1, held.shape[d], b.placement.dim[d].code(), d, wide.wraps};
      if (has_dim(b.windows, d)) {
        other = *window_in(b.windows, d);
      } else if (!(b.placement.dim[d] == held.placement.dim[d])) {
        return none;
      }
      const placed_window joined = hull_of(mesh_, wide, other, held.shape[d]);
      if (joined.size == 0) return none;
      both.windows.add(joined);
    }
    if (bytes_of_region(both) > bytes_of_region(a) + bytes_of_region(b)) return none;
    return both;
  }
  /// Bytes that devices lack of it: by whole extents (`rows_lacking`), and of shards that are shorter than a shift no
  /// more than what they read.
  [[nodiscard]] constexpr std::int64_t bytes_of_region(const read_region& r) const {
    const layout& held = layout_of(r.value);
    const std::int64_t element = size_of(g_[r.value].type);
    const placed_window* const windows = &r.windows.window[0];
    const std::int64_t all = bytes_lacking(held, r.placement, windows, r.windows.count, element);
    if (r.windows.count != 1) return all;
    const std::int64_t extent = held.shape[windows->dim];
    const std::int64_t shard = local_extent(mesh_, windows->extent, axis_list::from_code(windows->axes));
    const std::int64_t rows = most_needed(*windows, shard, extent);
    return smaller_of(all, extent == 0 ? 0 : held.shape.elements() / extent * rows * element);
  }
  [[nodiscard]] constexpr std::int64_t bytes_of_value(int value) const {
    std::int64_t bytes = 0;
    for (const read_region& r : regions_) bytes += r.value == value && !r.is_computed ? bytes_of_region(r) : 0;
    return bytes;
  }

  /// Adds a region, or what of it is not in others.
  constexpr void ask(int value, int annotation, const placed_windows& windows, int exchange) {
    read_region wanted;
    wanted.value = value;
    wanted.exchange = exchange;
    wanted.placement = g_.annotations[annotation].placement;
    wanted.windows = windows;
    add(wanted);
  }
  constexpr void add(read_region wanted) {
    for (int n = 0; n < regions_.size();) {
      // Most are of other values.
      if (regions_[n].value != wanted.value || regions_[n].is_computed) {
        ++n;
        continue;
      }
      const read_region both = hull_of_regions(regions_[n], wanted);
      if (both.windows.count == 0) {
        ++n;
        continue;
      }
      const int first = smaller_of(regions_[n].exchange, wanted.exchange);
      wanted = both;
      wanted.exchange = first;
      // What has grown may contain others now.
      regions_[n] = regions_.back();
      regions_.pop_back();
      n = 0;
    }
    regions_.push_back(wanted);
  }
  /// The region that contains what these windows read of a value, or -1.
  [[nodiscard]] constexpr int region_with(int value, const sharding& placement, const placed_windows& windows) const {
    read_region asked;
    asked.value = value;
    asked.placement = placement;
    asked.windows = windows;
    for (int n = 0; n < regions_.size(); ++n) {
      if (regions_[n].value != value) continue;
      if (regions_[n].windows == windows && regions_[n].placement.same_layout(placement)) return n;
      read_region region = regions_[n];
      region.is_computed = false;
      const read_region both = hull_of_regions(region, asked);
      if (both.windows.count > 0 && reads_the_same(both.windows, region.windows)) return n;
    }
    return -1;
  }
  /// Whether windows need the same elements.
  [[nodiscard]] constexpr bool reads_the_same(const placed_windows& a, const placed_windows& b) const {
    if (a.dims != b.dims) return false;
    for (int n = 0; n < a.count; ++n) {
      const placed_window& one = a.window[n];
      const placed_window& other = b.window[n];
      if (one == other) continue;
      const bool alike = one.extent == other.extent && one.axes == other.axes && one.stride == other.stride &&
                         one.base_dilation == other.base_dilation && one.wraps == other.wraps;
      if (!alike || one.low != other.low || one.reach() != other.reach()) return false;
    }
    return true;
  }

  // --- halos that are computed ---------------------------------------------------------------------------------------

  /// The values that the surroundings of a value are computed from.
  struct sources {
    bool possible = true;
    int steps = 0;
    /// Another exchange is on the way: what is computed does not wait for it.
    bool skips_exchange = false;
    list<read_region> of;
  };

  [[nodiscard]] constexpr bool is_pointwise(const instruction& i) const {
    return i.op->fuse == fusion::elementwise && !i.op->positional && collective_index(i.op) < 0 &&
           structure_of(i) == structure::none && !i.op->facts.is_further_result && i.op->windows == nullptr;
  }
  /// Whether every element is the same, so that there may be more of them.
  [[nodiscard]] constexpr bool is_uniform(int id) const {
    const instruction& i = g_[id];
    return i.op->facts.values == pattern::uniform || (i.op == &ops::broadcast && g_.operand(id, 0).shape.rank == 0);
  }
  /// Whether an instruction reads no neighbours along dimensions that are read through `windows`, but along another.
  [[nodiscard]] constexpr bool looks_elsewhere(int id, const placed_windows& windows) const {
    const instruction& i = g_[id];
    if (i.op != &ops::slice && i.op != &ops::pad && i.op != &ops::roll) return false;
    window of_dimension[max_rank];
    return (i.op->windows(g_.view(id), 0, &of_dimension[0]) & windows.dims) == 0;
  }
  [[nodiscard]] constexpr bool has_placement(int id, const sharding& wanted, const placed_windows& windows) const {
    const sharding& held = layout_of(id).placement;
    if (held.unreduced != 0) return false;
    for (int d = 0; d < held.rank; ++d) {
      if (!has_dim(windows, d) && !(held.dim[d] == wanted.dim[d])) return false;
    }
    return true;
  }

  constexpr void find_sources(int id, const read_region& wanted, bool is_first, sources& found) const {
    if (!found.possible || ++found.steps > most_steps) {
      found.possible = false;
      return;
    }
    const instruction& i = g_[id];
    if (is_uniform(id)) return;
    if (!is_first && region_with(id, wanted.placement, wanted.windows) >= 0) {
      note_source(id, wanted.placement, wanted.windows, wanted.exchange, found);
      return;
    }
    const bool is_near = i.region == g_[wanted.value].region;
    if (is_near && (is_pointwise(i) || looks_elsewhere(id, wanted.windows))) {
      for (int k = 0; k < i.operand_count; ++k) find_sources(g_.operand_at(i, k), wanted, false, found);
      return;
    }
    if (is_near && is_halo(id) && (windows_of(i).dims & wanted.windows.dims) == 0) {
      found.skips_exchange = true;
      placed_windows all;
      sharding placement = layout_of(id).placement;
      const placed_windows own = windows_of(i);
      for (int d = 0; d < placement.rank; ++d) {
        if (has_dim(own, d)) all.add(*window_in(own, d));
        if (!has_dim(wanted.windows, d)) continue;
        all.add(*window_in(wanted.windows, d));
        placement.dim[d] = wanted.placement.dim[d];
      }
      note_source(i.operand[0], placement, all, wanted.exchange, found);
      return;
    }
    if (is_first || !is_near || structure_of(i) == structure::loop_slice) {
      found.possible = false;
      return;
    }
    note_source(id, wanted.placement, wanted.windows, wanted.exchange, found);
  }
  constexpr void note_source(int value, const sharding& placement, const placed_windows& windows, int exchange,
                             sources& found) const {
    read_region one;
    one.value = value;
    one.exchange = exchange;
    one.placement = placement;
    one.windows = windows;
    // Where parts are not where the value's are, what is read is not around them.
    for (int n = 0; n < windows.count; ++n) {
      const placed_window& w = windows.window[n];
      const layout& held = layout_of(value);
      if (w.stride != 1 || w.base_dilation != 1 || w.extent != held.shape[w.dim] ||
          w.axes != held.placement.dim[w.dim].code())
        found.possible = false;
    }
    if (!has_placement(value, placement, windows) || reads_windows(g_[value])) found.possible = false;
    for (const read_region& known : found.of) {
      if (known.value == value && reads_the_same(known.windows, windows)) return;
    }
    found.of.push_back(one);
  }

  /// Marks the regions that are computed, and asks for what they are computed from; false if there are none.
  constexpr bool compute_some() {
    bool some = false;
    for (int n = 0; n < regions_.size(); ++n) {
      const read_region wanted = regions_[n];
      if (wanted.is_computed) continue;
      sources found;
      find_sources(wanted.value, wanted, true, found);
      if (!found.possible || found.of.empty() || !pays(n, found)) {
        found = shared_source(n);
        if (found.of.empty()) continue;
      }
      regions_[n].is_computed = true;
      for (const read_region& one : found.of) add(one);
      some = true;
      // Regions have moved in the list.
      n = -1;
    }
    return some;
  }
  [[nodiscard]] constexpr bool is_exchanged(int value) const {
    for (const read_region& r : regions_) {
      if (r.value == value && !r.is_computed) return true;
    }
    return false;
  }
  /// True if less moves then, or as much in fewer rounds.
  [[nodiscard]] constexpr bool pays(int region, const sources& found) {
    const std::int64_t spared = bytes_of_region(regions_[region]);
    std::int64_t new_ones = 0;
    for (const read_region& one : found.of) new_ones += is_exchanged(one.value) ? 0 : bytes_of_region(one);
    if (new_ones > spared) return false;
    list<read_region> kept;
    for (const read_region& r : regions_) kept.push_back(r);
    std::int64_t more = 0;
    for (const read_region& one : found.of) {
      more -= bytes_of_value(one.value);
      add(one);
      more += bytes_of_value(one.value);
    }
    regions_ = static_cast<list<read_region>&&>(kept);
    // Corners, which are a few elements more, are worth a round.
    return more < spared || (more == spared && found.skips_exchange);
  }
  /// The value that is the only one of which another is computed, element by element, apart from constants; or -1.
  [[nodiscard]] constexpr int computed_from(int value) const {
    const instruction& i = g_[value];
    if (!is_pointwise(i)) return -1;
    int from = -1;
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      if (is_uniform(operand) || operand == from) continue;
      if (from >= 0) return -1;
      from = operand;
    }
    return from >= 0 && g_[from].region == i.region ? from : -1;
  }
  /// The nearest value from which another exchanged one is computed, too, if less moves of it than of both.
  [[nodiscard]] constexpr sources shared_source(int region) {
    sources found;
    const read_region wanted = regions_[region];
    int steps = 0;
    for (int from = computed_from(wanted.value); from >= 0 && ++steps < most_steps; from = computed_from(from)) {
      for (int n = 0; n < regions_.size(); ++n) {
        const read_region other = regions_[n];
        if (n == region || other.is_computed || other.value == wanted.value) continue;
        int back = other.value;
        for (int more = 0; back >= 0 && back != from && more < most_steps; ++more) back = computed_from(back);
        if (back != from) continue;
        note_source(from, wanted.placement, wanted.windows, wanted.exchange, found);
        read_region both = found.of[0];
        read_region second = other;
        second.value = from;
        const std::int64_t apart = bytes_of_region(wanted) + bytes_of_region(other);
        both = hull_of_regions(both, second);
        if (found.possible && both.windows.count > 0 && bytes_of_region(both) < apart) return found;
        found = sources{};
      }
    }
    return found;
  }

  // --- the new program -----------------------------------------------------------------------------------------------

  constexpr void rebuild() {
    cut_.resize(g_.size, -1);
    list<bool> is_cut(g_.size, false);
    for (int id = 0; id < g_.size; ++id) {
      for (int k = 0; k < g_[id].operand_count; ++k) {
        const int operand = g_.operand_at(g_[id], k);
        is_cut[operand] = is_cut[operand] || !finds_rows(id);
      }
    }
    edit_ = graph_editor(g_);
    for (int id = 0; id < g_.size; ++id) {
      if (is_halo(id)) {
        replace(id, is_cut[id]);
        continue;
      }
      for (int k = 0; k < g_[id].operand_count && !finds_rows(id); ++k) {
        int& operand = edit_.operand_at(edit_[id], k);
        if (cut_[operand] >= 0) operand = cut_[operand];
      }
      edit_.place(id);
    }
  }
  /// Whether an instruction finds the rows that it reads along one dimension wherever the box of the operand begins.
  [[nodiscard]] constexpr bool finds_rows(int id) const {
    const op_info* const op = g_[id].op;
    return op == &ops::slice || op == &ops::pad || op == &ops::roll;
  }
  /// Finds what stands for exchange `id`: the region that contains it, for those that find their rows in it, and a part
  /// of that for the others.
  constexpr void replace(int id, bool is_cut) {
    const int value = g_[id].operand[0];
    const sharding& placement = layout_of(id).placement;
    const placed_windows windows = windows_of(g_[id]);
    const int region = region_with(value, placement, windows);
    const int whole = make(region, id);
    const placed_windows all = regions_[region].windows;
    const bool is_same = reads_the_same(all, windows);
    const bool is_wider_elsewhere = !is_same && (all.dims != windows.dims || windows.count > 1);
    if (!is_same && (is_cut || is_wider_elsewhere)) cut_[id] = cut(whole, value, placement, windows, id);
    edit_.replace(id, is_wider_elsewhere ? cut_[id] : whole);
  }

  /// A part of a region.
  constexpr int cut(int whole, int value, const sharding& placement, const placed_windows& windows, int like) {
    instruction i = builder::make(ops::local_slice, g_[value].type, extents{}, whole);
    return append_in_windows(i, 0, value, placement, windows, like);
  }
  constexpr int append_in_windows(instruction i, axis_mask axes, int value, const sharding& placement,
                                  const placed_windows& windows, int like) {
    const extents& shape = layout_of(value).shape;
    set_attributes(
        i, collective_attributes{.axes = axes, .first_window = add_windows(windows), .window_count = windows.count});
    i.shape = buffer_of(shape, placement, windows);
    i.annotation = edit_.annotate({shape, placement});
    return append(i, like);
  }
  [[nodiscard]] constexpr extents buffer_of(const extents& shape, const sharding& placement,
                                            const placed_windows& windows) const {
    extents buffer = local_shape(mesh_, shape, placement);
    for (int n = 0; n < windows.count; ++n) {
      const placed_window& w = windows.window[n];
      buffer[w.dim] = most_needed(w, local_extent(mesh_, w.extent, axis_list::from_code(w.axes)), shape[w.dim]);
    }
    return buffer;
  }
  constexpr int append(instruction i, int like) {
    const instruction& model = g_[like];
    i.where = model.where;
    i.origin = model.origin;
    i.region = model.region;
    return edit_.append(i);
  }
  constexpr int add_windows(const placed_windows& windows) {
    list<placed_window>& made = edit_.now().windows;
    const int first = made.size();
    for (int n = 0; n < windows.count; ++n) made.push_back(windows.window[n]);
    return first;
  }

  /// The instruction that has a region.
  constexpr int make(int n, int like) {
    if (regions_[n].id >= 0) return regions_[n].id;
    const read_region region = regions_[n];
    int made = -1;
    if (region.is_computed) {
      list<int> known(g_.size, -1);
      const int computed = compute(region.value, region, like, known);
      made = append_in_windows(builder::make(ops::merge_dimensions, g_[region.value].type, extents{}, computed), 0,
                               region.value, region.placement, region.windows, like);
    } else {
      const axis_mask axes =
          local_program::holders_of(layout_of(region.value).placement, region.placement, region.windows.dims);
      made = append_in_windows(builder::make(ops::exchange, g_[region.value].type, extents{}, region.value), axes,
                               region.value, region.placement, region.windows, like);
    }
    regions_[n].id = made;
    return made;
  }
  /// Computes a value, and what is around it, from what is around others.
  constexpr int compute(int id, const read_region& wanted, int like, list<int>& known) {
    if (known[id] >= 0) return known[id];
    int made = -1;
    if (is_uniform(id)) {
      made = widened(id, wanted, like, known);
    } else if (id != wanted.value && region_with(id, wanted.placement, wanted.windows) >= 0) {
      made = part_of_region(id, wanted.placement, wanted.windows, like);
    } else if (is_halo(id)) {
      sources found;
      find_sources(id, wanted, false, found);
      made = part_of_region(found.of[0].value, found.of[0].placement, found.of[0].windows, like);
    } else {
      made = widened(id, wanted, like, known);
    }
    known[id] = made;
    return made;
  }
  constexpr int part_of_region(int value, const sharding& placement, const placed_windows& windows, int like) {
    const int region = region_with(value, placement, windows);
    const int whole = make(region, like);
    return reads_the_same(regions_[region].windows, windows) ? whole : cut(whole, value, placement, windows, like);
  }
  /// The same instruction on larger buffers. Along the dimensions that are read through windows it is as on one device
  /// alone: no element depends on where it is.
  constexpr int widened(int id, const read_region& wanted, int like, list<int>& known) {
    instruction i = g_[id];
    list<int> operands;
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(g_[id], k);
      operands.push_back(g_[operand].shape.rank == 0 ? operand : compute(operand, wanted, like, known));
    }
    i.further = -1;
    for (int k = 0; k < operands.size(); ++k) {
      if (k < inline_operands) {
        i.operand[k] = operands[k];
      } else {
        const int at = edit_.now().further.push_back(operands[k]);
        if (k == inline_operands) i.further = at;
      }
    }
    layout of_buffer = layout_of(id);
    const extents buffer = buffer_of(layout_of(wanted.value).shape, wanted.placement, wanted.windows);
    for (int n = 0; n < wanted.windows.count; ++n) {
      const int d = wanted.windows.window[n].dim;
      i.shape[d] = buffer[d];
      of_buffer.shape[d] = buffer[d];
      of_buffer.placement.dim[d] = axis_list{};
    }
    i.annotation = edit_.annotate(of_buffer);
    i.label = nullptr;
    const instruction own = i;
    const int made = append(i, like);
    edit_[made].where = own.where;
    edit_[made].origin = own.origin;
    return made;
  }

  /// Leaves out values that nothing reads: only exchanges did that are no more, or the partitioner has padded again
  /// what it had padded.
  constexpr graph with_what_is_read() {
    graph_editor all(static_cast<graph&&>(from_));
    for (int id = 0; id < all.source_size(); ++id) all.place(id);
    all.drop_unread(may_go);
    return all.finish();
  }
  [[nodiscard]] static constexpr bool may_go(const instruction& i, const instruction* next) {
    return structure_of(i) == structure::none && i.label == nullptr && !i.op->facts.looks &&
           !i.op->facts.is_further_result && !i.op->facts.unique && !(next != nullptr && is_further_result(*next));
  }

  const mesh_shape& mesh_;
  graph from_;
  graph_view g_;
  list<read_region> regions_;
  graph_editor edit_;
  /// The parts of regions that stand for exchanges.
  list<int> cut_;
};

}  // namespace detail

/// Lets exchanges of windows share what they bring: those that read one value bring once what all of them need, the
/// corners too where another exchange would bring them later; and what is around a value that is computed element by
/// element from others is computed from what is around those, where that moves less. Shifts of one value by 1 and by 2
/// to both sides are one exchange of two rows from each neighbour. Extents of whole tensors decide, so that a program
/// has the same form on every mesh whose shards have as many rows as lie between two shifts.
[[nodiscard]] constexpr graph join_halos(const mesh_shape& mesh, graph&& g) {
  return detail::halo_joiner(static_cast<graph&&>(g), mesh).run();
}

}  // namespace espalier
