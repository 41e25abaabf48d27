// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

/// Reads `op_facts::attributes`: of each attribute its form, which stands behind a colon (null: it has none), and its
/// number among the op's attributes. Of "dim:dimension windows:windows" the forms are "dimension ..." and "windows".
struct attribute_reader {
  const char* rest;
  int first = 0;

  /// Moves to the next attribute; false if there is none.
  constexpr bool next(const char*& form, int& number) {
    if (*rest == '\0') return false;
    form = nullptr;
    for (; *rest != '\0' && *rest != ' '; ++rest) {
      if (*rest == ':') form = rest + 1;
    }
    if (*rest == ' ') ++rest;
    number = first;
    first += is(form, "einsum") ? 3 : is(form, "scalar") ? 0 : 1;
    return true;
  }
  [[nodiscard]] static constexpr bool is(const char* form, const char* word) {
    if (form == nullptr) return false;
    for (; *word != '\0'; ++form, ++word) {
      if (*form != *word) return false;
    }
    return *form == '\0' || *form == ' ';
  }
};

}  // namespace espalier::detail
