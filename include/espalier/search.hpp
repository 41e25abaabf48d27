// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// What a program takes, predicted at run time, and the search for the annotations with which it takes the least. For
/// tests and tools: a program that includes this has the passes as code.
#include <espalier/tensor/run/report/predict_run.hpp>
#include <espalier/tensor/run/report/search_annotations.hpp>
