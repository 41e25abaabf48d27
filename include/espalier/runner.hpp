// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The headers that run programs: worlds, runners, arrays, and transfers of arrays between layouts and devices.
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/array_trees.hpp>
#include <espalier/tensor/run/execute/copy.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/guard.hpp>
#include <espalier/tensor/run/execute/replicas.hpp>
#include <espalier/tensor/run/execute/reshard.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/execute/together.hpp>
#include <espalier/tensor/run/execute/traffic.hpp>
#include <espalier/tensor/run/execute/world.hpp>
