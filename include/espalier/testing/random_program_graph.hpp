// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Random programs as values: the same graph from the same seed, at run time or in a constant evaluation.
#include <espalier/testing/random/dice.hpp>
#include <espalier/testing/random/generator.hpp>
#include <espalier/testing/random/options.hpp>
#include <espalier/testing/random/scores.hpp>
