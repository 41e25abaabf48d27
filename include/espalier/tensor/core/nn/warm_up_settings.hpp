// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::nn {

/// A schedule's rise and fall. Steps are numbers, so that they may be products.
struct warm_up_settings {
  double peak = 1e-3;    ///< the largest rate
  double warm_up = 0;    ///< steps with a rate that grows: peak / warm_up at the first one
  double total = 10000;  ///< the step from which on the rate is `floor`
  double floor = 0;
};

}  // namespace espalier::nn
