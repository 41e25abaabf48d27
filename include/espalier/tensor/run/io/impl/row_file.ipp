// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of row_file.hpp.
#include <espalier/base/dtype.hpp>
#include <espalier/base/light_std/read_number.hpp>
#include <espalier/tensor/run/io/data_error.hpp>
#include <espalier/tensor/run/io/mapped_file.hpp>
#include <espalier/tensor/run/io/row_file.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE std::string rows_text(dtype type, std::span<const std::int64_t> shape) {
  std::string text = std::string(name_of(type)) + " [";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "]";
}

/// 9, 0.5, -3e+20
[[nodiscard]] inline std::string short_number(double value) {
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.9g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

/// "f32, f64 or u8": the types of elements that there are.
[[nodiscard]] inline std::string dtype_names() {
  std::string text;
  for (int n = 0; n < dtype_count; ++n) {
    text += n == 0 ? "" : n + 1 == dtype_count ? " or " : ", ";
    text += dtype_table[n].name;
  }
  return text;
}

}  // namespace espalier::detail

namespace espalier::io {

ESPALIER_INLINE void row_file::will_need(std::int64_t row) const {
  if (file_->is_text) {
    const auto at = static_cast<std::size_t>(row);
    file_->map.will_need(file_->lines[at], file_->lines[at + 1] - file_->lines[at]);
  } else {
    const std::int64_t bytes = file_->row_elements * size_of(type());
    file_->map.will_need(file_->start + row * bytes, bytes);
  }
}

ESPALIER_INLINE bool row_file::accepts(dtype to) const {
  if (to == type()) return to == dtype::boolean || is_floating(to) || !is_scaled();
  if (to == dtype::boolean) return false;
  if (is_floating(to)) return true;
  // The text of a whole number is one.
  return !is_scaled() && (file_->is_text || !is_floating(type()));
}

ESPALIER_INLINE const std::byte* row_file::element_bytes(std::int64_t row, std::int64_t element) const {
  return file_->map.data() + file_->start + (row * file_->row_elements + element) * size_of(type());
}

ESPALIER_INLINE std::string row_file::place_of(std::int64_t row, std::int64_t element) const {
  if (file_->is_text)
    return "line " + std::to_string(file_->lines_before + row + 1) + ", column " +
           std::to_string(file_->first_column + element + 1);
  return "row " + std::to_string(row) + ", element " + std::to_string(element);
}

ESPALIER_INLINE std::string_view row_file::line(std::int64_t row) const {
  const auto at = static_cast<std::size_t>(row);
  std::string_view text(reinterpret_cast<const char*>(file_->map.data()) + file_->lines[at],
                        static_cast<std::size_t>(file_->lines[at + 1] - file_->lines[at]));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

ESPALIER_INLINE double row_file::number_in(std::string_view cell, std::int64_t row, std::int64_t element) const {
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t')) cell.remove_suffix(1);
  double value = 0;
  const char* const begin = cell.data() + (!cell.empty() && cell.front() == '+' ? 1 : 0);
  const auto [end, error] = detail::read_number(begin, cell.data() + cell.size(), value);
  if (cell.empty() || error != std::errc{} || end != cell.data() + cell.size())
    throw data_error(path(),
                     place_of(row, element) + " is \"" + std::string(cell.substr(0, 40)) + "\", which is no number",
                     "Correct that cell, or choose columns and header_lines so that only numbers are read");
  return value;
}

template <class To, class From> To row_file::converted(From value, std::int64_t row, std::int64_t element) const {
  const auto number = static_cast<double>(static_cast<computed_t<From>>(value));
  const auto text = [&] { return detail::short_number(number); };
  if (range_ && !(number >= range_->first && number <= range_->second))
    throw data_error(path(),
                     place_of(row, element) + " is " + text() + ", not within " + detail::short_number(range_->first) +
                         " and " + detail::short_number(range_->second),
                     "Correct the file, or the bounds given to within()");
  if constexpr (std::is_same_v<To, bool>) {
    return number != 0;
  } else if constexpr (std::is_integral_v<To>) {
    bool fits = true;
    if constexpr (std::is_same_v<From, bool>) {
      return static_cast<To>(value);
    } else if constexpr (std::is_integral_v<From>) {
      fits = std::in_range<To>(value);
    } else {
      fits = number == std::floor(number) && number >= static_cast<double>(std::numeric_limits<To>::min()) &&
             number < std::ldexp(1.0, std::numeric_limits<To>::digits);
    }
    if (!fits)
      throw data_error(path(),
                       place_of(row, element) + " is " + text() + ", which " + name_of(dtype_of<To>) + " cannot hold",
                       "Take a tensor of a wider type, or correct the file");
    return static_cast<To>(value);
  } else if (is_scaled()) {
    return static_cast<To>(static_cast<computed_t<To>>(number * factor_ + offset_));
  } else {
    return static_cast<To>(static_cast<computed_t<To>>(static_cast<computed_t<From>>(value)));
  }
}

template <class Visit> void row_file::for_each_cell(std::int64_t row, const Visit& visit) const {
  std::string_view text = line(row);
  for (std::int64_t cell = 0;; ++cell) {
    const std::size_t end = text.find(file_->separator);
    visit(cell, text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

template <class To>
void row_file::read_text(std::int64_t row, std::int64_t first, std::int64_t count, To* target) const {
  for_each_cell(row, [&](std::int64_t cell, std::string_view text) {
    const std::int64_t element = cell - file_->first_column;
    if (element < first || element >= first + count) return;
    target[element - first] = converted<To>(number_in(text, row, element), row, element);
  });
}

template <class To> void row_file::read_to(std::int64_t row, std::int64_t first, std::int64_t count, To* target) const {
  if (file_->is_text) return read_text(row, first, count, target);
  with_storage(type(), [&]<class From>(From) {
    const std::byte* source = element_bytes(row, first);
    if constexpr (std::is_same_v<From, To>) {
      if (!is_scaled() && !range_ && !file_->swapped) {
        std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(To));
        return;
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      From value;
      std::byte bytes[sizeof(From)];
      std::memcpy(bytes, source + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
      if (file_->swapped) std::reverse(bytes, bytes + sizeof(From));
      if constexpr (std::is_same_v<From, bool>) {
        value = bytes[0] != std::byte{0};
      } else {
        std::memcpy(&value, bytes, sizeof(From));
      }
      target[i] = converted<To>(value, row, first + i);
    }
  });
}

ESPALIER_INLINE row_file row_file::checked(std::shared_ptr<opened> file) {
  const std::string text = detail::rows_text(file->type, file->shape);
  if (file->shape.empty())
    throw data_error(file->path, "it holds one number, not rows", "Save an array whose first dimension counts rows");
  std::int64_t bytes = size_of(file->type);
  for (std::size_t d = 0; d < file->shape.size(); ++d) {
    const std::int64_t extent = file->shape[d];
    if (extent <= 0)
      throw data_error(file->path, "it holds " + text + ", which has no elements", "Give a file with rows");
    if (bytes > std::numeric_limits<std::int64_t>::max() / extent)
      throw data_error(file->path, "it says that it holds " + text + ", more than 2^63 bytes", "Use another copy");
    bytes *= extent;
    if (d > 0) file->row_elements *= extent;
  }
  const std::int64_t there = file->map.bytes() - file->start;
  if (!file->is_text && there != bytes)
    throw data_error(file->path,
                     "it holds " + text + ", " + std::to_string(bytes) + " bytes, but " + std::to_string(there) +
                         " follow the header",
                     there < bytes ? "It is cut off: use another copy" : "Use another copy, or correct its shape");
  return row_file(std::move(file));
}

ESPALIER_INLINE row_file npy(const std::filesystem::path& path) {
  auto file = std::make_shared<row_file::opened>(path);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(file->map.data());
  const std::int64_t size = file->map.bytes();
  const auto refuse = [&](const std::string& fault, const std::string& remedy) {
    throw data_error(path, fault, remedy);
  };
  if (size < 10 || std::memcmp(bytes, "\x93NUMPY", 6) != 0)
    refuse("it does not start as a .npy file does", "Save the array with numpy.save");
  const bool is_long = bytes[6] >= 2;
  std::int64_t length = bytes[8] | bytes[9] << 8;
  if (is_long && size >= 12)
    length |= static_cast<std::int64_t>(bytes[10]) << 16 | static_cast<std::int64_t>(bytes[11]) << 24;
  file->start = (is_long ? 12 : 10) + length;
  if (bytes[6] < 1 || bytes[6] > 3 || file->start > size)
    refuse("its header is cut off or of a later format", "Save the array again with numpy.save");
  const std::string_view header(reinterpret_cast<const char*>(bytes) + file->start - length,
                                static_cast<std::size_t>(length));
  const auto value_of = [&](std::string_view key) {
    const std::size_t at = header.find(key);
    if (at == std::string_view::npos)
      refuse("its header has no " + std::string(key), "Save the array again with numpy.save");
    std::string_view rest = header.substr(at + key.size());
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == ':')) rest.remove_prefix(1);
    return rest;
  };
  const std::string_view described = value_of("'descr'");
  if (described.empty() || described.front() != '\'')
    refuse("its elements are structures", "Save each field as an array of its own");
  const std::string_view type = described.substr(1, described.find('\'', 1) - 1);
  constexpr std::pair<std::string_view, dtype> types[]{{"f4", dtype::f32}, {"f8", dtype::f64}, {"f2", dtype::f16},
                                                       {"i4", dtype::i32}, {"i8", dtype::i64}, {"i1", dtype::i8},
                                                       {"u1", dtype::u8},  {"u4", dtype::u32}, {"b1", dtype::boolean}};
  const auto* const row = std::find_if(std::begin(types), std::end(types), [&](const auto& one) {
    return type.size() == 3 && type.substr(1) == one.first;
  });
  if (row == std::end(types))
    refuse("its elements are of NumPy's type \"" + std::string(type) + "\"",
           "Convert the array with astype to one of " + detail::dtype_names());
  file->type = row->second;
  file->swapped = type.front() == '>';
  const bool is_fortran = value_of("'fortran_order'").substr(0, 4) == "True";
  std::string_view shape = value_of("'shape'");
  shape = shape.substr(0, shape.find(')'));
  while (!shape.empty()) {
    const bool is_digit = shape.front() >= '0' && shape.front() <= '9';
    if (!is_digit) {
      shape.remove_prefix(1);
      continue;
    }
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), extent);
    if (error != std::errc{}) refuse("its shape has a number beyond 63 bits", "Use another copy");
    file->shape.push_back(extent);
    shape.remove_prefix(static_cast<std::size_t>(end - shape.data()));
  }
  if (is_fortran && file->shape.size() > 1)
    refuse("it is in Fortran order, in which a row is not contiguous", "Save numpy.ascontiguousarray of it");
  return row_file::checked(std::move(file));
}

ESPALIER_INLINE row_file idx(const std::filesystem::path& path) {
  auto file = std::make_shared<row_file::opened>(path);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(file->map.data());
  const std::int64_t size = file->map.bytes();
  if (size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
    throw data_error(path, "it is compressed", "Unpack it with gunzip");
  if (size < 4 || bytes[0] != 0 || bytes[1] != 0)
    throw data_error(path, "it does not start with two zeros, as an IDX file does", "Give the path of an IDX file");
  constexpr std::pair<int, dtype> types[]{
      {0x08, dtype::u8}, {0x09, dtype::i8}, {0x0c, dtype::i32}, {0x0d, dtype::f32}, {0x0e, dtype::f64}};
  const auto* const row =
      std::find_if(std::begin(types), std::end(types), [&](const auto& one) { return one.first == bytes[2]; });
  if (row == std::end(types))
    throw data_error(path,
                     "its elements are of type " + std::to_string(bytes[2]) +
                         ", expected 8 (u8), 9 (i8), 12 (i32), 13 (f32) or 14 (f64)",
                     "Convert the file");
  file->type = row->second;
  file->swapped = size_of(file->type) > 1;
  file->start = 4 + 4 * bytes[3];
  if (file->start > size) throw data_error(path, "its header is cut off", "Use another copy");
  for (int d = 0; d < bytes[3]; ++d) {
    std::int64_t extent = 0;
    for (int i = 0; i < 4; ++i) extent = extent << 8 | bytes[4 + 4 * d + i];
    file->shape.push_back(extent);
  }
  return row_file::checked(std::move(file));
}

ESPALIER_INLINE row_file raw(const std::filesystem::path& path, dtype type, std::vector<std::int64_t> shape,
                             std::int64_t offset) {
  auto file = std::make_shared<row_file::opened>(path);
  if (offset < 0 || offset > file->map.bytes())
    throw data_error(path, "byte " + std::to_string(offset) + " is beyond its " + std::to_string(file->map.bytes()),
                     "Correct the offset");
  file->type = type;
  file->shape = std::move(shape);
  file->start = offset;
  return row_file::checked(std::move(file));
}

ESPALIER_INLINE row_file csv(const std::filesystem::path& path, const csv_options& options) {
  auto file = std::make_shared<row_file::opened>(path);
  const std::string_view text(reinterpret_cast<const char*>(file->map.data()),
                              static_cast<std::size_t>(file->map.bytes()));
  file->type = dtype::f64;
  file->is_text = true;
  file->separator = options.separator;
  file->first_column = options.first_column;
  file->lines_before = options.header_lines;
  const std::size_t end = text.find_last_not_of(" \t\r\n") + 1;
  std::size_t at = 0;
  for (std::int64_t line = 0; at < end; ++line) {
    if (line >= options.header_lines) file->lines.push_back(static_cast<std::int64_t>(at));
    const std::size_t next = text.find('\n', at);
    at = next == std::string_view::npos ? end : std::min(next + 1, end);
  }
  if (file->lines.empty())
    throw data_error(path, "it has no rows after " + std::to_string(options.header_lines) + " header lines",
                     "Give a file with rows");
  const auto rows = static_cast<std::int64_t>(file->lines.size());
  file->lines.push_back(static_cast<std::int64_t>(end));
  const row_file reader(file);
  std::int64_t cells = 0;  // of the first row
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t count = 0;
    reader.for_each_cell(row, [&](std::int64_t cell, std::string_view number) {
      ++count;
      const std::int64_t element = cell - options.first_column;
      if (element >= 0 && (options.columns < 0 || element < options.columns))
        (void)reader.number_in(number, row, element);
    });
    if (row == 0) cells = count;
    if (count != cells)
      throw data_error(path,
                       "line " + std::to_string(options.header_lines + row + 1) + " has " + std::to_string(count) +
                           " cells, and the first row " + std::to_string(cells),
                       "Give each row as many cells");
  }
  const std::int64_t columns = options.columns < 0 ? cells - options.first_column : options.columns;
  if (options.first_column < 0 || columns < 1 || options.first_column + columns > cells)
    throw data_error(path,
                     "columns " + std::to_string(options.first_column) + " to " +
                         std::to_string(options.first_column + columns - 1) + " are asked for of rows of " +
                         std::to_string(cells) + " cells",
                     "Correct first_column and columns");
  file->shape = {rows, columns};
  if (columns == 1) file->shape.pop_back();
  return row_file::checked(std::move(file));
}

}  // namespace espalier::io

#if defined(ESPALIER_COMPILED)
namespace espalier::detail {

void row_reading::read_any(const io::row_file& file, dtype type, std::int64_t row, std::int64_t first,
                           std::int64_t count, void* target) {
  with_storage(type, [&]<class To>(To) { read<To>(file, type, row, first, count, target); });
}

}  // namespace espalier::detail
#endif
