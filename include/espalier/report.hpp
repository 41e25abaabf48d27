// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The headers for output to people: `explain`, `dump`, plans, pictures of layouts, progress, and tables.
#include <espalier/base/table.hpp>
#include <espalier/tensor/run/report/alternatives.hpp>
#include <espalier/tensor/run/report/check_plan.hpp>
#include <espalier/tensor/run/report/draw_layout.hpp>
#include <espalier/tensor/run/report/dump.hpp>
#include <espalier/tensor/run/report/explain.hpp>
#include <espalier/tensor/run/report/progress.hpp>
