// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/manual/collectives.hpp>
#include <espalier/testing/naive/equations.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

/// The meaning of code that is written for one shard: each device has equations of its own, and a collective reads the
/// values of others. It shares no code with what makes one program of such code (program/manual/mapping.hpp).
namespace espalier::test {

namespace naive {

/// The program of one device, beside those of all.
class shard_equations final : public equations {
 public:
  shard_equations(graph_view g, const std::vector<tensor_value>& arguments, naive_storage storage,
                  const mesh_shape& mesh, int device, const std::vector<std::unique_ptr<shard_equations>>& all)
      : equations(g, arguments, storage), mesh_(mesh), device_(device), all_(all) {}

 protected:
  tensor_value computed(int id) override { return g_[id].op == &ops::by_hand ? by_hand(id) : equations::computed(id); }

 private:
  /// The operand's value on a device, in this device's iterations.
  const tensor_value& on(int device, int id) {
    shard_equations& other = *all_[static_cast<std::size_t>(device)];
    const std::vector<std::int64_t> before = other.iteration_;
    other.iteration_ = iteration_;
    const tensor_value& found = other.operand(id, 0);
    other.iteration_ = before;
    return found;
  }
  /// The device at another place along an axis.
  [[nodiscard]] int at_place(int axis, int place) const {
    return device_ + (place - mesh_.coordinate(device_, axis)) * mesh_.stride(axis);
  }
  /// The devices that differ from this one along the axes only.
  [[nodiscard]] std::vector<int> group(axis_mask axes) const {
    std::vector<int> made;
    for (int device = 0; device < mesh_.devices(); ++device) {
      bool same = true;
      for (int axis = 0; axis < mesh_.rank; ++axis)
        same = same && (has_axis(axes, axis) || mesh_.coordinate(device, axis) == mesh_.coordinate(device_, axis));
      if (same) made.push_back(device);
    }
    return made;
  }
  tensor_value sum(int id, axis_mask axes) {
    tensor_value made = on(device_, id);
    std::vector<double> sizes(made.data.size(), 0);
    std::fill(made.data.begin(), made.data.end(), 0);
    for (const int device : group(axes)) {
      const tensor_value& term = on(device, id);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        made.data[i] += term.data[i];
        sizes[i] += std::abs(term.data[i]);
      }
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) note(g_[id].type, made.data[i], sizes[i]);
    return made;
  }
  /// Piece `place` of the `pieces` equal ones along a dimension.
  static tensor_value piece(const tensor_value& of, int dim, std::int64_t place, std::int64_t pieces) {
    extents shape = of.shape;
    shape[dim] /= pieces;
    return tensor_of(shape, [&](place_in i) {
      i[dim] += place * shape[dim];
      return element(of, i);
    });
  }
  static tensor_value joined(const std::vector<tensor_value>& parts, int dim) {
    extents shape = parts[0].shape;
    const std::int64_t each = shape[dim];
    shape[dim] *= static_cast<std::int64_t>(parts.size());
    return tensor_of(shape, [&](place_in i) {
      const auto from = static_cast<std::size_t>(i[dim] / each);
      i[dim] %= each;
      return element(parts[from], i);
    });
  }

  tensor_value by_hand(int id) {
    using detail::by_hand_kind;
    const auto how = attributes_of<detail::by_hand_attributes>(g_[id]);
    const int axis = list_of(how.axes)[0];
    const int here = mesh_.coordinate(device_, axis);
    const int devices = mesh_.size[axis];
    const auto first = static_cast<int>(how.first);
    const auto zeros = [&] { return tensor_of(g_[id].shape, [](const place_in&) { return 0.0; }); };
    switch (how.kind) {
      case by_hand_kind::vary:
      case by_hand_kind::terms: return on(device_, id);
      case by_hand_kind::sum: return sum(id, how.axes);
      case by_hand_kind::max:
      case by_hand_kind::min: {
        tensor_value made = on(device_, id);
        for (const int device : group(how.axes)) {
          const tensor_value& other = on(device, id);
          for (std::size_t i = 0; i < made.data.size(); ++i) {
            double& one = made.data[i];
            one = how.kind == by_hand_kind::max ? std::max(one, other.data[i]) : std::min(one, other.data[i]);
          }
        }
        return made;
      }
      case by_hand_kind::gather: {
        std::vector<tensor_value> parts;
        for (int place = 0; place < devices; ++place) parts.push_back(on(at_place(axis, place), id));
        return joined(parts, first);
      }
      case by_hand_kind::own_part: return piece(on(device_, id), first, here, devices);
      case by_hand_kind::scatter: return piece(sum(id, how.axes), first, here, devices);
      case by_hand_kind::exchange: {
        std::vector<tensor_value> parts;
        for (int place = 0; place < devices; ++place)
          parts.push_back(piece(on(at_place(axis, place), id), first, here, devices));
        return joined(parts, static_cast<int>(how.second));
      }
      case by_hand_kind::shift: return on(at_place(axis, ((here - first) % devices + devices) % devices), id);
      case by_hand_kind::permute: {
        const int source = detail::device_pairs(how.first, how.second).source_of(here);
        return source < 0 ? zeros() : on(at_place(axis, source), id);
      }
      case by_hand_kind::broadcast: return on(at_place(axis, first), id);
      case by_hand_kind::only_on: return here == first ? on(device_, id) : zeros();
      case by_hand_kind::index: return tensor_of(g_[id].shape, [&](const place_in&) { return here; });
    }
    return zeros();
  }

  const mesh_shape& mesh_;
  int device_;
  const std::vector<std::unique_ptr<shard_equations>>& all_;
};

}  // namespace naive

/// The results of each device, which runs a program for one shard on arguments of its own; and whether they are exact
/// on all (`naive_outcome`).
struct results_by_hand {
  std::vector<std::vector<tensor_value>> of_device;
  bool is_exact = true;
};
[[nodiscard]] inline results_by_hand naive_by_hand(graph_view g, const mesh_shape& mesh,
                                                   const std::vector<std::vector<tensor_value>>& arguments) {
  std::vector<std::unique_ptr<naive::shard_equations>> all;
  for (int device = 0; device < mesh.devices(); ++device) {
    const auto at = static_cast<std::size_t>(device);
    all.push_back(std::make_unique<naive::shard_equations>(g, arguments[at], naive_storage::exact, mesh, device, all));
  }
  results_by_hand made;
  for (const auto& one : all) made.of_device.push_back(one->results());
  for (const auto& one : all) made.is_exact = made.is_exact && one->exact();
  return made;
}

}  // namespace espalier::test
