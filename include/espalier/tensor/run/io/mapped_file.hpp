// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/io/data_error.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace espalier::detail {

/// A file's bytes in memory, read by the system where they are looked at. If the file is shortened while it is mapped,
/// a read beyond its end ends the process (SIGBUS).
class mapped_file {
 public:
  /// Errors: `io::data_error`, also for an empty file.
  explicit mapped_file(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
      const int code = errno;
      throw io::data_error(path, "it does not open: " + std::generic_category().message(code),
                           "Check the path and its permissions");
    }
    struct ::stat status = {};
    const bool is_file = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    bytes_ = is_file ? static_cast<std::int64_t>(status.st_size) : 0;
    void* memory = MAP_FAILED;
    if (bytes_ > 0) memory = ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_SHARED, descriptor, 0);
    const int code = errno;
    ::close(descriptor);
    if (!is_file) throw io::data_error(path, "it is no regular file", "Give the path of the file itself");
    if (bytes_ == 0) throw io::data_error(path, "it is empty", "Give the path of a complete file");
    if (memory == MAP_FAILED)
      throw io::data_error(path, "it cannot be mapped: " + std::generic_category().message(code),
                           "Copy it to a local file system");
    memory_ = static_cast<const std::byte*>(memory);
  }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  ~mapped_file() {
    if (memory_ != nullptr) ::munmap(const_cast<std::byte*>(memory_), static_cast<std::size_t>(bytes_));
  }

  [[nodiscard]] const std::byte* data() const { return memory_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  /// Asks the system to read bytes [begin, begin + bytes) soon.
  void will_need(std::int64_t begin, std::int64_t bytes) const {
    static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
    const std::int64_t from = begin / page * page;
    (void)::madvise(const_cast<std::byte*>(memory_) + from, static_cast<std::size_t>(begin + bytes - from),
                    MADV_WILLNEED);
  }

 private:
  const std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace espalier::detail
