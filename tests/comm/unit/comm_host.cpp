// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 240
// together: host
#include <espalier/comm/host/fold.hpp>
#include <espalier/comm/host/shape.hpp>
#include <espalier/comm/host/staging.hpp>
#include <espalier/comm/host/threads.hpp>
#include <espalier/comm/reducer.hpp>

#include <catch2/catch.hpp>
#include <espalier/testing/random_calls.hpp>
#include <support/instrumented.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace espalier::comm;
using espalier::bfloat16;
using espalier::dtype;
using espalier::float16;
using espalier::reduction;
using espalier::test::call_buffers;
using espalier::test::element_kind;

/// Runs `body(collectives)` on as many threads; returns what each threw.
std::vector<std::string> on_threads(host::thread_group& group, std::chrono::duration<double> deadline,
                                    const std::function<void(thread_collectives&)>& body) {
  std::vector<std::string> said(static_cast<std::size_t>(group.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      thread_collectives all(group, rank, deadline);
      try {
        body(all);
      } catch (const std::exception& error) { said[static_cast<std::size_t>(rank)] = error.what(); }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

/// Makes calls one after another, checked after the last, with ranks that dawdle here and there.
void random_calls(int ranks, const host::sizes& how, unsigned seed, long count) {
  host::thread_group group(ranks, how);
  const std::vector<element_kind> kinds = espalier::test::element_kinds();
  const std::vector<std::string> faults =
      on_threads(group, std::chrono::duration<double>(20), [&](thread_collectives& all) {
        std::mt19937 random(seed);                                                // the same on all ranks
        std::mt19937 own(seed + static_cast<unsigned>(1000 * (all.rank() + 1)));  // each its own
        for (long done = 0; done < count;) {
          std::vector<call_buffers> series;
          for (auto n = 1 + random() % 12; n > 0; --n, ++done) {
            const element_kind& kind = kinds[random() % kinds.size()];
            const std::int64_t longest = random() % 3 == 0 ? 200000 : 3000;
            series.emplace_back(espalier::test::random_call(random, ranks, longest), kind, all.rank());
          }
          for (call_buffers& b : series) {
            if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
            all.run(b.call(), b.input(), b.output(), b.kind().by);
          }
          for (const call_buffers& b : series) {
            const std::string fault = b.fault();
            if (fault.empty()) continue;
            throw std::runtime_error("rank " + std::to_string(all.rank()) + ": " + fault + ": " +
                                     espalier::test::text_of(b.call(), b.kind()));
          }
        }
      });
  for (const std::string& fault : faults) {
    INFO(ranks << " ranks, seed " << seed << ": " << fault);
    CHECK(fault.empty());
  }
}

/// Values of a type that show rounding, wrapping and order.
template <class T> T test_value(std::mt19937& random) {
  if constexpr (std::is_same_v<T, bool>) {
    return random() % 2 == 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::uint64_t{random()} << 32U | random());
  } else {
    return static_cast<T>(static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 64.0F);
  }
}

template <class T> void check_fold(dtype type, reduction kind, std::mt19937& random) {
  const host::fold_function fold = reducer_of(type, kind).fold;
  REQUIRE(fold != nullptr);
  REQUIRE(combiner_of(reducer_of(type, kind)).fold == fold);
  const auto members = static_cast<std::size_t>(1 + random() % 5);
  const auto copies = static_cast<std::size_t>(1 + random() % 3);
  const std::size_t count = random() % 5 == 0 ? random() % 3000 : random() % 200;
  const bool streaming = random() % 2 == 0;
  // Parts begin anywhere; targets too, in one case out of two alike.
  const bool alike = random() % 2 == 0;
  const std::size_t shift = random() % 64;
  std::vector<std::vector<std::byte>> parts(members);
  std::vector<std::vector<std::byte>> targets(copies);
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  const auto aligned = [](std::vector<std::byte>& memory, std::size_t bytes, std::size_t off) {
    memory.assign(bytes + 256, std::byte{0x33});
    return memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) + off;
  };
  for (auto& part : parts) {
    std::byte* const begin = aligned(part, count * sizeof(T), random() % 64);
    for (std::size_t i = 0; i < count; ++i) {
      const T value = test_value<T>(random);
      std::memcpy(begin + i * sizeof(T), &value, sizeof(T));
    }
    from.push_back(begin);
  }
  for (auto& target : targets) to.push_back(aligned(target, count * sizeof(T), alike ? shift : random() % 64));
  fold({to.data(), static_cast<int>(copies), from.data(), static_cast<int>(members), static_cast<std::int64_t>(count),
        streaming ? host::store::streaming : host::store::cached});
  host::finish_streaming();
  for (std::size_t i = 0; i < count; ++i) {
    using wide = std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;
    T one{};
    std::memcpy(&one, from[0] + i * sizeof(T), sizeof(T));
    auto right = static_cast<wide>(one);
    for (std::size_t k = 1; k < members; ++k) {
      std::memcpy(&one, from[k] + i * sizeof(T), sizeof(T));
      const auto next = static_cast<wide>(one);
      if constexpr (std::is_same_v<T, bool>) {
        right = kind == reduction::max ? right || next : right && next;
      } else if constexpr (std::is_integral_v<T>) {
        // Modulo 2^64, and so modulo every smaller power of two.
        const auto a = static_cast<std::uint64_t>(right);
        const auto b = static_cast<std::uint64_t>(next);
        right = kind == reduction::sum    ? static_cast<T>(a + b)
                : kind == reduction::prod ? static_cast<T>(a * b)
                : kind == reduction::max  ? std::max(right, next)
                                          : std::min(right, next);
      } else {
        right = kind == reduction::sum    ? right + next
                : kind == reduction::prod ? right * next
                : kind == reduction::max  ? std::max(right, next)
                                          : std::min(right, next);
      }
    }
    const auto expected = static_cast<T>(right);
    for (std::size_t c = 0; c < copies; ++c) {
      if (std::memcmp(to[c] + i * sizeof(T), &expected, sizeof(T)) != 0) {
        FAIL(espalier::name_of(type) << ' ' << espalier::name_of(kind) << ": element " << i << " of " << count << ", "
                                     << members << " members, copy " << c << " of " << copies);
      }
    }
  }
  for (const std::byte* target : to) {
    REQUIRE(target[-1] == std::byte{0x33});
    REQUIRE(target[count * sizeof(T)] == std::byte{0x33});
  }
}

}  // namespace

TEST_CASE("kernels combine any number of parts as the definition says, anywhere in memory", "[host]") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    for (const reduction kind : {reduction::sum, reduction::prod, reduction::max, reduction::min}) {
      for (const espalier::dtype_facts& row : espalier::dtype_table) {
        if (!is_reducible(row.type, kind)) continue;
        espalier::with_storage(row.type, [&]<class T>(T) { check_fold<T>(row.type, kind, random); });
      }
    }
  }
  REQUIRE(reducer_of(dtype::boolean, reduction::sum).fold == nullptr);
}

TEST_CASE("a NaN stays visible in maximum and minimum, in every lane", "[host]") {
  for (const reduction kind : {reduction::max, reduction::min}) {
    for (std::size_t lane = 0; lane < 40; ++lane) {
      for (int in = 0; in < 2; ++in) {
        std::vector<float> parts[2]{std::vector<float>(40, 1), std::vector<float>(40, 2)};
        parts[in][lane] = std::numeric_limits<float>::quiet_NaN();
        std::vector<float> result(40);
        const std::byte* from[]{reinterpret_cast<std::byte*>(parts[0].data()),
                                reinterpret_cast<std::byte*>(parts[1].data())};
        auto* to = reinterpret_cast<std::byte*>(result.data());
        reducer_of(dtype::f32, kind).fold({&to, 1, &from[0], 2, 40, host::store::cached});
        for (std::size_t i = 0; i < 40; ++i) REQUIRE(std::isnan(result[i]) == (i == lane));
      }
    }
  }
}

TEST_CASE("a target that is one of its parts, or below one, reads what it overwrites first", "[host]") {
  for (const std::int64_t below : {0, 4, 12, 60, 64, 68, 124, 128, 1000}) {
    for (const int members : {2, 3}) {
      std::vector<float> memory(2000);
      std::vector<float> others(1700);
      for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 251);
      for (std::size_t i = 0; i < others.size(); ++i) others[i] = static_cast<float>(i % 241);
      const std::vector<float> before = memory;
      const std::byte* from[]{reinterpret_cast<std::byte*>(memory.data()) + below,
                              reinterpret_cast<std::byte*>(others.data()), reinterpret_cast<std::byte*>(others.data())};
      auto* to = reinterpret_cast<std::byte*>(memory.data());
      reducer_of(dtype::f32, reduction::sum).fold({&to, 1, &from[0], members, 1700, host::store::cached});
      for (std::size_t i = 0; i < 1700; ++i) {
        const float right =
            before[i + static_cast<std::size_t>(below) / 4] + static_cast<float>(members - 1) * others[i];
        REQUIRE(memory[i] == right);
      }
    }
  }
}

TEST_CASE("chunks fit into their rooms, and parts cover a chunk", "[host]") {
  std::mt19937 random(3);
  for (int k = 0; k < 20000; ++k) {
    const int ranks = 1 + static_cast<int>(random() % 40);
    host::sizes how;
    how.region = static_cast<std::int64_t>(random() % (1 << 20));
    if (random() % 4 == 0) how.least_chunk = 64 << 10;
    const bool both_ways = random() % 2 == 0;
    const host::region_layout layout(ranks, how.region);
    const int fan = random() % 2 == 0 ? 1 : std::max(1, ranks - 1);
    const auto unit = static_cast<std::int64_t>(random() % 3 == 0 ? 1 + random() % 200 : 1U << random() % 4);
    const std::int64_t most = unit * static_cast<std::int64_t>(random() % (1U << random() % 22));
    const host::shape s = host::shape_of(layout, how, most, fan, unit, both_ways);
    CAPTURE(ranks, how.region, how.least_chunk, both_ways, fan, unit, most, s.chunk, s.rounds, s.in_flight, s.stride);
    REQUIRE(s.chunk % unit == (most <= host::flag_line::room ? s.chunk % unit : 0));
    REQUIRE(s.rounds * s.chunk >= most);
    REQUIRE((s.rounds - 1) * s.chunk <= most);
    REQUIRE(s.in_flight >= std::min<std::int64_t>(2, s.rounds));
    REQUIRE(s.in_flight * fan <= s.of->flags);
    REQUIRE((s.beside || s.stride >= s.chunk));
    REQUIRE((s.beside || s.in_flight * fan * s.stride <= s.of->bytes));
    REQUIRE((s.of->depth & (s.of->depth - 1)) == 0);
    if (most == 0 || ranks < 2) continue;
    const host::split_shape p = host::split_shape_of(layout, how, most, ranks, unit);
    REQUIRE(p.share % unit == 0);
    REQUIRE(p.result(1) + host::whole_lines(p.share) <= layout.of(host::region_layout::tiers - 1).bytes);
    std::int64_t covered = 0;
    for (std::int64_t round = 0; round < p.rounds && round < 50; ++round) {
      std::int64_t begin = 0;
      for (int r = 0; r < ranks; ++r) {
        const host::flow part = p.part(round, r);
        REQUIRE((part.bytes == 0 || part.at == begin));
        begin += part.bytes;
      }
      REQUIRE(begin == p.length(round));
      covered += begin;
    }
    if (p.rounds <= 50) REQUIRE(covered == most);
  }
}

TEST_CASE("chunks go past the caches where writing into these takes long, and back when it no longer does", "[host]") {
  constexpr std::int64_t rounds = 8;
  // Seconds of a chunk: between ranks under one cache, and under two.
  const auto near = [](host::store by) { return by == host::store::cached ? 4e-6 : 5e-6; };
  const auto far = [](host::store by) { return by == host::store::cached ? 60e-6 : 5e-6; };
  std::mt19937 random(5);
  for (const bool disturbed : {false, true}) {
    host::staging how;
    int others = 0;  // chunks written otherwise than most of their call
    const auto call = [&](const auto& seconds) {
      how.begin(rounds);
      const host::store usual = how.of(0);
      for (std::int64_t round = 0; round < rounds; ++round) {
        if (how.of(round) != usual) ++others;
        const bool slow = disturbed && random() % 20 == 0;  // lost its processor
        if (how.times(round)) how.note(round, seconds(how.of(round)) + (slow ? 1e-3 : 0));
      }
      return usual;
    };
    // Calls until `wanted` is usual, and stays that for a while.
    const auto settles = [&](const auto& seconds, host::store wanted) {
      int last = 0;
      for (int n = 1; n <= 400; ++n) {
        if (call(seconds) != wanted) last = n;
      }
      return last;
    };
    CAPTURE(disturbed);
    CHECK(settles(near, host::store::cached) == 0);
    CHECK(settles(far, host::store::streaming) <= (disturbed ? 100 : 17));
    CHECK(settles(near, host::store::cached) <= (disturbed ? 100 : 17));
    CHECK(others <= 1200 / 16 + 20);  // trials are rare
  }
  // Short calls have no trials; who says how gets that.
  host::staging few;
  for (int n = 0; n < 100; ++n) {
    few.begin(4);
    for (std::int64_t round = 0; round < 4; ++round) CHECK((few.of(round) == host::store::cached && !few.times(round)));
  }
  host::staging fixed(host::store::streaming);
  for (const std::int64_t n : {1, 8, 1000}) {
    fixed.begin(n);
    for (std::int64_t round = 0; round < n; ++round) {
      CHECK((fixed.of(round) == host::store::streaming && !fixed.times(round)));
    }
  }
}

TEST_CASE("random collectives among threads equal their definitions", "[host]") {
  const auto seed = static_cast<unsigned>(espalier::test::fuzz_random()());
  const long count = espalier::test::fuzz_cases(espalier::test::tried_cases(400));
  host::sizes narrow;  // many rounds, rooms used again at once
  narrow.region = 1;
  narrow.chunk = 2048;
  narrow.least_chunk = 512;
  narrow.split_from = 64;
  host::sizes staged = narrow;
  staged.expose_from = std::numeric_limits<std::int64_t>::max();
  host::sizes streamed = staged;
  streamed.stage_by = host::store::streaming;
  host::sizes in_place;  // everything read and written where it stands
  in_place.expose_from = 1;
  in_place.stream_from = 1000;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    random_calls(ranks, host::sizes{}, seed, count);
    random_calls(ranks, narrow, seed + 1, count);
    random_calls(ranks, staged, seed + 2, count);
    random_calls(ranks, streamed, seed + 4, count);
    random_calls(ranks, in_place, seed + 3, count);
  }
}

TEST_CASE("a rank may run ahead of its readers, and no further than there is room", "[host]") {
  host::sizes how;
  how.region = 1;
  host::thread_group group(3, how);
  const combiner by = combiner_of(reducer_of(dtype::i32, reduction::sum));
  for (const std::int64_t count : {1, 100, 3000, 40000}) {
    const std::vector<std::string> faults =
        on_threads(group, std::chrono::duration<double>(30), [&](thread_collectives& all) {
          collective_call call = uniform_call(collective::broadcast, 3, count);
          call.in_place = true;
          std::vector<std::int32_t> data(static_cast<std::size_t>(count));
          // Each call's bytes are of that call; the reader is slow at first, and late ever after.
          for (int k = 0; k < 200; ++k) {
            if (all.rank() == 0) std::fill(data.begin(), data.end(), k);
            if (all.rank() == 2 && k == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
            all.run(call, nullptr, data.data(), by);
            for (const std::int32_t value : data) {
              if (value != k) throw std::runtime_error("call " + std::to_string(k) + " has " + std::to_string(value));
            }
          }
        });
    for (const std::string& fault : faults) CHECK(fault.empty());
  }
}

TEST_CASE("who waits for nothing from a late reader does not write over what that one still has to read", "[host]") {
  host::sizes how;
  how.region = 1;
  how.chunk = 4096;
  how.expose_from = std::numeric_limits<std::int64_t>::max();
  host::thread_group group(3, how);
  const combiner by = combiner_of(reducer_of(dtype::i32, reduction::sum));
  constexpr std::int32_t count = 60000;
  collective_call call = uniform_call(collective::all_gather, 3, count);
  call.counts = {count, count, 0};
  for (int k = 0; k < 20; ++k) {
    const std::vector<std::string> faults =
        on_threads(group, std::chrono::duration<double>(30), [&](thread_collectives& all) {
          std::vector<std::int32_t> mine(count);
          std::iota(mine.begin(), mine.end(), all.rank() * count + k);
          std::vector<std::int32_t> gathered(std::size_t{2} * count);
          if (all.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          all.run(call, mine.data(), gathered.data(), by);
          for (std::size_t i = 0; i < gathered.size(); ++i) {
            if (gathered[i] != static_cast<std::int32_t>(i) + k)
              throw std::runtime_error("element " + std::to_string(i));
          }
        });
    for (const std::string& fault : faults) CHECK(fault == "");
  }
}

TEST_CASE("a result may begin at any byte", "[host]") {
  host::sizes how;
  how.expose_from = std::numeric_limits<std::int64_t>::max();
  host::thread_group group(2, how);
  constexpr std::size_t count = 40000;
  for (std::size_t off = 0; off < 64; off += 3) {
    const std::vector<std::string> faults =
        on_threads(group, std::chrono::duration<double>(30), [&](thread_collectives& all) {
          std::vector<float> mine(count);
          for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<float>(i) * static_cast<float>(all.rank() + 1);
          std::vector<std::byte> sums(count * sizeof(float) + 64);
          all.run(uniform_call(collective::all_reduce, 2, count), mine.data(), sums.data() + off,
                  combiner_of(reducer_of(dtype::f32, reduction::sum)));
          for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            std::memcpy(&sum, sums.data() + off + i * sizeof(float), sizeof(float));
            if (sum != static_cast<float>(3 * i)) throw std::runtime_error("element " + std::to_string(i));
          }
        });
    for (const std::string& fault : faults) CHECK(fault == "");
  }
}

TEST_CASE("sums of floats are combined in the order of ranks", "[host]") {
  constexpr int ranks = 4;
  for (const bool split : {false, true}) {
    host::sizes how;
    if (split) how.split_from = 0;
    host::thread_group group(ranks, how);
    constexpr std::size_t count = 30000;
    const auto of = [](int rank, std::size_t i) {
      return static_cast<float>(1 + rank) / static_cast<float>(3 + i % 97) * (i % 2 == 0 ? 1e6F : 1e-3F);
    };
    const std::vector<std::string> faults =
        on_threads(group, std::chrono::duration<double>(30), [&](thread_collectives& all) {
          // Kept in memory: a compiler may fuse a product with the sum that follows it.
          std::vector<std::vector<float>> values(ranks, std::vector<float>(count));
          for (int r = 0; r < ranks; ++r) {
            for (std::size_t i = 0; i < count; ++i) values[static_cast<std::size_t>(r)][i] = of(r, i);
          }
          const std::vector<float>& mine = values[static_cast<std::size_t>(all.rank())];
          std::vector<float> sums(count);
          for (const collective what : {collective::all_reduce, collective::reduce}) {
            const collective_call call = uniform_call(what, ranks, count, 2);
            all.run(call, mine.data(), sums.data(), combiner_of(reducer_of(dtype::f32, reduction::sum)));
            if (what == collective::reduce && all.rank() != 2) continue;
            for (std::size_t i = 0; i < count; ++i) {
              float right = values[0][i];
              for (std::size_t r = 1; r < ranks; ++r) right += values[r][i];
              if (sums[i] != right) throw std::runtime_error("element " + std::to_string(i));
            }
          }
        });
    for (const std::string& fault : faults) CHECK(fault == "");
  }
}

TEST_CASE("a thread that does not come is named, and the group is unusable after that", "[host]") {
  for (const std::int64_t count : {1, 2000, 200000}) {
    for (const collective what : {collective::all_reduce, collective::all_gather, collective::reduce_scatter}) {
      host::thread_group group(3);
      const combiner by = combiner_of(reducer_of(dtype::f32, reduction::sum));
      const auto said = on_threads(group, std::chrono::duration<double>(0.1), [&](thread_collectives& all) {
        const collective_call call = uniform_call(what, 3, count);
        const context here{"%7", "model.cpp", 12};
        std::vector<float> data(static_cast<std::size_t>(3 * count), 1);
        std::vector<float> result(data.size());
        all.run(call, data.data(), result.data(), by);
        if (all.rank() == 1) return;
        try {
          all.run(call, data.data(), result.data(), by, &here);
        } catch (const comm_error& error) {
          bool again = false;
          try {
            all.run(call, data.data(), result.data(), by);
          } catch (const comm_error& later) { again = std::string(later.what()).find("earlier") != std::string::npos; }
          throw comm_error(std::string(error.what()) + (again ? "" : " and then it went on"));
        }
      });
      CHECK(said[1].empty());
      // One of the two was first; the other hears of it, or has waited as long.
      bool waited = false;
      for (const std::size_t k : {std::size_t{0}, std::size_t{2}}) {
        CAPTURE(said[k]);
        CHECK(said[k].find("for rank 1") != std::string::npos);
        CHECK(said[k].find("and then it went on") == std::string::npos);
        CHECK(said[k].find("model.cpp:12") != std::string::npos);
        waited = waited || said[k].find("rank " + std::to_string(k) + " waited 0.1 s in " + name_of(what)) == 0;
      }
      CHECK(waited);
    }
  }
}

TEST_CASE("threads in different collectives are told so", "[host]") {
  host::thread_group group(2);
  const auto said = on_threads(group, std::chrono::duration<double>(20), [&](thread_collectives& all) {
    std::vector<float> data(100, 1);
    std::vector<float> result(100);
    all.run(uniform_call(collective::all_reduce, 2, all.rank() == 0 ? 90 : 100), data.data(), result.data(),
            combiner_of(reducer_of(dtype::f32, reduction::sum)));
  });
  CHECK((said[0].find("different collectives") != std::string::npos ||
         said[1].find("different collectives") != std::string::npos));
  CHECK(!said[0].empty());
  CHECK(!said[1].empty());
}

TEST_CASE("an interrupted group waits no longer", "[host]") {
  host::thread_group group(2);
  const auto said = on_threads(group, std::chrono::duration<double>(20), [&](thread_collectives& all) {
    if (all.rank() == 1) return group.interrupt();
    float data = 1;
    all.run(uniform_call(collective::all_reduce, 2, 1), &data, &data,
            combiner_of(reducer_of(dtype::f32, reduction::sum)));
  });
  CHECK(said[0].find("interrupted") != std::string::npos);
}

TEST_CASE("who comes after a rank has given up reads none of its buffers", "[host]") {
  for (const collective what : {collective::all_gather, collective::broadcast, collective::reduce_scatter}) {
    host::thread_group group(3);
    std::atomic<bool> gone{false};
    bool untouched = false;
    const auto said = on_threads(group, std::chrono::duration<double>(0.05), [&](thread_collectives& all) {
      constexpr std::int64_t count = 100000;
      const collective_call call = uniform_call(what, 3, count);
      std::vector<float> data(3 * count, 1);
      std::vector<float> result(data.size(), -1);
      if (all.rank() == 2) {
        while (!gone) std::this_thread::yield();
      }
      try {
        all.run(call, data.data(), result.data(), combiner_of(reducer_of(dtype::f32, reduction::sum)));
      } catch (const comm_error&) {
        if (all.rank() == 0) gone = true;
        if (all.rank() == 2) untouched = std::count(result.begin(), result.end(), -1.0F) == 3 * count;
        throw;
      }
    });
    CHECK(!said[0].empty());
    CHECK(said[2].find("rank 0 gave up") != std::string::npos);
    CHECK(untouched);
  }
}

TEST_CASE("a call that contradicts itself is refused before anything is sent", "[host]") {
  host::thread_group group(2);
  const auto said = on_threads(group, std::chrono::duration<double>(5), [&](thread_collectives& all) {
    const combiner by = combiner_of(reducer_of(dtype::i32, reduction::sum));
    std::vector<std::int32_t> data(8, all.rank());
    std::vector<std::int32_t> result(8);
    collective_call uneven = uniform_call(collective::all_to_all, 2, 1);
    uneven.counts = {1, 2, 1, 1};
    uneven.in_place = true;
    const collective_call wrong[]{uniform_call(collective::broadcast, 2, -1),
                                  uniform_call(collective::broadcast, 2, 1, 2),
                                  uniform_call(collective::broadcast, 3, 1), uneven};
    for (const collective_call& call : wrong) {
      bool refused = false;
      try {
        all.run(call, data.data(), result.data(), by);
      } catch (const std::invalid_argument&) { refused = true; }
      if (!refused) throw std::runtime_error("accepted");
    }
    all.run(uniform_call(collective::all_reduce, 2, 8), data.data(), result.data(), by);
    if (result[7] != 1) throw std::runtime_error("wrong");
  });
  CHECK(said[0] == "");
  CHECK(said[1] == "");
}
