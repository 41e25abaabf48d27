// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "support/staged_model.hpp"

const espalier::pipeline::layer_model& staged::layers() {
  static const model all(pipeline_model::options());
  return all;
}
