// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/owned.hpp>
#include <espalier/config.hpp>

#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/comm/any_communicator.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier::comm {
class mpi_communicator;
}

namespace espalier {

/// An exception that is also this is thrown on every rank, with the same text: one rank may speak for all, and none
/// waits for another.
struct known_to_all_ranks {};

/// The mesh and the number of ranks, or some other part of a run's set-up, do not fit together.
struct launch_error : std::runtime_error, known_to_all_ranks {
  using std::runtime_error::runtime_error;
};

/// One of several devices in this process failed. The text says which, where it is on the mesh, why, and in which
/// instruction of which line, as far as that is known; what it threw is nested (`std::rethrow_if_nested`).
struct device_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

/// Whether the devices of two meshes are the same grid, whatever the axes are called.
[[nodiscard]] inline bool same_grid(const mesh_shape& one, const mesh_shape& other) {
  if (one.rank != other.rank) return false;
  for (int axis = 0; axis < one.rank; ++axis) {
    if (one.size[axis] != other.size[axis]) return false;
  }
  return true;
}

/// "data 2, model 4"
[[nodiscard]] std::string text_of(const mesh_shape& mesh);

/// "data 1, model 0"
[[nodiscard]] std::string place_on_mesh(const mesh_shape& mesh, int device);

/// Says once on stderr, on the root alone, that the program is not optimised, unless ESPALIER_QUIET is set.
void warn_of_build(bool is_root);

/// The function that a world calls for each of its devices.
using device_work = function_ref<void(int local, comm::any_communicator&)>;

}  // namespace detail

/// The devices a program runs on. Under an MPI launcher each rank is one device; without one, the devices of the mesh
/// are threads of this process. The same code serves both.
///
/// A process may have several worlds, one after the other and at the same time; every rank makes the same ones in the
/// same order. MPI begins with the first one, unless the program has begun it, and ends when the process exits.
class world {
 public:
  /// Errors: `launch_error` if the launcher started another number of ranks than the mesh has devices, or MPI has been
  /// finalised. If some rank does not come, the process ends after `ESPALIER_DEADLINE_SECONDS`, with words.
  /// In a program compiled without optimisation the root says so, in one line on stderr; `ESPALIER_QUIET=1` silences
  /// it.
  template <class Mesh>
    requires(std::is_same_v<decltype(Mesh::value), const mesh_shape>)
  world(int& argc, char**& argv, Mesh /*type*/) : world(argc, argv, Mesh::value) {
#if !defined(__OPTIMIZE__)
    detail::warn_of_build(is_root());
#endif
  }

  world(int& argc, char**& argv, const mesh_shape& mesh);
  /// All devices in this process, whatever started it.
  explicit world(const mesh_shape& mesh);
  world(world&& other) noexcept;
  world& operator=(world&& other) noexcept;
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world();

  [[nodiscard]] const mesh_shape& mesh_value() const { return mesh_; }
  /// A pointer to this world, for runners, which may outlive it.
  [[nodiscard]] const std::shared_ptr<world*>& place() const { return place_; }
  /// How many devices this process works for, and which.
  [[nodiscard]] int local_devices() const { return uses_mpi_ ? 1 : mesh_.devices(); }
  [[nodiscard]] int device(int local) const { return uses_mpi_ ? first_ : local; }
  [[nodiscard]] bool is_root() const { return first_ == 0; }
  [[nodiscard]] bool uses_mpi() const { return uses_mpi_; }
#if defined(ESPALIER_USE_MPI)
  /// This rank's communicator, for `comm::use_topology`; null when all devices are in this process.
  [[nodiscard]] comm::mpi_communicator* ranks();

  /// Makes device d the rank that was `rank_of[d]`, as a `comm::placement` proposes. Every rank calls it before
  /// anything else is made with this world. Without MPI it does nothing.
  /// @pre `rank_of` is a permutation that leaves 0 where it is: the rank that speaks stays the same
  void reorder(const std::vector<int>& rank_of);
#endif
  /// Parts with meshes of their own: the first has this world's first devices, each other one those after the part
  /// before it. Under MPI a rank gets the world of the part that it belongs to, and nothing for the others; without MPI
  /// this process works for all parts, one at a time or, from threads of its own, at once.
  ///
  ///     auto [encoder, decoder] = world.divide(ep::mesh<data>{}, ep::mesh<data, model>{});
  ///     if (encoder) train_encoder(*encoder);
  ///     if (decoder) train_decoder(*decoder);
  ///
  /// In a part device 0 is the root. This world goes on to work on all devices. Every rank calls it, with the same
  /// meshes: one that has others ends the job, with words.
  /// Errors: `launch_error`, unless the meshes have as many devices together as this world.
  template <class... Meshes>
    requires(sizeof...(Meshes) > 0 && (std::is_same_v<decltype(Meshes::value), const mesh_shape> && ...))
  [[nodiscard]] std::array<std::optional<world>, sizeof...(Meshes)> divide(Meshes...) {
    std::vector<std::optional<world>> parts = divide(std::vector<mesh_shape>{Meshes::value...});
    return [&]<std::size_t... Part>(std::index_sequence<Part...>) {
      return std::array<std::optional<world>, sizeof...(Meshes)>{std::move(parts[Part])...};
    }
    (std::index_sequence_for<Meshes...>{});
  }
  [[nodiscard]] std::vector<std::optional<world>> divide(const std::vector<mesh_shape>& meshes);

  /// OpenMP threads for each device's kernels.
  [[nodiscard]] int threads_per_device() const { return threads_per_device_; }

  /// Runs work(local index, communicator) for every device of this process, at the same time, and returns when all
  /// are done; the communicator is a `comm::any_communicator`. An exception on one device ends the others' waits; under
  /// MPI it ends the job with one message, because other ranks could not be told otherwise.
  ///
  /// Errors: where several devices share this process, `device_error` with what the first one threw nested in it
  /// (that itself, if it is `known_to_all_ranks`); otherwise what `work` threw. After such an error the world has
  /// stopped, and every later call throws a `device_error` that says so.
  template <class Work> void on_devices(const Work& work) { run_on_devices(work); }

 private:
  struct state;

  /// Made by `divide`, which fills in the rest.
  world(const mesh_shape& mesh, int threads_per_device);

  void run_on_devices(detail::device_work work);
  void start_threads(int threads_per_device);
  void start_mpi(int& argc, char**& argv, const char* program);

  mesh_shape mesh_;
  int first_ = 0;
  int threads_per_device_ = 1;
  bool uses_mpi_ = false;
  detail::owned<state> state_;
  std::shared_ptr<world*> place_ = std::make_shared<world*>(this);
};

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/world.ipp>
#endif
