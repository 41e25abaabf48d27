// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/core/graph/named_leaves.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/together.hpp>
#include <espalier/tensor/run/io/error.hpp>
#include <espalier/tensor/run/io/load_options.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>
#include <espalier/tensor/run/io/sixteen_bit_moments.hpp>
#include <espalier/tensor/run/io/tensor_spec.hpp>

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

namespace detail {

/// An array of a tree.
struct named_array {
  std::string name;
  const any_array* array = nullptr;
};
class array_namer {
 public:
  explicit array_namer(std::vector<named_array>& into) : into_(into) {}
  void operator()(const any_array& array, const leaf_path& path) const;

 private:
  std::vector<named_array>& into_;
};
template <class Tree> [[nodiscard]] std::vector<named_array> named_arrays(const Tree& tree) {
  std::vector<named_array> named;
  visit_arrays(tree, array_namer(named));
  return named;
}

void save_arrays(world& where, std::vector<named_array> arrays, const std::filesystem::path& path,
                 const io::metadata_map& metadata);
/// `declared`: the types of io/sixteen_bit_moments.hpp, by array.
io::metadata_map load_arrays(world& where, std::span<const named_array> arrays, std::span<const dtype> declared,
                             const std::filesystem::path& path, const io::load_options& options);

}  // namespace detail

/// Writes a tree of sharded arrays as a safetensors file, named by the tree's members (`parameters.blocks.up.weight`).
/// Each process writes a part of the file in few large pieces, each element once, whatever is replicated and however
/// arrays are split; for this the processes send one another what lies in the others' pieces, over buffers of 12 MiB at
/// most. Of partial sums the sums are written. Collective.
///
/// `path` shows the new file when it is complete, and the old one until then. Errors: `io::checkpoint_error`; under MPI
/// `error_on_all_ranks` with its text, on every rank.
template <class Tree>
void save_checkpoint(world& where, const Tree& tree, const std::filesystem::path& path,
                     const io::metadata_map& metadata = {}) {
  detail::save_arrays(where, detail::named_arrays(tree), path, metadata);
}

/// Fills a tree of sharded arrays from a file that `save_checkpoint` wrote, on whatever mesh: each process reads the
/// boxes its devices hold. Returns the metadata that was saved with the tensors. Collective.
///
/// A file that is damaged, or of a model with other names, types or shapes, is refused before any array changes, unless
/// `options` asks for a part of it, for other names or for conversion (`io::load_options`). One exception: moments of
/// parameters of sixteen bits, which are `f32`, are also read from files that have them in the parameters' type.
/// Errors: as `save_checkpoint`.
template <class Tree>
io::metadata_map load_checkpoint(world& where, const Tree& tree, const std::filesystem::path& path,
                                 const io::load_options& options = {}) {
  std::vector<dtype> declared;
  detail::add_declared_types<Tree>(declared);
  return detail::load_arrays(where, detail::named_arrays(tree), declared, path, options);
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/io/impl/checkpoint.ipp>
#endif
