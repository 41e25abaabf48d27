// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of error.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/run/io/error.hpp>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::io {

ESPALIER_INLINE checkpoint_error::checkpoint_error(const std::filesystem::path& path, std::string found,
                                                   std::string expected, std::string remedy)
    : std::runtime_error(detail::joined({"checkpoint ", path.string(), "\n  found:    ", found,
                                         "\n  expected: ", expected, "\n  to fix:   ", remedy})),
      path_(path),
      actual_(std::move(found)),
      expected_(std::move(expected)),
      remedy_(std::move(remedy)) {}

}  // namespace espalier::io
