// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/in_process.hpp>
#include <espalier/comm/launch.hpp>
#include <espalier/mesh/mesh.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#if defined(ESPALIER_USE_MPI)
#include <espalier/comm/mpi.hpp>
#include <espalier/comm/mpi_session.hpp>
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace espalier {

/// An exception that is also this is thrown on every rank, with the same text: one rank may speak for all, and none
/// waits for another.
struct known_to_all_ranks {};

/// The mesh and the number of ranks, or some other part of a run's set-up, do not fit together.
struct launch_error : std::runtime_error, known_to_all_ranks {
  using std::runtime_error::runtime_error;
};

/// One of several devices in this process failed. The text says which, where it stands on the mesh, why, and in which
/// instruction of which line, as far as that is known; what it threw is nested (`std::rethrow_if_nested`).
struct device_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

/// Whether the devices of two meshes are the same grid, whatever the axes are called.
[[nodiscard]] inline bool same_grid(const mesh_shape& one, const mesh_shape& other) {
  return one.rank == other.rank && std::equal(one.size, one.size + one.rank, other.size);
}

/// "data 2, model 4"
[[nodiscard]] inline std::string text_of(const mesh_shape& mesh) {
  if (mesh.rank == 0) return "one device";
  std::string text;
  for (int axis = 0; axis < mesh.rank; ++axis) {
    text += (axis == 0 ? "" : ", ") + std::string(mesh.name[axis] == nullptr ? "axis" : mesh.name[axis]) + ' ' +
            std::to_string(mesh.size[axis]);
  }
  return text;
}

/// "data 1, model 0"
[[nodiscard]] inline std::string place_on_mesh(const mesh_shape& mesh, int device) {
  std::string text;
  for (int axis = 0; axis < mesh.rank; ++axis) {
    text += (axis == 0 ? "" : ", ") + std::string(mesh.name[axis] == nullptr ? "axis" : mesh.name[axis]) + ' ' +
            std::to_string(mesh.coordinate(device, axis));
  }
  return text;
}

/// Threads that stay: thread k always works for device k, so that its OpenMP team and its caches stay with it.
class device_threads {
 public:
  explicit device_threads(int count) {
    for (int k = 0; k < count; ++k) threads_.emplace_back([this, k] { serve(k); });
  }
  ~device_threads() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      ++round_;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  device_threads(const device_threads&) = delete;
  device_threads& operator=(const device_threads&) = delete;

  /// Runs work(k) on every thread and returns when all are done. `work` does not throw.
  void run(const std::function<void(int)>& work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    pending_ = static_cast<int>(threads_.size());
    ++round_;
    wake_.notify_all();
    done_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  void serve(int k) {
    for (std::uint64_t seen = 0;;) {
      const std::function<void(int)>* work = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return round_ != seen; });
        seen = round_;
        if (stop_) return;
        work = work_;
      }
      (*work)(k);
      const std::lock_guard lock(mutex_);
      if (--pending_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(int)>* work_ = nullptr;
  std::uint64_t round_ = 0;
  int pending_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

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
  template <MeshAxis... Axes> world(int& argc, char**& argv, mesh<Axes...>) : world(argc, argv, mesh<Axes...>::value) {}

  world(int& argc, char**& argv, const mesh_shape& mesh) : mesh_(mesh) {
    const char* const program = argc > 0 ? argv[0] : "the program";
    if (comm::under_mpi_launcher()) {
      start_mpi(argc, argv, program);
    } else {
      start_threads();
    }
  }
  /// All devices in this process, whatever started it.
  explicit world(const mesh_shape& mesh) : mesh_(mesh) { start_threads(); }

  [[nodiscard]] const mesh_shape& mesh_value() const { return mesh_; }
  /// How many devices this process works for, and which.
  [[nodiscard]] int local_devices() const { return group_ ? mesh_.devices() : 1; }
  [[nodiscard]] int device(int local) const { return group_ ? local : first_; }
  [[nodiscard]] bool is_root() const { return first_ == 0; }
  [[nodiscard]] bool uses_mpi() const { return !group_; }
#if defined(ESPALIER_USE_MPI)
  /// This rank's communicator, for `comm::use_topology`; null when all devices are in this process.
  [[nodiscard]] comm::mpi_communicator* ranks() { return mpi_.get(); }

  /// From now on device d is the rank that was `rank_of[d]`, as a `comm::placement` proposes. Every rank calls it,
  /// before anything else is made with this world. Without MPI nothing changes.
  /// @pre `rank_of` is a permutation that leaves 0 where it is: the rank that speaks stays the same
  void reorder(const std::vector<int>& rank_of) {
    if (!mpi_) return;
    const auto device = std::find(rank_of.begin(), rank_of.end(), first_) - rank_of.begin();
    MPI_Comm placed{};
    MPI_Comm_split(mpi_->base(), 0, static_cast<int>(device), &placed);
    mpi_ = std::make_unique<comm::mpi_communicator>(comm::mpi_handle::own(placed));
    first_ = mpi_->rank();
    comm::detail::announce_termination(mpi_->rank(), mpi_->size());
  }
#endif
  /// OpenMP threads for each device's kernels.
  [[nodiscard]] int threads_per_device() const { return threads_per_device_; }

  /// Runs work(local index, communicator) for every device of this process, at the same time, and returns when all
  /// are done. An exception on one device ends the others' waits; under MPI it ends the job with one message, because
  /// other ranks could not be told otherwise.
  ///
  /// Errors: where several devices share this process, `device_error` with what the first one threw nested in it
  /// (that itself, if it is `known_to_all_ranks`); otherwise what `work` threw.
  template <class Work> void on_devices(const Work& work) {
#if defined(ESPALIER_USE_MPI)
    if (mpi_) {
      comm::run_guarded(*mpi_, [&] { work(0, *mpi_); });
      return;
    }
#endif
    if (!threads_) {
      comm::in_process_communicator& communicator = communicators_.front();
      work(0, communicator);
      return;
    }
    threads_->run([&](int local) {
      try {
        comm::run_guarded(communicators_[static_cast<std::size_t>(local)],
                          [&] { work(local, communicators_[static_cast<std::size_t>(local)]); });
      } catch (...) {  // kept by the group, and thrown below
      }
    });
    if (group_->aborted()) throw_failure();
  }

 private:
  [[noreturn]] void throw_failure() const {
    if (!group_->abort_exception()) throw device_error(group_->abort_reason());
    try {
      std::rethrow_exception(group_->abort_exception());
    } catch (const known_to_all_ranks&) { throw; } catch (...) {
      std::throw_with_nested(device_error(group_->abort_reason()));
    }
  }

  void start_threads() {
    const int devices = mesh_.devices();
    group_ = std::make_unique<comm::in_process_group>(devices);
    std::vector<std::string> places;
    for (int k = 0; k < devices; ++k) places.push_back(detail::place_on_mesh(mesh_, k));
    group_->set_places(std::move(places));
    for (int k = 0; k < devices; ++k) communicators_.push_back(group_->device(k));
    threads_per_device_ = share_of_threads(devices);
    if (devices == 1) return;
    threads_ = std::make_unique<detail::device_threads>(devices);
    const int share = threads_per_device_;
    threads_->run([share](int) { set_threads(share); });
  }

  static void set_threads([[maybe_unused]] int count) {
#if defined(_OPENMP)
    omp_set_num_threads(count);
#endif
  }
  [[nodiscard]] static int share_of_threads([[maybe_unused]] int devices) {
#if defined(_OPENMP)
    const int threads = omp_get_max_threads() / devices;
    return threads > 1 ? threads : 1;
#else
    return 1;
#endif
  }

#if defined(ESPALIER_USE_MPI)
  /// Ranks of one host share its cores, unless OMP_NUM_THREADS says otherwise. A launcher that binds ranks to cores has
  /// divided them already.
  [[nodiscard]] static int share_of_host([[maybe_unused]] MPI_Comm everyone) {
#if defined(_OPENMP)
    if (std::getenv("OMP_NUM_THREADS") != nullptr) return omp_get_max_threads();
    MPI_Comm host = MPI_COMM_NULL;
    int ranks = 1;
    MPI_Comm_split_type(everyone, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &ranks);
    MPI_Comm_free(&host);
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    return std::clamp(cores / ranks, 1, omp_get_max_threads());
#else
    return 1;
#endif
  }
#endif

  void start_mpi([[maybe_unused]] int& argc, [[maybe_unused]] char**& argv, const char* program) {
    const std::string command =
        "mpirun -n " + std::to_string(mesh_.devices()) + " --oversubscribe " + std::string(program);
#if defined(ESPALIER_USE_MPI)
    using comm::detail::mpi_session;
    if (mpi_session::has_ended()) {
      throw launch_error("a world needs MPI, which has been finalised: make it before MPI_Finalize is called");
    }
    session_ = std::make_unique<mpi_session>(argc, argv, comm::default_deadline());
    const comm::mpi_handle everyone(comm::detail::all_ranks());
    first_ = everyone.rank();
    if (everyone.size() != mesh_.devices()) {
      // Every rank sees the same numbers, so all stop here together; one speaks.
      const std::string text = "the mesh has " + std::to_string(mesh_.devices()) + " devices, but " +
                               std::to_string(everyone.size()) + " ranks were started. Run it as: " + command;
      session_.reset();
      throw launch_error(text);
    }
    mpi_ = std::make_unique<comm::mpi_communicator>(everyone);
    comm::detail::announce_termination(mpi_->rank(), mpi_->size());
    threads_per_device_ = share_of_host(everyone);
    set_threads(threads_per_device_);
    session_->has_begun();
#else
    throw launch_error(
        "this program was built without MPI but started by an MPI launcher. Link espalier::mpi, or run " +
        std::string(program) + " without mpirun; with MPI the command is: " + command);
#endif
  }

  mesh_shape mesh_;
  int first_ = 0;
  int threads_per_device_ = 1;
#if defined(ESPALIER_USE_MPI)
  std::unique_ptr<comm::detail::mpi_session> session_;
  std::unique_ptr<comm::mpi_communicator> mpi_;
#endif
  std::unique_ptr<comm::in_process_group> group_;
  std::vector<comm::in_process_communicator> communicators_;
  std::unique_ptr<detail::device_threads> threads_;
};

}  // namespace espalier
