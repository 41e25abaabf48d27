// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/owned.hpp>
#include <espalier/tensor/run/execute/tables.hpp>
#include <espalier/tensor/run/kernels/look.hpp>

#include <cstdint>

namespace espalier::detail {

/// The findings of the threads of a device.
struct finite_findings;

/// Looks at all that one device computes, if the environment's ESPALIER_CHECK lists `nan`: the first value, in the
/// order of the program, that has an infinite element or one that is no number, is reported with its line. Infinities
/// are none where the program or its arguments have some of their own, as masks do.
class finite_check {
 public:
  finite_check(const program_tables& t, int device);
  finite_check(const finite_check&) = delete;
  finite_check& operator=(const finite_check&) = delete;
  ~finite_check();

  [[nodiscard]] bool is_on() const { return findings_ != nullptr; }
  /// Looks at `count` elements at `data`, which of the buffer of value `id` are those from number `first` on. Any
  /// thread may call it.
  void look_at(int id, const void* data, std::int64_t first, std::int64_t count);
  /// Looks at the whole buffer of value `id`.
  void look_at(int id, const void* data);
  /// The arguments have been looked at: throws if one has an element that is no number.
  void begin();
  /// The first value with an element that is not finite, or -1.
  [[nodiscard]] int first_bad() const;
  /// Throws `not_finite` about it. `site`: where the program is.
  [[noreturn]] void report(const kernels::look_site& site) const;

 private:
  const program_tables& t_;
  int device_;
  owned<finite_findings> findings_;
};

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/finite_check.ipp>
#endif
