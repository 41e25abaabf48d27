// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/execute/buffer.hpp>
#include <espalier/execute/world.hpp>
#include <espalier/graph/tree.hpp>
#include <espalier/mesh/axis_parts.hpp>
#include <espalier/shape/dtype.hpp>
#include <espalier/sharding/print.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier {

/// An argument does not fit the program or the world it is given to.
struct argument_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

namespace detail {
struct array_memory;
}

/// A tensor spread over the devices of a world: this process holds the shards of its own devices. Copies share the
/// shards.
template <TensorType Tensor> class sharded_array {
 public:
  using tensor = Tensor;
  using value_type = storage_t<Tensor::type>;

  sharded_array() = default;
  /// Zeros, placed as given on the world's mesh.
  sharded_array(const world& where, const sharding& placement)
      : sharded_array(where, axis_parts::whole(where.mesh_value()), placement) {}
  /// Zeros, placed as given on parts of the axes of the world's mesh.
  sharded_array(const world& where, const axis_parts& parts, const sharding& placement)
      : world_mesh_(where.mesh_value()),
        parts_(parts),
        mesh_(cut_mesh(world_mesh_, parts)),
        placed_{Tensor::shape, placement} {
    const std::int64_t bytes = local_extents().elements() * size_of(Tensor::type);
    for (int k = 0; k < where.local_devices(); ++k) {
      devices_.push_back(where.device(k));
      shards_.emplace_back(bytes);
    }
  }

  [[nodiscard]] bool empty() const { return shards_.empty(); }
  /// How it is placed on `mesh()`.
  [[nodiscard]] const layout& placed() const { return placed_; }
  /// The world's mesh; of an array of a program that cuts axes into parts, `device_mesh` of the program.
  [[nodiscard]] const mesh_shape& mesh() const { return mesh_; }
  /// The axes of `mesh()`, as parts of those of the world's mesh.
  [[nodiscard]] const axis_parts& parts() const { return parts_; }
  /// `f32[64@data, 1024@model]`
  [[nodiscard]] std::string text() const {
    return to_string(world_mesh_, parts_, Tensor::type, Tensor::shape, placed_.placement);
  }
  /// Whether every device holds the same elements as in this layout on parts of the axes of the same mesh.
  [[nodiscard]] bool lies_as(const mesh_shape& mesh, const sharding& placement) const {
    if (mesh.rank == mesh_.rank && std::equal(mesh.size, mesh.size + mesh.rank, mesh_.size))
      return placed_.placement.same_layout(placement);
    for (int d = 0; d < Tensor::rank; ++d) {
      for (int k = 0; k < mesh.devices(); ++k) {
        const interval mine = local_interval(mesh_, Tensor::shape[d], placed_.placement.dim[d], k);
        const interval other = local_interval(mesh, Tensor::shape[d], placement.dim[d], k);
        if (mine.start != other.start || mine.size != other.size) return false;
      }
    }
    return mesh.devices() == mesh_.devices();
  }
  [[nodiscard]] int local_count() const { return static_cast<int>(shards_.size()); }
  [[nodiscard]] int device(int local) const { return devices_[static_cast<std::size_t>(local)]; }
  /// The shape of every shard's buffer, padding included.
  [[nodiscard]] extents local_extents() const { return local_shape(mesh_, Tensor::shape, placed_.placement); }
  /// Whether a program of `where` finds this array's shards where it looks for its own: it was made for that world, or
  /// for another one in which this process has the same devices of the same mesh.
  [[nodiscard]] bool lies_in(const world& where) const {
    if (!detail::same_grid(world_mesh_, where.mesh_value()) || local_count() != where.local_devices()) return false;
    for (int k = 0; k < local_count(); ++k) {
      if (device(k) != where.device(k)) return false;
    }
    return true;
  }
  /// Which elements of dimension `dim` a shard really holds.
  [[nodiscard]] interval held(int local, int dim) const {
    return local_interval(mesh_, Tensor::shape[dim], placed_.placement.dim[dim], device(local));
  }
  /// A shard's elements, dense and row-major in `local_extents()`.
  [[nodiscard]] value_type* data(int local) const {
    return static_cast<value_type*>(shards_[static_cast<std::size_t>(local)].data());
  }

  /// Calls f(element, flat index in the whole tensor) for every element this process holds.
  template <class F> void for_each(const F& f) const {
    const extents local = local_extents();
    for (int k = 0; k < local_count(); ++k) {
      std::int64_t count[max_rank]{};
      std::int64_t start = 0;
      bool any = true;
      for (int d = 0; d < Tensor::rank; ++d) {
        const interval here = held(k, d);
        count[d] = here.size;
        start += here.start * stride_of(Tensor::shape, d);
        any = any && here.size > 0;
      }
      if (any) walk(data(k), start, local, &count[0], 0, f);
    }
  }

 private:
  template <class F>
  static void walk(value_type* at, std::int64_t flat, const extents& local, const std::int64_t* count, int d,
                   const F& f) {
    if (d == Tensor::rank) {
      f(*at, flat);
      return;
    }
    const std::int64_t step = stride_of(local, d);
    const std::int64_t whole = stride_of(Tensor::shape, d);
    for (std::int64_t i = 0; i < count[d]; ++i) walk(at + i * step, flat + i * whole, local, count, d + 1, f);
  }

  friend struct detail::array_memory;

  mesh_shape world_mesh_;
  axis_parts parts_;
  mesh_shape mesh_;
  layout placed_;
  std::vector<int> devices_;
  std::vector<shared_buffer> shards_;
};

namespace detail {

/// Arrays' insides, for what runs programs on them.
struct array_memory {
  /// One for each device of this process; none in an empty array.
  template <class Tensor> static std::vector<shared_buffer>& shards(sharded_array<Tensor>& array) {
    return array.shards_;
  }
  template <class Tensor> static const std::vector<shared_buffer>& shards(const sharded_array<Tensor>& array) {
    return array.shards_;
  }
  /// An empty array that is placed as given.
  template <class Tensor>
  static void place(sharded_array<Tensor>& array, const world& where, const axis_parts& parts, const sharding& as) {
    array.world_mesh_ = where.mesh_value();
    array.parts_ = parts;
    array.mesh_ = cut_mesh(array.world_mesh_, parts);
    array.placed_ = {Tensor::shape, as};
    array.devices_.clear();
    for (int k = 0; k < where.local_devices(); ++k) array.devices_.push_back(where.device(k));
    array.shards_.clear();
  }
  /// "data 2, model 4, of which this process has device 3"
  template <class Tensor> static std::string devices_of(const sharded_array<Tensor>& array) {
    return devices_text(array.world_mesh_, array.devices_);
  }
  static std::string devices_of(const world& where) {
    std::vector<int> devices;
    for (int k = 0; k < where.local_devices(); ++k) devices.push_back(where.device(k));
    return devices_text(where.mesh_value(), devices);
  }

 private:
  static std::string devices_text(const mesh_shape& mesh, const std::vector<int>& devices) {
    std::string text = text_of(mesh);
    if (static_cast<int>(devices.size()) == mesh.devices()) return text;
    for (std::size_t k = 0; k < devices.size(); ++k) {
      text += (k == 0 ? ", of which this process has device " : ", ") + std::to_string(devices[k]);
    }
    return text;
  }
};

/// Errors: `argument_error` if the array, called `what` in the text, is empty or not of this world.
template <class Tensor>
void require_in_world(const world& where, const sharded_array<Tensor>& array, const std::string& what) {
  if (array.empty()) {
    throw argument_error(what +
                         " is an empty array. Make it with runner::argument<I>(), or with sharded_array(world, "
                         "placement).");
  }
  if (array.lies_in(where)) return;
  throw argument_error(what + " is an array of another world: it lies on " + array_memory::devices_of(array) +
                       ", this world on " + array_memory::devices_of(where) +
                       ". Give it an array that was made for this world.");
}

}  // namespace detail

/// Leaves that are data: `dense<arrays>` is a parameter tree at run time.
struct arrays {
  template <class Tensor> using of = sharded_array<plain<Tensor>>;
};

template <class T> inline constexpr bool is_sharded_array = false;
template <class Tensor> inline constexpr bool is_sharded_array<sharded_array<Tensor>> = true;

}  // namespace espalier
