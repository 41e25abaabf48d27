// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/read_number.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace espalier::detail {

/// The byte at which a value begins. Its line and column are counted only for an error (`json_reader::place_of`).
struct json_mark {
  std::size_t byte = 0;
};

/// A byte of a text; lines and columns count from 1.
struct json_place {
  std::size_t byte = 0;
  int line = 1;
  int column = 1;
};

/// Reads JSON in one pass, as a recursive descent whose rules the caller writes: `object` and `array` call it at each
/// member and element, where it reads a value or skips it.
///
/// If the text does not fit, it throws what `Error` makes of the place, what was found and what was expected.
template <class Error> class json_reader {
 public:
  json_reader(std::string_view text, Error error) : text_(text), error_(std::move(error)) {}

  /// Calls `member(key)` for each member, positioned at its value.
  template <class Member> void object(Member&& member) {
    enter('{');
    if (!accept('}')) {
      do {
        std::string key = string();
        expect(':', "':' after the key");
        member(std::move(key));
      } while (accept(','));
      expect('}', "',' or '}'");
    }
    --depth_;
  }

  /// Calls `element(index)` for each element, positioned at it.
  template <class Element> void array(Element&& element) {
    enter('[');
    if (!accept(']')) {
      std::size_t index = 0;
      do element(index++);
      while (accept(','));
      expect(']', "',' or ']'");
    }
    --depth_;
  }

  [[nodiscard]] std::string string() {
    expect('"', "a string in double quotes");
    std::string out;
    while (true) {
      if (at_ == text_.size()) fail(here(), "a closing '\"' at the end of the string");
      const char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) {
        --at_;
        fail("a control character in a string", "'\"' at the end of the string, or a \\u escape");
      }
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      const char escape = at_ == text_.size() ? '\0' : text_[at_++];
      constexpr std::string_view from = "\"\\/bfnrt";
      constexpr std::string_view to = "\"\\/\b\f\n\r\t";
      if (const auto known = from.find(escape); escape != '\0' && known != std::string_view::npos) {
        out += to[known];
      } else if (escape == 'u') {
        code_point(out);
      } else {
        fail("an unknown escape", "one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
      }
    }
  }

  [[nodiscard]] double number(const char* expected = "a number") {
    skip_space();
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    double value = 0;
    // from_chars also takes "inf", "nan" and ".5", which JSON does not have.
    const bool starts = begin != end && (*begin == '-' || (*begin >= '0' && *begin <= '9'));
    const auto [stop, error] = read_number(begin, end, value);
    if (!starts || error == std::errc::invalid_argument) fail(here(), expected);
    if (error != std::errc{} || !std::isfinite(value)) fail("a number beyond the range of double", expected);
    at_ += static_cast<std::size_t>(stop - begin);
    return value;
  }

  [[nodiscard]] std::int64_t whole_number(const char* expected = "a whole number") {
    skip_space();
    const std::size_t start = at_;
    const double value = number(expected);
    if (value != std::floor(value) || std::abs(value) > 9e15) {
      const std::string found(text_.substr(start, at_ - start));
      at_ = start;
      fail(found, expected);
    }
    return static_cast<std::int64_t>(value);
  }

  /// A number of things or bytes: exact up to 2^63 - 1, and written in digits alone.
  [[nodiscard]] std::int64_t size() {
    skip_space();
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    std::int64_t value = 0;
    const bool starts = begin != end && *begin >= '0' && *begin <= '9';
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (!starts || (*begin == '0' && stop - begin > 1)) fail(here(), "a whole number without sign or leading zeros");
    if (error != std::errc{}) fail("a number beyond 63 bits", "a size");
    at_ += static_cast<std::size_t>(stop - begin);
    return value;
  }

  [[nodiscard]] bool boolean(const char* expected = "true or false") {
    if (word("true")) return true;
    if (!word("false")) fail(here(), expected);
    return false;
  }

  /// Whether the next value is null; it is then read.
  [[nodiscard]] bool null() { return word("null"); }

  void skip_value() {
    switch (peek()) {
      case '{': object([&](const std::string&) { skip_value(); }); break;
      case '[': array([&](std::size_t) { skip_value(); }); break;
      case '"': (void)string(); break;
      case 't':
      case 'f': (void)boolean("a value"); break;
      case 'n':
        if (!null()) fail(here(), "a value");
        break;
      default: (void)number("a value");
    }
  }

  /// The first character of what comes next; '\0' at the end.
  [[nodiscard]] char peek() {
    skip_space();
    return at_ == text_.size() ? '\0' : text_[at_];
  }

  /// Whether only spaces are left.
  [[nodiscard]] bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  /// @pre the text has been read to its last value
  void finish() {
    if (!at_end()) fail(here(), "nothing more");
  }

  /// The byte at which the next value begins.
  [[nodiscard]] json_mark where() {
    skip_space();
    return {at_};
  }

  /// Counts lines and columns from the start of the text.
  [[nodiscard]] json_place place_of(json_mark mark) const {
    json_place p{mark.byte, 1, 1};
    for (const char c : text_.substr(0, mark.byte)) {
      if (c == '\n') {
        ++p.line;
        p.column = 1;
      } else if ((static_cast<unsigned char>(c) & 0xc0U) != 0x80U) {
        ++p.column;
      }
    }
    return p;
  }

  /// The text at this place, for an error.
  [[nodiscard]] std::string here() {
    skip_space();
    if (at_ == text_.size()) return "the end of the text";
    std::size_t length = 1;
    const auto plain = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
             c == '+' || c == '_';
    };
    while (plain(text_[at_]) && at_ + length < text_.size() && plain(text_[at_ + length]) && length < 20) ++length;
    return joined({"'", std::string(text_.substr(at_, length)), "'"});
  }

  [[noreturn]] void fail(const std::string& found, const std::string& expected) { fail(where(), found, expected); }
  /// The same for what was read before.
  [[noreturn]] void fail(json_mark at, const std::string& found, const std::string& expected) const {
    throw error_(place_of(at), found, expected);
  }

 private:
  void enter(char bracket) {
    expect(bracket, bracket == '{' ? "an object, '{'" : "an array, '['");
    // A file of ten thousand '[' must not use up the stack.
    if (++depth_ > 100) fail("more than 100 levels", "less nesting");
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* expected) {
    if (!accept(c)) fail(here(), expected);
  }
  bool word(std::string_view text) {
    skip_space();
    if (text_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  void code_point(std::string& out) {
    std::uint32_t code = four_digits();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const std::uint32_t low = four_digits();
      if (low < 0xdc00 || low > 0xdfff) fail("half a surrogate pair", "a pair of \\u escapes");
      code = 0x10000 + ((code - 0xd800) << 10U) + (low - 0xdc00);
    } else if (code >= 0xd800 && code <= 0xdfff) {
      fail("half a surrogate pair", "a pair of \\u escapes");
    }
    if (code < 0x80) {
      out += static_cast<char>(code);
      return;
    }
    const unsigned tails = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr std::array<std::uint32_t, 4> lead{0, 0xc0, 0xe0, 0xf0};
    out += static_cast<char>(lead[tails] | (code >> (6 * tails)));
    for (unsigned t = tails; t-- > 0;) out += static_cast<char>(0x80U | ((code >> (6 * t)) & 0x3fU));
  }

  [[nodiscard]] std::uint32_t four_digits() {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || error != std::errc{} || stop != digits.data() + 4)
      fail("an incomplete \\u escape", "four hexadecimal digits");
    at_ += 4;
    return code;
  }

  std::string_view text_;
  Error error_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

/// The text in double quotes, with escapes.
/// @post json_reader reads the same text back
[[nodiscard]] inline std::string json_string(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += digits[byte >> 4U];
      out += digits[byte & 0xfU];
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// The shortest text that reads back as the same number.
/// @post json_reader reads the same number back, if it is finite
[[nodiscard]] inline std::string json_number(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::string(text.data(), end) : "0";
}

}  // namespace espalier::detail
