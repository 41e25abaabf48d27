// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/graph/named_leaves.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/reduce_terms.hpp>
#include <espalier/tensor/run/execute/together.hpp>
#include <espalier/tensor/run/io/load_options.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>
#include <espalier/tensor/run/io/save_windows.hpp>
#include <espalier/tensor/run/io/sixteen_bit_moments.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace espalier {

namespace detail {

template <class Array> using tensor_of_array = typename std::remove_cvref_t<Array>::tensor;

/// A tree's tensors by name. Errors: `io::checkpoint_error` if an array was never made, or is of another world.
template <class Tree>
[[nodiscard]] std::vector<io::tensor_spec> checkpoint_specs(const world& where, const Tree& tree,
                                                            const std::filesystem::path& path) {
  std::vector<io::tensor_spec> specs;
  for_each_named_leaf(tree, [&](const auto& array, const leaf_path& name) {
    using tensor = tensor_of_array<decltype(array)>;
    if (array.empty()) {
      throw io::checkpoint_error(path, "the model's array " + name.str() + " is empty", "an array in place",
                                 "make the tree with runner::argument first");
    }
    if (!array.lies_in(where)) {
      throw io::checkpoint_error(path, "the model's array " + name.str() + " on " + array_memory::devices_of(array),
                                 "an array of this world, on " + array_memory::devices_of(where),
                                 "give the world that the tree was made for");
    }
    io::tensor_spec spec{name.str(), tensor::type, {}};
    for (int d = 0; d < tensor::rank; ++d) spec.shape.push_back(tensor::shape[d]);
    specs.push_back(std::move(spec));
  });
  return specs;
}

/// A tree's arrays with their places in a file, in the order of the file.
template <class Tree>
[[nodiscard]] std::vector<saved_array> arrays_in_file(const Tree& tree, const io::safetensors_writer& writer) {
  std::map<std::string_view, const any_array*> by_name;
  std::vector<std::string> names;  // keeps the keys
  names.reserve(writer.tensors().size());
  for_each_named_leaf(
      tree, [&](const auto& array, const leaf_path& path) { by_name.emplace(names.emplace_back(path.str()), &array); });
  std::vector<saved_array> arrays;
  for (const io::tensor_info& tensor : writer.tensors()) arrays.push_back({by_name.at(tensor.name), tensor.begin});
  return arrays;
}

/// Calls f(name, starts, extents, memory, strides) for every shard of this process that holds elements. `owned` leaves
/// out copies: of the devices that hold the same shard, only the one that is first along every other axis is visited.
template <class Tree, class F> void for_each_box(const Tree& tree, bool owned, const F& f) {
  for_each_named_leaf(tree, [&](const auto& array, const leaf_path& path) {
    using tensor = tensor_of_array<decltype(array)>;
    const mesh_shape& its_mesh = array.mesh();
    constexpr auto rank = static_cast<std::size_t>(tensor::rank);
    const std::string name = path.str();
    const extents local = array.local_extents();
    for (int k = 0; k < array.local_count(); ++k) {
      std::array<std::int64_t, max_rank> starts{};
      std::array<std::int64_t, max_rank> sizes{};
      std::array<std::int64_t, max_rank> strides{};
      bool wanted = true;
      for (int d = 0; d < tensor::rank; ++d) {
        const interval held = array.held(k, d);
        const auto at = static_cast<std::size_t>(d);
        starts[at] = held.start;
        sizes[at] = held.size;
        strides[at] = stride_of(local, d);
        wanted = wanted && held.size > 0;
      }
      // Of partial sums one device reads the whole sum.
      if (!owned && !detail::array_memory::begin_writing(array, k)) continue;
      const axis_mask splits = array.placed().placement.tiled();
      for (int axis = 0; owned && axis < its_mesh.rank; ++axis) {
        const bool copies = (splits >> static_cast<unsigned>(axis) & 1U) == 0;
        if (copies && its_mesh.coordinate(array.device(k), axis) != 0) wanted = false;
      }
      if (wanted) {
        f(name, std::span(starts).first(rank), std::span(sizes).first(rank), array.data(k),
          std::span(strides).first(rank));
      }
    }
  });
}

}  // namespace detail

/// Writes a tree of sharded arrays as a safetensors file, named by the tree's members (`parameters.blocks.up.weight`).
/// Each process writes a part of the file in few large pieces, each element once, whatever is replicated and however
/// arrays are split; for this the processes send one another what lies in the others' pieces, over buffers of 12 MiB at
/// most. Of partial sums the sums are written. Collective.
///
/// `path` shows the new file when it is complete, and the old one until then. Errors: `io::checkpoint_error`; under MPI
/// `error_on_all_ranks` with its text, on every rank.
template <class Tree>
void save_checkpoint(world& where, const Tree& given, const std::filesystem::path& path,
                     const io::metadata_map& metadata = {}) {
  const Tree tree = detail::without_partial_sums(where, given);
  std::unique_ptr<io::safetensors_writer> writer;
  const auto open = [&](io::writer_role role) {
    writer =
        std::make_unique<io::safetensors_writer>(path, detail::checkpoint_specs(where, tree, path), metadata, role);
  };
  together(where, [&] {
    if (where.is_root()) open(io::writer_role::create);
  });
  std::optional<detail::window_writer> windows;
  together(where, [&] {
    if (!where.is_root()) open(io::writer_role::attach);
    windows.emplace(detail::arrays_in_file(tree, *writer), where.uses_mpi() ? where.mesh_value().devices() : 1);
  });
  std::exception_ptr failure;
  if (!where.uses_mpi()) {
    windows->write_alone(*writer, where.mesh_value().devices());
  } else {
#if defined(ESPALIER_USE_MPI)
    where.on_devices([&](int, comm::any_communicator&) {
      try {
        windows->write_with_others(*writer, *where.ranks());
      } catch (const io::checkpoint_error&) { failure = std::current_exception(); }
    });
#endif
  }
  together(where, [&] {
    if (failure) std::rethrow_exception(failure);
    writer->flush();
  });
  std::int64_t written = 0;
  for (const std::int64_t part : detail::values_of_all_processes(where, writer->bytes_written())) written += part;
  together(where, [&] {
    if (where.is_root()) writer->commit(written);
  });
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
  std::optional<io::safetensors_reader> reader;
  std::vector<io::tensor_spec> specs;
  std::vector<const io::tensor_info*> sources;
  // Calls f(type of the leaf, its tensor in the file, box ...) for every box of a leaf that is filled.
  const auto for_each_filled_box = [&](bool owned, const auto& f) {
    std::size_t leaf = 0;
    for_each_named_leaf(tree, [&](const auto& array, const leaf_path&) {
      const io::tensor_info* const info = sources[leaf];
      if (info != nullptr) {
        detail::for_each_box(array, owned,
                             [&](const std::string&, auto starts, auto sizes, void* memory, auto strides) {
                               f(specs[leaf].type, *info, starts, sizes, memory, strides);
                             });
      }
      ++leaf;
    });
  };
  together(where, [&] {
    specs = detail::checkpoint_specs(where, tree, path);
    reader.emplace(path);
    const std::vector<dtype> declared = detail::declared_types(tree);
    if (options == io::load_options{}) io::check_matches(*reader, detail::as_in_file(*reader, specs, declared));
    sources = detail::sources_of_leaves(*reader, specs, declared, options);
    // Each element is looked at by one process, and what one finds all know.
    for_each_filled_box(true, [&](dtype type, const io::tensor_info& info, auto starts, auto sizes, void*, auto) {
      if (info.type == type) {
        reader->check_box(info.name, starts, sizes);
      } else {
        detail::read_box_as(type, *reader, info, {starts.begin(), starts.end()}, {sizes.begin(), sizes.end()}, nullptr,
                            {});
      }
    });
  });
  together(where, [&] {
    for_each_filled_box(
        false, [&](dtype type, const io::tensor_info& info, auto starts, auto sizes, void* memory, auto strides) {
          if (info.type == type) {
            reader->read_box(info.name, starts, sizes, memory, strides);
          } else {
            detail::read_box_as(type, *reader, info, {starts.begin(), starts.end()}, {sizes.begin(), sizes.end()},
                                static_cast<std::byte*>(memory), strides);
          }
        });
  });
  return reader->metadata();
}

}  // namespace espalier
