// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace espalier::io {

/// A tensor as a model declares it: its name, element type and global (unsharded) shape.
struct tensor_spec {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;

  friend bool operator==(const tensor_spec&, const tensor_spec&) = default;
};

/// A tensor as a file holds it: row-major, little-endian, in the bytes [begin, end) of the file's data part.
struct tensor_info : tensor_spec {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const tensor_info&, const tensor_info&) = default;
};

/// Free text saved with the tensors, such as the step number.
using metadata_map = std::map<std::string, std::string>;

}  // namespace espalier::io
