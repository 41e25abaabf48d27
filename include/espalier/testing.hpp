// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The headers for tests of the library and of passes of your own: random programs, interpreters, naive meanings of
/// operators, and the validator of collective schedules.
#include <espalier/testing/channels.hpp>
#include <espalier/testing/check_joint_packing.hpp>
#include <espalier/testing/collapsed_block.hpp>
#include <espalier/testing/contraction_of.hpp>
#include <espalier/testing/executed.hpp>
#include <espalier/testing/interpret.hpp>
#include <espalier/testing/interpret_spmd.hpp>
#include <espalier/testing/naive.hpp>
#include <espalier/testing/pieces.hpp>
#include <espalier/testing/random_calls.hpp>
#include <espalier/testing/random_graph.hpp>
#include <espalier/testing/random_program_graph.hpp>
#include <espalier/testing/symbolic_memory.hpp>
#include <espalier/testing/table_numbers.hpp>
#include <espalier/testing/three_phase.hpp>
#include <espalier/testing/validate_schedule.hpp>
