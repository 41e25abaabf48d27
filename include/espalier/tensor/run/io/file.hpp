// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include <sys/stat.h>

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
  file_handle(std::filesystem::path path, int descriptor);
  file_handle(file_handle&& other) noexcept;
  file_handle& operator=(file_handle&& other) noexcept;
  file_handle(const file_handle&) = delete;
  file_handle& operator=(const file_handle&) = delete;
  ~file_handle();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Opens an existing regular file. Anything else (a directory, a pipe) is refused, and never waited for.
  [[nodiscard]] static file_handle open(const std::filesystem::path& path, int flags);

  [[nodiscard]] struct ::stat status() const;
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(status().st_size); }

  /// Reads exactly `bytes` bytes from `offset`; a file that ends before is an error.
  void read_at(void* target, std::int64_t bytes, std::int64_t offset) const;

  /// Writes exactly `bytes` bytes at `offset`.
  void write_at(const void* source, std::int64_t bytes, std::int64_t offset) const;

  /// Waits until everything written through this host is on the disk.
  void flush() const;

  [[noreturn]] void fail(const std::string& verb, const std::string& expected) const;

  [[nodiscard]] static std::string message(int code);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/io/impl/file.ipp>
#endif
