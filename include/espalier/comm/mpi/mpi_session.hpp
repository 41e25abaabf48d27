// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/owned.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/launch.hpp>
#include <espalier/comm/mpi/mpi_compat.hpp>
#include <espalier/comm/mpi/roll_call.hpp>
#include <espalier/comm/run/polling_wait.hpp>
#include <espalier/comm/termination.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace espalier::comm::detail {

/// Ends the process, with words, if what all ranks have to begin together does not begin: MPI_Init and the calls that
/// make communicators return only when every rank has come, and MPI has no deadline for them.
class start_watch {
 public:
  /// `present`: the ranks that have come to where this rank is. Outlives this.
  start_watch(roll_call& present, std::chrono::duration<double> deadline)
      : present_(present), deadline_(deadline), thread_(start_unsignalled(&watch_start, this)) {}
  ~start_watch() {
    {
      const std::lock_guard lock(mutex_);
      begun_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  start_watch(const start_watch&) = delete;
  start_watch& operator=(const start_watch&) = delete;

  /// A literal: what is waited in now.
  void enter(const char* call) { call_.store(call, std::memory_order_relaxed); }

 private:
  static void watch_start(void* watch) { static_cast<start_watch*>(watch)->look(); }
  void look() {
    std::unique_lock lock(mutex_);
    constexpr int looks = 8;
    for (int n = 0; n < looks; ++n) {
      if (wake_.wait_for(lock, deadline_ / looks, [this] { return begun_; })) return;
      present_.look();
    }
    const roll_call::findings found = present_.report();
    // The first process to end ends the others: one message is enough.
    if (!found.speaks_first) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    end_process(
        joined({"espalier: rank ", launcher_rank(), " of ", launcher_size(), " waited ", seconds_text(deadline_),
                " s in ", call_.load(std::memory_order_relaxed), ", where a world begins: ", found.text,
                "\n  to fix: see whether that rank runs and comes to the same place",
                "; to wait longer: set ESPALIER_DEADLINE_SECONDS\n"}));
  }

  roll_call& present_;
  std::chrono::duration<double> deadline_;
  std::atomic<const char*> call_{"MPI_Init"};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool begun_ = false;
  std::thread thread_;
};

/// The life of MPI as a world needs it: it begins with the first world, unless the program has begun it, and ends when
/// the process exits, since it cannot begin again. Worlds may follow each other, and live at the same time.
class mpi_session {
 public:
  /// Starts MPI. From here to `has_begun` ranks wait for each other in calls that have no deadline of their own: if
  /// they wait longer than `deadline`, the process ends with a message. @pre MPI has not been finalised
  mpi_session(int& argc, char**& argv, std::chrono::duration<double> deadline)
      : exceptions_(std::uncaught_exceptions()),
        present_(++of_this_process().begun),
        watch_(new start_watch(present_, deadline)) {
    process& here = of_this_process();
    if (!mpi_has_begun()) {
      int provided = 0;
      MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
      MPI_Comm_set_errhandler(all_ranks(), errors_return());
      here.began_mpi = true;
      std::atexit([] {
        of_this_process().exiting = true;
        end();
      });
    }
    watch_->enter("MPI_Comm_dup");
    ++here.worlds;
    here.failing = false;
  }
  void has_begun() { watch_ = {}; }
  /// Ends the world. While an exception propagates, other ranks may wait for this one: if the process exits with the
  /// exception, it does so without MPI_Finalize, which would wait for them. The launcher then ends them.
  ~mpi_session() {
    process& here = of_this_process();
    --here.worlds;
    if (std::uncaught_exceptions() > exceptions_) here.failing = true;
    if (here.exiting) end();  // it was destroyed after the object that ends MPI otherwise
  }
  mpi_session(const mpi_session&) = delete;
  mpi_session& operator=(const mpi_session&) = delete;

  [[nodiscard]] static bool has_ended() { return mpi_has_ended(); }

 private:
  struct process {
    bool began_mpi = false;
    int begun = 0;   // worlds, ever: the same on all ranks
    int worlds = 0;  // now
    bool failing = false;
    bool exiting = false;
  };
  static process& of_this_process() {
    static process one;  // without a destructor: worlds may be destroyed at any time while the process exits
    return one;
  }

  /// A process that exits from the middle of a function that has a world leaves others waiting, as one that fails does.
  static void end() {
    process& here = of_this_process();
    int on_main_thread = 0;
    if (has_ended() || here.worlds > 0 || here.failing) return;
    MPI_Is_thread_main(&on_main_thread);
    if (on_main_thread != 0 && std::exchange(here.began_mpi, false)) MPI_Finalize();
  }

  int exceptions_;
  roll_call present_;
  espalier::detail::owned<start_watch> watch_;
};

}  // namespace espalier::comm::detail
