// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/graph/tree.hpp>

#include <string>
#include <type_traits>

namespace espalier {

/// The name of a leaf in a parameter tree: the members that lead to it.
struct leaf_path {
  const leaf_path* parent = nullptr;
  const char* name = "";

  /// Whether the leaf's own name is `wanted`.
  [[nodiscard]] constexpr bool is(const char* wanted) const {
    // Letter by letter from the start: clang refuses to compare the addresses of two literals.
    const char* own = name;
    while (*own != '\0' && *own == *wanted) {
      ++own;
      ++wanted;
    }
    return *own == *wanted;
  }
  /// Whether the leaf is member `member` of member `of`.
  [[nodiscard]] constexpr bool is(const char* of, const char* member) const {
    return is(member) && parent != nullptr && parent->is(of);
  }
  /// `blocks.query.weight`
  [[nodiscard]] std::string str() const;
};

/// Calls f(leaf, path) on every leaf of a tree, in the order of declaration. The path lives as long as the call.
template <class T, class F> constexpr void for_each_named_leaf(T& tree, const F& f, const leaf_path& path = {}) {
  using type = std::remove_const_t<T>;
  if constexpr (ParameterTree<type>) {
    boost::hana::unpack(boost::hana::accessors<type>(), [&](const auto&... member) {
      (for_each_named_leaf(boost::hana::second(member)(tree), f, leaf_path{&path, boost::hana::first(member).c_str()}),
       ...);
    });
  } else {
    f(tree, path);
  }
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/core/graph/impl/named_leaves.ipp>
#endif
