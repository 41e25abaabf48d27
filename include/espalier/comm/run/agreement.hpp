// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/mpi/mpi_compat.hpp>
#include <espalier/comm/mpi/mpi_requests.hpp>
#include <espalier/comm/run/plan_words.hpp>
#include <espalier/comm/run/polling_wait.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <utility>

namespace espalier::comm::detail {

/// Makes decisions that are equal on all ranks of a communicator. Results that depend on time or on measurements may
/// differ between two ranks: rank 0 decides it, and the others are told, with a checksum.
///
/// Every wait has the deadline, and calls `meanwhile`, so that other operations of the same ranks go on.
class agreement {
 public:
  agreement(MPI_Comm communicator, std::chrono::duration<double> deadline, bool oversubscribed)
      : communicator_(communicator), deadline_(deadline), oversubscribed_(oversubscribed) {
    MPI_Comm_rank(communicator_, &rank_);
  }

  [[nodiscard]] bool decides() const { return rank_ == 0; }

  /// Returns whether anything moved. Called while waiting.
  void meanwhile(std::function<bool()> work) { meanwhile_ = std::move(work); }
  /// Called now and then in long waits; throws if the others can be seen not to come. `compares`: in `are_equal`, or in
  /// what follows where they are not.
  void look_around(std::function<void(bool compares)> look) { look_ = std::move(look); }

  /// Returns on all ranks the result of `decide()`, which is called on rank 0 only. If it throws there, so does this on
  /// the others. Collective.
  template <class Decide> plan_words from_root(const char* what, const Decide& decide) {
    if (rank_ != 0) return receive(what);
    plan_words mine;
    try {
      mine = decide();
    } catch (const std::exception& error) {
      hand_out(what, as_words(error.what()), 1);
      throw comm_error(could_not_plan + std::string(error.what()));
    }
    hand_out(what, mine, 0);
    return mine;
  }

  /// The words of every rank, in the order of ranks; all have as many. `compares`: for `look_around`. Collective.
  [[nodiscard]] plan_words from_all(const plan_words& mine, const char* what, bool compares = false) {
    int size = 1;
    MPI_Comm_size(communicator_, &size);
    plan_words all(mine.size() * static_cast<std::size_t>(size));
    const auto count = static_cast<int>(mine.size());
    MPI_Request request = no_request();
    check_mpi(MPI_Iallgather(mine.data(), count, library_type_of_words(), all.data(), count, library_type_of_words(),
                             communicator_, &request),
              "MPI_Iallgather", rank_, nullptr);
    complete(request, what, compares);
    return all;
  }

  /// The largest of all ranks' numbers, on all. Collective.
  [[nodiscard]] double largest(double mine, const char* what) {
    double found = 0;
    MPI_Request request = no_request();
    check_mpi(MPI_Iallreduce(&mine, &found, 1, library_type(dtype::f64), library_operation(dtype::f64, reduction::max),
                             communicator_, &request),
              "MPI_Iallreduce", rank_, nullptr);
    complete(request, what);
    return found;
  }

  /// Returns once all ranks have called it.
  void meet(const char* what) { (void)largest(0, what); }

  /// Whether all ranks have the same number: the same answer on all. Collective.
  [[nodiscard]] bool are_equal(std::uint64_t fingerprint, const char* operation) {
    const auto mine = static_cast<std::int64_t>(fingerprint >> 1U);
    const std::int64_t both[2]{mine, -mine};
    std::int64_t found[2]{};
    MPI_Request request = no_request();
    check_mpi(MPI_Iallreduce(&both[0], &found[0], 2, library_type_of_words(),
                             library_operation(dtype::i32, reduction::max), communicator_, &request),
              "MPI_Iallreduce", rank_, nullptr);
    complete(request, (std::string("for the plans of ") + operation).c_str(), true);
    return found[0] == -found[1];
  }

 private:
  static constexpr const char* could_not_plan = "rank 0 could not plan a collective: ";
  // Most decisions fit the first message; what is longer has a second.
  static constexpr std::size_t head = 4;
  static constexpr std::size_t inlined = 60;
  using message = std::array<std::int64_t, head + inlined>;

  [[nodiscard]] static std::int64_t checksum(const plan_words& words, std::int64_t failed) {
    auto hash = static_cast<std::uint64_t>(failed) + 0xCBF29CE484222325U;
    for (const std::int64_t word : words) hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x100000001B3U;
    return static_cast<std::int64_t>(hash >> 1U);
  }
  [[nodiscard]] static plan_words as_words(const std::string& text) {
    plan_words words(text.size() / sizeof(std::int64_t) + 1, 0);
    std::memcpy(words.data(), text.data(), text.size());
    return words;
  }

  void hand_out(const char* what, const plan_words& words, std::int64_t failed) {
    message first{};
    first[0] = static_cast<std::int64_t>(words.size());
    first[1] = failed;
    first[2] = checksum(words, failed);
    first[3] = checksum(as_words(what), first[0] + failed);
    std::copy_n(words.begin(), std::min(words.size(), inlined), first.begin() + head);
    broadcast(first.data(), first.size(), what);
    plan_words rest(words.begin() + static_cast<std::ptrdiff_t>(std::min(words.size(), inlined)), words.end());
    if (!rest.empty()) broadcast(rest.data(), rest.size(), what);
  }
  [[nodiscard]] plan_words receive(const char* what) {
    message first{};
    broadcast(first.data(), first.size(), what);
    const auto misses = [&] {
      return comm_error("rank " + std::to_string(rank_) + " waited " + what +
                        " and got something else: all ranks must call the same collectives in the same order");
    };
    // The checksum is compared before the size is believed.
    if (checksum(as_words(what), first[0] + first[1]) != first[3]) throw misses();
    const auto size = static_cast<std::size_t>(first[0]);
    plan_words words(first.begin() + head, first.begin() + static_cast<std::ptrdiff_t>(head + std::min(size, inlined)));
    if (size > inlined) {
      words.resize(size);
      broadcast(words.data() + inlined, size - inlined, what);
    }
    if (checksum(words, first[1]) != first[2]) throw misses();
    if (first[1] == 0) return words;
    std::string text(words.size() * sizeof(std::int64_t), '\0');
    std::memcpy(text.data(), words.data(), text.size());
    text.resize(std::strlen(text.c_str()));  // words are whole
    throw comm_error(could_not_plan + text);
  }
  void broadcast(std::int64_t* words, std::size_t count, const char* what) {
    MPI_Request request = no_request();
    check_mpi(MPI_Ibcast(words, static_cast<int>(count), library_type_of_words(), 0, communicator_, &request),
              "MPI_Ibcast", rank_, nullptr);
    complete(request, what);
  }

  /// Waits for a collective of the library that was only started.
  void complete(MPI_Request request, const char* what, bool compares = false) {
    polling_wait left(oversubscribed_, deadline_);
    for (;;) {
      int done = 0;
      check_mpi(MPI_Test(&request, &done, ignored_status()), "MPI_Test", rank_, nullptr);
      if (done != 0) return;
      if (meanwhile_ && meanwhile_()) {
        left.moved();
      } else if (left.exhausted()) {
        throw comm_error("waited " + seconds_text(deadline_) + " s " + what +
                         ": some rank did not come. All ranks must call the same collectives in the same order");
      } else if (look_ && left.wonders()) {
        look_(compares);
      }
    }
  }

  MPI_Comm communicator_;
  std::chrono::duration<double> deadline_;
  bool oversubscribed_;
  int rank_ = 0;
  std::function<bool()> meanwhile_;
  std::function<void(bool)> look_;
};

}  // namespace espalier::comm::detail
