// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a runner says of an argument that does not fit: the compiled half of runner.hpp.
#include <espalier/execute/runner.hpp>

#include <string>

namespace espalier::detail {

ESPALIER_INLINE void refuse_argument(const world& where, const std::string& name, const std::string& maker,
                                     const std::string& wanted, const std::string& given,
                                     const std::string& elsewhere) {
  const std::string remedy = ". Make it with " + maker + " of this runner";
  if (!elsewhere.empty()) {
    throw argument_error(name + " is an array of another world: it lies on " + elsewhere + ", the runner's world on " +
                         array_memory::devices_of(where) + remedy + '.');
  }
  throw argument_error(name + " is laid out as " + wanted + ", but was given " + given + remedy +
                       ", or declare the argument as sharded<...>.");
}

}  // namespace espalier::detail
