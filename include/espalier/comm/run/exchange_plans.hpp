// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/mpi_compat.hpp>
#include <espalier/comm/network.hpp>
#include <espalier/comm/schedule/routes.hpp>
#include <espalier/comm/schedule/schedule.hpp>

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Plans are made on one rank and sent to the others: what depends on time, or on measurements, need not come out alike.
namespace espalier::comm::detail {

using plan_words = std::vector<std::int64_t>;

inline void put(plan_words& to, const std::vector<int>& list) {
  to.push_back(static_cast<std::int64_t>(list.size()));
  for (const int one : list) to.push_back(one);
}
[[nodiscard]] inline std::vector<int> take_list(const plan_words& from, std::size_t& at) {
  std::vector<int> list(static_cast<std::size_t>(from.at(at++)));
  for (int& one : list) one = static_cast<int>(from.at(at++));
  return list;
}

/// Rates and trees, without the certificate.
[[nodiscard]] inline plan_words to_words(const packing& trees) {
  plan_words made{static_cast<std::int64_t>(trees.kind), trees.root, trees.rate.numerator, trees.rate.denominator,
                  static_cast<std::int64_t>(trees.trees.size())};
  for (const tree& t : trees.trees) {
    made.push_back(t.root);
    made.push_back(t.weight.numerator);
    made.push_back(t.weight.denominator);
    put(made, t.down);
    put(made, t.up);
  }
  return made;
}
[[nodiscard]] inline packing packing_from(const plan_words& from) {
  packing made;
  made.kind = static_cast<collective>(from.at(0));
  made.root = static_cast<int>(from.at(1));
  made.rate = {from.at(2), from.at(3)};
  std::size_t at = 5;
  for (std::int64_t n = 0; n < from.at(4); ++n) {
    tree t;
    t.root = static_cast<int>(from.at(at++));
    t.weight.numerator = from.at(at++);
    t.weight.denominator = from.at(at++);
    t.down = take_list(from, at);
    t.up = take_list(from, at);
    made.trees.push_back(std::move(t));
  }
  return made;
}

[[nodiscard]] inline plan_words to_words(const std::vector<route>& routes) {
  plan_words made{static_cast<std::int64_t>(routes.size())};
  for (const route& r : routes) {
    made.push_back(r.from);
    made.push_back(r.to);
    made.push_back(std::bit_cast<std::int64_t>(r.weight));
    put(made, r.edges);
  }
  return made;
}
[[nodiscard]] inline std::vector<route> routes_from(const plan_words& from) {
  std::vector<route> made(static_cast<std::size_t>(from.at(0)));
  std::size_t at = 1;
  for (route& r : made) {
    r.from = static_cast<int>(from.at(at++));
    r.to = static_cast<int>(from.at(at++));
    r.weight = std::bit_cast<double>(from.at(at++));
    r.edges = take_list(from, at);
  }
  return made;
}

/// Waits for a collective of the library that was only started, under a deadline.
inline void complete(MPI_Request request, std::chrono::duration<double> deadline, const std::string& what) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, ignored_status());
    if (done != 0) return;
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() > end) {
      throw comm_error("waited " + std::to_string(static_cast<long>(deadline.count())) + " s " + what +
                       ": some rank did not come. All ranks must call the same collectives in the same order");
    }
  }
}

/// `mine` of rank 0 on all ranks.
[[nodiscard]] inline plan_words from_root(MPI_Comm communicator, const plan_words& mine,
                                          std::chrono::duration<double> deadline) {
  auto size = static_cast<std::int64_t>(mine.size());
  MPI_Request request = no_request();
  MPI_Ibcast(&size, 1, library_type_of_words(), 0, communicator, &request);
  complete(request, deadline, "for rank 0's plan");
  plan_words all = mine;
  all.resize(static_cast<std::size_t>(size));
  MPI_Ibcast(all.data(), static_cast<int>(size), library_type_of_words(), 0, communicator, &request);
  complete(request, deadline, "for rank 0's plan");
  return all;
}

/// The largest of all ranks' numbers.
[[nodiscard]] inline double largest_of_all(MPI_Comm communicator, double mine, std::chrono::duration<double> deadline) {
  double largest = 0;
  MPI_Request request = no_request();
  MPI_Iallreduce(&mine, &largest, 1, library_type(dtype::f64), library_operation(dtype::f64, reduction::max),
                 communicator, &request);
  complete(request, deadline, "for the times of all ranks");
  return largest;
}

/// Throws `comm_error` on all ranks if they would run different plans.
inline void require_equal(MPI_Comm communicator, const schedule& plan, std::chrono::duration<double> deadline) {
  const auto mine = static_cast<std::int64_t>(fingerprint(plan) >> 1U);
  std::int64_t both[2]{mine, -mine};
  std::int64_t largest[2]{};
  MPI_Request request = no_request();
  MPI_Iallreduce(&both[0], &largest[0], 2, library_type_of_words(), library_operation(dtype::i32, reduction::max),
                 communicator, &request);
  complete(request, deadline, std::string("for the plans of ") + name_of(plan.call.what));
  if (largest[0] == -largest[1]) return;
  throw comm_error(std::string("the ranks made different plans for a collective (") + name_of(plan.call.what) +
                   "): they were called with different counts, roots or types, or with different topologies");
}

}  // namespace espalier::comm::detail
