// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace espalier::io {

/// Options of `load_checkpoint`, which without them fills every leaf of a tree from the tensor of the same name and
/// type.
///
/// A name in a list is that of a leaf (`body.up`) or of a member with leaves (`body`, which means all leaves in
/// it). A name that nothing has is an error, and so is, as without options, every leaf that finds no tensor and every
/// tensor that no leaf takes, unless one of these lists names it.
///
///     load_checkpoint(world, net.body, file, {.subtree = "body"});        // body.up of the file into net.body.up
///     load_checkpoint(world, net, file, {.only = {"body"}});              // a new head keeps its values
///     load_checkpoint(world, net, file, {.rename = {{"body", "encoder"}}, .ignore = {"decoder"}, .convert = true});
struct load_options {
  /// The tree is this member of the file's tree: its leaf `up` is the file's `body.up`. Tensors elsewhere are left out.
  std::string subtree = {};
  /// Pairs {name in the tree, name in the file}; the longest that fits a leaf counts. With `subtree`, both are names
  /// in it. Two leaves may take one tensor.
  std::vector<std::pair<std::string, std::string>> rename = {};
  /// These leaves of the tree are filled, and the others keep their values, whether the file has them or not; tensors
  /// of the file with other names are left out. Empty: all.
  std::vector<std::string> only = {};
  /// These leaves of the tree keep their values; the file's tensors of the same names, if any, are left out.
  std::vector<std::string> keep = {};
  /// These tensors of the file (with their whole names) are left out.
  std::vector<std::string> ignore = {};
  /// Tensors of another element type are converted: floats are rounded once, integers must fit. Refused are a float
  /// for an integer, anything but a bool for a bool, and a finite number beyond the range of the leaf's type.
  bool convert = false;

  friend bool operator==(const load_options&, const load_options&) = default;
};

}  // namespace espalier::io
