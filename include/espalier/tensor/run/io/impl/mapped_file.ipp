// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of mapped_file.hpp.
#include <espalier/tensor/run/io/data_error.hpp>
#include <espalier/tensor/run/io/mapped_file.hpp>

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

ESPALIER_INLINE mapped_file::mapped_file(const std::filesystem::path& path) {
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

ESPALIER_INLINE mapped_file::~mapped_file() {
  if (memory_ != nullptr) ::munmap(const_cast<std::byte*>(memory_), static_cast<std::size_t>(bytes_));
}

ESPALIER_INLINE void mapped_file::will_need(std::int64_t begin, std::int64_t bytes) const {
  static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t from = begin / page * page;
  (void)::madvise(const_cast<std::byte*>(memory_) + from, static_cast<std::size_t>(begin + bytes - from),
                  MADV_WILLNEED);
}

}  // namespace espalier::detail
