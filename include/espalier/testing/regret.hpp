// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// How far the layouts that the passes choose are from the best ones.
#include <espalier/testing/regret/oracle.hpp>
#include <espalier/testing/regret/programs.hpp>
