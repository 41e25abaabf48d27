// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of named_leaves.hpp.
#include <espalier/tensor/core/graph/named_leaves.hpp>

#include <string>

namespace espalier {

ESPALIER_INLINE std::string leaf_path::str() const {
  if (parent == nullptr || *parent->name == '\0') return name;
  return parent->str() + '.' + name;
}

}  // namespace espalier
