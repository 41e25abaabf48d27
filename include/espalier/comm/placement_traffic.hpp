// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/schedule/call.hpp>

#include <cstdint>
#include <vector>

namespace espalier::comm {

/// The traffic of one run of a program in one kind of collective along some mesh axes. All groups of these axes do the
/// same at the same time.
struct axis_traffic {
  collective kind = collective::all_reduce;  ///< one that `moves_tensors`
  unsigned axes = 0;                         ///< bit a: mesh axis a
  std::int64_t calls = 0;
  double bytes = 0;  ///< that a device sends, in all calls, as the program's queries say

  friend bool operator==(const axis_traffic&, const axis_traffic&) = default;
};

/// A mesh and what its devices send. The last axis is the fastest: device = row-major index of its coordinates.
struct mesh_traffic {
  std::vector<int> sizes;
  std::vector<axis_traffic> items;
};

}  // namespace espalier::comm
