// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Executes programs over poisoned memory, all devices of a mesh by turns in one thread.
#include <espalier/testing/executed/devices.hpp>
#include <espalier/testing/executed/elements.hpp>
#include <espalier/testing/executed/kernels.hpp>
#include <espalier/testing/executed/lockstep.hpp>
#include <espalier/testing/executed/plan.hpp>
