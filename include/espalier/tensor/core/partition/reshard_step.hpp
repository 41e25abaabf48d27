// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/base/dtype.hpp>
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <cstdint>

namespace espalier {

/// One collective, or one local slice, and the placement it leaves the tensor in. `axes` are the mesh axes along which
/// the communicating groups extend; of a local slice, those it adds.
struct reshard_step {
  collective kind = collective::local_slice;
  axis_mask axes = 0;
  sharding after;
};

inline constexpr int max_reshard_steps = 12;

/// The steps from one placement to another, and the bytes each device sends for them.
struct reshard_plan {
  int count = 0;
  reshard_step step[max_reshard_steps];
  std::int64_t bytes = 0;
};

namespace detail {

// Copying an empty plan or step is one step of a constant evaluation, default-initialising one is a hundred.
inline constexpr reshard_plan empty_plan{};
inline constexpr reshard_step empty_step{};

/// The bytes each device of a group of `n` sends in a step when its buffer had `local` bytes before it. The bytes of an
/// exchange do not follow from these: see `exchange_bytes`.
[[nodiscard]] constexpr std::int64_t step_bytes(collective kind, std::int64_t local, std::int64_t n) {
  return facts_of(kind).sent == nullptr ? 0 : facts_of(kind).sent(local, n);
}

/// The cost by which plans are compared: bytes, with the latency of each collective expressed in bytes; then the number
/// of collectives; then the number of axes sliced by.
[[nodiscard]] constexpr std::int64_t plan_cost(std::int64_t bytes, std::int64_t latency, int collectives, int slices) {
  return (bytes + latency * collectives) * 256 + collectives * 16 + slices;
}

/// The penalty of an exchange, in units of `plan_cost`. At equal bytes and latency a named collective with any number
/// of slices is preferred, since its schedules are faster; two collectives are not.
inline constexpr int exchange_handicap = 9;

/// A reshard to plan: the tensor and the layouts before and after. No axis of a single device appears in it.
struct reshard_task {
  mesh_shape mesh;
  extents shape;
  std::int64_t element = 0;  // bytes
  std::int64_t latency = 0;  // bytes
  sharding from;
  sharding to;
};

/// A sharding with its lists as plain codes. A constant evaluation pays for every call and every statement, and
/// nothing for the expressions in it: so the planner works on these, in few calls with long expressions.
struct placement_codes {
  int rank;
  std::uint32_t dim[max_rank];
  std::uint32_t open;
  axis_mask replicated;
  axis_mask unreduced;
};
static_assert(sizeof(placement_codes) == sizeof(sharding));

[[nodiscard]] constexpr bool same_placement(const placement_codes& a, const placement_codes& b) {
  static_assert(max_rank == 8);
  return a.dim[0] == b.dim[0] && a.dim[1] == b.dim[1] && a.dim[2] == b.dim[2] && a.dim[3] == b.dim[3] &&
         a.dim[4] == b.dim[4] && a.dim[5] == b.dim[5] && a.dim[6] == b.dim[6] && a.dim[7] == b.dim[7] &&
         a.unreduced == b.unreduced;
}

/// Returns the number of axes in a list.
[[nodiscard]] constexpr unsigned length_of(std::uint32_t code) {
  return (code > 0U ? 1U : 0U) + (code > 0xFU ? 1U : 0U) + (code > 0xFFU ? 1U : 0U) + (code > 0xFFFU ? 1U : 0U) +
         (code > 0xFFFFU ? 1U : 0U) + (code > 0xFFFFFU ? 1U : 0U) + (code > 0xFFFFFFU ? 1U : 0U) +
         (code > 0xFFFFFFFU ? 1U : 0U);
}
/// The axes of a list: entry a + 1 is the bit of axis a, as is a + 9, the same axis in its other order.
[[nodiscard]] constexpr axis_mask mask_of(std::uint32_t code) {
  // Times 2^8 + 1: bits a + 1 and a + 9 come together in a + 9. They are never both set, nor is bit 0, which stands for
  // no entry.
  return ((1U << (code & 15U) | 1U << (code >> 4U & 15U) | 1U << (code >> 8U & 15U) | 1U << (code >> 12U & 15U) |
           1U << (code >> 16U & 15U) | 1U << (code >> 20U & 15U) | 1U << (code >> 24U & 15U) | 1U << (code >> 28U)) &
          ~1U) * 257U >>
             9U &
         255U;
}
[[nodiscard]] constexpr std::uint32_t first_of(std::uint32_t code, unsigned count) {
  return static_cast<std::uint32_t>(code & ((std::uint64_t{1} << 4U * count) - 1U));
}
[[nodiscard]] constexpr std::uint32_t without_first(std::uint32_t code, unsigned count) {
  return static_cast<std::uint32_t>(std::uint64_t{code} >> 4U * count);
}
/// The axes of `major`, followed by those of `minor`.
[[nodiscard]] constexpr std::uint32_t joined(std::uint32_t major, std::uint32_t minor) {
  return static_cast<std::uint32_t>(major | std::uint64_t{minor} << 4U * length_of(major));
}
[[nodiscard]] constexpr unsigned count_axes(axis_mask axes) {
  return (axes & 1U) + (axes >> 1U & 1U) + (axes >> 2U & 1U) + (axes >> 3U & 1U) + (axes >> 4U & 1U) +
         (axes >> 5U & 1U) + (axes >> 6U & 1U) + (axes >> 7U & 1U);
}
/// Returns the number of shards into which a list of axes splits a dimension.
[[nodiscard]] constexpr std::int64_t shards_of(const mesh_shape& mesh, std::uint32_t code) {
  if (code < 0x100U)
    return (code == 0 ? 1 : mesh.size[(code & 15U) - 1U]) * (code < 16U ? 1 : mesh.size[(code >> 4U) - 1U]);
  std::int64_t count = 1;
  for (; code != 0; code >>= 4U) count *= mesh.size[(code & 15U) - 1U];
  return count;
}
/// Returns the number of devices that differ along these axes only; all bits set: those of the whole mesh.
[[nodiscard]] constexpr std::int64_t group_size(const mesh_shape& mesh, axis_mask axes) {
  std::int64_t count = 1;
  for (int axis = 0; axis < mesh.rank; ++axis)
    count *= (axes >> static_cast<unsigned>(axis) & 1U) != 0 ? mesh.size[axis] : 1;
  return count;
}
/// Bytes of every device's buffer.
[[nodiscard]] constexpr std::int64_t buffer_bytes(const reshard_task& task, const placement_codes& at) {
  std::int64_t bytes = task.element;
  for (int d = 0; d < task.shape.rank; ++d) {
    bytes *= at.dim[d] == 0 ? task.shape.size[d]
                            : local_extent(task.mesh, task.shape.size[d], axis_list::from_code(at.dim[d]));
  }
  return bytes;
}

/// Whether one of two lists is the beginning of the other, so that one's shards lie inside the other's. The longer
/// list then has the larger code.
[[nodiscard]] constexpr bool nested(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t shorter = a < b ? a : b;
  // No entry is zero: one bit of each, times fifteen, covers all entries of the shorter list.
  return ((a ^ b) & ((shorter | shorter >> 1U | shorter >> 2U | shorter >> 3U) & 0x11111111U) * 15U) == 0;
}

/// Returns the interval of shard number `position` of a dimension split by `axes`: its start and its number of
/// elements.
[[nodiscard]] constexpr interval interval_at(const mesh_shape& mesh, std::int64_t extent, axis_list axes,
                                             std::int64_t position) {
  interval result{0, extent};
  std::int64_t chunk = extent;
  std::int64_t minor = mesh.parts(axes);
  for (int i = 0; i < axes.size(); ++i) {
    const int n = mesh.size[axes[i]];
    minor /= n;
    chunk = ceil_div(chunk, n);
    const std::int64_t skipped = smaller_of(position / minor % n * chunk, result.size);
    result.start += skipped;
    result.size = smaller_of(chunk, result.size - skipped);
  }
  return result;
}

/// Whether two lists with equally many shards split a dimension into the same shards, in the same order.
[[nodiscard]] constexpr bool same_shards(const mesh_shape& mesh, std::int64_t extent, std::uint32_t one_code,
                                         std::uint32_t other_code) {
  const std::int64_t shards = shards_of(mesh, one_code);
  if (one_code == other_code || extent % shards == 0) return true;
  const axis_list a = axis_list::from_code(one_code);
  const axis_list b = axis_list::from_code(other_code);
  for (std::int64_t position = 0; position < shards; ++position) {
    const interval one = interval_at(mesh, extent, a, position);
    const interval other = interval_at(mesh, extent, b, position);
    if (one.start != other.start || one.size != other.size) return false;
  }
  return true;
}

/// The price of an exchange, in bytes: no device receives more, and none sends more where copies can be cut into equal
/// shares. The work is the same on every mesh.
///
/// A device lacks what it wants less what it holds of that. Where the axes of one side are the beginning of those of
/// the other in all dimensions, the finer part lies inside the coarser one on every device: of the dimensions that lose
/// axes most is lacking where the last part of the first, largest coarse part is held. Otherwise some device holds the
/// first part of an old split and wants the last of the new one: nothing in common. All devices together want `held
/// shards / wanted shards` times what they hold, so that is what a holder sends if copies share the work, less what
/// holders want themselves.
/// Example: [64@d, 256@m] f32 to [64@m, 256@d] on 2 x 4: 64/4 x 256/2 x 4 B = 8,192 B.
[[nodiscard]] constexpr std::int64_t exchange_bytes(const reshard_task& task, const placement_codes& from,
                                                    const placement_codes& to) {
  std::int64_t held = task.element;
  std::int64_t wanted = task.element;
  std::int64_t common = task.element;
  std::int64_t shrinking = 1;  // by which factor dimensions lose shards
  std::int64_t growing = 1;
  bool crossed = false;
  for (int d = 0; d < task.shape.rank; ++d) {
    const std::int64_t extent = task.shape.size[d];
    const std::uint32_t f = from.dim[d];
    const std::uint32_t t = to.dim[d];
    const std::int64_t before = shards_of(task.mesh, f);
    const std::int64_t after = shards_of(task.mesh, t);
    const bool even = extent % before == 0 && extent % after == 0;
    const std::int64_t largest_held = even ? extent / before : local_extent(task.mesh, extent, axis_list::from_code(f));
    const std::int64_t largest_wanted =
        even ? extent / after : local_extent(task.mesh, extent, axis_list::from_code(t));
    held *= largest_held;
    wanted *= largest_wanted;
    if (!nested(f, t)) {
      crossed = true;
      shrinking *= before;
      growing *= after;
    } else if (f > t) {
      shrinking *= before / after;
      common *= even ? largest_held : interval_at(task.mesh, extent, axis_list::from_code(f), before / after - 1).size;
    } else {
      growing *= after / before;
      common *= largest_wanted;
    }
  }
  if (crossed) return larger_of(wanted, ceil_div(held * shrinking, growing));
  return larger_of(wanted - common, ceil_div(held * (shrinking - 1), growing));
}

/// The axes along which the groups of an exchange extend: all but those that split a dimension first on both sides. The
/// devices of a group hold between them all that any of them wants, since splitting is nested.
[[nodiscard]] constexpr axis_mask exchanged_axes(const placement_codes& from, const placement_codes& to) {
  axis_mask result = 0;
  for (int d = 0; d < from.rank; ++d) {
    std::uint32_t f = from.dim[d];
    std::uint32_t t = to.dim[d];
    for (; f != 0 && (f & 15U) == (t & 15U); f >>= 4U) t >>= 4U;
    result |= mask_of(f) | mask_of(t);
  }
  return result;
}

/// The axes along which data moves in a collective_permute: all but those that are the same digit of the part's number
/// before and after.
[[nodiscard]] constexpr axis_mask permuted_axes(const mesh_shape& mesh, const sharding& from, const sharding& to) {
  axis_mask result = 0;
  for (int d = 0; d < from.rank; ++d) {
    if (from.dim[d].code() == to.dim[d].code()) continue;
    const axis_list a = from.dim[d];
    const axis_list b = to.dim[d];
    const axis_mask before = mask_of(a.code());
    const axis_mask after = mask_of(b.code());
    result |= before | after;
    if ((before & after) == 0) continue;
    for (int i = 0; i < a.size(); ++i) {
      for (int j = 0; j < b.size(); ++j) {
        const bool same_digit = a[i] == b[j] && mesh.parts(a.without_first(i)) == mesh.parts(b.without_first(j));
        if (same_digit) result &= ~bit_of(axis_of_entry(a[i]));
      }
    }
  }
  return result;
}

}  // namespace detail

}  // namespace espalier
