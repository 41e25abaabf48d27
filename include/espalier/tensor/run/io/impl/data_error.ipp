// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of data_error.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/run/io/data_error.hpp>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace espalier::io {

ESPALIER_INLINE data_error::data_error(const std::filesystem::path& path, const std::string& fault,
                                       const std::string& remedy)
    : std::runtime_error(detail::joined({path.string(), ": ", fault, ". ", remedy, "."})) {}

}  // namespace espalier::io
