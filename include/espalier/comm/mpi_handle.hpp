// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/mpi/mpi_compat.hpp>

#include <concepts>
#include <memory>

namespace espalier::comm {

/// A communicator of MPI's with its owner, if it has one: the last copy of a handle made by `own` frees it. Functions
/// that take this library's communicators take an `MPI_Comm`, so that this, a `boost::mpi::communicator` and a handle
/// of the program's own all serve.
class mpi_handle {
 public:
  /// Refers to a communicator that its owner frees.
  mpi_handle(MPI_Comm lent) : communicator_(lent) {}  // NOLINT: as a boost::mpi::communicator is an MPI_Comm
  template <std::convertible_to<MPI_Comm> Communicator>
  mpi_handle(const Communicator& lent) : communicator_(lent) {}  // NOLINT
  /// A communicator that was made for this.
  [[nodiscard]] static mpi_handle own(MPI_Comm made) {
    mpi_handle handle(made);
    handle.owner_ = std::make_shared<owner>(made);
    return handle;
  }
  [[nodiscard]] static mpi_handle duplicate_of(MPI_Comm base) {
    MPI_Comm made{};
    MPI_Comm_dup(base, &made);
    return own(made);
  }

  operator MPI_Comm() const { return communicator_; }  // NOLINT: for MPI's own functions
  [[nodiscard]] int rank() const {
    int rank = 0;
    MPI_Comm_rank(communicator_, &rank);
    return rank;
  }
  [[nodiscard]] int size() const {
    int size = 1;
    MPI_Comm_size(communicator_, &size);
    return size;
  }

 private:
  struct owner {
    explicit owner(MPI_Comm made) : communicator(made) {}
    ~owner() {
      if (detail::mpi_has_begun() && !detail::mpi_has_ended()) MPI_Comm_free(&communicator);
    }
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    MPI_Comm communicator;
  };

  MPI_Comm communicator_;
  std::shared_ptr<const owner> owner_;
};

}  // namespace espalier::comm
