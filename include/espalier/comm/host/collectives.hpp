// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/host/engine.hpp>
#include <espalier/comm/host/processes.hpp>
#include <espalier/comm/mpi/mpi_requests.hpp>
#include <espalier/comm/run/element.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace espalier::comm {

/// How other ranks' private memory is read.
enum class private_memory : std::uint8_t {
  staged,  ///< its rank copies it to shared memory, chunk by chunk
  kernel   ///< the operating system copies it, where it may: once, but with more work for each page
};

struct host_options {
  std::chrono::duration<double> deadline = default_deadline();
  host::sizes sizes;
};

/// Whether all ranks of a communicator are on one host. Collective.
[[nodiscard]] inline bool on_one_host(MPI_Comm communicator) {
  MPI_Comm host{};
  int all = 0;
  int here = 0;
  MPI_Comm_size(communicator, &all);
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, detail::no_info(), &host);
  MPI_Comm_size(host, &here);
  MPI_Comm_free(&host);
  int together = all == here ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &together, 1, MPI_INT, MPI_MIN, communicator);  // NOLINT: MPI's constant
  return together != 0;
}

/// The eight collectives among MPI ranks of one host, over shared memory.
///
/// Constructing it is collective, and so is destroying it; all ranks make the same calls in the same order. Buffers may
/// be any memory; those from `allocate` are read and written by the other ranks in place. Contributions are combined in
/// the order of ranks, always: `collective_call::ordered` is met, and results are equal to the bit on every rank and
/// run. A repeated call allocates nothing.
///
/// Errors: `comm_error` where the deadline passes without progress (naming the ranks that are missing, operation and
/// chunk), or where ranks make different calls; then the object is unusable, on all ranks.
class host_collectives {
 public:
  /// Errors: std::invalid_argument on all ranks if they are not on one host.
  explicit host_collectives(MPI_Comm communicator, const host_options& options = {})
      : communicator_(duplicate(communicator)),
        deadline_(options.deadline),
        space_(communicator_, host::engine<host::process_space>::region_bytes(size_of(communicator_), options.sizes),
               detail::has_more_ranks_than_processors(communicator_)),
        engine_(space_, options.sizes, options.deadline) {}
  host_collectives(const host_collectives&) = delete;
  host_collectives& operator=(const host_collectives&) = delete;
  ~host_collectives() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) return;
    // Windows are freed together or not at all: where a rank died or is lost, they end with the process.
    constexpr std::chrono::duration<double> most{5};
    if (!host::all_come(communicator_, std::min(deadline_, most))) return;
    space_.free_all();
    MPI_Comm_free(&communicator_);
  }

  [[nodiscard]] int rank() const { return space_.rank(); }
  [[nodiscard]] int size() const { return space_.size(); }
  /// Whether `private_memory::kernel` is another way for a call of so many bytes: the operating system allows it, and
  /// they are enough.
  [[nodiscard]] bool has_kernel(std::int64_t bytes) const {
    return space_.has_kernel() && bytes >= engine_.how().expose_from;
  }

  /// The notice of each rank says which call it is in, also for calls that are not made here.
  [[nodiscard]] std::vector<host::call_notice*> notices() const {
    std::vector<host::call_notice*> found;
    for (int r = 0; r < size(); ++r) found.push_back(&host::state_of(space_.region(r)).notice);
    return found;
  }

  /// Whether `run` can carry this out: elements to be combined have to fit into a chunk.
  [[nodiscard]] bool serves(const collective_call& call, const element& what) const {
    if (call.ranks != size()) return false;
    return !reduces(call.kind) || (what.by.combine != nullptr && engine_.holds(what.by.element_bytes));
  }

  /// Buffers as `collective_call` says; `how`: the same on all ranks. Errors: as above; std::invalid_argument, on all
  /// ranks, where the call contradicts itself.
  void run(const collective_call& call, const void* input, void* output, const element& what,
           const context* where = nullptr, private_memory how = private_memory::staged) {
    run(call, detail::summary_of(call, what.by), 0, input, output, what, where, how);
  }
  /// The same for a caller that has counted the calls and made the summary: both are what the ranks' notices say.
  void run(const collective_call& call, const call_summary& said, std::uint64_t number, const void* input, void* output,
           const element& what, const context* where, private_memory how) {
    space_.use_kernel(how == private_memory::kernel);
    engine_.run(call, said, number, input, output, what.by, where);
  }

  /// Returns once all ranks have called it, on all within some tens of nanoseconds. `operation` is the name that the
  /// error of a timeout gives.
  void meet(const char* operation, const context* where = nullptr) { engine_.meet(operation, where); }
  /// Returns on all ranks the largest of the numbers that they bring. Otherwise as `meet`.
  [[nodiscard]] double largest(double mine, const char* operation, const context* where = nullptr) {
    return engine_.largest(mine, operation, where);
  }

  /// Memory that the other ranks read and write in place, on a line of its own. Collective; each rank says how much it
  /// wants. Zero at first; kept until `deallocate` or the end of this object.
  [[nodiscard]] void* allocate(std::int64_t bytes) { return space_.allocate(bytes); }
  /// Collective, in the order of allocation of what is given back.
  void deallocate(void* memory) { space_.deallocate(memory); }

 private:
  static int size_of(MPI_Comm communicator) {
    int size = 0;
    MPI_Comm_size(communicator, &size);
    return size;
  }
  static MPI_Comm duplicate(MPI_Comm communicator) {
    if (!on_one_host(communicator)) {
      throw std::invalid_argument(
          "the ranks of this communicator are not on one host: split it by "
          "MPI_Comm_split_type(MPI_COMM_TYPE_SHARED) first");
    }
    MPI_Comm made{};
    MPI_Comm_dup(communicator, &made);
    MPI_Comm_set_errhandler(made, detail::errors_return());
    return made;
  }

  MPI_Comm communicator_;
  std::chrono::duration<double> deadline_;
  host::process_space space_;
  host::engine<host::process_space> engine_;
};

}  // namespace espalier::comm
