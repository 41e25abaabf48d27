// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/mpi/mpi_compat.hpp>
#include <espalier/comm/run/element.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::comm::detail {

/// Whether the MPI library's largest and smallest of numbers without a sign are right: those of MPICH 4.0.2 (Debian 12)
/// compare them as if they had one.
[[nodiscard]] inline bool library_compares_right(const element& what) {
  if (what.operation != MPI_MAX && what.operation != MPI_MIN) return true;
  if (class_of(what.type) != element_class::natural) return true;
  const auto bytes = static_cast<std::size_t>(what.by.element_bytes);
  std::array<unsigned char, sizeof(std::uint64_t)> small{1};
  std::array<unsigned char, sizeof(std::uint64_t)> large{};
  large.fill(0xff);
  const auto wanted = what.operation == MPI_MAX ? large : small;
  MPI_Reduce_local(large.data(), small.data(), 1, what.type, what.operation);
  return std::memcmp(small.data(), wanted.data(), bytes) == 0;
}

/// Whether the MPI library may be asked to reduce in place: MPICH 4.0.2 copies to where nothing is, and the program
/// ends, if the root is another rank than the first (seen with 8 ranks and more than 2,000 floats).
[[nodiscard]] inline bool library_reduces_in_place(const collective_call& call) {
#if defined(MPICH_NUMVERSION)
  return call.kind != collective::reduce || !call.in_place || call.root == 0;
#else
  static_cast<void>(call);
  return true;
#endif
}

/// The MPI library's own collective for a call, if it has one, and it is right.
class library_call {
 public:
  library_call(const collective_call& call, const element& what, int rank) : call_(call), rank_(rank), layout_(call) {
    const auto n = static_cast<std::size_t>(call.ranks);
    possible_ = what.type != no_type() && (!reduces(call.kind) || what.operation != no_operation());
    if (possible_ && reduces(call.kind)) possible_ = library_compares_right(what) && library_reduces_in_place(call);
    // Some libraries refuse what is nothing: no elements, or one rank in place.
    possible_ = possible_ && call.ranks > 1 && layout_.total() > 0;
    // Counts of MPI 3 are `int`; so are lengths in bytes inside of some libraries.
    possible_ = possible_ && layout_.total() * what.by.element_bytes <= std::numeric_limits<int>::max();
    if (!possible_ || call.counts.size() == 1) return;
    equal_ = std::all_of(call.counts.begin(), call.counts.end(), [&](auto c) { return c == call.counts[0]; });
    if (call.kind == collective::all_to_all) {
      int sent = 0;
      int received = 0;
      for (std::size_t k = 0; k < n; ++k) {
        counts_.push_back(static_cast<int>(call.counts[static_cast<std::size_t>(rank) * n + k]));
        offsets_.push_back(sent);
        sent += counts_.back();
        from_counts_.push_back(static_cast<int>(call.counts[k * n + static_cast<std::size_t>(rank)]));
        from_offsets_.push_back(received);
        received += from_counts_.back();
      }
      return;
    }
    for (std::size_t k = 0; k < n; ++k) {
      counts_.push_back(static_cast<int>(call.counts[k]));
      offsets_.push_back(static_cast<int>(layout_.first(static_cast<int>(k))));
    }
  }

  [[nodiscard]] bool possible() const { return possible_; }

  int run(MPI_Comm communicator, const void* input, void* output, const element& what) const {
    const bool root = rank_ == call_.root;
    const void* const in = call_.in_place && (root || !has_root(call_.kind)) ? in_place() : input;
    const int count = counts_.empty() ? static_cast<int>(layout_.total()) : counts_[own()];
    const MPI_Datatype type = what.type;
    switch (call_.kind) {
      case collective::broadcast: return broadcast(communicator, input, output, count, what);
      case collective::reduce:
        return MPI_Reduce(in, root ? output : nullptr, count, type, what.operation, call_.root, communicator);
      case collective::all_reduce: return MPI_Allreduce(in, output, count, type, what.operation, communicator);
      case collective::all_gather:
        if (equal_) return MPI_Allgather(in, count, type, output, count, type, communicator);
        return MPI_Allgatherv(in, count, type, output, counts_.data(), offsets_.data(), type, communicator);
      case collective::reduce_scatter:
        if (equal_) return MPI_Reduce_scatter_block(in, output, count, type, what.operation, communicator);
        return MPI_Reduce_scatter(in, output, counts_.data(), type, what.operation, communicator);
      case collective::gather:
        if (equal_) return MPI_Gather(in, count, type, output, count, type, call_.root, communicator);
        return MPI_Gatherv(in, count, type, output, counts_.data(), offsets_.data(), type, call_.root, communicator);
      case collective::scatter: {
        void* const out = call_.in_place && root ? const_cast<void*>(in_place()) : output;  // NOLINT: MPI's signature
        if (equal_) return MPI_Scatter(input, count, type, out, count, type, call_.root, communicator);
        return MPI_Scatterv(input, counts_.data(), offsets_.data(), type, out, count, type, call_.root, communicator);
      }
      case collective::all_to_all:
        if (equal_) return MPI_Alltoall(in, counts_[0], type, output, counts_[0], type, communicator);
        return MPI_Alltoallv(in, counts_.data(), offsets_.data(), type, output, from_counts_.data(),
                             from_offsets_.data(), type, communicator);
      default: throw std::logic_error(std::string("MPI has no call for ") + name_of(call_.kind));
    }
    return MPI_SUCCESS;
  }

 private:
  [[nodiscard]] std::size_t own() const { return static_cast<std::size_t>(rank_); }

  int broadcast(MPI_Comm communicator, const void* input, void* output, int count, const element& what) const {
    // The library sends from where it receives.
    const bool root = rank_ == call_.root;
    if (root && !call_.in_place && output != nullptr && output != input) {
      std::memcpy(output, input, static_cast<std::size_t>(count * what.by.element_bytes));
    }
    return MPI_Bcast(output, count, what.type, call_.root, communicator);
  }

  collective_call call_;
  int rank_;
  call_layout layout_;
  bool possible_ = false;
  bool equal_ = false;
  std::vector<int> counts_;
  std::vector<int> offsets_;
  std::vector<int> from_counts_;
  std::vector<int> from_offsets_;
};

}  // namespace espalier::comm::detail
