// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "compiled.hpp"

float sum_of(ep::world& world, const ep::sharded_array<ep::f32<>>& sum) { return ep::gather(world, sum).front(); }
