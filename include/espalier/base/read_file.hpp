// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace espalier::detail {

/// All bytes of a file, or why it cannot be read.
struct file_text {
  std::string text;
  /// "Is a directory", "No such file or directory"; empty if it has been read.
  std::string failure;
};

/// Reads a file. A directory opens as one, and is refused when it is read: a stream would throw a text of the C++
/// library's there.
[[nodiscard]] inline file_text read_file(const std::string& path) {
  struct closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  file_text whole;
  errno = 0;
  const std::unique_ptr<std::FILE, closer> file(std::fopen(path.c_str(), "rb"));
  std::size_t got = 1;
  while (file != nullptr && got > 0) {
    char block[16384];
    got = std::fread(&block[0], 1, sizeof(block), file.get());
    whole.text.append(&block[0], got);
  }
  if (file == nullptr || std::ferror(file.get()) != 0) whole.failure = std::strerror(errno);
  return whole;
}

}  // namespace espalier::detail
