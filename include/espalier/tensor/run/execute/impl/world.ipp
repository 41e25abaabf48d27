// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a world is made of: the compiled half of world.hpp.
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/owned.hpp>
#include <espalier/base/light_std/place_in.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/in_process.hpp>
#include <espalier/comm/launch.hpp>
#include <espalier/tensor/run/execute/world.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(ESPALIER_USE_MPI)
#include <espalier/comm/mpi.hpp>
#include <espalier/comm/session.hpp>
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace espalier::detail {

[[nodiscard]] inline const char* axis_name(const mesh_shape& mesh, int axis) {
  return mesh.name[axis] == nullptr ? "axis" : mesh.name[axis];
}

ESPALIER_INLINE std::string text_of(const mesh_shape& mesh) {
  if (mesh.rank == 0) return "one device";
  std::string text;
  for (int axis = 0; axis < mesh.rank; ++axis) {
    append_text(text, {axis == 0 ? "" : ", ", axis_name(mesh, axis), " ", mesh.size[axis]});
  }
  return text;
}

ESPALIER_INLINE std::string place_on_mesh(const mesh_shape& mesh, int device) {
  std::string text;
  for (int axis = 0; axis < mesh.rank; ++axis) {
    append_text(text, {axis == 0 ? "" : ", ", axis_name(mesh, axis), " ", mesh.coordinate(device, axis)});
  }
  return text;
}

/// Threads that stay: thread k always works for device k, so that its OpenMP team and its caches stay with it.
class device_threads {
 public:
  explicit device_threads(int count) {
    seats_.reserve(static_cast<std::size_t>(count));
    for (int k = 0; k < count; ++k) {
      seats_.push_back({this, k});
      threads_.push_back(std::thread(&serve_seat, static_cast<void*>(&seats_.back())));
    }
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
  void run(function_ref<void(int)> work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    pending_ = static_cast<int>(seats_.size());
    ++round_;
    wake_.notify_all();
    done_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  struct seat {
    device_threads* all;
    int number;
  };
  static void serve_seat(void* at) {
    const seat& mine = *static_cast<const seat*>(at);
    mine.all->serve(mine.number);
  }
  void serve(int k) {
    for (std::uint64_t seen = 0;;) {
      const function_ref<void(int)>* work = nullptr;
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
  const function_ref<void(int)>* work_ = nullptr;
  std::uint64_t round_ = 0;
  int pending_ = 0;
  bool stop_ = false;
  plain_vector<seat> seats_;  // which stay where they are
  object_vector<std::thread> threads_;
};

inline void set_threads([[maybe_unused]] int count) {
#if defined(_OPENMP)
  omp_set_num_threads(count);
#endif
}
[[nodiscard]] inline int share_of_threads([[maybe_unused]] int devices) {
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
[[nodiscard]] inline int share_of_host([[maybe_unused]] MPI_Comm everyone) {
#if defined(_OPENMP)
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return omp_get_max_threads();
  MPI_Comm host = MPI_COMM_NULL;
  int ranks = 1;
  MPI_Comm_split_type(everyone, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &ranks);
  MPI_Comm_free(&host);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return clamped(cores / ranks, 1, omp_get_max_threads());
#else
  return 1;
#endif
}
#endif

}  // namespace espalier::detail

namespace espalier {

struct world::state {
  template <class Kind> void add(Kind& communicator) {
    any.push_back(detail::owned<comm::any_communicator>(new comm::communicator_as<Kind>(communicator)));
  }
#if defined(ESPALIER_USE_MPI)
  std::shared_ptr<comm::mpi_session> session;  // also that of the world's parts
  detail::owned<comm::mpi_communicator> mpi;

  void use(detail::owned<comm::mpi_communicator> ranks) {
    any.clear();
    mpi = std::move(ranks);
    add(*mpi);
  }
#endif
  std::optional<comm::in_process_group> group;
  detail::object_vector<comm::in_process_communicator> devices;
  detail::object_vector<detail::owned<comm::any_communicator>> any;  // this process's, by local device
  std::optional<detail::device_threads> threads;

  [[noreturn]] void throw_failure() const {
    if (!group->abort_exception()) throw device_error(group->abort_reason());
    try {
      std::rethrow_exception(group->abort_exception());
    } catch (const known_to_all_ranks&) { throw; } catch (...) {
      std::throw_with_nested(device_error(group->abort_reason()));
    }
  }
};

ESPALIER_INLINE void detail::warn_of_build(bool is_root) {
  static std::atomic<bool> is_said = false;
  const char* const quiet = std::getenv("ESPALIER_QUIET");
  if (!is_root || (quiet != nullptr && *quiet != '\0') || is_said.exchange(true)) return;
  std::cerr
      << "espalier: this program is compiled without optimisation, and its kernels run many times slower than with "
         "-O2 (ESPALIER_QUIET=1 silences this line)\n";
}

ESPALIER_INLINE world::world(int& argc, char**& argv, const mesh_shape& mesh) : mesh_(mesh) {
  const char* const program = argc > 0 ? argv[0] : "the program";
  if (comm::under_mpi_launcher()) {
    start_mpi(argc, argv, program);
  } else {
    start_threads(detail::share_of_threads(mesh_.devices()));
  }
}
ESPALIER_INLINE world::world(const mesh_shape& mesh) : mesh_(mesh) {
  start_threads(detail::share_of_threads(mesh_.devices()));
}
ESPALIER_INLINE world::world(const mesh_shape& mesh, int threads_per_device)
    : mesh_(mesh), threads_per_device_(threads_per_device) {}
ESPALIER_INLINE world::world(world&& other) noexcept
    : mesh_(other.mesh_),
      first_(other.first_),
      threads_per_device_(other.threads_per_device_),
      uses_mpi_(other.uses_mpi_),
      state_(std::move(other.state_)),
      place_(std::move(other.place_)) {
  if (place_ != nullptr) *place_ = this;
}
ESPALIER_INLINE world& world::operator=(world&& other) noexcept {
  if (this == &other) return *this;
  if (place_ != nullptr) *place_ = nullptr;
  mesh_ = other.mesh_;
  first_ = other.first_;
  threads_per_device_ = other.threads_per_device_;
  uses_mpi_ = other.uses_mpi_;
  state_ = std::move(other.state_);
  place_ = std::move(other.place_);
  if (place_ != nullptr) *place_ = this;
  return *this;
}
ESPALIER_INLINE world::~world() {
  if (place_ != nullptr) *place_ = nullptr;
}

#if defined(ESPALIER_USE_MPI)
ESPALIER_INLINE comm::mpi_communicator* world::ranks() { return state_->mpi.get(); }

ESPALIER_INLINE void world::reorder(const std::vector<int>& rank_of) {
  if (!uses_mpi_) return;
  const int device = detail::place_in(rank_of, first_);
  MPI_Comm placed{};
  MPI_Comm_split(state_->mpi->base(), 0, device, &placed);
  state_->use(detail::owned<comm::mpi_communicator>(new comm::mpi_communicator(comm::mpi_handle::own(placed))));
  first_ = state_->mpi->rank();
  comm::announce_termination(state_->mpi->rank(), state_->mpi->size());
}
#endif

ESPALIER_INLINE std::vector<std::optional<world>> world::divide(const std::vector<mesh_shape>& meshes) {
  int devices = 0;
  std::string text;
  for (const mesh_shape& one : meshes) {
    devices += one.devices();
    detail::append_text(text, {text.empty() ? "" : "; ", detail::text_of(one)});
  }
  if (devices != mesh_.devices()) {
    throw launch_error(detail::joined({"divide: the parts (", text.empty() ? "none" : text, ") have ", devices,
                                       " devices together, and the world (", detail::text_of(mesh_), ") has ",
                                       mesh_.devices(), ". Give each of its devices to one part"}));
  }
  std::vector<std::optional<world>> parts(meshes.size());
  if (!uses_mpi_) {
    for (std::size_t k = 0; k < meshes.size(); ++k) {
      parts[k].emplace(world(meshes[k], threads_per_device_));
      parts[k]->start_threads(threads_per_device_);
    }
    return parts;
  }
#if defined(ESPALIER_USE_MPI)
  // Ranks that disagree would wait for one another in MPI_Comm_split, which has no deadline.
  on_devices([&](int, comm::any_communicator& ranks) {
    auto length = static_cast<std::int64_t>(text.size());
    ranks.broadcast(&length, sizeof(length), 0);
    std::string first(static_cast<std::size_t>(length), ' ');
    first.replace(0, detail::smaller_of(first.size(), text.size()), text, 0, first.size());
    ranks.broadcast(first.data(), length, 0);
    if (first != text)
      throw launch_error(detail::joined({"divide: rank 0 divides the world into (", first, "), this rank into (", text,
                                         "). Pass the same meshes on all ranks"}));
    ranks.barrier();
  });
  std::size_t part = 0;
  int begin = 0;
  while (first_ >= begin + meshes[part].devices()) begin += meshes[part++].devices();
  MPI_Comm members{};
  MPI_Comm_split(state_->mpi->base(), static_cast<int>(part), first_, &members);
  world& mine = parts[part].emplace(world(meshes[part], threads_per_device_));
  mine.uses_mpi_ = true;
  mine.first_ = first_ - begin;
  mine.state_ = detail::owned<state>(new state);
  mine.state_->session = state_->session;
  mine.state_->use(detail::owned<comm::mpi_communicator>(new comm::mpi_communicator(comm::mpi_handle::own(members))));
#endif
  return parts;
}

ESPALIER_INLINE void world::run_on_devices(detail::device_work work) {
  if (state_ == nullptr) { throw launch_error("this world was moved from: use the one that it was moved to"); }
  if (uses_mpi_) {
    comm::any_communicator& communicator = *state_->any.front();
    comm::run_guarded(communicator, [&] { work(0, communicator); });
    return;
  }
  if (!state_->threads) {
    work(0, *state_->any.front());
    return;
  }
  if (state_->group->aborted()) {
    const std::string reason = state_->group->abort_reason();
    throw device_error(detail::joined({"this world has stopped, because of an earlier error: ",
                                       reason.substr(0, reason.find('\n')), ". Make a new world, and runners on it"}));
  }
  state_->threads->run([&](int local) {
    comm::any_communicator& communicator = *state_->any[static_cast<std::size_t>(local)];
    try {
      comm::run_guarded(communicator, [&] { work(local, communicator); });
    } catch (...) {  // kept by the group, and thrown below
    }
  });
  if (state_->group->aborted()) state_->throw_failure();
}

ESPALIER_INLINE void world::start_threads(int threads_per_device) {
  state_ = detail::owned<state>(new state);
  const int devices = mesh_.devices();
  state_->group.emplace(devices);
  std::vector<std::string> places;
  for (int k = 0; k < devices; ++k) places.push_back(detail::place_on_mesh(mesh_, k));
  state_->group->set_places(std::move(places));
  for (int k = 0; k < devices; ++k) state_->devices.push_back(state_->group->device(k));
  for (comm::in_process_communicator& one : state_->devices) state_->add(one);
  threads_per_device_ = threads_per_device;
  // A device alone computes in the thread that asks, unless it is a part of a world and has a share of the processors.
  if (devices == 1 && threads_per_device == detail::share_of_threads(1)) return;
  state_->threads.emplace(devices);
  const int share = threads_per_device_;
  state_->threads->run([share](int) { detail::set_threads(share); });
}

ESPALIER_INLINE void world::start_mpi([[maybe_unused]] int& argc, [[maybe_unused]] char**& argv, const char* program) {
  const std::string command = detail::joined({"mpirun -n ", mesh_.devices(), " --oversubscribe ", program});
#if defined(ESPALIER_USE_MPI)
  state_ = detail::owned<state>(new state);
  using comm::mpi_session;
  if (mpi_session::has_ended()) {
    throw launch_error("a world needs MPI, which has been finalised: make it before MPI_Finalize is called");
  }
  state_->session = std::make_shared<mpi_session>(argc, argv, comm::default_deadline());
  const comm::mpi_handle everyone = comm::every_rank();
  uses_mpi_ = true;
  first_ = everyone.rank();
  if (everyone.size() != mesh_.devices()) {
    // Every rank sees the same numbers, so all stop here together; one speaks.
    const std::string text = detail::joined({"the mesh has ", mesh_.devices(), " devices, but ", everyone.size(),
                                             " ranks were started. Run it as: ", command});
    state_->session.reset();
    throw launch_error(text);
  }
  state_->use(detail::owned<comm::mpi_communicator>(new comm::mpi_communicator(everyone)));
  comm::announce_termination(state_->mpi->rank(), state_->mpi->size());
  threads_per_device_ = detail::share_of_host(everyone);
  detail::set_threads(threads_per_device_);
  state_->session->has_begun();
#else
  throw launch_error(
      detail::joined({"this program was built without MPI but started by an MPI launcher. Link espalier::mpi, or run ",
                      program, " without mpirun; with MPI the command is: ", command}));
#endif
}

}  // namespace espalier
