// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of table.hpp.
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/base/table.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE std::string three_digits(double value) {
  const double magnitude = std::abs(value);
  // The limits are where rounding adds a digit: 9.996 is "10.0".
  return espalier::report::format_fixed(value, magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0);
}

/// True for "12", "-1.5 MiB", "3,072", "71 %", "nan": text that belongs to the right edge of its column.
[[nodiscard]] inline bool reads_as_number(std::string_view text) {
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  if (text.substr(0, 3) == "nan" || text.substr(0, 3) == "inf") return true;
  if (!text.empty() && text.front() == '.') text.remove_prefix(1);
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

}  // namespace espalier::detail

namespace espalier::report {

ESPALIER_INLINE std::string format_fixed(double value, int digits) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), "%.*f", detail::clamped(digits, 0, 60), value);
  return text.data();
}

ESPALIER_INLINE std::string format_count(std::int64_t value) {
  // The magnitude as unsigned: the smallest integer has no positive counterpart.
  const std::uint64_t magnitude = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  const std::string digits = std::to_string(magnitude);
  std::string text = value < 0 ? "-" : "";
  for (std::size_t n = 0; n < digits.size(); ++n) {
    if (n > 0 && (digits.size() - n) % 3 == 0) text += ',';
    text += digits[n];
  }
  return text;
}

ESPALIER_INLINE std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 6> units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes > -1024 && bytes < 1024) return detail::joined({bytes, " B"});
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (std::abs(value) >= 1023.5 && unit + 1 < units.size()) value /= 1024, ++unit;
  return detail::joined({detail::three_digits(value), " ", units[unit]});
}

ESPALIER_INLINE std::string format_scaled(double value, std::string_view unit) {
  constexpr std::array<const char*, 7> prefixes{"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  while (std::isfinite(value) && std::abs(value) >= 999.5 && prefix + 1 < prefixes.size()) value /= 1000, ++prefix;
  std::string suffix = prefixes[prefix] + std::string(unit);
  return detail::three_digits(value) + (suffix.empty() ? "" : " " + suffix);
}

ESPALIER_INLINE std::string format_percent(double fraction, int digits) {
  return format_fixed(fraction * 100, digits) + " %";
}

ESPALIER_INLINE std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return std::isnan(seconds) ? "nan" : seconds > 0 ? "inf" : "-inf";
  if (seconds < 0) return detail::joined({"-", format_duration(-seconds)});
  if (seconds == 0) return "0 s";
  if (seconds < 999.5e-9) return detail::three_digits(seconds * 1e9) + " ns";
  if (seconds < 999.5e-6) return detail::three_digits(seconds * 1e6) + " us";
  if (seconds < 999.5e-3) return detail::three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return detail::three_digits(seconds) + " s";
  if (seconds > 1e15) return detail::three_digits(seconds / 31'557'600.0) + " years";
  // Rounded once, to the smaller unit shown, so that "1 min 60 s" cannot appear.
  const auto pair = [](std::int64_t total, std::int64_t per, const char* large, const char* small) {
    std::string text = detail::joined({total / per, " ", large});
    if (total % per != 0) detail::append_text(text, {" ", total % per, " ", small});
    return text;
  };
  const std::int64_t whole = std::llround(seconds);
  if (whole < 3600) return pair(whole, 60, "min", "s");
  const std::int64_t minutes = std::llround(seconds / 60);
  if (minutes < 1440) return pair(minutes, 60, "h", "min");
  return pair(std::llround(seconds / 3600), 24, "d", "h");
}

ESPALIER_INLINE table::table(std::vector<column> columns) : columns_(std::move(columns)) {}

ESPALIER_INLINE table& table::add(std::vector<std::string> cells) {
  if (cells.size() != columns_.size())
    throw std::invalid_argument(
        detail::joined({"a table row of ", cells.size(), " cells, but the table has ", columns_.size(), " columns"}));
  rows_.push_back(std::move(cells));
  return *this;
}

ESPALIER_INLINE void table::print(std::ostream& out, std::string_view indent) const {
  std::vector<std::string> heads;
  detail::plain_vector<placed> places;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const column& head = columns_[c];
    heads.push_back(head.unit.empty() ? head.name : detail::joined({head.name, " [", head.unit, "]"}));
    std::size_t width = heads.back().size();
    for (const auto& cells : rows_) width = detail::larger_of(width, cells[c].size());
    places.push_back({width, stands_right(c)});
  }
  std::vector<std::string> rules;
  for (const placed& place : places) rules.push_back(std::string(place.width, '-'));
  write(out, indent, heads, places);
  write(out, indent, rules, places);
  for (const auto& cells : rows_) write(out, indent, cells, places);
}

ESPALIER_INLINE bool table::stands_right(std::size_t c) const {
  if (columns_[c].alignment != align::automatic) return columns_[c].alignment == align::right;
  bool any = false;
  for (const auto& cells : rows_) {
    if (cells[c].empty() || cells[c] == "-") continue;
    if (!detail::reads_as_number(cells[c])) return false;
    any = true;
  }
  return any;
}

ESPALIER_INLINE void table::write(std::ostream& out, std::string_view indent, const std::vector<std::string>& cells,
                                  const detail::plain_vector<placed>& places) {
  std::string line(indent);
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const std::string space(places[c].width - cells[c].size(), ' ');
    const bool right = places[c].right;
    detail::append_text(line, {c == 0 ? "" : "  ", right ? space : cells[c], right ? cells[c] : space});
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << '\n';
}

}  // namespace espalier::report
