// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace espalier::io {

/// A file that cannot be read, written or used for this model: which one, what was found and expected, what to do.
class checkpoint_error : public std::runtime_error {
 public:
  checkpoint_error(const std::filesystem::path& path, std::string found, std::string expected, std::string remedy);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::string& actual() const { return actual_; }
  [[nodiscard]] const std::string& expected() const { return expected_; }
  [[nodiscard]] const std::string& remedy() const { return remedy_; }

 private:
  std::filesystem::path path_;
  std::string actual_;
  std::string expected_;
  std::string remedy_;
};

}  // namespace espalier::io

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/io/impl/error.ipp>
#endif
