// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/run/io/error.hpp>
#include <espalier/tensor/run/io/file.hpp>
#include <espalier/tensor/run/io/tensor_spec.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::detail {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, as every supported host");

struct box_walk;

/// The tensors of one file by name, and the boxes of them.
class tensor_table {
 public:
  tensor_table() = default;
  explicit tensor_table(std::vector<io::tensor_info> tensors);
  [[nodiscard]] const std::vector<io::tensor_info>& tensors() const { return tensors_; }
  [[nodiscard]] const io::tensor_info* find(std::string_view name) const;
  [[nodiscard]] const io::tensor_info& at(const std::filesystem::path& path, std::string_view name) const;
  [[nodiscard]] static box_walk walk(const std::filesystem::path& path, const io::tensor_info& info,
                                     std::span<const std::int64_t> starts, std::span<const std::int64_t> extents,
                                     std::span<const std::int64_t> strides);

 private:
  std::vector<io::tensor_info> tensors_;
  std::vector<std::size_t> by_name_;  // their places in `tensors_`, in the order of the names
};

/// The lines of a refused checkpoint: what is missing, unexpected and different, of long lists the first 20.
[[nodiscard]] std::string list_of_differences(std::vector<std::string> missing, std::vector<std::string> unexpected,
                                              std::vector<std::string> different);

}  // namespace espalier::detail

namespace espalier::io {

/// A safetensors file, open for reading; any number of threads may read boxes at the same time.
///
/// Everything the file says about itself is checked before the constructor returns: length, JSON, names, types, and
/// that the tensors fill the data part exactly. Errors: `checkpoint_error`, also from every read.
class safetensors_reader {
 public:
  explicit safetensors_reader(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  [[nodiscard]] const metadata_map& metadata() const { return metadata_; }
  /// All tensors, in the order of their data in the file.
  [[nodiscard]] const std::vector<tensor_info>& tensors() const { return table_.tensors(); }
  /// Null when the file has no tensor of that name.
  [[nodiscard]] const tensor_info* find(std::string_view name) const { return table_.find(name); }

  /// Reads the box of `extents` elements from `starts` on, straight from the file; nothing else of the tensor is read.
  ///
  /// `target` holds elements of the tensor's dtype (`storage_t`) and points to the box's first element; `strides` are
  /// its strides in elements, one per dimension; empty: row-major and contiguous.
  void read_box(std::string_view name, std::span<const std::int64_t> starts, std::span<const std::int64_t> extents,
                void* target, std::span<const std::int64_t> strides = {}) const;

  /// Reads a box, as `read_box` does, of the tensor seen as one of shape `as` with as many elements, in row-major
  /// order: a matrix [out, in] whose rows are those of several heads is read by heads as [heads, out / heads, in].
  void read_reshaped(std::string_view name, std::span<const std::int64_t> as, std::span<const std::int64_t> starts,
                     std::span<const std::int64_t> extents, void* target,
                     std::span<const std::int64_t> strides = {}) const;

  /// Whether what `read_box` would read is damaged, as far as bytes can tell: only a BOOL has bytes that mean nothing.
  /// Nothing is read of tensors of other types. Errors: `checkpoint_error` if it is.
  void check_box(std::string_view name, std::span<const std::int64_t> starts,
                 std::span<const std::int64_t> extents) const;

  /// Reads a whole tensor, row-major.
  void read(std::string_view name, void* target) const;

 private:
  void transfer(const tensor_info& info, const detail::box_walk& box, std::byte* target) const;

  // A `bool` that is neither 0 nor 1 is undefined behaviour wherever it is used later.
  void check_booleans(const tensor_info& info, std::byte* memory, std::int64_t elements) const;

  detail::file_handle file_;
  std::int64_t data_start_ = 0;
  metadata_map metadata_;
  detail::tensor_table table_;
};

/// The role of a writer: one creates the temporary file of a checkpoint, the others only write into it.
enum class writer_role : std::uint8_t { create, attach };

/// A safetensors file in the making: laid out at once, written in boxes by many, and visible only when complete.
///
/// The protocol for several ranks (within one process, threads may as well share one writer):
///
///  1. one rank constructs with `writer_role::create`: the temporary file gets its full size and header; barrier
///  2. the others construct with `writer_role::attach`, and the same path, specs, metadata and temporary name
///  3. every rank calls `write_box` for its own shards, each element on one rank only; then `flush()`; barrier
///  4. the creator calls `commit()`: the file takes its real name in one step, replacing an older one
///
/// A creator destroyed without `commit` removes the temporary file, so the real name never shows half a file. Ranks
/// that exchange `bytes_written()` at the barrier can pass the sum to `commit`, which then also refuses a forgotten
/// shard. The temporary file must be in the same file system as `path`; a leftover of a killed job is taken over, but
/// one that a living creator holds is refused. Errors: `checkpoint_error`.
class safetensors_writer {
 public:
  /// `temporary` empty: `path` + ".partial". Two jobs that may write one `path` at the same time need different names.
  safetensors_writer(std::filesystem::path path, std::vector<tensor_spec> specs, const metadata_map& metadata = {},
                     writer_role role = writer_role::create, std::filesystem::path temporary = {});
  safetensors_writer(const safetensors_writer&) = delete;
  safetensors_writer& operator=(const safetensors_writer&) = delete;
  ~safetensors_writer();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::filesystem::path& temporary() const { return temporary_; }
  [[nodiscard]] const std::vector<tensor_info>& tensors() const { return table_.tensors(); }
  /// Bytes of tensor data that the whole file holds.
  [[nodiscard]] std::int64_t data_bytes() const { return data_bytes_; }
  /// Bytes of tensor data that this writer has written.
  [[nodiscard]] std::int64_t bytes_written() const { return written_.load(); }

  /// Writes the box of `extents` elements from `starts` on. Threads and ranks may write disjoint boxes concurrently.
  ///
  /// `source` holds elements of the tensor's dtype and points to the box's first element; `strides` are its strides in
  /// elements, one per dimension; empty: row-major and contiguous.
  void write_box(std::string_view name, std::span<const std::int64_t> starts, std::span<const std::int64_t> extents,
                 const void* source, std::span<const std::int64_t> strides = {});

  /// Writes bytes [begin, begin + bytes) of the file's data part, as `tensors()` lays it out. Threads and ranks may
  /// write disjoint ranges concurrently.
  void write_range(std::int64_t begin, const void* source, std::int64_t bytes);

  /// Writes a whole tensor, row-major.
  void write(std::string_view name, const void* source);

  /// Waits until what this host wrote is on the disk; on a network file system each rank's data needs its own flush.
  void flush() const { file_.flush(); }

  /// Gives the file its real name. @pre role create; all writers have flushed.
  void commit();

  /// Commits as `commit()` does, but refuses if `written_by_all`, the sum of all writers' `bytes_written()`, is not the
  /// whole file.
  void commit(std::int64_t written_by_all);

 private:
  void create(const std::string& prefix);

  // The lock tells a killed job's leftover, which is free to take, from the file of a creator that lives.
  void open_locked();

  void attach(const std::string& prefix);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  writer_role role_;
  detail::file_handle file_;
  detail::tensor_table table_;
  std::int64_t data_start_ = 0;
  std::int64_t data_bytes_ = 0;
  std::atomic<std::int64_t> written_{0};
  bool committed_ = false;
};

/// Refuses a file whose tensors are not exactly `specs`, before anything is overwritten with it.
///
/// Throws one `checkpoint_error` that lists every missing, unexpected and differing tensor with both types and shapes
/// (of long lists the first 20).
void check_matches(const safetensors_reader& reader, std::span<const tensor_spec> specs);

}  // namespace espalier::io

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/io/impl/safetensors.ipp>
#endif
