// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

namespace espalier::detail {

/// A string usable as a template argument.
template <std::size_t Size> struct fixed_string {
  char text[Size]{};

  constexpr fixed_string(const char (&source)[Size]) {  // NOLINT(google-explicit-constructor): written as a literal
    for (std::size_t i = 0; i < Size; ++i) text[i] = source[i];
  }
  [[nodiscard]] static constexpr int size() { return static_cast<int>(Size) - 1; }
  [[nodiscard]] constexpr char operator[](int i) const { return text[i]; }
};

[[nodiscard]] constexpr bool same_text(const char* a, const char* b) {
  // Letter by letter: comparing the addresses of two literals is no constant expression on clang.
  if (a == nullptr || b == nullptr) return a == nullptr && b == nullptr;
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

[[nodiscard]] constexpr int length_of(const char* text) {
  int length = 0;
  while (text[length] != '\0') ++length;
  return length;
}

}  // namespace espalier::detail
