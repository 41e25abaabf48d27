// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace espalier::detail {

/// A file's bytes in memory, read by the system where they are looked at. If the file is shortened while it is mapped,
/// a read beyond its end ends the process (SIGBUS).
class mapped_file {
 public:
  /// Errors: `io::data_error`, also for an empty file.
  explicit mapped_file(const std::filesystem::path& path);
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  ~mapped_file();

  [[nodiscard]] const std::byte* data() const { return memory_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  /// Asks the system to read bytes [begin, begin + bytes) soon.
  void will_need(std::int64_t begin, std::int64_t bytes) const;

 private:
  const std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/io/impl/mapped_file.ipp>
#endif
