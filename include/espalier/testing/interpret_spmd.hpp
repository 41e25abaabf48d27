// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/partition/partition.hpp>
#include <espalier/tensor/core/program/check_graph.hpp>
#include <espalier/testing/interpret.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

/// Bytes one device sent, by kind of collective.
struct traffic {
  std::array<std::int64_t, collective_kinds> bytes{};

  [[nodiscard]] std::int64_t operator[](collective kind) const { return bytes[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] std::int64_t& operator[](collective kind) { return bytes[static_cast<std::size_t>(kind)]; }
};

/// The results of a partitioned program, and the bytes that every device sent for them.
struct spmd_outcome {
  std::vector<tensor_value> results;
  std::vector<traffic> sent;
};

namespace detail {

/// Walks the elements of a box in row-major order: `f(index)` with `rank` indices.
template <class F> void for_each_index(int rank, const std::int64_t* extent, const F& f) {
  std::int64_t index[max_rank]{};
  for (int d = 0; d < rank; ++d) {
    if (extent[d] <= 0) return;
  }
  for (;;) {
    f(&index[0]);
    int d = rank - 1;
    for (; d >= 0; --d) {
      if (++index[d] < extent[d]) break;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

/// The position in a buffer of this shape of the element `index` after `start`.
[[nodiscard]] inline std::size_t position_in(const extents& shape, const std::int64_t* start,
                                             const std::int64_t* index) {
  std::int64_t at = 0;
  for (int d = 0; d < shape.rank; ++d) at = at * shape[d] + start[d] + index[d];
  return static_cast<std::size_t>(at);
}

/// The filling of padding: a NaN spreads until a check notices. An integer has none, but may be used as an index.
[[nodiscard]] inline double poison_of(dtype type) {
  return is_floating(type) ? std::numeric_limits<double>::quiet_NaN() : 1.0;
}

[[nodiscard]] inline tensor_value poisoned(const extents& shape, dtype type) {
  return {shape, std::vector<double>(static_cast<std::size_t>(shape.elements()), poison_of(type))};
}

/// The devices of a mesh, running one partitioned program in lockstep. Whatever is wrong with the program is thrown as
/// std::logic_error with the number of the instruction.
class spmd_interpreter {
 public:
  spmd_interpreter(const mesh_shape& mesh, graph_view g, const std::vector<tensor_value>& arguments)
      : mesh_(mesh), g_(g), sent_(static_cast<std::size_t>(mesh.devices())) {
    check(mesh, g, graph_stage::buffers);
    for (int device = 0; device < mesh.devices(); ++device) {
      std::vector<tensor_value> mine(arguments.size());
      for (int id = 0; id < g.size; ++id) {
        if (structure_of(g[id]) != structure::argument) continue;
        const auto index = static_cast<std::size_t>(attributes_of<border_attributes>(g[id]).number);
        if (index >= arguments.size()) throw std::invalid_argument("interpret_spmd: an argument is missing");
        if (!(arguments[index].shape == layout_of(id).shape)) {
          throw std::invalid_argument("interpret_spmd: argument " + std::to_string(index) +
                                      " has another shape than the program's");
        }
        mine[index] = cut(id, arguments[index], device);
      }
      devices_.emplace_back(g, std::move(mine));
    }
  }

  [[nodiscard]] spmd_outcome run() {
    lockstep program(g_, devices_, [&](int id) { execute(id); });
    program.run();
    spmd_outcome outcome;
    outcome.sent = sent_;
    for (int id = 0; id < g_.size; ++id) {
      if (structure_of(g_[id]) != structure::result) continue;
      const auto index = static_cast<std::size_t>(attributes_of<border_attributes>(g_[id]).number);
      if (index >= outcome.results.size()) outcome.results.resize(index + 1);
      outcome.results[index] = assemble(id);
    }
    return outcome;
  }

 private:
  [[noreturn]] void fail(int id, const std::string& what) const {
    throw std::logic_error("instruction " + std::to_string(id) + " (" + g_[id].op->name + "): " + what);
  }
  [[nodiscard]] const layout& layout_of(int id) const { return g_.annotations[g_[id].annotation]; }
  [[nodiscard]] tensor_box box(int id, int device) const { return box_of(mesh_, g_, id, device); }

  // --- data -----------------------------------------------------------------------------------------------------

  [[nodiscard]] tensor_value cut(int id, const tensor_value& whole, int device) const {
    tensor_value part = poisoned(g_[id].shape, g_[id].type);
    const tensor_box mine = box(id, device);
    // A partial sum that comes from outside is the first device's term.
    const bool has_term = mesh_.position(device, list_of(layout_of(id).placement.unreduced)) == 0;
    std::int64_t start[max_rank]{};
    std::int64_t extent[max_rank]{};
    const std::int64_t origin[max_rank]{};
    for (int d = 0; d < whole.shape.rank; ++d) {
      start[d] = mine.dim[d].start;
      extent[d] = mine.dim[d].size;
    }
    for_each_index(whole.shape.rank, &extent[0], [&](const std::int64_t* index) {
      part.data[position_in(part.shape, &origin[0], index)] =
          has_term ? whole.data[position_in(whole.shape, &start[0], index)] : 0;
    });
    return part;
  }

  /// The whole tensor from all devices' parts; copies must agree to the last bit, and the terms of partial sums are
  /// added up.
  [[nodiscard]] tensor_value assemble(int id) const {
    const layout& l = layout_of(id);
    tensor_value whole = poisoned(l.shape, g_[id].type);
    std::vector<bool> known(whole.data.size(), false);
    const axis_list terms = list_of(l.placement.unreduced);
    for (int device = 0; device < mesh_.devices(); ++device) {
      if (mesh_.position(device, terms) != 0) continue;
      const tensor_box mine = box(id, device);
      std::int64_t start[max_rank]{};
      std::int64_t extent[max_rank]{};
      const std::int64_t origin[max_rank]{};
      for (int d = 0; d < l.shape.rank; ++d) {
        start[d] = mine.dim[d].start;
        extent[d] = mine.dim[d].size;
      }
      for_each_index(l.shape.rank, &extent[0], [&](const std::int64_t* index) {
        const std::size_t from = position_in(g_[id].shape, &origin[0], index);
        const std::size_t to = position_in(l.shape, &start[0], index);
        double value = 0;
        for (int n = 0; n < static_cast<int>(mesh_.parts(terms)); ++n) {
          value += state(mesh_.member(device, terms, n))[id].data[from];
        }
        const bool same = whole.data[to] == value || (value != value && whole.data[to] != whole.data[to]);
        if (known[to] && !same) fail(id, "the copies of its replicated elements differ");
        known[to] = true;
        whole.data[to] = value;
      });
    }
    for (const bool one : known) {
      if (!one) fail(id, "no device holds some element");
    }
    return whole;
  }

  [[nodiscard]] const device_state& state(int device) const { return devices_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] device_state& state(int device) { return devices_[static_cast<std::size_t>(device)]; }

  // --- execution ------------------------------------------------------------------------------------------------

  void execute(int id) {
    const instruction& i = g_[id];
    if (collective_index(i.op) >= 0) return move(id);
    for (int device = 0; device < mesh_.devices(); ++device) {
      state(device).execute(id, i.op->positional ? boxes_of(mesh_, g_, id, device) : instruction_boxes{});
      if (makes_padding(i.op)) poison_padding(id, device);
    }
  }

  [[nodiscard]] static bool makes_padding(const op_info* op) {
    const structure part = op->facts.part;
    return op != &ops::mask && (part < structure::region_begin || part == structure::loop_slice || collects(part));
  }

  /// The values that a kernel leaves in padding are never read, except where a mask was made for the next instruction.
  void poison_padding(int id, int device) {
    tensor_value& value = state(device)[id];
    const tensor_box mine = box(id, device);
    if (elements_of(mine, value.shape.rank) == value.shape.elements()) return;
    for_each_index(value.shape.rank, &value.shape.size[0], [&](const std::int64_t* index) {
      bool real = true;
      for (int d = 0; d < value.shape.rank; ++d) real = real && index[d] < mine.dim[d].size;
      const std::int64_t origin[max_rank]{};
      if (!real) value.data[position_in(value.shape, &origin[0], index)] = poison_of(g_[id].type);
    });
  }

  /// The owner's buffer is everybody's. What it sends is what the program says of it, not how the pieces travel.
  void move_from_owner(int id) {
    const auto owners = attributes_of<owner_attributes>(g_[id]);
    const axis_list group = list_of(owners.axes);
    for (int device = 0; device < mesh_.devices(); ++device) {
      const double row = state(device)[g_[id].operand[1]].data[0];
      const int owner = mesh_.member(device, group, owners.owner_of(static_cast<std::int64_t>(row)));
      moved_.push_back(state(owner)[g_[id].operand[0]]);
      sent_[static_cast<std::size_t>(device)][collective::exchange] += sent_in_messages(mesh_, g_, id, device);
    }
    for (int device = 0; device < mesh_.devices(); ++device) {
      state(device)[id] = std::move(moved_[static_cast<std::size_t>(device)]);
    }
    moved_.clear();
  }

  void move(int id) {
    if (has_owner(g_[id])) return move_from_owner(id);
    const auto kind = static_cast<collective>(collective_index(g_[id].op));
    const int from = g_[id].operand[0];
    const collective_attributes attributes = attributes_of<collective_attributes>(g_[id]);
    const axis_list group = list_of(attributes.axes);
    const layout& before = layout_of(from);
    const layout& after = layout_of(id);
    if (!(before.shape == after.shape)) fail(id, "changes the shape");
    const bool reduces = kind == collective::all_reduce || kind == collective::reduce_scatter;
    if (reduces != (before.placement.unreduced != after.placement.unreduced)) fail(id, "loses a pending sum");
    for (int device = 0; device < mesh_.devices(); ++device) {
      tensor_value made = poisoned(g_[id].shape, g_[id].type);
      const auto take = [&](const piece& p, const auto& combine_elements) {
        for_each_index(after.shape.rank, &p.extent[0], [&](const std::int64_t* index) {
          const tensor_value& source = state(p.source)[from];
          double& target = made.data[position_in(made.shape, &p.target_start[0], index)];
          target = combine_elements(target, source.data[position_in(source.shape, &p.source_start[0], index)]);
        });
      };
      const auto count = [&](const piece& p) {
        std::int64_t elements = 1;
        for (int d = 0; d < after.shape.rank; ++d) elements *= p.extent[d];
        if (p.source != device) sent_[static_cast<std::size_t>(p.source)][kind] += elements * size_of(g_[id].type);
      };
      if (reduces) {
        bool first = true;
        for_each_term(mesh_, after.shape, before.placement, after.placement, group.mask(), device, [&](const piece& p) {
          take(p, [&](double sum, double term) { return first ? term : combine(attributes.combine, sum, term); });
          first = false;
          if (kind == collective::reduce_scatter) count(p);
        });
        if (kind == collective::all_reduce && !g_[id].op->facts.travels_along) count_all_reduce(id, device);
      } else if (reads_windows(g_[id])) {
        for_each_window_piece(mesh_, g_, id, device, [&](const piece& p, int) {
          take(p, [](double, double value) { return value; });
          count(p);
        });
      } else {
        const auto receive = [&](const piece& p) {
          take(p, [](double, double value) { return value; });
          count(p);
        };
        const axis_mask axes = group.mask();
        if (kind == collective::exchange) {
          for_each_exchanged_piece(mesh_, after.shape, before.placement, after.placement, axes, device, receive);
        } else {
          for_each_piece(mesh_, after.shape, before.placement, after.placement, axes, device, receive);
        }
      }
      moved_.push_back(std::move(made));
    }
    for (int device = 0; device < mesh_.devices(); ++device) {
      state(device)[id] = std::move(moved_[static_cast<std::size_t>(device)]);
    }
    moved_.clear();
  }

  /// A reduce_scatter of near-equal shares of the elements, and an all_gather: what each member sends in the first is
  /// everything but its own share, in the second its own share to all others. Those that travel together share out all
  /// their elements.
  void count_all_reduce(int id, int device) {
    const axis_list group = list_of(attributes_of<collective_attributes>(g_[id]).axes);
    const std::int64_t members = mesh_.parts(group);
    std::int64_t elements = 0;
    for (int part = id; part == id || (part < g_.size && g_[part].op->facts.travels_along); ++part) {
      elements += elements_of(box(part, device), layout_of(part).shape.rank);
    }
    const std::int64_t position = mesh_.position(device, group);
    const std::int64_t share = elements / members + (position < elements % members ? 1 : 0);
    sent_[static_cast<std::size_t>(device)][collective::all_reduce] +=
        ((elements - share) + share * (members - 1)) * size_of(g_[id].type);
  }

  mesh_shape mesh_;
  graph_view g_;
  std::vector<device_state> devices_;
  std::vector<traffic> sent_;
  std::vector<tensor_value> moved_;
};

}  // namespace detail

/// Runs a partitioned program on all devices of a mesh, in lockstep and in double precision, from whole arguments to
/// whole results: the oracle of partitioning. Padding is filled with NaN, so that a mask that is missing shows.
/// Throws std::logic_error where the program contradicts itself: buffers that do not fit, copies that differ, partial
/// sums that get lost, values of another loop.
[[nodiscard]] inline spmd_outcome interpret_spmd(const mesh_shape& mesh, graph_view spmd,
                                                 const std::vector<tensor_value>& arguments) {
  return detail::spmd_interpreter(mesh, spmd, arguments).run();
}

}  // namespace espalier
