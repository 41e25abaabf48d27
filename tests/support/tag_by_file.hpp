// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

namespace espalier::test {

/// `.../tests/unit/shape/dtype.cpp` or `.../tests/base/unit/shape/dtype.cpp` -> `shape/dtype`: how CMake names a test
/// file.
[[nodiscard]] inline std::string name_of_file(std::string path) {
  const std::string root = "/tests/";
  if (const auto at = path.rfind(root); at != std::string::npos) {
    path.erase(0, at + root.size());
    for (const std::string part : {"base/", "comm/", "tensor/", "pipeline/"}) {
      if (path.rfind(part, 0) == 0) path.erase(0, part.size());
    }
    if (const auto kind_end = path.find('/'); kind_end != std::string::npos) path.erase(0, kind_end + 1);
  }
  if (const auto dot = path.rfind('.'); dot != std::string::npos) path.erase(dot);
  return path;
}

/// Gives every test case the tag `[#shape/dtype]`. Catch2's own --filenames-as-tags drops the folders, and ops/einsum
/// and kernels/einsum are two files. A hidden test (`[.]`) gets none: it runs when it is asked for only.
inline void tag_by_file(Catch::Session& session) {
  auto& tests = const_cast<std::vector<Catch::TestCase>&>(Catch::getAllTestCasesSorted(session.config()));
  for (auto& test : tests) {
    if (test.isHidden()) continue;
    auto tags = test.tags;
    tags.push_back("#" + name_of_file(test.lineInfo.file));
    setTags(test, std::move(tags));
  }
}

}  // namespace espalier::test
