// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/run/io/error.hpp>

#include <algorithm>
#include <atomic>
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

/// How often this process has asked the system to read from its files and to write to them, for tests and benchmarks.
struct file_calls {
  inline static std::atomic<std::int64_t> reads{0};
  inline static std::atomic<std::int64_t> writes{0};
};

/// An open file descriptor that closes itself; positioned reads and writes, so that threads need no lock.
class file_handle {
 public:
  file_handle() = default;
  file_handle(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  file_handle(file_handle&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  file_handle& operator=(file_handle&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  file_handle(const file_handle&) = delete;
  file_handle& operator=(const file_handle&) = delete;
  ~file_handle() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Opens an existing regular file. Anything else (a directory, a pipe) is refused, and never waited for.
  [[nodiscard]] static file_handle open(const std::filesystem::path& path, int flags) {
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

  [[nodiscard]] struct ::stat status() const {
    struct ::stat result = {};
    if (::fstat(descriptor_, &result) != 0) fail("read the status of", "a file that can be inspected");
    return result;
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(status().st_size); }

  /// Reads exactly `bytes` bytes from `offset`; a file that ends before is an error.
  void read_at(void* target, std::int64_t bytes, std::int64_t offset) const {
    auto* next = static_cast<std::byte*>(target);
    while (bytes > 0) {
      ++file_calls::reads;
      const ::ssize_t got = ::pread(descriptor_, next, piece(bytes), static_cast<::off_t>(offset));
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

  /// Writes exactly `bytes` bytes at `offset`.
  void write_at(const void* source, std::int64_t bytes, std::int64_t offset) const {
    const auto* next = static_cast<const std::byte*>(source);
    while (bytes > 0) {
      ++file_calls::writes;
      const ::ssize_t put = ::pwrite(descriptor_, next, piece(bytes), static_cast<::off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) fail("write", "room for " + std::to_string(bytes) + " bytes at byte " + std::to_string(offset));
      next += put;
      offset += put;
      bytes -= put;
    }
  }

  /// Waits until everything written through this host is on the disk.
  void flush() const {
    if (::fsync(descriptor_) != 0) fail("flush", "data that reaches the disk");
  }

  [[noreturn]] void fail(const std::string& verb, const std::string& expected) const {
    const int code = errno;
    throw io::checkpoint_error(path_, "cannot " + verb + " it: " + message(code), expected,
                               "check the free space, the quota and the health of that file system");
  }

  [[nodiscard]] static std::string message(int code) { return std::generic_category().message(code); }

 private:
  // Linux transfers at most 2^31 - 4096 bytes a call.
  [[nodiscard]] static std::size_t piece(std::int64_t bytes) {
    return static_cast<std::size_t>(std::min<std::int64_t>(bytes, std::int64_t{1} << 30));
  }

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace espalier::detail
