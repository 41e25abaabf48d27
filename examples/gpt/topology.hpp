// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/execute/world.hpp>

#include <string>

namespace gpt {

/// Gives MPI ranks all-reduces made for the machine that `source` describes: a file, or "probe" to measure it. Returns
/// a sentence on what was found. Does nothing inside one process.
[[nodiscard]] std::string use_topology(espalier::world& where, const std::string& source);

}  // namespace gpt
