// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

// Pipelines of stages: schedules, what they cost, and pictures of them; profiles of models, and plans made from them.

#include <espalier/pipeline/bound.hpp>
#include <espalier/pipeline/chart.hpp>
#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/device_sets.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/latency.hpp>
#include <espalier/pipeline/layer_graph.hpp>
#include <espalier/pipeline/plan.hpp>
#include <espalier/pipeline/planner.hpp>
#include <espalier/pipeline/print_plan.hpp>
#include <espalier/pipeline/profile.hpp>
#include <espalier/pipeline/published.hpp>
#include <espalier/pipeline/read_profile.hpp>
#include <espalier/pipeline/schedules/by_name.hpp>
#include <espalier/pipeline/schedules/improve.hpp>
#include <espalier/pipeline/schedules/zb_heuristic.hpp>
#include <espalier/pipeline/simulate.hpp>
#include <espalier/pipeline/trace.hpp>
#include <espalier/pipeline/transfers.hpp>
#include <espalier/pipeline/validate.hpp>
