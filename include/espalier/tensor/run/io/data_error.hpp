// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace espalier::io {

/// A data file that cannot be read or does not fit: one sentence with the file, the fault and the remedy.
struct data_error : std::runtime_error {
  data_error(const std::filesystem::path& path, const std::string& fault, const std::string& remedy);
};

}  // namespace espalier::io

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/io/impl/data_error.ipp>
#endif
