// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace espalier::detail {

template <class T>
concept WrittenInDecimals = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

/// A part of a sentence: characters that live longer, or a number up to the largest of i64. Two words, which cost where
/// they are written hardly more than the addresses of the texts.
class text_piece {
 public:
  constexpr text_piece(const char* text) : text_(text), size_(ends_with_zero) {}  // NOLINT(google-explicit-constructor)
  constexpr text_piece(const std::string& text)                                   // NOLINT(google-explicit-constructor)
      : text_(text.data()), size_(static_cast<std::int64_t>(text.size())) {}
  template <WrittenInDecimals Number>
  constexpr text_piece(Number number)  // NOLINT(google-explicit-constructor)
      : size_(static_cast<std::int64_t>(number)) {}

  void add_to(std::string& text) const {
    if (text_ == nullptr) {
      text += std::to_string(size_);
    } else if (size_ == ends_with_zero) {
      text += text_;
    } else {
      text.append(text_, static_cast<std::size_t>(size_));
    }
  }

 private:
  static constexpr std::int64_t ends_with_zero = -1;
  const char* text_ = nullptr;
  /// Or the number, where there is no text.
  std::int64_t size_;
};

inline void append_text(std::string& text, std::initializer_list<text_piece> pieces) {
  for (const text_piece& piece : pieces) piece.add_to(text);
}

/// The pieces one after the other: `joined({"rank ", rank, " waited for ", name})`. One call, and one string to be
/// destroyed, where every `+` is one more of each: what reports mistakes is a tenth of what a program compiles.
/// @post joined({a, n, b}) == a + std::to_string(n) + b
[[nodiscard]] inline std::string joined(std::initializer_list<text_piece> pieces) {
  std::string text;
  append_text(text, pieces);
  return text;
}

}  // namespace espalier::detail
