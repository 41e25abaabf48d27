// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdio>
#include <string>
#include <unistd.h>

/// Captures the text that a process writes to stderr.
namespace testing {

/// The text that is written to stderr while `body` runs.
template <class Body> [[nodiscard]] std::string written_by(const Body& body) {
  std::fflush(stderr);
  std::FILE* const file = std::tmpfile();
  const int before = dup(2);
  dup2(fileno(file), 2);
  body();
  std::fflush(stderr);
  dup2(before, 2);
  close(before);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

/// How often a part is in a text.
[[nodiscard]] inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace testing
