// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of file.hpp.
#include <espalier/tensor/run/io/error.hpp>
#include <espalier/tensor/run/io/file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace espalier::detail {

/// Linux transfers at most 2^31 - 4096 bytes a call.
[[nodiscard]] inline std::size_t piece_of_file(std::int64_t bytes) {
  return static_cast<std::size_t>(std::min<std::int64_t>(bytes, std::int64_t{1} << 30));
}

ESPALIER_INLINE file_handle::file_handle(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

ESPALIER_INLINE file_handle::file_handle(file_handle&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

ESPALIER_INLINE file_handle& file_handle::operator=(file_handle&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

ESPALIER_INLINE file_handle::~file_handle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ESPALIER_INLINE file_handle file_handle::open(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int code = errno;
    throw io::checkpoint_error(path, "it does not open: " + message(code), "an existing file with access rights",
                               "check the path and its permissions");
  }
  file_handle file(path, descriptor);
  if (!S_ISREG(file.status().st_mode))
    throw io::checkpoint_error(path, "not a regular file", "a regular file", "give the path of the file itself");
  return file;
}

ESPALIER_INLINE struct ::stat file_handle::status() const {
  struct ::stat result = {};
  if (::fstat(descriptor_, &result) != 0) fail("read the status of", "a file that can be inspected");
  return result;
}

ESPALIER_INLINE void file_handle::read_at(void* target, std::int64_t bytes, std::int64_t offset) const {
  auto* next = static_cast<std::byte*>(target);
  while (bytes > 0) {
    ++file_calls::reads;
    const ::ssize_t got = ::pread(descriptor_, next, piece_of_file(bytes), static_cast<::off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", "readable data at byte " + std::to_string(offset));
    if (got == 0)
      throw io::checkpoint_error(path_, "the file ends at byte " + std::to_string(offset),
                                 std::to_string(bytes) + " more bytes there",
                                 "it shrank while open: read a copy "
                                 "that nothing else writes");
    next += got;
    offset += got;
    bytes -= got;
  }
}

ESPALIER_INLINE void file_handle::write_at(const void* source, std::int64_t bytes, std::int64_t offset) const {
  const auto* next = static_cast<const std::byte*>(source);
  while (bytes > 0) {
    ++file_calls::writes;
    const ::ssize_t put = ::pwrite(descriptor_, next, piece_of_file(bytes), static_cast<::off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail("write", "room for " + std::to_string(bytes) + " bytes at byte " + std::to_string(offset));
    next += put;
    offset += put;
    bytes -= put;
  }
}

ESPALIER_INLINE void file_handle::flush() const {
  if (::fsync(descriptor_) != 0) fail("flush", "data that reaches the disk");
}

ESPALIER_INLINE void file_handle::fail(const std::string& verb, const std::string& expected) const {
  const int code = errno;
  throw io::checkpoint_error(path_, "cannot " + verb + " it: " + message(code), expected,
                             "check the free space, the quota and the health of that file system");
}

ESPALIER_INLINE std::string file_handle::message(int code) { return std::generic_category().message(code); }

}  // namespace espalier::detail
