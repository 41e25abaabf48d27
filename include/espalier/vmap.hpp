// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// `vmap`: a function over one more dimension.
// First, so that a message about a mistake need not list the way here.
#include <espalier/tensor/core/ops/reasons/vmap.hpp>

#include <espalier/tensor/core/program/vmap.hpp>
