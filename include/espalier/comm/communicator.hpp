// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/joined.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/comm/reducer.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// The instruction a device is executing, for messages only.
struct context {
  const char* name = "";
  const char* file = "";
  int line = 0;
};

/// A wait that expired, a failure on another rank, a mismatch between ranks, or an error of the transport.
/// After one, the communicator is unusable: the program ends.
class comm_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The ranks called different collectives, or one with different counts, roots, types or operations, and for all of
/// them the call was a new one. All see it before anything is moved, and may go on with the communicator.
class mismatched_call : public comm_error {
 public:
  using comm_error::comm_error;
};

/// The longest a rank waits for another one without any progress: `ESPALIER_DEADLINE_SECONDS`, or 60 s.
[[nodiscard]] inline std::chrono::duration<double> default_deadline() {
  constexpr double fallback = 60.0;
  const char* text = std::getenv("ESPALIER_DEADLINE_SECONDS");
  if (text == nullptr) return std::chrono::duration<double>(fallback);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(seconds > 0.0) || seconds > 1e9) {
    throw std::invalid_argument(espalier::detail::joined(
        {"espalier: ESPALIER_DEADLINE_SECONDS is \"", text, "\", expected a positive number of seconds"}));
  }
  return std::chrono::duration<double>(seconds);
}

/// Moves data between the devices of one program. One object belongs to one device and one thread; every member of a
/// group calls the same operations in the same order. Buffers belong to the caller and may be reused on return.
///
/// * `prepare(moves)`, `prepare(group)` once, before the first use: later calls then allocate nothing. Not collective.
/// * `exchange(moves, source, target)`: member k receives `outgoing[k]`; `incoming` is filled. All-gather, all-to-all
///   and collective-permute are instances. Source and target do not overlap.
/// * `reduce_exchange(moves, source, target, by)`: reduce-scatter. The target box, which all `incoming` share,
///   becomes the combination of the members' boxes in group order: the same bits on every run.
/// * `all_reduce(group, source, target, count, by)`: `source == target` is allowed; same bits on all members.
///   Sends `all_reduce_sent_bytes(...)`.
/// * `barrier()` and `broadcast(data, bytes, root)` involve all ranks, and are not counted: they belong to no channel.
/// * `counters()`: bytes sent to other devices, by channel, since `reset_counters()`.
/// * `set_context(where)` names the current instruction in errors; `*where` outlives its use. `nullptr` clears it.
/// * `abort(reason)`: this rank cannot go on; no other rank may be left waiting for it.
///
/// Errors: `comm_error`. Sums and products of bool are refused.
template <class T>
concept Communicator = requires(T& c, const T& view, const transfer& moves, const transfer_group& group,
                                const void* source, void* target, std::int64_t count, const reducer& by,
                                const context* where, const std::string& reason) {
  { view.rank() } -> std::same_as<int>;
  { view.size() } -> std::same_as<int>;
  {c.prepare(moves)};
  {c.prepare(group)};
  {c.exchange(moves, source, target)};
  {c.reduce_exchange(moves, source, target, by)};
  {c.all_reduce(group, source, target, count, by)};
  {c.barrier()};
  {c.broadcast(target, count, 0)};
  { view.counters() } -> std::same_as<std::span<const std::int64_t>>;
  {c.reset_counters()};
  {c.set_context(where)};
  {c.abort(reason)};
};

/// Runs `body()`; if it throws, tells the other ranks why before the exception goes on.
template <Communicator Comm, class Body> decltype(auto) run_guarded(Comm& communicator, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    communicator.abort(error.what());
    throw;
  } catch (...) {
    communicator.abort("an exception that is not a std::exception");
    throw;
  }
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

using espalier::detail::append_text;
using espalier::detail::joined;

/// "%12 all_reduce (model.cpp:40)"; empty when nothing is known.
[[nodiscard]] inline std::string describe(const comm::context* where) {
  if (where == nullptr) return "";
  std::string text = where->name;
  if (where->file[0] != '\0') append_text(text, {" (", where->file, ":", where->line, ")"});
  return text;
}

[[nodiscard]] inline std::string during(const comm::context* where) {
  return where == nullptr ? "" : joined({"\n  instruction: ", describe(where)});
}

/// "rank 3", "ranks 1, 2".
[[nodiscard]] inline std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) append_text(text, {i == 0 ? "" : ", ", ranks[i]});
  return text;
}

[[nodiscard]] inline std::string expired_text(int rank, const char* operation, std::chrono::duration<double> deadline,
                                              const std::vector<int>& missing, const comm::context* where) {
  std::string seconds = std::to_string(deadline.count());
  seconds.erase(seconds.find_last_not_of('0') + 1);
  if (seconds.back() == '.') seconds.pop_back();
  return joined({"rank ", rank, " waited ", seconds, " s in ", operation, " for ", list_ranks(missing), during(where),
                 "\n  to wait longer: set ESPALIER_DEADLINE_SECONDS"});
}

inline void require_reducible(const comm::reducer& by, const comm::context* where) {
  if (comm::is_reducible(by.type, by.kind)) return;
  throw comm::comm_error(joined({"cannot reduce ", name_of(by.type), " by ", name_of(by.kind),
                                 ": use max (or) or min (and), or convert to i32 first", during(where)}));
}

/// Refuses tables that would read or write out of place. Errors: `comm_error`.
inline void require_consistent(const comm::transfer_group& group, int rank, int size) {
  const auto self = static_cast<std::size_t>(group.self);
  bool good = self < group.members.size() && group.members[self] == rank && group.channel >= 0;
  for (const int member : group.members) good = good && member >= 0 && member < size;
  if (!good) {
    throw comm::comm_error(joined({"rank ", rank, " was given a group it is not at place ", group.self,
                                   " of: members are ", list_ranks(group.members), " of ", size}));
  }
}

inline void require_consistent(const comm::transfer& moves, int rank, int size) {
  require_consistent(static_cast<const comm::transfer_group&>(moves), rank, size);
  const std::size_t members = moves.members.size();
  if (moves.outgoing.size() != members || moves.incoming.size() != members) {
    throw comm::comm_error(joined({"a transfer among ", members, " members has ", moves.outgoing.size(),
                                   " outgoing and ", moves.incoming.size(), " incoming boxes"}));
  }
}

/// A reduction combines elements of the transfer's type, and boxes of one size: the one this rank keeps.
/// Errors: `comm_error`.
inline void require_reducible(const comm::transfer& moves, const comm::reducer& by, const comm::context* where) {
  require_reducible(by, where);
  if (moves.type != by.type) {
    throw comm::comm_error(
        joined({"a transfer of ", name_of(moves.type), " cannot be reduced as ", name_of(by.type), during(where)}));
  }
  const std::int64_t own = moves.incoming[static_cast<std::size_t>(moves.self)].elements();
  for (std::size_t k = 0; k < moves.incoming.size(); ++k) {
    if (moves.incoming[k].elements() == own) continue;
    throw comm::comm_error(joined({"a reduction of ", own, " elements was given ", moves.incoming[k].elements(),
                                   " by rank ", moves.members[k], during(where)}));
  }
}

/// Bytes sent per channel.
class byte_counters {
 public:
  void reserve(int channel) {
    const auto needed = static_cast<std::size_t>(channel) + 1;
    if (sent_.size() < needed) sent_.resize(needed, 0);
  }
  void add(int channel, std::int64_t bytes) {
    reserve(channel);
    sent_[static_cast<std::size_t>(channel)] += bytes;
  }
  void reset() {
    for (std::int64_t& bytes : sent_) bytes = 0;
  }
  [[nodiscard]] std::span<const std::int64_t> view() const { return sent_; }

 private:
  std::vector<std::int64_t> sent_;
};

}  // namespace espalier::comm::detail
