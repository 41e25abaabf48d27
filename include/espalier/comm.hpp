// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

// Collectives generated from the topology, for any MPI program: no tensors, no meshes.
#include <espalier/comm/probe/probe.hpp>
#include <espalier/comm/run/collectives.hpp>
#include <espalier/comm/run/engine.hpp>
#include <espalier/comm/run/ranges.hpp>
#include <espalier/comm/topology/json.hpp>
#include <espalier/comm/topology/merge.hpp>
