// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of safetensors.hpp.
#include <espalier/base/dtype.hpp>
#include <espalier/base/json.hpp>
#include <espalier/tensor/run/io/box.hpp>
#include <espalier/tensor/run/io/error.hpp>
#include <espalier/tensor/run/io/file.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>
#include <espalier/tensor/run/io/safetensors_header.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace espalier::detail {

[[nodiscard]] inline std::string describe_box(std::span<const std::int64_t> starts,
                                              std::span<const std::int64_t> extents) {
  std::string text = "box";
  if (starts.size() != extents.size())
    return text + " with " + std::to_string(starts.size()) + " starts and " + std::to_string(extents.size()) +
           " extents";
  text += " [";
  for (std::size_t d = 0; d < starts.size(); ++d)
    text += (d == 0 ? "" : ", ") + std::to_string(starts[d]) + "+" + std::to_string(extents[d]);
  return text + "]";
}

ESPALIER_INLINE tensor_table::tensor_table(std::vector<io::tensor_info> tensors)
    : tensors_(std::move(tensors)), by_name_(tensors_.size()) {
  for (std::size_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
}

ESPALIER_INLINE const io::tensor_info* tensor_table::find(std::string_view name) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](std::size_t one, std::string_view wanted) { return tensors_[one].name < wanted; });
  return at == by_name_.end() || tensors_[*at].name != name ? nullptr : &tensors_[*at];
}

ESPALIER_INLINE const io::tensor_info& tensor_table::at(const std::filesystem::path& path,
                                                        std::string_view name) const {
  if (const io::tensor_info* info = find(name)) return *info;
  throw io::checkpoint_error(path, "no tensor " + json_string(name) + " among " + std::to_string(tensors_.size()),
                             "one of that name", "compare the names with tensors(), or call check_matches first");
}

ESPALIER_INLINE box_walk tensor_table::walk(const std::filesystem::path& path, const io::tensor_info& info,
                                            std::span<const std::int64_t> starts, std::span<const std::int64_t> extents,
                                            std::span<const std::int64_t> strides) {
  bool fits = starts.size() == info.shape.size() && extents.size() == info.shape.size() &&
              (strides.empty() || strides.size() == info.shape.size());
  for (std::size_t d = 0; fits && d < starts.size(); ++d)
    fits = starts[d] >= 0 && extents[d] >= 0 && starts[d] <= info.shape[d] && extents[d] <= info.shape[d] - starts[d];
  if (!fits)
    throw io::checkpoint_error(path, describe_box(starts, extents) + " of tensor " + json_string(info.name),
                               "a box within " + describe(info) + (strides.empty() ? "" : ", one stride a dimension"),
                               "compute starts and extents from the tensor's global shape");
  return box_walk(info.shape, starts, extents, strides);
}

ESPALIER_INLINE std::string list_of_differences(std::vector<std::string> missing, std::vector<std::string> unexpected,
                                                std::vector<std::string> different) {
  std::string found;
  const auto list = [&](const std::string& title, std::vector<std::string>& lines) {
    if (lines.empty()) return;
    std::sort(lines.begin(), lines.end());
    found += "\n    " + std::to_string(lines.size()) + " " + title;
    for (std::size_t i = 0; i < std::min<std::size_t>(lines.size(), 20); ++i) found += "\n      " + lines[i];
    if (lines.size() > 20) found += "\n      and " + std::to_string(lines.size() - 20) + " more";
  };
  list("missing", missing);
  list("unexpected", unexpected);
  list("different", different);
  return found;
}

/// Guesses from its first bytes which format a file has that is not safetensors.
[[nodiscard]] inline std::string guess_format(std::string_view first) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> known{
      {{"PK\x03\x04", "a zip archive, as PyTorch .pt and NumPy .npz are"},
       {"\x93NUMPY", "a NumPy .npy array"},
       {"\x89HDF", "an HDF5 file"},
       {"\x89PNG", "a PNG image"},
       {"\x80\x02", "a Python pickle"}}};
  for (const auto& [magic, name] : known)
    if (first.substr(0, magic.size()) == magic) return " (it looks like " + std::string(name) + ")";
  return "";
}

[[nodiscard]] inline std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace espalier::detail

namespace espalier::io {

ESPALIER_INLINE safetensors_reader::safetensors_reader(const std::filesystem::path& path)
    : file_(detail::file_handle::open(path, O_RDONLY)) {
  const std::int64_t size = file_.size();
  const std::string remedy = "give the path of a complete safetensors file";
  if (size < 8)
    throw checkpoint_error(path, "a file of " + std::to_string(size) + " bytes", "8 length bytes and a header", remedy);
  std::string first(8, '\0');
  file_.read_at(first.data(), 8, 0);
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8U | static_cast<unsigned char>(first[i]);
  const auto room = static_cast<std::uint64_t>(std::min(size - 8, detail::safetensors_header_limit));
  if (length < 2 || length > room)
    throw checkpoint_error(path, "a header length of " + std::to_string(length) + detail::guess_format(first),
                           "2 to " + std::to_string(room) + " bytes of header in a file of " + std::to_string(size),
                           remedy);
  std::string text(static_cast<std::size_t>(length), '\0');
  file_.read_at(text.data(), static_cast<std::int64_t>(length), 8);
  data_start_ = 8 + static_cast<std::int64_t>(length);

  detail::safetensors_header header = detail::safetensors_header_parser(path, text).parse();
  detail::check_layout(path, header, size - data_start_);
  metadata_ = std::move(header.metadata);
  table_ = detail::tensor_table(std::move(header.tensors));
}

ESPALIER_INLINE void safetensors_reader::read_box(std::string_view name, std::span<const std::int64_t> starts,
                                                  std::span<const std::int64_t> extents, void* target,
                                                  std::span<const std::int64_t> strides) const {
  const tensor_info& info = table_.at(path(), name);
  const detail::box_walk box = detail::tensor_table::walk(path(), info, starts, extents, strides);
  transfer(info, box, static_cast<std::byte*>(target));
}

ESPALIER_INLINE void safetensors_reader::read_reshaped(std::string_view name, std::span<const std::int64_t> as,
                                                       std::span<const std::int64_t> starts,
                                                       std::span<const std::int64_t> extents, void* target,
                                                       std::span<const std::int64_t> strides) const {
  const tensor_info& info = table_.at(path(), name);
  tensor_info seen = info;
  seen.shape.assign(as.begin(), as.end());
  if (detail::bytes_of(seen) != detail::bytes_of(info)) {
    throw checkpoint_error(path(),
                           "tensor " + detail::json_string(name) + " = " + detail::describe(info) + ", to be read as " +
                               detail::describe(seen),
                           "as many elements", "check the model's sizes against the file's");
  }
  transfer(seen, detail::tensor_table::walk(path(), seen, starts, extents, strides), static_cast<std::byte*>(target));
}

ESPALIER_INLINE void safetensors_reader::check_box(std::string_view name, std::span<const std::int64_t> starts,
                                                   std::span<const std::int64_t> extents) const {
  const tensor_info& info = table_.at(path(), name);
  detail::box_walk box = detail::tensor_table::walk(path(), info, starts, extents, {});
  if (info.type != dtype::boolean) return;
  // Every run goes through the buffer of runs that are not contiguous in memory, and from there to one byte.
  std::byte element{};
  for (detail::box_dimension& d : box.dimensions) d.memory_stride = 0;
  transfer(info, box, &element);
}

ESPALIER_INLINE void safetensors_reader::read(std::string_view name, void* target) const {
  const tensor_info& info = table_.at(path(), name);
  read_box(name, std::vector<std::int64_t>(info.shape.size(), 0), info.shape, target);
}

ESPALIER_INLINE void safetensors_reader::transfer(const tensor_info& info, const detail::box_walk& box,
                                                  std::byte* target) const {
  const std::int64_t size = size_of(info.type);
  detail::read_spans(box, target, size, [&](std::int64_t element, std::byte* memory, std::int64_t elements) {
    file_.read_at(memory, elements * size, data_start_ + info.begin + element * size);
    if (info.type == dtype::boolean) check_booleans(info, memory, elements);
  });
}

ESPALIER_INLINE void safetensors_reader::check_booleans(const tensor_info& info, std::byte* memory,
                                                        std::int64_t elements) const {
  std::byte* const end = memory + elements;
  std::byte* const bad = std::find_if(memory, end, [](std::byte b) { return b > std::byte{1}; });
  if (bad == end) return;
  const int value = std::to_integer<int>(*bad);
  std::fill(memory, end, std::byte{0});
  throw checkpoint_error(path(), "the byte " + std::to_string(value) + " in tensor " + detail::json_string(info.name),
                         "0 or 1, as it is BOOL", "the file is damaged: use another copy");
}

ESPALIER_INLINE safetensors_writer::safetensors_writer(std::filesystem::path path, std::vector<tensor_spec> specs,
                                                       const metadata_map& metadata, writer_role role,
                                                       std::filesystem::path temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)), role_(role) {
  if (temporary_.empty()) (temporary_ = path_) += ".partial";
  detail::safetensors_layout layout = detail::lay_out(path_, std::move(specs), metadata);
  table_ = detail::tensor_table(std::move(layout.tensors));
  data_start_ = static_cast<std::int64_t>(layout.prefix.size());
  data_bytes_ = layout.data_bytes;
  if (role_ == writer_role::create)
    create(layout.prefix);
  else
    attach(layout.prefix);
}

ESPALIER_INLINE safetensors_writer::~safetensors_writer() {
  if (role_ == writer_role::create && !committed_) ::unlink(temporary_.c_str());
}

ESPALIER_INLINE void safetensors_writer::write_box(std::string_view name, std::span<const std::int64_t> starts,
                                                   std::span<const std::int64_t> extents, const void* source,
                                                   std::span<const std::int64_t> strides) {
  const tensor_info& info = table_.at(path_, name);
  const detail::box_walk box = detail::tensor_table::walk(path_, info, starts, extents, strides);
  const std::int64_t size = size_of(info.type);
  detail::write_runs(box, static_cast<const std::byte*>(source), size,
                     [&](std::int64_t element, const std::byte* memory, std::int64_t elements) {
                       file_.write_at(memory, elements * size, data_start_ + info.begin + element * size);
                     });
  written_ += box.elements * size;
}

ESPALIER_INLINE void safetensors_writer::write_range(std::int64_t begin, const void* source, std::int64_t bytes) {
  if (begin < 0 || bytes < 0 || bytes > data_bytes_ - begin)
    throw checkpoint_error(path_, "bytes [" + std::to_string(begin) + ", " + std::to_string(begin + bytes) + ")",
                           "a range within the " + std::to_string(data_bytes_) + " bytes of data",
                           "compute it from tensors() and data_bytes()");
  file_.write_at(source, bytes, data_start_ + begin);
  written_ += bytes;
}

ESPALIER_INLINE void safetensors_writer::write(std::string_view name, const void* source) {
  const tensor_info& info = table_.at(path_, name);
  write_box(name, std::vector<std::int64_t>(info.shape.size(), 0), info.shape, source);
}

ESPALIER_INLINE void safetensors_writer::commit() {
  if (role_ != writer_role::create || committed_)
    throw checkpoint_error(path_, committed_ ? "a second commit" : "a commit by an attached writer",
                           "one commit, by the writer that created the file", "commit on the creating rank only");
  flush();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) file_.fail("rename", "a place for it at " + path_.string());
  committed_ = true;
  // The new name survives a power cut only once its directory is on the disk.
  const std::filesystem::path folder = detail::folder_of(path_);
  const detail::file_handle directory(folder, ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.descriptor() >= 0) ::fsync(directory.descriptor());
}

ESPALIER_INLINE void safetensors_writer::commit(std::int64_t written_by_all) {
  if (written_by_all != data_bytes_)
    throw checkpoint_error(path_, std::to_string(written_by_all) + " bytes of tensor data written",
                           std::to_string(data_bytes_) + " bytes, each element once",
                           "write every shard of every tensor, and a replicated one on one rank only");
  commit();
}

ESPALIER_INLINE void safetensors_writer::create(const std::string& prefix) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path_, ignored))
    throw checkpoint_error(path_, "a directory of that name", "a file, or nothing", "choose another name");
  open_locked();
  const std::int64_t size = data_start_ + data_bytes_;
  try {
    // Emptied first: a leftover's bytes must not pass for data. Reserved, so that a full disk shows here.
    if (::ftruncate(file_.descriptor(), 0) != 0 || ::ftruncate(file_.descriptor(), static_cast<::off_t>(size)) != 0)
      file_.fail("size", std::to_string(size) + " bytes");
    const int code = ::posix_fallocate(file_.descriptor(), 0, static_cast<::off_t>(size));
    if (code != 0 && code != EOPNOTSUPP && code != EINVAL) {
      const auto space = std::filesystem::space(detail::folder_of(temporary_), ignored);
      throw checkpoint_error(
          temporary_, detail::file_handle::message(code) + " (" + std::to_string(space.available) + " bytes free)",
          std::to_string(size) + " bytes", "free that space, or write elsewhere");
    }
    file_.write_at(prefix.data(), data_start_, 0);
    file_.flush();  // the ranks that attach may be on other hosts
  } catch (...) {
    ::unlink(temporary_.c_str());
    throw;
  }
}

ESPALIER_INLINE void safetensors_writer::open_locked() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int descriptor = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (descriptor < 0) {
      const int code = errno;
      throw checkpoint_error(temporary_, "it cannot be created: " + detail::file_handle::message(code),
                             "an existing directory with write access", "create the directory, check permissions");
    }
    file_ = detail::file_handle(temporary_, descriptor);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw checkpoint_error(temporary_, "another writer is creating it now", "a temporary file of our own",
                             "wait for that writer, or give each job its own temporary name");
    // Between open and lock, its former creator may have renamed or removed the file: then this is no longer ours.
    struct ::stat named = {};
    const struct ::stat opened = file_.status();
    if (::stat(temporary_.c_str(), &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev)
      return;
  }
  throw checkpoint_error(temporary_, "it is replaced again and again", "a temporary file of our own",
                         "give each job its own temporary name");
}

ESPALIER_INLINE void safetensors_writer::attach(const std::string& prefix) {
  file_ = detail::file_handle::open(temporary_, O_RDWR);
  std::string found(prefix.size(), '\0');
  const bool sized = file_.size() == data_start_ + data_bytes_;
  if (sized) file_.read_at(found.data(), data_start_, 0);
  if (!sized || found != prefix)
    throw checkpoint_error(temporary_,
                           sized ? "another header" : "a file of " + std::to_string(file_.size()) + " bytes",
                           std::to_string(data_start_ + data_bytes_) + " bytes with the header of these tensors",
                           "create first, then a barrier, then attach with the same specs and metadata");
}

ESPALIER_INLINE void check_matches(const safetensors_reader& reader, std::span<const tensor_spec> specs) {
  std::map<std::string_view, const tensor_spec*> wanted;
  for (const tensor_spec& spec : specs)
    if (!wanted.emplace(spec.name, &spec).second)
      throw checkpoint_error(reader.path(), "tensor " + detail::json_string(spec.name) + " twice in the model's list",
                             "distinct names", "correct the list of the model's tensors");

  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> differing;
  for (const auto& [name, spec] : wanted) {
    const std::string quoted = detail::json_string(name);
    const tensor_info* info = reader.find(name);
    if (info == nullptr)
      missing.push_back(quoted + ": the model has " + detail::describe(*spec));
    else if (info->type != spec->type || info->shape != spec->shape)
      differing.push_back(quoted + ": the file has " + detail::describe(*info) + ", the model " +
                          detail::describe(*spec));
  }
  for (const tensor_info& info : reader.tensors())
    if (!wanted.contains(info.name))
      unexpected.push_back(detail::json_string(info.name) + ": the file has " + detail::describe(info));
  if (missing.empty() && unexpected.empty() && differing.empty()) return;

  const std::string found =
      "a checkpoint of another model" +
      detail::list_of_differences(std::move(missing), std::move(unexpected), std::move(differing));
  throw checkpoint_error(reader.path(), found, "the model's " + std::to_string(specs.size()) + " tensors and no others",
                         "load a checkpoint of this model, build the model with that file's sizes, or name in "
                         "io::load_options what may differ");
}

}  // namespace espalier::io
