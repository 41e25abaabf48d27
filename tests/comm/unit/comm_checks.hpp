// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Checks every communicator against references computed element by element without any of the library's loops. A check
// runs on each rank and throws on the rank that sees a mistake: Catch's macros belong to the main thread.

#include <espalier/comm/communicator.hpp>
#include <espalier/testing/collapsed_block.hpp>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace comm_checks {

using espalier::bfloat16;
using espalier::dtype;
using espalier::reduction;
using espalier::comm::block;
using espalier::comm::transfer;
using espalier::comm::transfer_group;
using index = std::int64_t;

inline void expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

inline std::uint32_t hash(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t x = a * 0x9e3779b1U ^ b * 0x85ebca77U ^ c * 0xc2b2ae3dU;
  x = (x ^ (x >> 15U)) * 0x2c1b3c6dU;
  x = (x ^ (x >> 12U)) * 0x297a2d39U;
  return x ^ (x >> 15U);
}

/// Element `at` of `rank`'s source: sums of such floats depend on their order.
template <class T> T value(int rank, index at, std::uint32_t seed) {
  const std::uint32_t bits = hash(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(at), seed);
  if constexpr (std::is_same_v<T, bool>) {
    return (bits & 1U) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::uint64_t{bits} << 32U | hash(bits, 1, seed));
  } else {
    return static_cast<T>(static_cast<float>(static_cast<int>(bits % 20001) - 10000) / 777.0F);
  }
}

template <class T>
std::vector<std::conditional_t<std::is_same_v<T, bool>, char, T>> filled(int rank, index count, std::uint32_t seed) {
  static_assert(sizeof(bool) == sizeof(char));
  std::vector<std::conditional_t<std::is_same_v<T, bool>, char, T>> result(static_cast<std::size_t>(count));
  for (index i = 0; i < count; ++i) {
    const T element = value<T>(rank, i, seed);
    std::memcpy(&result[static_cast<std::size_t>(i)], &element, sizeof(T));
  }
  return result;
}

template <class T> struct wide { using type = T; };
template <> struct wide<bfloat16> { using type = float; };
template <> struct wide<espalier::float16> { using type = float; };
template <> struct wide<std::int32_t> { using type = std::uint32_t; };
template <> struct wide<std::int64_t> { using type = std::uint64_t; };
template <> struct wide<std::int8_t> { using type = std::uint32_t; };

template <class T> T reduced(const std::vector<T>& values, reduction kind) {
  using sum_type = typename wide<T>::type;
  if (kind == reduction::max || kind == reduction::min) {
    T best = values[0];
    for (const T v : values) best = (kind == reduction::max ? best < v : v < best) ? v : best;
    return best;
  }
  auto total = static_cast<sum_type>(values[0]);
  for (std::size_t i = 1; i < values.size(); ++i) {
    const auto next = static_cast<sum_type>(values[i]);
    if constexpr (!std::is_same_v<T, bool>) {
      total = static_cast<sum_type>(kind == reduction::sum ? total + next : total * next);
    }
  }
  return static_cast<T>(total);
}

/// std::vector<bool> has no elements to point at.
struct flag {
  bool on = false;
};

/// Partitions of `size` ranks into groups; each rank takes part in one group of each, in this order.
inline std::vector<std::vector<std::vector<int>>> groupings(int size) {
  std::vector<std::vector<std::vector<int>>> result(2, std::vector<std::vector<int>>(1));
  for (int r = 0; r < size; ++r) {
    result[0][0].push_back(r);
    result[1][0].push_back(size - 1 - r);
  }
  if (size % 2 == 0 && size > 2) {
    std::vector<std::vector<int>> pairs(static_cast<std::size_t>(size / 2));
    std::vector<std::vector<int>> parity(2);
    for (int r = 0; r < size; ++r) {
      pairs[static_cast<std::size_t>(r / 2)].push_back(r);
      parity[static_cast<std::size_t>(r % 2)].push_back(r);
    }
    result.push_back(pairs);
    result.push_back(parity);
  }
  return result;
}

inline transfer_group group_of(const std::vector<std::vector<int>>& groups, int rank, int channel) {
  transfer_group result;
  result.channel = channel;
  for (const std::vector<int>& members : groups) {
    for (std::size_t k = 0; k < members.size(); ++k) {
      if (members[k] == rank) {
        result.members = members;
        result.self = static_cast<int>(k);
      }
    }
  }
  return result;
}

// A rank's source is an array [6, 5, 4, 8] stored with its dimensions in an order of its own.
inline constexpr index source_shape[4] = {6, 5, 4, 8};
inline constexpr index source_size = 6 * 5 * 4 * 8;

inline void source_strides(int rank, index (&stride)[4]) {
  const int orders[3][4] = {{0, 1, 2, 3}, {3, 1, 2, 0}, {1, 0, 3, 2}};
  index step = 1;
  for (int place = 3; place >= 0; --place) {
    const int d = orders[rank % 3][place];
    stride[d] = step;
    step *= source_shape[d];
  }
}

/// A box in the source of `from` that goes to `to`, which places it at row 6 * slot of [6 * members, 5, 4, 8].
/// `contiguous`: uneven runs of elements on both sides, as an all-gather has them.
inline block box_between(int from, int to, index slot, std::uint32_t seed, bool contiguous, int extents_of) {
  block box;
  const auto pick = [&](std::uint32_t d) {
    return static_cast<index>(hash(static_cast<std::uint32_t>(extents_of), static_cast<std::uint32_t>(to), seed + d));
  };
  if (contiguous) {
    const index count = pick(0) % 5 == 0 ? 0 : pick(0) % 300;
    return espalier::comm::contiguous_block(count, pick(1) % 300, slot * source_size);
  }
  index source_stride[4];
  source_strides(from, source_stride);
  const index target_stride[4] = {5 * 4 * 8, 4 * 8, 8, 1};
  for (int d = 0; d < 4; ++d) {
    const auto u = static_cast<std::uint32_t>(d);
    const int at = espalier::comm::block_rank - 4 + d;
    const index most = source_shape[d];
    box.extent[at] = pick(u) % 3 == 0 ? most : pick(u) % 11 == 0 ? 0 : 1 + pick(u + 10) % most;
    box.source_stride[at] = source_stride[d];
    box.target_stride[at] = target_stride[d];
    const index room = most - box.extent[at];
    box.source_offset += pick(u + 20) % (room + 1) * source_stride[d];
    box.target_offset += pick(u + 30) % (room + 1) * target_stride[d];
  }
  box.target_offset += slot * source_size;
  return box;
}

/// Calls `visit(source index, target index)` for each element of the box.
template <class Visit> void each_element(const block& box, Visit visit) {
  index at[espalier::comm::block_rank]{};
  for (index n = 0; n < box.elements(); ++n) {
    index source = box.source_offset;
    index target = box.target_offset;
    for (int d = 0; d < espalier::comm::block_rank; ++d) {
      source += at[d] * box.source_stride[d];
      target += at[d] * box.target_stride[d];
    }
    visit(source, target);
    for (int d = espalier::comm::block_rank - 1; d >= 0 && ++at[d] == box.extent[d]; --d) at[d] = 0;
  }
}

inline transfer exchange_among(const transfer_group& group, std::uint32_t seed, bool contiguous, dtype type) {
  transfer moves;
  static_cast<transfer_group&>(moves) = group;
  moves.type = type;
  const int me = group.members[static_cast<std::size_t>(group.self)];
  for (std::size_t k = 0; k < group.members.size(); ++k) {
    const int other = group.members[k];
    moves.outgoing.push_back(espalier::comm::collapsed(box_between(me, other, group.self, seed, contiguous, me)));
    moves.incoming.push_back(
        espalier::comm::collapsed(box_between(other, me, static_cast<index>(k), seed, contiguous, other)));
    if (seed % 2 == 0) {  // boxes need not be collapsed
      moves.outgoing.back() = box_between(me, other, group.self, seed, contiguous, me);
      moves.incoming.back() = box_between(other, me, static_cast<index>(k), seed, contiguous, other);
    }
  }
  return moves;
}

template <class C> index counted(const C& communicator, int channel) {
  const auto counters = communicator.counters();
  return static_cast<std::size_t>(channel) < counters.size() ? counters[static_cast<std::size_t>(channel)] : 0;
}

template <class T, class C> void check_exchange(C& communicator, dtype type) {
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    for (const auto& groups : groupings(communicator.size())) {
      const transfer_group group = group_of(groups, communicator.rank(), static_cast<int>(seed % 3));
      const transfer moves = exchange_among(group, seed, seed % 4 == 3, type);
      const index target_size = source_size * static_cast<index>(group.members.size());
      const auto source = filled<T>(communicator.rank(), source_size, seed);
      auto target = filled<T>(1000, target_size, seed);
      auto expected = target;
      index bytes = 0;
      for (std::size_t k = 0; k < group.members.size(); ++k) {
        const int from = group.members[k];
        const block box = box_between(from, communicator.rank(), static_cast<index>(k), seed, seed % 4 == 3, from);
        each_element(box, [&](index s, index t) {
          const T element = value<T>(from, s, seed);
          std::memcpy(&expected[static_cast<std::size_t>(t)], &element, sizeof(T));
        });
        if (static_cast<int>(k) == group.self) continue;
        const int me = communicator.rank();
        each_element(box_between(me, from, group.self, seed, seed % 4 == 3, me),
                     [&](index, index) { bytes += static_cast<index>(sizeof(T)); });
      }
      communicator.prepare(moves);
      communicator.reset_counters();
      communicator.exchange(moves, source.data(), target.data());
      expect(std::memcmp(target.data(), expected.data(), target.size() * sizeof(T)) == 0,
             "exchange of " + std::string(name_of(type)) + ", seed " + std::to_string(seed) +
                 ": wrong elements on rank " + std::to_string(communicator.rank()));
      expect(counted(communicator, group.channel) == bytes && sent_bytes(moves) == bytes, "exchange: wrong byte count");
    }
  }
}

/// Member `to` keeps the box that its own rank draws; the source side differs from member to member.
inline transfer reduce_among(const transfer_group& group, std::uint32_t seed, bool contiguous, dtype type) {
  transfer moves;
  static_cast<transfer_group&>(moves) = group;
  moves.type = type;
  const int me = group.members[static_cast<std::size_t>(group.self)];
  for (const int other : group.members) {
    moves.outgoing.push_back(box_between(me, other, 0, seed, contiguous, other));
    moves.incoming.push_back(box_between(other, me, 0, seed, contiguous, me));
  }
  return moves;
}

template <class T, class C> void check_reduce_exchange(C& communicator, dtype type, reduction kind) {
  using stored = std::conditional_t<std::is_same_v<T, bool>, flag, T>;
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    for (const auto& groups : groupings(communicator.size())) {
      const transfer_group group = group_of(groups, communicator.rank(), 2);
      const transfer moves = reduce_among(group, seed, seed % 3 == 2, type);
      const auto source = filled<T>(communicator.rank(), source_size, seed);
      auto target = filled<T>(1000, source_size, seed);
      auto expected = target;
      std::vector<std::vector<stored>> shares;
      std::vector<index> places;
      for (const block& box : moves.incoming) {
        const int from = group.members[shares.size()];
        shares.emplace_back();
        places.clear();
        each_element(box, [&](index s, index t) {
          shares.back().push_back(stored{value<T>(from, s, seed)});
          places.push_back(t);
        });
      }
      for (std::size_t i = 0; i < places.size(); ++i) {
        T element{};
        if constexpr (std::is_same_v<T, bool>) {
          element = kind == reduction::min;
          for (const auto& share : shares) {
            element = kind == reduction::max ? element || share[i].on : element && share[i].on;
          }
        } else {
          std::vector<T> values;
          for (const auto& share : shares) values.push_back(share[i]);
          element = reduced(values, kind);
        }
        std::memcpy(&expected[static_cast<std::size_t>(places[i])], &element, sizeof(T));
      }
      communicator.prepare(moves);
      communicator.reset_counters();
      communicator.reduce_exchange(moves, source.data(), target.data(), espalier::comm::reducer_of(type, kind));
      expect(std::memcmp(target.data(), expected.data(), target.size() * sizeof(T)) == 0,
             "reduce_exchange of " + std::string(name_of(type)) + " by " + name_of(kind) + ", seed " +
                 std::to_string(seed) + ": wrong elements on rank " + std::to_string(communicator.rank()));
      expect(counted(communicator, 2) == sent_bytes(moves), "reduce_exchange: wrong byte count");
    }
  }
}

template <class T> auto all_reduced(const std::vector<int>& members, index count, reduction kind, std::uint32_t seed) {
  auto expected = filled<T>(0, count, seed);
  for (index i = 0; i < count; ++i) {
    T element{};
    if constexpr (std::is_same_v<T, bool>) {
      element = kind == reduction::min;
      for (const int rank : members) {
        const bool next = value<T>(rank, i, seed);
        element = kind == reduction::max ? element || next : element && next;
      }
    } else {
      std::vector<T> values;
      for (const int rank : members) values.push_back(value<T>(rank, i, seed));
      element = reduced(values, kind);
    }
    std::memcpy(&expected[static_cast<std::size_t>(i)], &element, sizeof(T));
  }
  return expected;
}

template <class T, class C> void check_all_reduce(C& communicator, dtype type, reduction kind) {
  std::uint32_t seed = 7;
  for (const index count : {0, 1, 2, 3, 7, 64, 1000, 9001}) {
    for (const auto& groups : groupings(communicator.size())) {
      const transfer_group group = group_of(groups, communicator.rank(), 5);
      const auto expected = all_reduced<T>(group.members, count, kind, ++seed);
      auto source = filled<T>(communicator.rank(), count, seed);
      auto target = filled<T>(1000, count, seed);
      const auto what = [&](const char* where) {
        return std::string("all_reduce ") + where + " of " + std::to_string(count) + " " + name_of(type) + " by " +
               name_of(kind) + ": wrong elements on rank " + std::to_string(communicator.rank());
      };
      communicator.prepare(group);
      communicator.reset_counters();
      communicator.all_reduce(group, source.data(), target.data(), count, espalier::comm::reducer_of(type, kind));
      const auto bytes = target.size() * sizeof(T);
      expect(bytes == 0 || std::memcmp(target.data(), expected.data(), bytes) == 0, what("out of place"));
      const index sent = espalier::comm::all_reduce_sent_bytes(count, size_of(type),
                                                               static_cast<int>(group.members.size()), group.self);
      expect(counted(communicator, 5) == sent, "all_reduce: wrong byte count");
      communicator.all_reduce(group, source.data(), source.data(), count, espalier::comm::reducer_of(type, kind));
      expect(bytes == 0 || std::memcmp(source.data(), expected.data(), bytes) == 0, what("in place"));
      expect(counted(communicator, 5) == 2 * sent, "all_reduce: counts do not add up");
    }
  }
}

template <class C> void check_barrier_and_broadcast(C& communicator) {
  for (int root = 0; root < communicator.size(); ++root) {
    communicator.barrier();
    for (const index count : {0, 1, 5000}) {
      auto data = filled<float>(communicator.rank(), count, 3);
      communicator.broadcast(data.data(), count * 4, root);
      expect(data == filled<float>(root, count, 3), "broadcast: wrong elements");
    }
  }
}

/// Calls `check(T{}, dtype)` for each element type.
template <class Check> void for_each_dtype(Check check) {
  for (const espalier::dtype_facts& row : espalier::dtype_table) {
    espalier::with_storage(row.type, [&]<class T>(T one) { check(one, row.type); });
  }
}

inline constexpr reduction reductions[] = {reduction::sum, reduction::prod, reduction::max, reduction::min};

template <class C> void check_reductions(C& communicator) {
  for_each_dtype([&]<class T>(T, dtype type) {
    for (const reduction kind : reductions) {
      if (!espalier::comm::is_reducible(type, kind)) continue;
      check_reduce_exchange<T>(communicator, type, kind);
      check_all_reduce<T>(communicator, type, kind);
    }
  });
}

template <class C> void check_exchanges(C& communicator) {
  for_each_dtype([&]<class T>(T, dtype type) { check_exchange<T>(communicator, type); });
}

template <class C> void check_refuses_bool_sum(C& communicator) {
  const transfer_group group = group_of(groupings(communicator.size())[0], communicator.rank(), 0);
  bool one[4] = {};
  try {
    communicator.all_reduce(group, one, one, 4, espalier::comm::reducer_of(dtype::boolean, reduction::sum));
  } catch (const espalier::comm::comm_error& error) {
    expect(std::string(error.what()).find("bool by sum") != std::string::npos, error.what());
    return;
  }
  expect(false, "a sum of bools was accepted");
}

}  // namespace comm_checks
