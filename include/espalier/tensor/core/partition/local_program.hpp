// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/convert.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/core/partition/machine.hpp>
#include <espalier/tensor/core/partition/partition_progress.hpp>
#include <espalier/tensor/core/partition/region_arrangement.hpp>

#include <cstdint>

namespace espalier {

namespace detail {

/// The program of one device while it is made. A value may exist in several layouts: itself, and its reshards.
class local_program {
 public:
  constexpr local_program(const mesh_shape& mesh, graph_view traced) : mesh_(mesh) {
    // Ops keep the numbers of their windows.
    for (int n = 0; n < traced.window_count; ++n) out_.result().windows.push_back(traced.windows[n]);
  }
  /// Goes on with what an earlier evaluation made.
  template <int Size, int Room>
  constexpr local_program(const mesh_shape& devices, const partition_progress<Size, Room>& from)
      : mesh_(devices), hoisted_(from.hoisted) {
    out_.region = from.region;
    copy(out_.result().code, &from.program.code[0], from.program.size);
    copy(out_.result().annotations, &from.program.annotations[0], from.program.annotation_count);
    copy(out_.result().windows, &from.program.windows[0], from.program.window_count);
    copy(out_.result().further, &from.program.further[0], from.program.further_count);
    copy(origin_, &from.origin[0], from.program.size);
    copy(first_variant_, &from.first_variant[0], from.program.size);
    copy(variants_, &from.variants[0], from.variant_count);
  }

  constexpr void reserve(int instructions) {
    out_.result().code.reserve(instructions);
    out_.result().annotations.reserve(instructions);
    origin_.reserve(instructions);
    first_variant_.reserve(instructions);
  }

  /// All instructions that follow stem from this one of the traced graph.
  constexpr void stems_from(int id, source_line where) {
    current_ = id;
    out_.where = where;
  }
  [[nodiscard]] constexpr int region() const { return out_.region; }
  constexpr void enter(int region) { out_.region = region; }
  /// Returns the value that `make()` returns. The steps that it appends are carried out before the region, also where
  /// that is a branch: what a region slices and carries comes from before it.
  template <class Make> constexpr int before_region(const Make& make) {
    const int here = out_.region;
    const int size = out_.size();
    out_.region = out_[here].region;
    const int made = make();
    hoisted_ = hoisted_ || out_.size() != size;
    out_.region = here;
    return made;
  }

  [[nodiscard]] constexpr const instruction& operator[](int value) const { return out_[value]; }
  /// Returns the value that is operand k of an instruction.
  [[nodiscard]] constexpr int operand_at(const instruction& i, int k) const { return out_.operand_at(i, k); }
  [[nodiscard]] constexpr const layout& layout_of(int value) const {
    return out_.result().annotations[out_[value].annotation];
  }
  constexpr void label(int value, const char* name) { out_[value].label = name; }
  constexpr void fix_layout(int value) { out_.result().annotations[out_[value].annotation].is_fixed = true; }

  constexpr int append(const instruction& made, const extents& shape, const sharding& placement) {
    return noted(out_.append(placed(made, shape, placement)));
  }
  /// The same with these operands.
  constexpr int append(const instruction& made, const list<int>& operands, const extents& shape,
                       const sharding& placement) {
    return noted(out_.append(placed(made, shape, placement), operands.data(), operands.size()));
  }
  constexpr int copy_of(int value) {
    const layout same = layout_of(value);
    return append(builder::make(ops::copy, out_[value].type, extents{}, value), same.shape, same.placement);
  }

  /// The number of the running iteration of the innermost loop, i32<>.
  constexpr int iteration() {
    const int region = out_.region;
    for (int id = region + 1; id < out_.size(); ++id) {
      const instruction& i = out_[id];
      const bool counts = i.region == region && structure_of(i) == structure::loop_slice &&
                          out_[i.operand[0]].op->facts.values == pattern::index;
      if (counts && i.type == dtype::i32 && i.shape.rank == 0) return id;
    }
    extents all;
    all.append(attributes_of<region_attributes>(out_[region]).iterations);
    out_.region = out_[region].region;
    hoisted_ = true;
    const int numbers = append(builder::make(ops::iota, dtype::i32, extents{}), all, sharding::whole(1));
    out_.region = region;
    return append(builder::make(ops::loop_slice, dtype::i32, extents{}, numbers), extents{}, sharding::whole(0));
  }

  /// The value laid out as wanted: itself, an earlier reshard, or new steps. A value from outside a loop changes its
  /// layout there, once, and not in every iteration; one from outside a branch only where the branch is taken.
  constexpr int reshard(int value, const sharding& wanted, reduction combine = reduction::sum) {
    if (const int made = variant_as(value, wanted); made >= 0) return made;
    const layout from = layout_of(value);
    if (is_made_from_nothing(value)) return made_again(value, wanted);
    if (const padded_value again = padding_around(value, wanted); again.inner >= 0) return padded_again(value, again);
    const reshard_plan plan =
        plan_reshard(mesh_, from.shape, out_[value].type, from.placement, wanted, collective_latency);
    int result = value;
    const int here = out_.region;
    out_.region = within_branch(out_, here, out_[value].region);
    hoisted_ = hoisted_ || out_.region != here;
    for (int s = 0; s < plan.count; ++s) {
      instruction made = builder::make(op_of(plan.step[s].kind), out_[value].type, extents{}, result);
      set_attributes(made, collective_attributes{.axes = plan.step[s].axes, .combine = combine});
      result = append(made, from.shape, plan.step[s].after);
    }
    out_.region = here;
    first_variant_[value] = variants_.push_back({result, first_variant_[value]});
    return result;
  }
  /// True if a value has no operands, such as a constant or an index: every device makes the part that it needs.
  [[nodiscard]] constexpr bool is_made_from_nothing(int value) const {
    const instruction& i = out_[value];
    return i.operand_count == 0 && structure_of(i) == structure::none && !i.op->facts.unique &&
           layout_of(value).placement.unreduced == 0;
  }
  /// The value of which another one is some elements and zeros around them, and the windows through which each device
  /// would read what it needs of it; of inner -1 if there is none.
  struct padded_value {
    int inner = -1;
    sharding wanted;
    placed_windows windows;
  };
  /// A value that is zeros around another one (`pad`) may be made again in another layout, from the other one, so that
  /// no zeros travel: [4@x, 1] that becomes a row of [4, 4@x] is sent to the device that has the row, and to no other.
  [[nodiscard]] constexpr padded_value padding_around(int value, const sharding& wanted) const {
    const instruction& i = out_[value];
    padded_value none;
    if (i.op->shifts == nullptr || i.op->windows == nullptr || i.operand_count != 1 || reads_windows(i)) return none;
    const int inner = i.operand[0];
    const layout& from = layout_of(inner);
    const layout& whole = layout_of(value);
    const bool is_partial = (whole.placement.unreduced | from.placement.unreduced | wanted.unreduced) != 0;
    if (is_partial || reads_windows(out_[inner]) || whole.shape.elements() <= from.shape.elements()) return none;
    padded_value found{inner, wanted, {}};
    window of_dimension[max_rank];
    const graph_view g = out_.result();
    found.windows.dims = i.op->windows(g.view(value), 0, &of_dimension[0]);
    for (int d = 0; d < from.shape.rank; ++d) {
      if ((found.windows.dims >> static_cast<unsigned>(d) & 1U) == 0) continue;
      found.windows.window[found.windows.count++] = place_window(of_dimension[d], d, whole.shape[d], wanted.dim[d]);
    }
    const std::int64_t lacking = elements_lacking(whole, wanted, placed_windows{});
    return lacking > 0 && 2 * elements_lacking(from, wanted, found.windows) <= lacking ? found : none;
  }
  /// True if exchanging what windows need brings at most half as much as laying the value out as `home`, where all of
  /// them find it.
  [[nodiscard]] constexpr bool brings_less(const layout& from, const sharding& home, const sharding& wanted,
                                           const placed_windows& windows) const {
    if (agree(from.placement, home) || from.placement.unreduced != 0) return false;
    return 2 * elements_lacking(from, wanted, windows) <= elements_lacking(from, home, placed_windows{});
  }
  /// The value as another element type, where it is: once for all readers that are in scope.
  constexpr int converted(int value, dtype type) {
    if (out_[value].type == type) return value;
    for (int v = first_variant_[value]; v >= 0; v = variants_[v].next) {
      const int made = variants_[v].value;
      if (out_[made].type == type && in_scope(out_[made].region)) return made;
    }
    const layout same = layout_of(value);
    const int here = out_.region;
    out_.region = within_branch(out_, here, out_[value].region);
    hoisted_ = hoisted_ || out_.region != here;
    instruction made = builder::make(ops::convert, type, extents{}, value);
    if (out_[value].op->facts.values == pattern::uniform) {
      made = out_[value];
      made.type = type;
    }
    const int result = append(made, same.shape, same.placement);
    out_.region = here;
    first_variant_[value] = variants_.push_back({result, first_variant_[value]});
    return result;
  }
  /// The elements that windows need of a value: itself, where every device has those it needs and no others before
  /// them; a slice of it, where it only has them; otherwise an exchange that brings what is missing.
  /// @param wanted how the dimensions without a window are to be laid out
  /// @param like what was made of another operand of this shape that is read through the same windows, or -1: the op
  ///        walks both together, so devices must have the same box of both
  constexpr int read_through(int value, sharding wanted, const placed_windows& windows, int like = -1) {
    const layout from = layout_of(value);
    if (const padded_value again = like < 0 ? padding_around(value, wanted) : padded_value{}; again.inner >= 0)
      return read_through(padded_again(value, again), wanted, windows);
    if (like >= 0 && !reads_windows(out_[like])) {
      sharding home = layout_of(like).placement;
      home.unreduced = wanted.unreduced;
      return reshard(value, home);
    }
    if (like < 0 && !reads_windows(out_[value])) {
      const sharding home = at_home(mesh_, from, wanted, windows);
      if (home.rank >= 0 && !(variant_as(value, home) < 0 && brings_less(from, home, wanted, windows)))
        return reshard(value, home);
    }
    const int here = out_.region;
    out_.region = within_branch(out_, here, out_[value].region);
    hoisted_ = hoisted_ || out_.region != here;
    const bool is_local = none_lacks(mesh_, out_.result(), value, wanted, &windows.window[0], windows.count);
    instruction made = builder::make(is_local ? ops::local_slice : ops::exchange, out_[value].type, extents{}, value);
    const axis_mask axes = is_local ? axis_mask{0} : holders_of(from.placement, wanted, windows.dims);
    const int result = append_in_windows(made, axes, from.shape, wanted, windows);
    out_.region = here;
    return result;
  }
  /// A value's buffers as those of a tensor of another shape in which dimensions are merged: windows say which
  /// elements of those its devices have.
  constexpr int merge_dimensions(int value, const extents& merged, const sharding& placement,
                                 const placed_windows& windows) {
    return append_in_windows(builder::make(ops::merge_dimensions, out_[value].type, extents{}, value), 0, merged,
                             placement, windows);
  }
  /// The placement in which windows find everything they need where it is; of rank -1 if there is none. (Its axes split
  /// one dimension each: what stays at home is split by axes of the window's factor, which split no other dimension.)
  [[nodiscard]] static constexpr sharding at_home(const mesh_shape& mesh, const layout& from, const sharding& wanted,
                                                  const placed_windows& windows) {
    sharding home = wanted;
    bool stays = true;
    for (int n = 0; n < windows.count; ++n) {
      const placed_window& w = windows.window[n];
      home.dim[w.dim] = from.placement.dim[w.dim];
      stays = stays && stays_at_home(mesh, w, from.shape[w.dim], home.dim[w.dim]);
    }
    if (!stays) home.rank = -1;
    return home;
  }
  /// The axes along which devices hold what others may need.
  [[nodiscard]] static constexpr axis_mask holders_of(const sharding& from, const sharding& to,
                                                      std::uint32_t windowed) {
    axis_mask axes = 0;
    for (int d = 0; d < from.rank; ++d) {
      const bool overlaps = (windowed >> static_cast<unsigned>(d) & 1U) != 0;
      if (overlaps || !to.dim[d].starts_with(from.dim[d])) axes |= from.dim[d].mask();
    }
    return axes;
  }
  /// The value itself or an earlier reshard, if it is laid out as wanted; or -1.
  [[nodiscard]] constexpr int variant_as(int value, const sharding& wanted) const {
    if (detail::agree(layout_of(value).placement, wanted)) return value;
    for (int v = first_variant_[value]; v >= 0; v = variants_[v].next) {
      const int made = variants_[v].value;
      if (out_[made].type == out_[value].type && in_scope(out_[made].region) &&
          detail::agree(layout_of(made).placement, wanted))
        return made;
    }
    return -1;
  }
  /// The variant of a value with sums partial on these axes; or the value itself if there is none.
  [[nodiscard]] constexpr int partial_variant(int value, axis_mask partial) const {
    for (int v = first_variant_[value]; v >= 0; v = variants_[v].next) {
      const int made = variants_[v].value;
      if (in_scope(out_[made].region) && layout_of(made).placement.unreduced == partial) return made;
    }
    return value;
  }
  [[nodiscard]] constexpr bool in_scope(int region) const {
    for (int l = out_.region;; l = out_[l].region) {
      if (l == region) return true;
      if (l < 0) return false;
    }
  }

  /// The whole program, in order.
  constexpr void finish(graph& program, list<int>& origin) {
    if (hoisted_) region_arrangement(out_.result(), origin_).run();
    program = static_cast<graph&&>(out_.result());
    origin = static_cast<list<int>&&>(origin_);
  }
  template <int Size, int Room> constexpr void save(partition_progress<Size, Room>& to) const {
    to.program = freeze_roomily<Room, Room, Room, Room>(out_.result());
    if (!to.program.fits) return;
    to.region = out_.region;
    to.hoisted = hoisted_;
    // A variant stands for at least one instruction, so there is room.
    to.variant_count = variants_.size();
    copy(&to.origin[0], origin_.data(), to.program.size);
    copy(&to.first_variant[0], first_variant_.data(), to.program.size);
    copy(&to.variants[0], variants_.data(), to.variant_count);
  }

 private:
  [[nodiscard]] constexpr instruction placed(instruction made, const extents& shape, const sharding& placement) {
    made.shape = local_shape(mesh_, shape, placement);
    made.annotation = out_.annotate(shape, placement);
    made.origin = current_;
    return made;
  }
  constexpr int noted(int id) {
    origin_.push_back(current_);
    first_variant_.push_back(-1);
    return id;
  }

  constexpr int made_again(int value, const sharding& wanted) {
    const int here = out_.region;
    out_.region = within_branch(out_, here, out_[value].region);
    hoisted_ = hoisted_ || out_.region != here;
    const extents shape = layout_of(value).shape;
    const instruction same = out_[value];
    const int result = append(same, shape, wanted);
    out_.region = here;
    first_variant_[value] = variants_.push_back({result, first_variant_[value]});
    return result;
  }

  /// The elements that devices lack for a layout of a value, or for what windows need of it, all together: of some
  /// devices, so that the steps do not grow with the mesh.
  [[nodiscard]] constexpr std::int64_t elements_lacking(const layout& from, const sharding& wanted,
                                                        const placed_windows& windows) const {
    const int devices = mesh_.devices();
    const int step = devices <= 8 ? 1 : devices / 7;
    std::int64_t lacking = 0;
    for (int device = 0; device < devices; device += step) {
      tensor_box box = box_of(mesh_, from.shape, wanted, device);
      apply_windows(mesh_, from.shape, &windows.window[0], windows.count, device, box);
      const tensor_box held = box_of(mesh_, from.shape, from.placement, device);
      lacking += elements_of(box, wanted.rank) - elements_met(held, box, from.shape);
    }
    return lacking;
  }
  /// The same op on what each device reads through its windows.
  constexpr int padded_again(int value, const padded_value& again) {
    const int here = out_.region;
    out_.region = within_branch(out_, here, out_[value].region);
    hoisted_ = hoisted_ || out_.region != here;
    const extents shape = layout_of(value).shape;
    instruction same = out_[value];
    same.operand[0] = read_through(again.inner, again.wanted, again.windows);
    const int result = append(same, shape, again.wanted);
    out_.region = here;
    first_variant_[value] = variants_.push_back({result, first_variant_[value]});
    return result;
  }

  /// A value whose boxes follow from windows.
  constexpr int append_in_windows(instruction made, axis_mask axes, const extents& shape, const sharding& placement,
                                  const placed_windows& windows) {
    set_attributes(made, collective_attributes{.axes = axes,
                                               .first_window = out_.add_windows(&windows.window[0], windows.count),
                                               .window_count = windows.count});
    const int result = append(made, shape, placement);
    for (int n = 0; n < windows.count; ++n) {
      const placed_window& w = windows.window[n];
      out_[result].shape[w.dim] =
          most_needed(w, local_extent(mesh_, w.extent, axis_list::from_code(w.axes)), shape[w.dim]);
    }
    return result;
  }

  template <class T> static constexpr void copy(T* to, const T* from, int count) {
    for (int i = 0; i < count; ++i) to[i] = from[i];
  }
  template <class T> static constexpr void copy(list<T>& to, const T* from, int count) {
    to.resize(count);
    copy(to.data(), from, count);
  }

  const mesh_shape& mesh_;
  builder out_;
  list<int> origin_;
  /// The start in `variants_` of the chain of reshards of each value.
  list<int> first_variant_;
  list<value_variant> variants_;
  int current_ = 0;
  /// True if some instruction is in a loop that it does not belong to.
  bool hoisted_ = false;
};

}  // namespace detail

}  // namespace espalier
