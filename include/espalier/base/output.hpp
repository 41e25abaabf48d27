// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

namespace espalier::detail {

/// Hands out what a program has printed: empty if all of it has arrived at stdout, else a sentence, such as `what was
/// printed cannot be written: No space left on device`. For the end of a main, which would else return 0.
[[nodiscard]] inline std::string unwritten_output() {
  errno = 0;
  std::cout.flush();
  const bool fails = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  if (!fails) return {};
  std::string text = "what was printed cannot be written";
  // The error of an earlier write is no longer known.
  if (errno != 0) text.append(": ").append(std::strerror(errno));
  return text;
}

}  // namespace espalier::detail
