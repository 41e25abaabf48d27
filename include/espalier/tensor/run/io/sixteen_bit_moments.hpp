// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/nn/leaves.hpp>

#include <type_traits>
#include <utility>
#include <vector>

/// Files whose moments are of sixteen bits: they were saved before the moments of such parameters were `f32`.
namespace espalier::detail {

/// A kind of leaves without `accumulating`.
template <class Kind> struct declared_kind { using type = Kind; };
template <class Kind> struct declared_kind<accumulating<Kind>> : declared_kind<Kind> {};
template <class Kind, int Count> struct declared_kind<stacked<Kind, Count>> {
  using type = stacked<typename declared_kind<Kind>::type, Count>;
};

/// The element types of a tree's leaves, in order, as they would be without `accumulating`.
template <class Tree> void add_declared_types(std::vector<dtype>& types) {
  if constexpr (ParameterTree<Tree>) {
    using kind = typename declared_kind<kind_of<Tree>>::type;
    if constexpr (std::is_same_v<kind, kind_of<Tree>>) {
      boost::hana::unpack(boost::hana::accessors<Tree>(), [&](const auto&... member) {
        (add_declared_types<std::remove_cvref_t<decltype(boost::hana::second(member)(std::declval<const Tree&>()))>>(
             types),
         ...);
      });
    } else {
      add_declared_types<rebind_tree<Tree, kind>>(types);
    }
  } else {
    types.push_back(Tree::tensor::type);
  }
}

}  // namespace espalier::detail
