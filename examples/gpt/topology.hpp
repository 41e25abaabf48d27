// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/placement_traffic.hpp>
#include <espalier/runner.hpp>

#include <string>

namespace gpt {

/// Gives MPI ranks collectives made for the machine that `source` describes: a file, or "probe" to measure it. If
/// `traffic` is given, also puts the devices where it takes least time. Returns lines on what was found. Does nothing
/// inside one process.
[[nodiscard]] std::string use_topology(espalier::world& where, const std::string& source,
                                       const espalier::comm::mesh_traffic* traffic);

}  // namespace gpt
