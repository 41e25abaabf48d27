// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <array>
#include <cmath>

// Random numbers: the same bits in every layout, in loops and recomputed, as plain loops over the elements of the
// whole tensor say. (That `philox` is what it should be is checked by tests/tensor/unit/random.cpp.)

namespace ep = espalier;
using namespace testing::kinds;

namespace {

using key_words = std::array<std::uint32_t, 2>;

/// Word `at` of a key: of `purpose` 0 bits, 1 the lower bits, 2 a folded number, 3 keys.
std::uint32_t word(key_words key, std::int64_t at, std::uint32_t purpose = 0, std::uint32_t number = 0) {
  const auto block = static_cast<std::uint64_t>(at) / 4;
  const auto four =
      ep::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), number, purpose}, key);
  return four[static_cast<std::size_t>(at % 4)];
}
key_words folded(key_words key, std::uint32_t number) { return {word(key, 0, 2, number), word(key, 1, 2, number)}; }
template <class F> plain made_of(std::vector<std::int64_t> extents, const F& element) {
  plain made(std::move(extents));
  for (std::size_t i = 0; i < made.data.size(); ++i) made.data[i] = element(static_cast<std::int64_t>(i));
  return made;
}
plain words(key_words key, std::vector<std::int64_t> extents, std::uint32_t purpose = 0) {
  return made_of(std::move(extents), [&](std::int64_t i) { return static_cast<real>(word(key, i, purpose)); });
}

constexpr key_words seed{0x12345678U, 0x9abcdef0U};
plain seed_words() {
  return made_of({2}, [](std::int64_t i) { return seed[static_cast<std::size_t>(i)]; });
}

/// 1, 2, 3, 4, 6, 8 and 16 devices.
using many_meshes = few_or_all<meshes<on<3, 2>, on<4, 4>>,
                               meshes<on<1, 1>, on<1, 2>, on<3, 1>, on<2, 2>, on<3, 2>, on<2, 4>, on<4, 4>>>;

// --- bits in every layout -------------------------------------------------------------------------------------------

template <class On> struct bits {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto key) const {
    // Splits of every dimension, even and uneven, alone and together; runs of one element, and long ones.
    const auto a = ep::shard<data, model, ep::none>(ep::random_bits<ep::u32<10, 7, 3>>(key));
    const auto b = ep::shard<ep::none, data, model>(ep::random_bits<ep::u32<10, 7, 3>>(ep::fold_in(key, 1)));
    const auto c =
        ep::shard<ep::none, ep::none, ep::axes<model, data>>(ep::random_bits<ep::i32<3, 5, 18>>(ep::fold_in(key, 2)));
    const auto d = ep::shard<ep::axes<data, model>>(ep::random_bits<ep::u32<4099>>(key));
    const auto e = ep::shard<model, data>(ep::random_bits<ep::u32<6, 200>>(key));
    const auto keys = ep::split_key<5>(key);
    const auto split = ep::random_bits<ep::u32<9>>(ep::shard<model>(key));  // a key that is not on one device
    return ep::results(a, b, c, d, e, keys, split, ep::random_bits<ep::u32<>>(key),
                       ep::random_key(key, 0x123456789abcdef0U),
                       ep::bitwise_xor(d, ep::shard<ep::none>(ep::random_bits<ep::u32<4099>>(key))));
  }
};
template <class On> using bits_program = ep::program<typename On::mesh, bits<On>, ep::u32<2>>;

// --- in loops -------------------------------------------------------------------------------------------------------

template <class On> struct loops {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto key) const {
    // The keys: the number of the step; a key that is handed on; one key for each step.
    const auto start = ep::constant<ep::u32<7, 6>>(key, 0);
    const auto by_step = ep::repeat<4>(
        [&](auto sum, auto step) {
          const auto now = ep::shard<data, model>(ep::random_bits<ep::u32<7, 6>>(ep::fold_in(key, step)));
          return ep::results(ep::bitwise_xor(sum, now), now);
        },
        start);
    const auto handed_on = ep::repeat<4>(
        [&](auto one) { return ep::results(ep::fold_in(one, 9), ep::random_bits<ep::u32<5>>(one)); }, key);
    const auto by_key = ep::scan(
        [&](auto sum, auto one) {
          const auto now = ep::shard<model, data>(ep::random_bits<ep::u32<7, 6>>(one));
          return ep::results(ep::bitwise_xor(sum, now), ep::random_bits<ep::u32<5>>(key));  // the same in all steps
        },
        start, ep::split_key<3>(key));
    return ep::results(by_step, handed_on, by_key);
  }
};
template <class On> using loops_program = ep::program<typename On::mesh, loops<On>, ep::u32<2>>;

plains plain_loops() {
  const auto exclusive = [](plain& a, const plain& b) {
    for (std::size_t i = 0; i < a.data.size(); ++i) {
      a.data[i] = static_cast<std::uint32_t>(a.data[i]) ^ static_cast<std::uint32_t>(b.data[i]);
    }
  };
  plain by_step({7, 6}), all({4, 7, 6}), handed({4, 5}), by_key({7, 6}), same({3, 5});
  key_words one = seed;
  for (std::uint32_t step = 0; step < 4; ++step) {
    const plain now = words(folded(seed, step), {7, 6});
    exclusive(by_step, now);
    std::copy(now.data.begin(), now.data.end(), all.data.begin() + step * 42);
    const plain here = words(one, {5});
    std::copy(here.data.begin(), here.data.end(), handed.data.begin() + step * 5);
    one = folded(one, 9);
  }
  for (int k = 0; k < 3; ++k) {
    exclusive(by_key, words({word(seed, 2 * k, 3), word(seed, 2 * k + 1, 3)}, {7, 6}));
    const plain here = words(seed, {5});
    std::copy(here.data.begin(), here.data.end(), same.data.begin() + k * 5);
  }
  return {by_step, all,    made_of({2}, [&](std::int64_t i) { return one[static_cast<std::size_t>(i)]; }),
          handed,  by_key, same};
}

// --- distributions --------------------------------------------------------------------------------------------------

template <class On> struct uniforms {
  using data = typename On::data;
  using model = typename On::model;
  template <class Type> static constexpr auto drawn(const auto& key) {
    return ep::shard<data, model>(ep::uniform<Type>(key));
  }
  constexpr auto operator()(auto key, auto p) const {
    const auto rows = ep::bernoulli<ep::f32<9, 14>>(key, ep::shard<model>(p));
    return ep::results(drawn<ep::f32<9, 14>>(key), drawn<ep::f64<9, 14>>(key), drawn<ep::bf16<9, 14>>(key),
                       drawn<ep::f16<9, 14>>(key), ep::uniform<ep::f32<9, 14>>(key, -3, -2.5),
                       ep::shard<data, model>(ep::bernoulli<ep::boolean<9, 14>>(key, 0.375)), rows,
                       ep::bernoulli<ep::boolean<5>>(key, 1), ep::bernoulli<ep::i32<5>>(key, 0));
  }
};
template <class On> using uniforms_program = ep::program<typename On::mesh, uniforms<On>, ep::u32<2>, ep::f32<14>>;

template <class On> struct short_normals {
  constexpr auto operator()(auto key) const {
    return ep::results(ep::shard<typename On::model, typename On::data>(ep::normal<ep::f32<9, 14>>(key)),
                       ep::convert<ep::dtype::f32>(ep::normal<ep::bf16<3, 4>>(key)));
  }
};
template <class On> using short_normals_program = ep::program<typename On::mesh, short_normals<On>, ep::u32<2>>;

template <class On> struct normals {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto key, auto logits) const {
    return ep::results(ep::shard<model, data>(ep::normal<ep::f64<9, 14>>(key)),
                       ep::categorical<0>(key, ep::shard<data, model>(logits)));
  }
};
template <class On> using normals_program = ep::program<typename On::mesh, normals<On>, ep::u32<2>, ep::f64<9, 14>>;

/// The number that a standard normal variable is below with this probability.
real normal_quantile(real p) {
  real low = -10, high = 10;
  for (int step = 0; step < 100; ++step) {
    const real middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0L)) / 2 < p ? low : high) = middle;
  }
  return low;
}
/// The words of element i as one number of 52 or 53 bits, counted in units of 2^-52 or 2^-53.
real two_words(std::int64_t i, unsigned high_shift) {
  return std::ldexp(static_cast<real>(word(seed, i) >> high_shift), 26) + static_cast<real>(word(seed, i, 1) >> 6U);
}
/// The leading bits of element i's word as a number in [0, 1).
real leading(std::int64_t i, unsigned digits) {
  return std::ldexp(static_cast<real>(word(seed, i) >> (32U - digits)), -static_cast<int>(digits));
}
real signed_word(std::int64_t i, unsigned shift) {
  return static_cast<real>(static_cast<std::int32_t>(word(seed, i)) >> shift);
}
plains plain_uniforms(const plain& p) {
  const auto each = [](const auto& f) { return made_of({9, 14}, f); };
  return {each([&](std::int64_t i) { return leading(i, 24); }),
          each([&](std::int64_t i) { return two_words(i, 5) * 0x1p-53L; }),
          each([&](std::int64_t i) { return leading(i, 8); }),
          each([&](std::int64_t i) { return leading(i, 11); }),
          each([&](std::int64_t i) {
            return std::min(static_cast<float>(leading(i, 24) * 0.5L - 3), std::nextafter(-2.5F, -3.0F));
          }),
          each([&](std::int64_t i) { return word(seed, i) < 0x60000000U ? 1 : 0; }),
          each([&](std::int64_t i) { return leading(i, 24) < p(i % 14) ? 1 : 0; }),
          plain({5}, 1),
          plain({5}, 0)};
}
plains plain_short_normals() {
  const auto exact = [](std::int64_t i) { return normal_quantile((signed_word(i, 8) + 0.5L) * 0x1p-24L + 0.5L); };
  return {made_of({9, 14}, exact), made_of({3, 4}, [&](std::int64_t i) {
            const int step = std::ilogb(exact(i)) - 7;
            return std::ldexp(std::nearbyint(std::ldexp(exact(i), -step)), step);
          })};
}
plains plain_normals(const plain& logits) {
  plain chosen({14});
  for (int j = 0; j < 14; ++j) {
    real most = -1e9L;
    for (int i = 0; i < 9; ++i) {
      const real u = (two_words(i * 14 + j, 6) + 0.5L) * 0x1p-52L;
      const real score = logits(i, j) - std::log(-std::log(u));
      if (score > most) chosen(j) = i;
      most = std::max(most, score);
    }
  }
  const auto exact = [](std::int64_t i) {
    const real above = std::ldexp(signed_word(i, 5), 26);
    return normal_quantile((above + static_cast<real>(word(seed, i, 1) >> 6U) + 0.5L) * 0x1p-53L + 0.5L);
  };
  return {made_of({9, 14}, exact), chosen};
}

// --- dropout: its gradient, kept and recomputed ---------------------------------------------------------------------

template <class On, bool Recompute> struct dropping {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto key, auto x, auto w) const {
    const auto loss = [&](const auto& weights) {
      const auto layer = [&](auto h, const auto& one) {
        const auto next = ep::shard<data, model>(ep::tanh(ep::matmul(h, one.template get<0>())));
        return ep::dropout(ep::fold_in(key, one.template get<1>()), next, 0.25);
      };
      const auto layers = ep::results(weights, ep::iota<ep::i32<3>, 0>(key));
      if constexpr (Recompute) {
        const auto last = ep::scan(layer, x, layers, ep::recompute);
        return ep::sum(last * last);
      } else {
        const auto last = ep::scan(layer, x, layers);
        return ep::sum(last * last);
      }
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(w);
    return ep::results(value, gradient, ep::dropout(key, ep::convert<ep::dtype::f32>(x), 0.0),
                       ep::dropout(key, x, 1.0));
  }
};
template <class On>
using kept_program = ep::program<typename On::mesh, dropping<On, false>, ep::u32<2>, ep::f64<5, 6>, ep::f64<3, 6, 6>>;
template <class On>
using recomputed_program =
    ep::program<typename On::mesh, dropping<On, true>, ep::u32<2>, ep::f64<5, 6>, ep::f64<3, 6, 6>>;

real plain_dropping(const plains& in) {
  plain h = in[1];
  for (int layer = 0; layer < 3; ++layer) {
    const key_words key = folded(seed, static_cast<std::uint32_t>(layer));
    plain next({5, 6});
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 6; ++j) {
        real sum = 0;
        for (int k = 0; k < 6; ++k) sum += h(i, k) * in[2](layer, k, j);
        const bool kept = word(key, 6 * i + j) < 0xc0000000U;
        next(i, j) = kept ? std::tanh(sum) / 0.75L : 0;
      }
    }
    h = next;
  }
  real total = 0;
  for (const real one : h.data) total += one * one;
  return total;
}

// --- many numbers ---------------------------------------------------------------------------------------------------

template <class On> struct many {
  constexpr auto operator()(auto key) const {
    return ep::results(ep::uniform<ep::f32<512, 256>>(key), ep::normal<ep::f32<512, 256>>(ep::fold_in(key, 1)),
                       ep::categorical(key, ep::log(ep::iota<ep::f32<65536, 4>, 1>(key) + 1.0)));
  }
};
template <class On> using many_program = ep::program<typename On::mesh, many<On>, ep::u32<2>>;

/// Pearson's statistic of `count` numbers in bins of equal probability, in standard deviations from its mean.
real chi_square(const std::vector<int>& bins, real count) {
  const real expected = count / static_cast<real>(bins.size());
  real sum = 0;
  for (const int one : bins) sum += (one - expected) * (one - expected) / expected;
  const auto freedom = static_cast<real>(bins.size() - 1);
  return (sum - freedom) / std::sqrt(2 * freedom);
}

}  // namespace

TEST_CASE("kinds: random bits are those of the whole tensor, in every layout", "[kinds]") {
  const plain third =
      made_of({3, 5, 18}, [](std::int64_t i) { return static_cast<std::int32_t>(word(folded(seed, 2), i)); });
  const plain from_seed = made_of({2}, [](std::int64_t i) { return i == 0 ? 0x9abcdef0U : 0x12345678U; });
  everywhere<bits_program>(
      many_meshes{}, {seed_words()},
      {words(seed, {10, 7, 3}), words(folded(seed, 1), {10, 7, 3}), third, words(seed, {4099}), words(seed, {6, 200}),
       words(seed, {5, 2}, 3), words(seed, {9}), words(seed, {}), from_seed, plain({4099})},
      0);
}

TEST_CASE("kinds: random bits in loops", "[kinds]") {
  everywhere<loops_program>(many_meshes{}, {seed_words()}, plain_loops(), 0);
}

TEST_CASE("kinds: uniform numbers and truth values", "[kinds]") {
  plain p = wave(1, {14}, 0.5);
  for (real& one : p.data) one = static_cast<float>(one + 0.5L);
  everywhere<uniforms_program>(few_or_all<meshes<on<3, 1>, on<4, 2>>, meshes<on<1, 1>, on<3, 1>, on<2, 2>, on<4, 2>>>{},
                               {seed_words(), p}, plain_uniforms(p), 0);
}

TEST_CASE("kinds: normal and categorical numbers", "[kinds]") {
  const plain logits = wave(2, {9, 14}, 3);
  everywhere<normals_program>(both_ways{}, {seed_words(), logits}, plain_normals(logits), 1e-15);
  everywhere<short_normals_program>(both_ways{}, {seed_words()}, plain_short_normals(), 3e-7);
}

TEST_CASE("kinds: dropout and its gradient, kept and recomputed", "[kinds]") {
  const plains in{seed_words(), wave(1, {5, 6}), wave(2, {3, 6, 6})};
  const plains expected{plain::number(plain_dropping(in)), slope(plain_dropping, in, 2), in[1], plain({5, 6})};
  everywhere<kept_program>(both_axes{}, in, expected, 1e-8);
  everywhere<recomputed_program>(both_axes{}, in, expected, 1e-8);
}

TEST_CASE("kinds: random numbers are distributed as they say", "[kinds]") {
  const plains got = run<many_program<on<2, 1>>>({seed_words()});
  const real count = 512 * 256;
  for (std::size_t kind : {0U, 1U}) {
    CAPTURE(kind);
    const bool normal = kind == 1;
    std::vector<int> bins(256);
    std::vector<int> pairs(256);
    real sum = 0, square = 0, fourth = 0, along = 0;
    for (std::size_t i = 0; i < got[kind].data.size(); ++i) {
      const auto share = [&](std::size_t k) {
        const real x = got[kind].data[k];
        return normal ? std::erfc(-x / std::sqrt(2.0L)) / 2 : x;
      };
      const real x = normal ? got[kind].data[i] : (got[kind].data[i] - 0.5L) * std::sqrt(12.0L);
      sum += x;
      square += x * x;
      fourth += x * x * x * x;
      ++bins[static_cast<std::size_t>(share(i) * 256)];
      if (i % 2 == 1)
        ++pairs[static_cast<std::size_t>(share(i) * 16) * 16 + static_cast<std::size_t>(share(i - 1) * 16)];
      if (i > 0) along += x * (normal ? got[kind].data[i - 1] : (got[kind].data[i - 1] - 0.5L) * std::sqrt(12.0L));
    }
    // The fourth moment is 9 / 5 of uniform numbers, 3 of normal ones; their eighth 9 and 105.
    const real error = 4 / std::sqrt(count);
    const real kurtosis = normal ? 3 : 1.8L;
    CHECK(std::abs(sum / count) < error);
    CHECK(std::abs(square / count - 1) < error * std::sqrt(kurtosis - 1));
    CHECK(std::abs(fourth / count - kurtosis) < error * std::sqrt((normal ? 105 : 9) - kurtosis * kurtosis));
    CHECK(std::abs(along / count) < error);
    CHECK(std::abs(chi_square(bins, count)) < 4);
    CHECK(std::abs(chi_square(pairs, count / 2)) < 4);
  }
  real drawn[4]{};
  for (const real one : got[2].data) ++drawn[static_cast<std::size_t>(one)];
  for (int k = 0; k < 4; ++k) {
    const real share = (k + 1) / 10.0L;
    CHECK(std::abs(drawn[k] / 65536 - share) < 4 * std::sqrt(share * (1 - share) / 65536));
  }
}
