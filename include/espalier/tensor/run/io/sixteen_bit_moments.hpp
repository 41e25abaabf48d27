// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/leaves.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
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
template <class T> void add_declared_types(const T& tree, std::vector<dtype>& types) {
  if constexpr (ParameterTree<T>) {
    using kind = typename declared_kind<kind_of<T>>::type;
    if constexpr (std::is_same_v<kind, kind_of<T>>) {
      boost::hana::unpack(boost::hana::accessors<T>(), [&](const auto&... member) {
        (add_declared_types(boost::hana::second(member)(tree), types), ...);
      });
    } else {
      add_declared_types(rebind_tree<T, kind>{}, types);
    }
  } else {
    types.push_back(T::tensor::type);
  }
}

template <class Tree> [[nodiscard]] std::vector<dtype> declared_types(const Tree& tree) {
  std::vector<dtype> types;
  add_declared_types(tree, types);
  return types;
}

/// A tree's tensors, in order, with the types that they were declared with where the file has these.
[[nodiscard]] inline std::vector<io::tensor_spec> as_in_file(const io::safetensors_reader& reader,
                                                             std::vector<io::tensor_spec> specs,
                                                             std::span<const dtype> declared) {
  for (std::size_t k = 0; k < specs.size(); ++k) {
    const io::tensor_info* in_file = reader.find(specs[k].name);
    if (in_file != nullptr && in_file->type == declared[k]) specs[k].type = declared[k];
  }
  return specs;
}

}  // namespace espalier::detail
