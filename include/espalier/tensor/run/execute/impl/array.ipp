// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The definitions that arrays of all types share: the compiled half of array.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/sharding/print.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/reduce_terms.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace espalier {

namespace detail {

[[nodiscard]] inline std::string devices_text(const mesh_shape& mesh, const std::vector<int>& devices) {
  std::string text = text_of(mesh);
  if (static_cast<int>(devices.size()) == mesh.devices()) return text;
  for (std::size_t k = 0; k < devices.size(); ++k) {
    append_text(text, {k == 0 ? ", of which this process has device " : ", ", devices[k]});
  }
  return text;
}

[[nodiscard]] inline std::vector<int> local_devices_of(const world& where) {
  std::vector<int> devices;
  for (int k = 0; k < where.local_devices(); ++k) devices.push_back(where.device(k));
  return devices;
}

ESPALIER_INLINE shard_rows::shard_rows(const any_array& array, int local) {
  const int rank = array.shape().rank;
  const extents buffer = array.local_extents();
  for (int d = 0; d < rank; ++d) {
    const interval here = array.held(local, d);
    const std::int64_t whole_step = stride_of(array.shape(), d);
    any = any && here.size > 0;
    flat += here.start * whole_step;
    if (d + 1 == rank) {
      length = here.size;
    } else {
      count_[outer_] = here.size;
      step_[outer_] = stride_of(buffer, d);
      whole_step_[outer_] = whole_step;
      ++outer_;
    }
  }
}

ESPALIER_INLINE void shard_rows::next() {
  for (int d = outer_ - 1; d >= 0; --d) {
    at += step_[d];
    flat += whole_step_[d];
    if (++index_[d] < count_[d]) return;
    at -= count_[d] * step_[d];
    flat -= count_[d] * whole_step_[d];
    index_[d] = 0;
  }
  any = false;
}

ESPALIER_INLINE void array_memory::place(any_array& array, const world& where, const axis_parts& parts,
                                         const sharding& as) {
  array.world_mesh_ = where.mesh_value();
  array.parts_ = parts;
  array.mesh_ = cut_mesh(array.world_mesh_, parts);
  array.placed_ = {array.shape_, as};
  array.devices_ = local_devices_of(where);
  array.shards_.clear();
}

ESPALIER_INLINE std::string array_memory::devices_of(const any_array& array) {
  return devices_text(array.world_mesh_, array.devices_);
}
ESPALIER_INLINE std::string array_memory::devices_of(const world& where) {
  return devices_text(where.mesh_value(), local_devices_of(where));
}

ESPALIER_INLINE void require_in_world(const world& where, const any_array& array, const char* what) {
  if (array.empty()) {
    throw argument_error(joined({what, " is an empty array. Make it with runner::argument<I>(), or with ",
                                 "sharded_array(world, placement)."}));
  }
  array.require_unspent();
  if (array.lies_in(where)) return;
  throw argument_error(
      joined({what, " is an array of another world: it lies on ", array_memory::devices_of(array), ", this world on ",
              array_memory::devices_of(where), ". Give it an array that was made for this world."}));
}

}  // namespace detail

// Here, because each array of a tree of them has all of these.
ESPALIER_INLINE any_array::any_array(dtype type, const extents& shape) : type_(type), shape_(shape) {}
ESPALIER_INLINE any_array::any_array(const any_array& other) = default;
ESPALIER_INLINE any_array::any_array(any_array&& other) noexcept = default;
ESPALIER_INLINE any_array& any_array::operator=(const any_array& other) = default;
ESPALIER_INLINE any_array& any_array::operator=(any_array&& other) noexcept = default;
ESPALIER_INLINE any_array::~any_array() = default;

ESPALIER_INLINE std::string any_array::text() const {
  return to_string(world_mesh_, parts_, type_, shape_, placed_.placement);
}

ESPALIER_INLINE bool any_array::lies_as(const mesh_shape& mesh, const sharding& placement) const {
  if (detail::same_grid(mesh, mesh_)) return placed_.placement.same_layout(placement);
  if ((placed_.placement.unreduced == 0) != (placement.unreduced == 0)) return false;
  for (int d = 0; d < shape_.rank; ++d) {
    for (int k = 0; k < mesh.devices(); ++k) {
      const interval mine = local_interval(mesh_, shape_[d], placed_.placement.dim[d], k);
      const interval other = local_interval(mesh, shape_[d], placement.dim[d], k);
      if (mine.start != other.start || mine.size != other.size) return false;
    }
  }
  return mesh.devices() == mesh_.devices();
}

ESPALIER_INLINE void any_array::refuse_spent() const {
  const detail::donation& call = *handle_.donated;
  std::string where;
  if (call.line > 0) where = detail::joined({" in ", call.file, ":", call.line});
  throw argument_error(detail::joined(
      {"this array, ", text(), ", was donated as argument ", call.argument, " of the call", where,
       ", and another array has taken that call's result: use that one, as in state = run(state), or pass ",
       "ep::copy(array) to keep what this one was."}));
}

ESPALIER_INLINE void any_array::refuse_terms(const char* what) const {
  throw argument_error(detail::joined({what, " this device's terms of pending sums (", text(),
                                       "): gather the array, which adds them up, or give it to a program that does."}));
}

ESPALIER_INLINE bool any_array::begin_writing(int local) const {
  const axis_mask sums = placed_.placement.unreduced;
  if (sums == 0) return true;
  const shared_buffer& shard = shards_[static_cast<std::size_t>(local)];
  std::memset(shard.data(), 0, static_cast<std::size_t>(shard.bytes()));
  return mesh_.position(device(local), list_of(sums)) == 0;
}

ESPALIER_INLINE bool any_array::lies_in(const world& where) const {
  if (!detail::same_grid(world_mesh_, where.mesh_value()) || local_count() != where.local_devices()) return false;
  for (int k = 0; k < local_count(); ++k) {
    if (device(k) != where.device(k)) return false;
  }
  return true;
}

ESPALIER_INLINE void any_array::make(const world& where, const axis_parts& parts, const sharding& placement) {
  detail::array_memory::place(*this, where, parts, placement);
  const std::int64_t bytes = local_extents().elements() * size_of(type_);
  for (std::size_t k = 0; k < devices_.size(); ++k) shards_.emplace_back(bytes);
}

}  // namespace espalier
