// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/config.hpp>

#include <espalier/base/light_std/plain_vector.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::detail {

/// Three significant digits: "1.50", "15.0", "150".
[[nodiscard]] std::string three_digits(double value);

}  // namespace espalier::detail

namespace espalier::report {

/// "3.14": fixed notation with `digits` after the point; "nan" and "inf" as they are.
[[nodiscard]] std::string format_fixed(double value, int digits = 2);

/// "1,234,567": exact, with a comma every three digits.
/// @post without its commas it is std::to_string(value), and three digits follow each comma
[[nodiscard]] std::string format_count(std::int64_t value);

/// "512 B", "1.50 KiB", "12.0 MiB", "3.25 GiB": bytes in powers of 1024.
[[nodiscard]] std::string format_bytes(std::int64_t bytes);

/// "1.50 M", "12.3 GFLOP/s", "0.250": three digits and a decimal prefix before `unit`.
[[nodiscard]] std::string format_scaled(double value, std::string_view unit = "");

/// "12.3 %" of a fraction, 0.123.
[[nodiscard]] std::string format_percent(double fraction, int digits = 1);

/// "350 us", "12.5 ms", "4.20 s", "1 min 12 s", "2 h 5 min", "3 d 4 h": a duration as a person says it.
[[nodiscard]] std::string format_duration(double seconds);

/// The alignment of a column's cells. `automatic` is right if every cell reads as a number, else left.
enum class align : std::uint8_t { automatic, left, right };

/// The head of a table's column, printed as "name [unit]".
struct column {
  std::string name;
  std::string unit = {};
  align alignment = align::automatic;
};

/// An aligned text table: columns once, then rows of texts and numbers, then `print`. Widths count bytes: ASCII text.
class table {
 public:
  explicit table(std::vector<column> columns);

  /// Adds a row: strings as they are, integers as `format_count`, floating-point numbers with two digits after the
  /// point. Throws `std::invalid_argument` when the number of cells is not that of the columns.
  template <class... Cells> table& row(const Cells&... cells) { return add({cell(cells)...}); }

  /// Adds a row like `row`, for a number of columns that is known only at run time.
  table& add(std::vector<std::string> cells);

  [[nodiscard]] std::size_t rows() const { return rows_.size(); }

  /// Writes the heads, a rule and the rows, two spaces between columns and none at the end of a line.
  void print(std::ostream& out, std::string_view indent = "") const;

  friend std::ostream& operator<<(std::ostream& out, const table& printed) {
    printed.print(out);
    return out;
  }

 private:
  struct placed {
    std::size_t width;
    bool right;
  };

  template <class Cell> [[nodiscard]] static std::string cell(const Cell& value) {
    if constexpr (std::convertible_to<const Cell&, std::string_view>)
      return std::string(std::string_view(value));
    else if constexpr (std::same_as<Cell, bool>)
      return value ? "yes" : "no";
    else if constexpr (std::integral<Cell>)
      return format_count(static_cast<std::int64_t>(value));
    else
      return format_fixed(static_cast<double>(value));
  }

  // "-" and nothing mean "no value" in either kind of column.
  [[nodiscard]] bool stands_right(std::size_t c) const;

  static void write(std::ostream& out, std::string_view indent, const std::vector<std::string>& cells,
                    const detail::plain_vector<placed>& places);

  std::vector<column> columns_;
  detail::object_vector<std::vector<std::string>> rows_;
};

}  // namespace espalier::report

#if !defined(ESPALIER_COMPILED)
#include <espalier/base/impl/table.ipp>
#endif
