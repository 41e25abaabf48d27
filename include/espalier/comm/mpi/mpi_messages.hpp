// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/mpi/mpi_label.hpp>
#include <espalier/comm/mpi/mpi_requests.hpp>
#include <espalier/comm/mpi_handle.hpp>
#include <espalier/comm/mpi_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::comm::detail {

/// The messages of one rank on its duplicate of a communicator: tags, requests, deadline and errors.
class mpi_messages {
 public:
  mpi_messages(MPI_Comm base, const mpi_options& options)
      : communicator_(duplicate(base)),
        requests_(has_more_ranks_than_processors(communicator_), options.deadline),
        message_bytes_(options.message_bytes),
        rank_(communicator_.rank()),
        size_(communicator_.size()),
        operations_(static_cast<std::size_t>(communicator_.size()), 0) {
    MPI_Comm_set_errhandler(communicator_, errors_return());
    int* bound = nullptr;
    int known = 0;
    MPI_Comm_get_attr(communicator_, MPI_TAG_UB, static_cast<void*>(&bound), &known);
    if (known != 0) label_.limit(*bound);
    requests_.reserve(static_cast<std::size_t>(2 * size_));
  }
  mpi_messages(const mpi_messages&) = delete;
  mpi_messages& operator=(const mpi_messages&) = delete;
  ~mpi_messages() {
    // After an error, messages may still be under way: were the communicator freed, its number could be given to a new
    // one, which would receive them. Kept until the process ends.
    if (broken_) (void)new mpi_handle(communicator_);  // NOLINT: leaked on purpose
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const mpi_handle& base() const { return communicator_; }
  [[nodiscard]] request_table& requests() { return requests_; }
  [[nodiscard]] const context* where() const { return where_; }
  void set_where(const context* where) { where_ = where; }

  /// Starts an operation: its name and kind are for errors and for the tags of its messages.
  template <collective Kind>
  void begin(dtype type = dtype::f32, reduction kind = reduction::sum, std::int64_t count = 0) {
    operation_ = name_of(Kind);
    label_.set<Kind>(type, kind, count);
  }

  /// Runs one operation of `group`; afterwards each of its pairs of ranks counts one operation more, whether or not it
  /// sent a message.
  void guarded(const transfer_group& group, espalier::detail::function_ref<void()> operation) {
    begin_operation();
    try {
      operation();
    } catch (...) {
      broken_ = true;
      requests_.abandon();
      throw;
    }
    count_operation(group);
  }
  void begin_operation() {
    if (broken_) {
      throw comm_error(joined({"rank ", rank_, ": an earlier operation of this communicator failed", during(where_)}));
    }
    requests_.reset(0);
  }
  void count_operation(const transfer_group& group) {
    for (const int member : group.members) ++operations_[static_cast<std::size_t>(member)];
  }

  void drain(espalier::detail::function_ref<void(std::size_t)> finished) {
    const auto result = requests_.drain(
        finished, [this](int code) { check(code, "MPI_Testsome"); }, [this] { look_for_other_calls(); });
    if (result == request_table::outcome::all_done) return;
    throw comm_error(expired_text(rank_, operation_, requests_.deadline(), requests_.missing(), where_));
  }

  /// Tells consecutive operations of a pair, the two directions of an all-reduce, and the slots of its window apart,
  /// and says what the operation is.
  [[nodiscard]] int tag(int rank, int phase, int slot) const {
    return label_.bits() | ((operations_[static_cast<std::size_t>(rank)] % 4096) * 8 + phase * 4 + slot);
  }

  void send(std::size_t place, const void* data, std::int64_t bytes, int rank, int label) {
    MPI_Request* request = requests_.start(place, rank, false);
    check(MPI_Isend(data, static_cast<int>(bytes), bytes_type(), rank, label, communicator_, request), "MPI_Isend");
  }

  void receive(std::size_t place, void* data, std::int64_t bytes, int rank, int label) {
    MPI_Request* request = requests_.start(place, rank, true);
    check(MPI_Irecv(data, static_cast<int>(bytes), bytes_type(), rank, label, communicator_, request), "MPI_Irecv");
  }

  [[nodiscard]] std::size_t message_count(std::int64_t bytes) const {
    return static_cast<std::size_t>((bytes + message_bytes_ - 1) / message_bytes_);
  }

  void send_messages(const std::byte* data, std::int64_t bytes, int rank) {
    for (std::int64_t done = 0; done < bytes; done += message_bytes_) {
      send(requests_.append(), data + done, std::min(message_bytes_, bytes - done), rank, tag(rank, 0, 0));
    }
  }

  void receive_messages(std::byte* data, std::int64_t bytes, int rank) {
    for (std::int64_t done = 0; done < bytes; done += message_bytes_) {
      receive(requests_.append(), data + done, std::min(message_bytes_, bytes - done), rank, tag(rank, 0, 0));
    }
  }

 private:
  static mpi_handle duplicate(MPI_Comm base) {
    if (!mpi_has_begun()) {
      throw comm_error("MPI is not initialised: construct a boost::mpi::environment, or call MPI_Init, first");
    }
    return mpi_handle::duplicate_of(base);
  }

  /// Whether a rank that is waited for has sent something of another collective in the place of this one.
  void look_for_other_calls() {
    if (!label_.is_seen()) return;
    for (const int rank : requests_.missing()) {
      int arrived = 0;
      MPI_Status status{};
      check(MPI_Iprobe(rank, MPI_ANY_TAG, communicator_, &arrived, &status), "MPI_Iprobe");
      constexpr int number = mpi_label::plain & ~7;
      const int mine = tag(rank, 0, 0);
      if (arrived == 0 || (status.MPI_TAG & number) != (mine & number) ||
          status.MPI_TAG >> mpi_label::first_bit == mine >> mpi_label::first_bit) {
        continue;
      }
      const std::string here = mpi_label::describe(mine);
      const std::string there = mpi_label::describe(status.MPI_TAG);
      throw comm_error(
          joined({"rank ", rank_, " and rank ", rank, " are in different collectives: rank ", rank, " is in ", there,
                  ", rank ", rank_, " in ", here, here == there ? " of another count or root" : "", during(where_),
                  "\n  all ranks must call the same collectives in the same order, with the same counts, roots, ",
                  "types and operations"}));
    }
  }

  void check(int code, const char* routine) const { check_mpi(code, routine, rank_, where_); }

  mpi_handle communicator_;
  request_table requests_;
  std::int64_t message_bytes_;
  int rank_;
  int size_;
  std::vector<int> operations_;  // per rank: operations in which both took part
  mpi_label label_;
  const char* operation_ = "";
  const context* where_ = nullptr;
  bool broken_ = false;
};

}  // namespace espalier::comm::detail
