// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/run/io/data_error.hpp>
#include <espalier/tensor/run/io/mapped_file.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::io {
class row_file;
}

namespace espalier::detail {

/// "u8 [60000, 28, 28]"
[[nodiscard]] std::string rows_text(dtype type, std::span<const std::int64_t> shape);

/// Reads elements of a row into memory of elements of a type.
using row_reader = void (*)(const io::row_file& file, dtype type, std::int64_t row, std::int64_t first,
                            std::int64_t count, void* target);
template <class To> [[nodiscard]] row_reader reader_of_rows();
struct row_reading;

}  // namespace espalier::detail

namespace espalier::io {

/// How a text file of numbers is to be read.
struct csv_options {
  char separator = ',';
  /// Lines at the start that are no rows.
  int header_lines = 0;
  /// The first cell of a row that counts, and how many do; -1: all that follow.
  int first_column = 0;
  int columns = -1;
};

/// A file of rows of equal shape, mapped into memory: `npy`, `idx`, `csv` or `raw` opens one. Copies share the mapping.
/// Opening checks all that the file says of itself against its size, of a CSV file every cell.
///
///     io::row_file images = io::npy("images.npy").scaled(1 / 255.0);  // u8 [60000, 28, 28] as numbers from 0 to 1
///     io::row_file labels = io::idx("labels.idx").within(0, 9);       // others are an error when they are read
class row_file {
 public:
  [[nodiscard]] const std::filesystem::path& path() const { return file_->path; }
  [[nodiscard]] dtype type() const { return file_->type; }
  /// The shape of the whole file; its first extent is the number of rows.
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return file_->shape; }
  [[nodiscard]] std::int64_t rows() const { return file_->shape.front(); }
  /// Elements of one row.
  [[nodiscard]] std::int64_t row_elements() const { return file_->row_elements; }

  /// The same rows, each element times `factor` plus `offset`, computed in f64. Into tensors of floats only.
  [[nodiscard]] row_file scaled(double factor, double offset = 0) const {
    row_file other = *this;
    other.factor_ = factor;
    other.offset_ = offset;
    return other;
  }
  /// The same rows; an element in the file below `least` or above `most` is an error of the read that finds it.
  [[nodiscard]] row_file within(double least, double most) const {
    row_file other = *this;
    other.range_ = {least, most};
    return other;
  }
  [[nodiscard]] bool is_scaled() const { return factor_ != 1 || offset_ != 0; }

  /// Elements [first, first + count) of a row, converted to `To`, to `target`.
  /// @pre they are there, and `accepts(dtype_of<To>)`
  /// Errors: `data_error` for a number that `To` cannot hold or that is not `within` its bounds.
  template <class To> void read(std::int64_t row, std::int64_t first, std::int64_t count, To* target) const {
    detail::reader_of_rows<To>()(*this, dtype_of<To>, row, first, count, target);
  }
  /// Asks the system to read a row soon.
  void will_need(std::int64_t row) const;

  /// Whether elements can be read as this type: floats as floats, integers as integers and floats, bools as anything.
  [[nodiscard]] bool accepts(dtype to) const;

 private:
  friend struct detail::row_reading;

  struct opened {
    explicit opened(const std::filesystem::path& from) : path(from), map(from) {}
    std::filesystem::path path;
    detail::mapped_file map;
    dtype type = dtype::f32;
    std::vector<std::int64_t> shape;
    std::int64_t row_elements = 1;
    std::int64_t start = 0;  // of the first row, in bytes
    bool swapped = false;    // most significant byte first
    bool is_text = false;
    char separator = ',';
    std::int64_t first_column = 0;
    std::int64_t lines_before = 0;    // of the first row
    std::vector<std::int64_t> lines;  // where each row starts, and where the last ends
  };

  explicit row_file(std::shared_ptr<opened> file) : file_(std::move(file)) {}

  [[nodiscard]] const std::byte* element_bytes(std::int64_t row, std::int64_t element) const;

  [[nodiscard]] std::string place_of(std::int64_t row, std::int64_t element) const;

  template <class To, class From> [[nodiscard]] To converted(From value, std::int64_t row, std::int64_t element) const;

  [[nodiscard]] std::string_view line(std::int64_t row) const;

  /// Calls `visit(cell, text)` for the cells of a row, all of them.
  template <class Visit> void for_each_cell(std::int64_t row, const Visit& visit) const;

  [[nodiscard]] double number_in(std::string_view cell, std::int64_t row, std::int64_t element) const;

  template <class To> void read_to(std::int64_t row, std::int64_t first, std::int64_t count, To* target) const;
  template <class To> void read_text(std::int64_t row, std::int64_t first, std::int64_t count, To* target) const;

  /// Makes the checks that all formats share: the sizes are possible, and the bytes are there.
  static row_file checked(std::shared_ptr<opened> file);

  friend row_file npy(const std::filesystem::path&);
  friend row_file idx(const std::filesystem::path&);
  friend row_file csv(const std::filesystem::path&, const csv_options&);
  friend row_file raw(const std::filesystem::path&, dtype, std::vector<std::int64_t>, std::int64_t);

  std::shared_ptr<opened> file_;
  double factor_ = 1;
  double offset_ = 0;
  std::optional<std::pair<double, double>> range_;
};

/// Opens an array that NumPy saved (`numpy.save`, format 1 to 3), in either byte order.
/// Errors: `data_error`, also for an array in Fortran order, of structures, or of a type that no tensor has.
[[nodiscard]] row_file npy(const std::filesystem::path& path);

/// Opens a file of the format of MNIST: two zeros, a type, the number of dimensions, their extents, all with the most
/// significant byte first. Errors: `data_error`.
[[nodiscard]] row_file idx(const std::filesystem::path& path);

/// Opens bytes without a header: `shape` elements of `type`, rows first, from byte `offset` on to the file's end, in
/// this machine's byte order. Errors: `data_error`.
[[nodiscard]] row_file raw(const std::filesystem::path& path, dtype type, std::vector<std::int64_t> shape,
                           std::int64_t offset = 0);

/// Opens a text file of numbers, a row a line; its rows are f64 [lines, cells]. Empty lines at the end do not count.
/// Errors: `data_error` that names line and column of a cell that is no number, and the line that has too few or too
/// many.
[[nodiscard]] row_file csv(const std::filesystem::path& path, const csv_options& options = {});

}  // namespace espalier::io

namespace espalier::detail {

struct row_reading {
  template <class To>
  static void read(const io::row_file& file, dtype /*type*/, std::int64_t row, std::int64_t first, std::int64_t count,
                   void* target) {
    file.read_to(row, first, count, static_cast<To*>(target));
  }
  /// Into elements of all types.
  static void read_any(const io::row_file& file, dtype type, std::int64_t row, std::int64_t first, std::int64_t count,
                       void* target);
};

/// A program of headers alone has the conversions to the types that it reads; the compiled part has all.
template <class To> row_reader reader_of_rows() {
#if defined(ESPALIER_COMPILED)
  return &row_reading::read_any;
#else
  return &row_reading::read<To>;
#endif
}

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/io/impl/row_file.ipp>
#endif
