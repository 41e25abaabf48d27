// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of checkpoint.hpp.
#include <espalier/base/dtype.hpp>
#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/reduce_terms.hpp>
#include <espalier/tensor/run/execute/together.hpp>
#include <espalier/tensor/run/io/checkpoint.hpp>
#include <espalier/tensor/run/io/convert.hpp>
#include <espalier/tensor/run/io/leaf_sources.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>
#include <espalier/tensor/run/io/save_windows.hpp>

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
#include <utility>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE void array_namer::operator()(const any_array& array, const leaf_path& path) const {
  into_.push_back({path.str(), &array});
}

/// The arrays' tensors. Errors: `io::checkpoint_error` if an array was never made, or is of another world.
[[nodiscard]] inline std::vector<io::tensor_spec> checkpoint_specs(const world& where,
                                                                   std::span<const named_array> arrays,
                                                                   const std::filesystem::path& path) {
  std::vector<io::tensor_spec> specs;
  for (const named_array& one : arrays) {
    const any_array& array = *one.array;
    if (array.empty()) {
      throw io::checkpoint_error(path, "the model's array " + one.name + " is empty", "an array in place",
                                 "make the tree with runner::argument first");
    }
    if (!array.lies_in(where)) {
      throw io::checkpoint_error(path, "the model's array " + one.name + " on " + array_memory::devices_of(array),
                                 "an array of this world, on " + array_memory::devices_of(where),
                                 "give the world that the tree was made for");
    }
    io::tensor_spec spec{one.name, array.type(), {}};
    for (int d = 0; d < array.shape().rank; ++d) spec.shape.push_back(array.shape()[d]);
    specs.push_back(std::move(spec));
  }
  return specs;
}

/// The arrays with their places in a file, in the order of the file.
[[nodiscard]] inline std::vector<saved_array> arrays_in_file(std::span<const named_array> arrays,
                                                             const io::safetensors_writer& writer) {
  std::map<std::string_view, const any_array*> by_name;
  for (const named_array& one : arrays) by_name.emplace(one.name, one.array);
  std::vector<saved_array> saved;
  for (const io::tensor_info& tensor : writer.tensors()) saved.push_back({by_name.at(tensor.name), tensor.begin});
  return saved;
}

/// A handle of its own, for the sums of an array's terms.
class array_of_sums : public any_array {
 public:
  array_of_sums(world& where, const any_array& terms) : any_array(terms) {
    with_storage(type(),
                 [&]<class T>(T) { reducer_of_terms().load()(where, *this, &add_terms<T>, source_line::current()); });
  }
};

/// A box of a tensor, and its place in a shard's buffer: where it begins, and the strides in elements.
using box_visitor = function_ref<void(std::span<const std::int64_t> starts, std::span<const std::int64_t> extents,
                                      void* memory, std::span<const std::int64_t> strides)>;

/// Visits the box of every shard of this process that holds elements. `owned` leaves out copies: of the devices that
/// hold the same shard, only the one that is first along every other axis is visited.
inline void for_each_box(const any_array& array, bool owned, box_visitor visit) {
  const mesh_shape& its_mesh = array.mesh();
  const auto rank = static_cast<std::size_t>(array.shape().rank);
  const extents local = array.local_extents();
  for (int k = 0; k < array.local_count(); ++k) {
    std::array<std::int64_t, max_rank> starts{};
    std::array<std::int64_t, max_rank> sizes{};
    std::array<std::int64_t, max_rank> strides{};
    bool wanted = true;
    for (int d = 0; d < array.shape().rank; ++d) {
      const interval held = array.held(k, d);
      const auto at = static_cast<std::size_t>(d);
      starts[at] = held.start;
      sizes[at] = held.size;
      strides[at] = stride_of(local, d);
      wanted = wanted && held.size > 0;
    }
    // Of partial sums one device reads the whole sum.
    if (!owned && !array_memory::begin_writing(array, k)) continue;
    const axis_mask splits = array.placed().placement.tiled();
    for (int axis = 0; owned && axis < its_mesh.rank; ++axis) {
      const bool copies = (splits >> static_cast<unsigned>(axis) & 1U) == 0;
      if (copies && its_mesh.coordinate(array.device(k), axis) != 0) wanted = false;
    }
    if (!wanted) continue;
    array.require_unspent();
    visit(std::span(starts).first(rank), std::span(sizes).first(rank),
          array_memory::shards(array)[static_cast<std::size_t>(k)].data(), std::span(strides).first(rank));
  }
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

ESPALIER_INLINE void save_arrays(world& where, std::vector<named_array> arrays, const std::filesystem::path& path,
                                 const io::metadata_map& metadata) {
  std::vector<std::unique_ptr<array_of_sums>> sums;
  for (named_array& one : arrays) {
    if (one.array->empty() || one.array->placed().placement.unreduced == 0) continue;
    sums.push_back(std::make_unique<array_of_sums>(where, *one.array));
    one.array = sums.back().get();
  }
  std::unique_ptr<io::safetensors_writer> writer;
  const auto open = [&](io::writer_role role) {
    writer = std::make_unique<io::safetensors_writer>(path, checkpoint_specs(where, arrays, path), metadata, role);
  };
  together(where, [&] {
    if (where.is_root()) open(io::writer_role::create);
  });
  std::optional<window_writer> windows;
  together(where, [&] {
    if (!where.is_root()) open(io::writer_role::attach);
    windows.emplace(arrays_in_file(arrays, *writer), where.uses_mpi() ? where.mesh_value().devices() : 1);
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
  for (const std::int64_t part : values_of_all_processes(where, writer->bytes_written())) written += part;
  together(where, [&] {
    if (where.is_root()) writer->commit(written);
  });
}

ESPALIER_INLINE io::metadata_map load_arrays(world& where, std::span<const named_array> arrays,
                                             std::span<const dtype> declared, const std::filesystem::path& path,
                                             const io::load_options& options) {
  std::optional<io::safetensors_reader> reader;
  std::vector<io::tensor_spec> specs;
  std::vector<const io::tensor_info*> sources;
  // Calls f(type of the leaf, its tensor in the file, box ...) for every box of a leaf that is filled.
  const auto for_each_filled_box = [&](bool owned, const auto& f) {
    for (std::size_t leaf = 0; leaf < arrays.size(); ++leaf) {
      if (sources[leaf] == nullptr) continue;
      for_each_box(*arrays[leaf].array, owned, [&](auto starts, auto sizes, void* memory, auto strides) {
        f(specs[leaf].type, *sources[leaf], starts, sizes, memory, strides);
      });
    }
  };
  together(where, [&] {
    specs = checkpoint_specs(where, arrays, path);
    reader.emplace(path);
    if (options == io::load_options{}) io::check_matches(*reader, as_in_file(*reader, specs, declared));
    sources = sources_of_leaves(*reader, specs, declared, options);
    // Each element is looked at by one process, and what one finds all know.
    for_each_filled_box(true, [&](dtype type, const io::tensor_info& info, auto starts, auto sizes, void*, auto) {
      if (info.type == type) {
        reader->check_box(info.name, starts, sizes);
      } else {
        read_box_as(type, *reader, info, {starts.begin(), starts.end()}, {sizes.begin(), sizes.end()}, nullptr, {});
      }
    });
  });
  together(where, [&] {
    for_each_filled_box(
        false, [&](dtype type, const io::tensor_info& info, auto starts, auto sizes, void* memory, auto strides) {
          if (info.type == type) {
            reader->read_box(info.name, starts, sizes, memory, strides);
          } else {
            read_box_as(type, *reader, info, {starts.begin(), starts.end()}, {sizes.begin(), sizes.end()},
                        static_cast<std::byte*>(memory), strides);
          }
        });
  });
  return reader->metadata();
}

}  // namespace espalier::detail
