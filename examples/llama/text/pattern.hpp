// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "unicode_ranges.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llama {

/// A pattern that this program does not know.
struct pattern_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The code points of well-formed UTF-8; a byte that is not part of any counts as U+FFFD.
[[nodiscard]] inline std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xc2 ? 0
                               : lead < 0xe0 ? 2
                               : lead < 0xf0 ? 3
                               : lead < 0xf5 ? 4
                                             : 0;
    std::uint32_t code = length == 1 ? lead : lead & (0x7fU >> length);
    std::size_t k = 1;
    while (k < length && i + k < text.size() && (static_cast<unsigned char>(text[i + k]) & 0xc0U) == 0x80U) {
      code = code << 6U | (static_cast<unsigned char>(text[i + k++]) & 0x3fU);
    }
    const bool whole = length > 0 && k == length;
    out += static_cast<char32_t>(whole ? code : 0xfffdU);
    i += whole ? length : 1;
  }
  return out;
}

[[nodiscard]] inline std::string utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) {
    const auto code = static_cast<std::uint32_t>(c);
    const unsigned tails = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr std::uint32_t lead[]{0, 0xc0, 0xe0, 0xf0};
    out += static_cast<char>(lead[tails] | code >> 6 * tails);
    for (unsigned t = tails; t-- > 0;) out += static_cast<char>(0x80U | (code >> 6 * t & 0x3fU));
  }
  return out;
}

[[nodiscard]] inline bool is_in(const code_range* begin, const code_range* end, char32_t c) {
  const auto code = static_cast<std::uint32_t>(c);
  const code_range* const at =
      std::lower_bound(begin, end, code, [](const code_range& r, std::uint32_t x) { return r.high < x; });
  return at != end && at->low <= code;
}
[[nodiscard]] inline bool is_letter(char32_t c) { return is_in(std::begin(letters), std::end(letters), c); }
[[nodiscard]] inline bool is_number(char32_t c) { return is_in(std::begin(numbers), std::end(numbers), c); }
/// Unicode's White_Space.
[[nodiscard]] inline bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/// A regular expression as tokenizers split texts by: alternatives, groups, `(?i:`, `(?!` and `(?=`, sets, `\p{L}`,
/// `\p{N}`, `\s`, `\S`, `\d`, `*`, `+`, `?` and `{m,n}`, each as long as possible first. The first alternative that
/// fits counts, as in Perl.
class pattern {
 public:
  /// Errors: `pattern_error` if the text has anything else.
  explicit pattern(std::string_view text) : source_(text), text_(code_points(text)) {
    root_ = alternatives(false);
    if (at_ != text_.size()) refuse();
  }

  /// Returns where the match that starts at `start` ends; `start` if there is none, or an empty one.
  [[nodiscard]] std::size_t match(std::u32string_view text, std::size_t start) const {
    std::size_t end = start;
    fits(root_, text, start, [&](std::size_t at) {
      end = at;
      return true;
    });
    return end;
  }

 private:
  enum class kind { one, sequence, choice, repeat, not_ahead, ahead };
  struct item {  // of a set
    enum class of { range, letter, number, space, digit } what = of::range;
    bool negated = false;
    char32_t low = 0;
    char32_t high = 0;
  };
  struct node {
    kind what = kind::sequence;
    std::vector<node> parts;
    std::vector<item> set;
    bool negated = false;
    bool any_case = false;
    int least = 1;
    int most = 1;
  };
  using next_function = std::function<bool(std::size_t)>;

  [[nodiscard]] static char32_t lower(char32_t c) { return c >= U'A' && c <= U'Z' ? c + 32 : c; }
  [[nodiscard]] static bool holds(const node& set, char32_t c) {
    bool found = false;
    for (const item& one : set.set) {
      bool is = false;
      switch (one.what) {
        case item::of::letter: is = is_letter(c); break;
        case item::of::number: is = is_number(c); break;
        case item::of::space: is = is_space(c); break;
        case item::of::digit: is = c >= U'0' && c <= U'9'; break;
        case item::of::range:
          is = (c >= one.low && c <= one.high) ||
               (set.any_case && lower(c) >= lower(one.low) && lower(c) <= lower(one.high));
      }
      found = found || is != one.negated;
    }
    return found != set.negated;
  }

  static bool fits(const node& n, std::u32string_view text, std::size_t at, const next_function& next) {
    switch (n.what) {
      case kind::one: return at < text.size() && holds(n, text[at]) && next(at + 1);
      case kind::sequence: return fits_from(n, 0, text, at, next);
      case kind::choice:
        return std::any_of(n.parts.begin(), n.parts.end(),
                           [&](const node& part) { return fits(part, text, at, next); });
      case kind::not_ahead: return !fits(n.parts[0], text, at, [](std::size_t) { return true; }) && next(at);
      case kind::ahead: return fits(n.parts[0], text, at, [](std::size_t) { return true; }) && next(at);
      case kind::repeat: break;
    }
    const node& part = n.parts[0];
    if (part.what != kind::one) return repeats(n, 0, text, at, next);
    // Repetitions of single characters need no recursion, however many there are.
    int count = 0;
    while (count < n.most && at + static_cast<std::size_t>(count) < text.size() &&
           holds(part, text[at + static_cast<std::size_t>(count)])) {
      ++count;
    }
    for (; count >= n.least; --count) {
      if (next(at + static_cast<std::size_t>(count))) return true;
    }
    return false;
  }
  static bool fits_from(const node& n, std::size_t part, std::u32string_view text, std::size_t at,
                        const next_function& next) {
    if (part == n.parts.size()) return next(at);
    return fits(n.parts[part], text, at, [&](std::size_t end) { return fits_from(n, part + 1, text, end, next); });
  }
  static bool repeats(const node& n, int done, std::u32string_view text, std::size_t at, const next_function& next) {
    if (done < n.most && fits(n.parts[0], text, at,
                              [&](std::size_t end) { return end > at && repeats(n, done + 1, text, end, next); })) {
      return true;
    }
    return done >= n.least && next(at);
  }

  [[noreturn]] void refuse() const {
    throw pattern_error("the pattern " + source_ + " at character " + std::to_string(at_ + 1) +
                        ": this program knows alternatives, groups, sets, \\p{L}, \\p{N}, \\s, \\S, \\d, *, +, ?, "
                        "{m,n}, (?i:, (?! and (?=");
  }
  [[nodiscard]] bool takes(std::u32string_view what) {
    if (std::u32string_view(text_).substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }

  node alternatives(bool any_case) {
    node choice{kind::choice, {}, {}, false, any_case};
    do {
      node sequence{kind::sequence, {}, {}, false, any_case};
      while (!at_end() && text_[at_] != U'|' && text_[at_] != U')') sequence.parts.push_back(repeated(any_case));
      choice.parts.push_back(std::move(sequence));
    } while (takes(U"|"));
    return choice;
  }
  node repeated(bool any_case) {
    node one = single(any_case);
    const int unbounded = std::numeric_limits<int>::max();
    int least = 1;
    int most = 1;
    if (takes(U"*")) {
      least = 0;
      most = unbounded;
    } else if (takes(U"+")) {
      most = unbounded;
    } else if (takes(U"?")) {
      least = 0;
    } else if (takes(U"{")) {
      least = number();
      most = takes(U",") ? (!at_end() && text_[at_] == U'}' ? unbounded : number()) : least;
      if (!takes(U"}")) refuse();
    } else {
      return one;
    }
    if (!at_end() && (text_[at_] == U'?' || text_[at_] == U'+' || text_[at_] == U'*')) refuse();  // lazy, possessive
    node made{kind::repeat, {}, {}, false, any_case, least, most};
    made.parts.push_back(std::move(one));
    return made;
  }
  int number() {
    int value = 0;
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] >= U'0' && text_[at_] <= U'9' && at_ - begin < 6) {
      value = 10 * value + static_cast<int>(text_[at_++] - U'0');
    }
    if (at_ == begin) refuse();
    return value;
  }
  node single(bool any_case) {
    if (takes(U"(")) return group(any_case);
    node one{kind::one, {}, {}, false, any_case};
    if (takes(U"[")) {
      one.negated = takes(U"^");
      while (!at_end() && text_[at_] != U']') one.set.push_back(member());
      if (one.set.empty() || !takes(U"]")) refuse();
      return one;
    }
    constexpr std::u32string_view special = U"*+?{}^$.)";
    if (special.find(text_[at_]) != std::u32string_view::npos) refuse();
    one.set.push_back(member(false));
    return one;
  }
  node group(bool any_case) {
    node made;
    if (takes(U"?!") || takes(U"?=")) {
      made.what = text_[at_ - 1] == U'!' ? kind::not_ahead : kind::ahead;
      made.parts.push_back(alternatives(any_case));
    } else if (takes(U"?i:")) {
      made = alternatives(true);
    } else {
      if (!takes(U"?:") && !at_end() && text_[at_] == U'?') refuse();
      made = alternatives(any_case);
    }
    if (!takes(U")")) refuse();
    return made;
  }
  item member(bool ranges = true) {
    item one;
    if (takes(U"\\")) {
      if (takes(U"p{L}")) return {item::of::letter};
      if (takes(U"p{N}")) return {item::of::number};
      if (takes(U"s")) return {item::of::space};
      if (takes(U"S")) return {item::of::space, true};
      if (takes(U"d")) return {item::of::digit};
      constexpr std::u32string_view from = U"rnt";
      constexpr std::u32string_view to = U"\r\n\t";
      if (at_end()) refuse();
      const char32_t c = text_[at_];
      if (const auto known = from.find(c); known != std::u32string_view::npos) {
        one.low = to[known];
      } else if (is_letter(c) || is_number(c)) {
        refuse();
      } else {
        one.low = c;
      }
      ++at_;
    } else {
      one.low = text_[at_++];
    }
    one.high = one.low;
    if (ranges && at_ + 1 < text_.size() && text_[at_] == U'-' && text_[at_ + 1] != U']') {
      ++at_;
      one.high = text_[at_++];
      if (one.high == U'\\' || one.high < one.low) refuse();
    }
    return one;
  }

  std::string source_;
  std::u32string text_;
  std::size_t at_ = 0;
  node root_;
};

}  // namespace llama
