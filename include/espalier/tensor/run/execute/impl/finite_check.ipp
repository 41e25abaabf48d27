// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of finite_check.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/run/execute/checks.hpp>
#include <espalier/tensor/run/execute/finite_check.hpp>
#include <espalier/tensor/run/kernels/impl/look.ipp>

#include <cmath>
#include <mutex>
#include <vector>

namespace espalier::detail {

struct finite_findings {
  std::mutex guard;
  /// The value, and which of its elements.
  int id = -1;
  bad_element bad;
  /// The program, or an argument, has infinities of its own.
  bool program_has_infinities = false;
  bool nan_only = false;
};

ESPALIER_INLINE finite_check::finite_check(const program_tables& t, int device) : t_(t), device_(device) {
  if (!checks_nan()) return;
  findings_ = owned<finite_findings>(new finite_findings);
  for (int id = 0; id < t.code.size; ++id) {
    const bool is_constant = t.code[id].op->facts.values == pattern::uniform;
    if (is_constant && std::isinf(t.code[id].scalar)) findings_->program_has_infinities = true;
  }
}
ESPALIER_INLINE finite_check::~finite_check() = default;

/// Halos that are computed (partition/join_halos.hpp) have as many rows as the halos that they are computed from, and
/// padding where those have it: takes it off a box.
inline void take_off_padding(const program_tables& t, int device, int id, std::vector<bool>& seen, tensor_box& box) {
  const instruction& i = t.code[id];
  if (seen[static_cast<std::size_t>(id)] || structure_of(i) != structure::none || collective_index(i.op) >= 0) return;
  seen[static_cast<std::size_t>(id)] = true;
  const sharding& placed = t.code.annotations[i.annotation].placement;
  for (int k = 0; k < i.operand_count; ++k) {
    const int operand = t.code.operand_at(i, k);
    const instruction& from = t.code[operand];
    if (from.shape.rank != i.shape.rank) continue;
    if (!reads_windows(from)) {
      take_off_padding(t, device, operand, seen, box);
      continue;
    }
    const tensor_box held = box_of(t.mesh, t.code, operand, device);
    for (int d = 0; d < i.shape.rank; ++d) {
      if (placed.dim[d].empty() && from.shape[d] == i.shape[d])
        box.dim[d].size = smaller_of(box.dim[d].size, held.dim[d].size);
    }
  }
}

ESPALIER_INLINE void finite_check::look_at(int id, const void* data, std::int64_t first, std::int64_t count) {
  const instruction& i = t_.code[id];
  if (!is_floating(i.type)) return;
  const char* const elements = static_cast<const char*>(data);
  for (std::int64_t n = 0; n < count; ++n) {
    const char* const name = name_of_not_finite(i.type, elements, n);
    if (name == nullptr || (findings_->nan_only && name[0] != 'n')) continue;
    // Unless it is padding.
    tensor_box box = box_of(t_.mesh, t_.code, id, device_);
    std::vector<bool> seen(static_cast<std::size_t>(t_.code.size));
    take_off_padding(t_, device_, id, seen, box);
    bad_element bad;
    bad.name = name;
    bool is_padding = false;
    std::int64_t rest = first + n;
    for (int d = i.shape.rank - 1; d >= 0; --d) {
      const std::int64_t at = rest % i.shape[d];
      rest /= i.shape[d];
      is_padding = is_padding || at >= box.dim[d].size;
      bad.at[d] = box.dim[d].start + at;
    }
    if (is_padding) continue;
    const std::lock_guard<std::mutex> lock(findings_->guard);
    if (findings_->id >= 0 && findings_->id <= id) return;
    findings_->id = id;
    findings_->bad = bad;
    return;
  }
}
ESPALIER_INLINE void finite_check::look_at(int id, const void* data) {
  if (data != nullptr) look_at(id, data, 0, t_.code[id].shape.elements());
}

ESPALIER_INLINE void finite_check::begin() {
  findings_->nan_only = findings_->program_has_infinities;
  const int id = findings_->id;
  if (id < 0) return;
  findings_->id = -1;
  if (findings_->bad.name[0] != 'n') {
    findings_->nan_only = true;
    return;
  }
  const instruction& i = t_.code[id];
  throw not_finite(joined({"ESPALIER_CHECK=nan: argument ", attributes_of<border_attributes>(i).number,
                           " of the program, counted by tensors, is nan at ",
                           text_of_indices(&findings_->bad.at[0], i.shape.rank), " of ",
                           text_of_layout(t_.mesh, i.type, t_.code.annotations[i.annotation].shape,
                                          t_.code.annotations[i.annotation].placement),
                           " before the program starts, on device ", device_}));
}

ESPALIER_INLINE int finite_check::first_bad() const { return findings_->id; }

ESPALIER_INLINE void finite_check::report(const kernels::look_site& site) const {
  const instruction& i = t_.code[findings_->id];
  const bad_element bad = findings_->bad;
  const layout& all = t_.code.annotations[i.annotation];
  findings_->id = -1;
  throw not_finite(
      joined({"ESPALIER_CHECK=nan: ", i.op->name, " at ", i.where.file, ":", i.where.line, text_of_iterations(site),
              ", gives ", bad.name, " at ", text_of_indices(&bad.at[0], i.shape.rank), " of ",
              text_of_layout(t_.mesh, i.type, all.shape, all.placement), ", on device ", device_,
              ". All that this device computed before it is finite."}));
}

}  // namespace espalier::detail
