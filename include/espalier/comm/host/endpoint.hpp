// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/host/fold.hpp>
#include <espalier/comm/host/shape.hpp>
#include <espalier/comm/host/space.hpp>
#include <espalier/comm/host/staging.hpp>
#include <espalier/comm/host/traffic.hpp>
#include <espalier/comm/host/wait.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>

namespace espalier::comm::host {

/// The places where the buffers of one rank can be reached in one call.
struct buffer_places {
  exposed input;
  exposed output;
  std::uint64_t in_place = 0;  ///< 1: the input is where the output is
};

/// The number of a call, and the tag that its flags carry: the number, the call's fingerprint, and room for a round.
struct call_tag {
  std::uint64_t number = 0;
  std::uint64_t bits = 0;
};

/// The buffers of one rank in one call. `stores` says how results are written to them.
struct call_buffers {
  const std::byte* source = nullptr;
  std::byte* output = nullptr;
  std::int64_t element = 1;  ///< bytes
  store stores = store::cached;
};

/// How a call ends: whether other ranks may still read or write this rank's buffers, and how many rounds it had.
struct call_end {
  bool buffers_in_use = false;
  std::int64_t rounds = 1;
};

/// A rank's end of the memory that the ranks of a space share: whatever outlives a call. A call itself is an object
/// (`chunk_protocol`, `split_protocol`, ...) that is made from an endpoint and dropped when the call is done.
template <SharedSpace Space> struct endpoint {
  template <class Value> using list = espalier::detail::plain_vector<Value>;
  static constexpr unsigned round_bits = 12;

  endpoint(Space& memory, const sizes& given, std::chrono::duration<double> deadline)
      : space(&memory),
        how(given),
        layout(memory.size(), given.region),
        waits(memory, deadline),
        flows(memory.size(), memory.rank()),
        writer(memory.crowded() ? given.stage_by.value_or(store::cached) : given.stage_by),
        parts(static_cast<std::size_t>(memory.size())),
        targets(static_cast<std::size_t>(memory.size())),
        places(static_cast<std::size_t>(memory.size())),
        finished(static_cast<std::size_t>(memory.size()), 0),
        rank(memory.rank()),
        size(memory.size()),
        number(state_of(memory.region(memory.rank())).finished.load(std::memory_order_relaxed)) {
    // A flag's own line says where buffers are: flows that fit beside a flag have no use for that.
    how.expose_from = espalier::detail::larger_of(how.expose_from, 2 * line_bytes);
  }

  [[nodiscard]] std::byte* region(int of) const { return space->region(of); }

  // --- failures ---

  void require_whole(const context* where) const {
    if (!broken) return;
    throw comm_error(detail::joined({"rank ", rank, ": an earlier collective failed", detail::during(where)}));
  }
  /// Runs a call. If it throws, the other ranks hear why, and this endpoint makes no further call.
  void guarded(espalier::detail::function_ref<void()> body) {
    try {
      body();
    } catch (const std::exception& error) {
      leave(error.what());
      throw;
    } catch (...) {
      leave("an exception that is not a std::exception");
      throw;
    }
  }
  void leave(const char* why) {
    broken = true;
    waits.give_up(why);
    if constexpr (Space::exposes_private_memory) waits.take_back();
  }

  // --- the beginning and the end of a call ---

  /// Writes the summary of the next call, so that a rank that sees it begin can read it. `numbered`: the number that
  /// other readers of the notices know the call by; 0: there are none.
  void note(const call_summary& summary, std::uint64_t numbered) {
    state_of(region(rank)).notice.write(numbered != 0 ? numbered : number + 1, summary);
  }
  [[nodiscard]] call_tag begin_call(std::uint64_t hash, bool noted, const char* operation, const context* where) {
    ++number;
    const std::uint64_t word = number << hash_bits | hash;
    waits.begin(word, noted, operation, where);
    waits.enter();
    return {number, word << round_bits};
  }
  /// This rank reads nothing of other ranks any more.
  void tell_finished() { state_of(region(rank)).finished.store(number, std::memory_order_release); }
  void end_call(const call_end& end) {
    tell_finished();
    if (!end.buffers_in_use) return;
    for (int r = 0; r < size; ++r) {
      if (r != rank) await_finished(r, number, "the end", end.rounds);
    }
  }

  void await_finished(int of, std::uint64_t call, const char* purpose, std::int64_t rounds) {
    const rank_state& other = state_of(region(of));
    std::uint64_t& known = finished[static_cast<std::size_t>(of)];
    waits.until(
        [&] {
          known = other.finished.load(std::memory_order_acquire);
          return known >= call;
        },
        {of, purpose, 0, rounds});
  }

  /// Waits, before the first write of a call into its copy of a tier, until no rank needs what an earlier call wrote
  /// there.
  ESPALIER_ALWAYS_INLINE void await_room(const shape& cut) {
    const auto depth = static_cast<std::uint64_t>(cut.of->depth);
    if (number <= depth || finished_by_all + depth >= number) return;
    finished_by_all = std::numeric_limits<std::uint64_t>::max();
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      if (finished[static_cast<std::size_t>(r)] + depth < number) {
        await_finished(r, number - depth, "room", cut.rounds);
      }
      finished_by_all = espalier::detail::smaller_of(finished_by_all, finished[static_cast<std::size_t>(r)]);
    }
  }

  // --- buffers of other ranks ---

  [[nodiscard]] exposed expose(const std::byte* data, std::int64_t bytes) const {
    const exposed place = space->expose(data, bytes);
    return place.how == reach::kernel && flows.most() < how.expose_from ? exposed{} : place;
  }
  /// Copies bytes of a rank's source through the operating system.
  void fetch(int source, std::int64_t begin, std::byte* to, std::int64_t bytes) {
    if (space->fetch(source, places[static_cast<std::size_t>(source)].input, begin, to, bytes)) return;
    throw comm_error(detail::joined({"rank ", rank, ", in ", name_of(flows.operation()),
                                     ", could not read the memory of rank ", source, ": it has ended"}));
  }
  /// Room for bytes of a rank's source that the operating system copies.
  std::byte* tile(int source, std::int64_t bytes) {
    const std::int64_t each = espalier::detail::larger_of(tile_bytes, whole_lines(bytes));
    if (each > tile_bytes || tiles.empty()) {
      tile_bytes = espalier::detail::larger_of(each, how.chunk);
      tiles.resize(static_cast<std::size_t>(tile_bytes * size));
    }
    return tiles.data() + source * tile_bytes;
  }

  Space* space;
  sizes how;
  region_layout layout;
  watch<Space> waits;
  traffic flows;   // of the call under way, set by `engine::run`
  folder fold;     // likewise
  staging writer;  // learns from call to call how chunks are written fastest
  // Lists that calls fill, kept so that a repeated call allocates nothing.
  list<const std::byte*> parts;
  list<std::byte*> targets;
  list<buffer_places> places;
  list<std::byte> tiles;
  std::int64_t tile_bytes = 0;
  list<std::uint64_t> finished;       // calls that each rank was seen to have finished
  std::uint64_t finished_by_all = 0;  // the least of these
  int rank;
  int size;
  bool broken = false;
  std::uint64_t number;  // of the last call: goes on where an earlier engine on this region ended
};

}  // namespace espalier::comm::host
