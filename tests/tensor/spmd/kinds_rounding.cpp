// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/core/nn/layers.hpp>

#include <support/kinds.hpp>

#include <functional>
#include <limits>

// Every function of nn, and the softmax, in every type of floats: its value and its gradient, rounded once. What is
// right is said by plain loops on dual numbers, a value and its derivative, in long double.

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- dual numbers ---------------------------------------------------------------------------------------------------

struct dual {
  real v = 0;
  real d = 0;
  dual(real value = 0, real slope = 0) : v(value), d(slope) {}  // NOLINT(google-explicit-constructor): as a number
};
dual operator+(dual a, dual b) { return {a.v + b.v, a.d + b.d}; }
dual operator-(dual a, dual b) { return {a.v - b.v, a.d - b.d}; }
dual operator*(dual a, dual b) { return {a.v * b.v, a.d * b.v + a.v * b.d}; }
dual operator/(dual a, dual b) { return {a.v / b.v, (a.d - a.v / b.v * b.d) / b.v}; }
dual& operator+=(dual& a, dual b) { return a = a + b; }
dual exp(dual a) { return {std::exp(a.v), std::exp(a.v) * a.d}; }
dual log(dual a) { return {std::log(a.v), a.d / a.v}; }
dual sqrt(dual a) { return {std::sqrt(a.v), a.d / (2 * std::sqrt(a.v))}; }
dual tanh(dual a) { return {std::tanh(a.v), a.d * (1 - std::tanh(a.v) * std::tanh(a.v))}; }

using duals = std::vector<dual>;
/// The arguments of a function, each with its extents.
struct argument {
  std::vector<std::int64_t> extents;
  duals data;
  [[nodiscard]] int size(int dim) const { return static_cast<int>(extents[static_cast<std::size_t>(dim)]); }
  [[nodiscard]] int elements() const { return static_cast<int>(data.size()); }
  [[nodiscard]] int rows() const { return elements() / size(static_cast<int>(extents.size()) - 1); }
  [[nodiscard]] const dual& operator[](int i) const { return data[static_cast<std::size_t>(i)]; }
};
using arguments = std::vector<argument>;
using reference = std::function<duals(const arguments&)>;

[[nodiscard]] arguments as_arguments(const plains& in) {
  arguments made;
  for (const plain& one : in) made.push_back({one.extents, duals(one.data.begin(), one.data.end())});
  return made;
}

/// Returns a function's value, and its gradient by the first arguments where `cotangent` flows into it.
[[nodiscard]] plains value_and_gradients(const reference& f, const plains& in, std::size_t by, const plain& cotangent) {
  arguments at = as_arguments(in);
  plains made(1, cotangent);
  const duals value = f(at);
  REQUIRE(value.size() == cotangent.data.size());
  for (std::size_t i = 0; i < value.size(); ++i) made[0].data[i] = value[i].v;
  for (std::size_t leaf = 0; leaf < by; ++leaf) {
    plain slope = in[leaf];
    for (std::size_t i = 0; i < slope.data.size(); ++i) {
      at[leaf].data[i].d = 1;
      const duals moved = f(at);
      at[leaf].data[i].d = 0;
      slope.data[i] = 0;
      for (std::size_t k = 0; k < moved.size(); ++k) slope.data[i] += moved[k].d * cotangent.data[k];
    }
    made.push_back(slope);
  }
  return made;
}

// --- units in the last place ----------------------------------------------------------------------------------------

struct number_type {
  int bits;            // of the significand, the first included
  int least_exponent;  // of a normal number
  real epsilon;        // of the type that is computed in
};
[[nodiscard]] number_type facts(ep::dtype type) {
  switch (type) {
    case ep::dtype::f16: return {11, -14, 0x1p-23L};
    case ep::dtype::bf16: return {8, -126, 0x1p-23L};
    case ep::dtype::f32: return {24, -126, 0x1p-23L};
    default: return {53, -1022, 0x1p-52L};
  }
}
[[nodiscard]] real last_place(const number_type& t, real value) {
  int exponent = t.least_exponent;
  if (value != 0) exponent = std::max(exponent, std::ilogb(value));
  return std::ldexp(1.0L, exponent - t.bits + 1);
}
/// Returns the values as the type holds them.
[[nodiscard]] plain held(ep::dtype type, plain values) {
  const number_type t = facts(type);
  for (real& one : values.data) {
    const real place = last_place(t, one);
    one = std::nearbyint(one / place) * place;
  }
  return values;
}

/// That results are within `places` units in the last place, `wide` roundings of the largest element in the type that
/// is computed in, and `narrow` of these in the type itself.
void check_rounded(ep::dtype type, const plain& got, const plain& expected, real places, real wide, real narrow) {
  const number_type t = facts(type);
  REQUIRE(got.data.size() == expected.data.size());
  real largest = 0;
  for (const real one : expected.data) largest = std::max(largest, std::abs(one));
  real worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    const real allowed =
        places * last_place(t, expected.data[i]) + largest * (wide * t.epsilon + narrow * std::ldexp(1.0L, -t.bits));
    const real off = std::abs(got.data[i] - expected.data[i]);
    const real share = off <= allowed ? off / allowed : off > allowed ? off / allowed : 1e9L;
    if (share > worst) {
      worst = share;
      at = i;
    }
  }
  INFO(ep::name_of(type) << " element " << at << ": " << static_cast<double>(got.data[at]) << " instead of "
                         << static_cast<double>(expected.data[at]));
  CHECK(worst <= 1);
}

// --- the functions --------------------------------------------------------------------------------------------------

/// The function's value, and the gradients of the sum of its elements times `cotangent` by the first `By` arguments.
template <class F, int... By> constexpr auto with_gradients(const F& f, const auto& cotangent, const auto&... x) {
  const auto loss = [&](const auto&... at) { return ep::sum(f(at...) * cotangent); };
  return ep::results(f(x...), ep::grad<By...>(loss)(x...));
}

template <class F> constexpr auto of_loss(const F& loss, const auto& x) {
  const auto both = ep::value_and_grad(loss)(x);
  return ep::results(both.value, both.gradient);
}

template <class On> struct rows_of {
  constexpr auto operator()(auto given, auto gain, auto bias, auto labels, auto given_cotangent, auto each) const {
    const auto x = ep::shard<typename On::data, typename On::model>(given);
    const auto c = ep::shard<typename On::data, typename On::model>(given_cotangent);
    constexpr ep::nn::ignore none{-100};
    return ep::results(
        with_gradients<decltype([](auto u) { return ep::softmax<-1>(u); }), 0>({}, c, x),
        with_gradients<decltype([](auto u) { return ep::log_softmax<-1>(u); }), 0>({}, c, x),
        with_gradients<decltype([](auto u, auto g) { return ep::nn::rms_norm(u, g); }), 0, 1>({}, c, x, gain),
        with_gradients<decltype([](auto u, auto g, auto b) { return ep::nn::layer_norm(u, g, b); }), 0, 1, 2>(
            {}, c, x, gain, bias),
        with_gradients<decltype([](auto u) { return ep::gelu(u); }), 0>({}, c, x),
        with_gradients<decltype([](auto u) { return ep::silu(u); }), 0>({}, c, x),
        ep::nn::cross_entropy_each(x, labels),
        ep::grad([&](auto at) { return ep::sum(ep::nn::cross_entropy_each(at, labels) * each); })(x),
        of_loss([&](auto at) { return ep::nn::cross_entropy(at, labels); }, x),
        of_loss([&](auto at) { return ep::nn::cross_entropy(at, labels, none); }, x),
        of_loss([&](auto at) { return ep::nn::cross_entropy_sum(at, labels, none); }, x));
  }
};
template <class On, template <int...> class T>
using rows_program = ep::program<typename On::mesh, rows_of<On>, T<6, 7>, T<7>, T<7>, ep::i32<6>, T<6, 7>, T<6>>;

duals plain_softmax(const arguments& in, bool logarithm) {
  const argument& x = in[0];
  const int n = x.size(1);
  duals y;
  for (int r = 0; r < x.rows(); ++r) {
    real top = x[r * n].v;
    for (int i = 0; i < n; ++i) top = std::max(top, x[r * n + i].v);
    dual total;
    for (int i = 0; i < n; ++i) total += exp(x[r * n + i] - top);
    for (int i = 0; i < n; ++i) {
      const dual shifted = x[r * n + i] - top;
      y.push_back(logarithm ? shifted - log(total) : exp(shifted) / total);
    }
  }
  return y;
}
duals plain_norm(const arguments& in, bool centred) {
  const argument& x = in[0];
  const int n = x.size(1);
  duals y;
  for (int r = 0; r < x.rows(); ++r) {
    dual mean;
    for (int i = 0; i < n && centred; ++i) mean += x[r * n + i] / n;
    dual variance;
    for (int i = 0; i < n; ++i) variance += (x[r * n + i] - mean) * (x[r * n + i] - mean) / n;
    for (int i = 0; i < n; ++i) {
      const dual normal = (x[r * n + i] - mean) / sqrt(variance + 1e-5L) * in[1][i];
      y.push_back(centred ? normal + in[2][i] : normal);
    }
  }
  return y;
}
duals each_of(const argument& x, dual (*f)(dual)) {
  duals y;
  for (const dual& one : x.data) y.push_back(f(one));
  return y;
}
dual plain_gelu(dual x) { return 0.5L * x * (1 + tanh(0.79788456080286535588L * (x + 0.044715L * x * x * x))); }
dual plain_silu(dual x) { return x / (1 + exp(0 - x)); }

enum class over { none, sum, mean };
duals plain_cross_entropy(const arguments& in, const plain& labels, bool ignores, over how) {
  const duals normal = plain_softmax(in, true);
  duals each;
  real counted = 0;
  for (std::size_t r = 0; r < labels.data.size(); ++r) {
    const bool out = ignores && labels.data[r] == -100;
    const auto label = static_cast<std::size_t>(labels.data[r] < 0 ? 0 : labels.data[r]);
    // A label that is no class counts as one of probability exp(largest logit) / sum.
    const std::size_t n = normal.size() / labels.data.size();
    dual most = normal[r * n];
    for (std::size_t i = 0; i < n; ++i) {
      if (normal[r * n + i].v > most.v) most = normal[r * n + i];
    }
    if (out) {
      each.push_back(0);
    } else {
      counted += 1;
      // (In such a row no gradient flows through the maximum: it is minus a logarithm of a sum.)
      const bool known = labels.data[r] >= 0;
      each.push_back(0 - (known ? normal[r * n + label] : most));
      if (!known) {
        dual total;
        for (std::size_t i = 0; i < n; ++i) total += exp(in[0][static_cast<int>(r * n + i)] - most.v);
        each.back().d = 0;
        real top = in[0][static_cast<int>(r * n)].v;
        for (std::size_t i = 0; i < n; ++i) top = std::max(top, in[0][static_cast<int>(r * n + i)].v);
        dual sum;
        for (std::size_t i = 0; i < n; ++i) sum += exp(in[0][static_cast<int>(r * n + i)] - top);
        each.back() = log(sum);
      }
    }
  }
  if (how == over::none) return each;
  dual total;
  for (const dual& one : each) total += one;
  return {how == over::sum ? total : total / std::max<real>(counted, 1)};
}

/// Rows that are large, tiny, equal, negative, and ordinary.
plain nasty(int seed, std::vector<std::int64_t> extents) {
  plain made = wave(seed, std::move(extents), 3);
  const auto row = made.data.size() / static_cast<std::size_t>(made.extents[0]);
  const auto at = [&](std::size_t r, std::size_t i) -> real& { return made.data[r * row + i]; };
  for (std::size_t i = 0; i < row; ++i) {
    at(0, i) *= 100;
    at(1, i) *= 0.001L;
    at(2, i) = 2.5L;
    at(3, i) = -std::abs(at(3, i)) - 200;
  }
  return made;
}
plain eighths(int seed, std::vector<std::int64_t> extents) {
  plain made = wave(seed, std::move(extents), 2);
  for (real& one : made.data) one = std::round(one * 8) / 8;
  return made;
}

template <class Program> void check_rows(ep::dtype type) {
  INFO("on a mesh of " << mesh_text(Program::mesh::value));
  plain labels = indices(4, {6}, 7);
  labels(1) = labels(4) = -100;
  const plain cotangent = eighths(5, {6, 7});
  const plain each = eighths(6, {6});
  const plains in{
      held(type, nasty(1, {6, 7})), held(type, wave(2, {7}, 2)), held(type, wave(3, {7}, 2)), labels, cotangent, each};
  const plains got = run<Program>(in);
  std::size_t at = 0;
  const auto check = [&](const char* name, const reference& f, std::size_t by, const plain& into, real wide,
                         real narrow) {
    const plains expected = value_and_gradients(f, in, by, into);
    for (std::size_t n = 0; n < expected.size(); ++n) {
      INFO(name << (n == 0 ? "" : ", gradient"));
      check_rounded(type, got.at(at++), expected[n], 1, wide, n == 0 ? 0 : narrow);
    }
  };
  const auto one = plain::number(1);
  check(
      "softmax", [](const arguments& a) { return plain_softmax(a, false); }, 1, cotangent, 8, 1);
  check(
      "log_softmax", [](const arguments& a) { return plain_softmax(a, true); }, 1, cotangent, 8, 0);
  check(
      "rms_norm", [](const arguments& a) { return plain_norm(a, false); }, 2, cotangent, 16, 0);
  // A mean of -200 is rounded, and what remains without it is about 1.
  check(
      "layer_norm", [](const arguments& a) { return plain_norm(a, true); }, 3, cotangent,
      ep::is_for_storage(type) ? 16 : 200, 0);
  check(
      "gelu", [](const arguments& a) { return each_of(a[0], plain_gelu); }, 1, cotangent, 8, 0);
  check(
      "silu", [](const arguments& a) { return each_of(a[0], plain_silu); }, 1, cotangent, 8, 0);
  check(
      "cross_entropy_each", [&](const arguments& a) { return plain_cross_entropy(a, labels, false, over::none); }, 1,
      each, 8, 0);
  check(
      "cross_entropy", [&](const arguments& a) { return plain_cross_entropy(a, labels, false, over::mean); }, 1, one, 8,
      0);
  check(
      "cross_entropy, ignore", [&](const arguments& a) { return plain_cross_entropy(a, labels, true, over::mean); }, 1,
      one, 8, 0);
  check(
      "cross_entropy_sum, ignore", [&](const arguments& a) { return plain_cross_entropy(a, labels, true, over::sum); },
      1, one, 8, 0);
  CHECK(at == got.size());
}

// --- attention, dense layers, norms of batches and groups -----------------------------------------------------------

template <int... By> constexpr auto gradients_by(const auto& f, const auto& cotangent, const auto&... x) {
  const auto loss = [&](const auto&... at) { return ep::sum(f(at...) * cotangent); };
  return ep::results(f(x...), ep::grad<By...>(loss)(x...));
}

template <class On> struct layers_of {
  constexpr auto operator()(auto given, auto key, auto value, auto real, auto c, auto x, auto gain, auto bias, auto w,
                            auto mean, auto variance, auto cx) const {
    const auto query = ep::shard<typename On::data, ep::none, typename On::model, ep::none>(given);
    const auto rows = ep::shard<typename On::data, ep::none, typename On::model>(x);
    const auto [average, spread] = ep::nn::batch_statistics(rows);
    return ep::results(
        gradients_by<0, 1, 2>([](auto q, auto k, auto v) { return ep::nn::attention(q, k, v); }, c, query, key, value),
        gradients_by<0, 1, 2>(
            [&](auto q, auto k, auto v) { return ep::nn::attention(q, k, v, ep::nn::causal{}, ep::nn::padding{real}); },
            c, query, key, value),
        gradients_by<0>(
            [&](auto q) { return ep::nn::attention(q, key, value, ep::nn::mask{ep::expand_dims<0>(real)}); }, c, query),
        gradients_by<0, 1, 2>([](auto u, auto p, auto b) { return ep::nn::dense(u, p, b); }, cx, rows, w, bias),
        gradients_by<0, 1>([&](auto u, auto p) { return ep::nn::mlp(u, p, bias, p, bias); }, cx, rows, w),
        gradients_by<0, 1, 2>([](auto u, auto g, auto b) { return ep::nn::batch_norm(u, g, b); }, cx, rows, gain, bias),
        gradients_by<0>([&](auto u) { return ep::nn::batch_norm_with(u, mean, variance, gain, bias); }, cx, rows),
        gradients_by<0, 1, 2>([](auto u, auto g, auto b) { return ep::nn::group_norm<2>(u, g, b); }, cx, rows, gain,
                              bias),
        average, spread);
  }
};
template <class On, template <int...> class T, template <int...> class Wide>
using layers_program =
    ep::program<typename On::mesh, layers_of<On>, T<3, 3, 2, 4>, T<3, 3, 2, 4>, T<3, 3, 2, 4>, ep::boolean<3, 3>,
                T<3, 3, 2, 4>, T<5, 3, 4>, T<4>, T<4>, T<4, 4>, Wide<4>, Wide<4>, T<5, 3, 4>>;

/// `sees(batch, query, key)`.
template <class Sees> duals plain_attention(const argument& q, const argument& k, const argument& v, const Sees& sees) {
  const int batch = q.size(0), length = q.size(1), heads = q.size(2), size = q.size(3);
  const auto at = [&](int n, int s, int h, int i) { return ((n * length + s) * heads + h) * size + i; };
  duals y(q.data.size());
  for (int n = 0; n < batch; ++n) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < length; ++i) {
        duals weight(static_cast<std::size_t>(length));
        dual total;
        bool any = false;
        for (int j = 0; j < length; ++j) any = any || sees(n, i, j);
        for (int j = 0; j < length; ++j) {
          dual score;
          for (int e = 0; e < size; ++e) score += q[at(n, i, h, e)] * k[at(n, j, h, e)] / std::sqrt(real(size));
          weight[static_cast<std::size_t>(j)] = !any ? dual(1) : sees(n, i, j) ? exp(score) : dual(0);
          total += weight[static_cast<std::size_t>(j)];
        }
        for (int e = 0; e < size; ++e) {
          for (int j = 0; j < length; ++j)
            y[static_cast<std::size_t>(at(n, i, h, e))] +=
                weight[static_cast<std::size_t>(j)] / total * v[at(n, j, h, e)];
        }
      }
    }
  }
  return y;
}
duals plain_dense(const duals& x, const argument& w, const argument& b) {
  const int in = w.size(0), out = w.size(1), rows = static_cast<int>(x.size()) / in;
  duals y;
  for (int r = 0; r < rows; ++r) {
    for (int o = 0; o < out; ++o) {
      dual sum = b[o];
      for (int i = 0; i < in; ++i) sum += x[static_cast<std::size_t>(r * in + i)] * w[i * out + o];
      y.push_back(sum);
    }
  }
  return y;
}
/// `member(i)` is the set that element i is normalised in.
template <class Member>
duals plain_standard(const argument& x, int sets, const Member& member, duals& mean, duals& variance) {
  mean.assign(static_cast<std::size_t>(sets), 0);
  variance = mean;
  const int each = x.elements() / sets;
  for (int i = 0; i < x.elements(); ++i) mean[member(i)] += x[i] / each;
  for (int i = 0; i < x.elements(); ++i) {
    const dual off = x[i] - mean[member(i)];
    variance[member(i)] += off * off / each;
  }
  duals y;
  for (int i = 0; i < x.elements(); ++i) y.push_back((x[i] - mean[member(i)]) / sqrt(variance[member(i)] + 1e-5L));
  return y;
}
duals scaled(duals y, const argument& gain, const argument& bias) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    const int channel = static_cast<int>(i) % gain.elements();
    y[i] = y[i] * gain[channel] + bias[channel];
  }
  return y;
}

template <class Program> void check_layers(ep::dtype type) {
  INFO("on a mesh of " << mesh_text(Program::mesh::value));
  const ep::dtype computed = ep::facts_of(type).accumulate;
  plain seen({3, 3}, 1);
  seen(0, 0) = seen(1, 2) = 0;
  // Small enough for scores of one or two: how far they are rounded is what the bound is about.
  const auto draw = [&](int seed, std::vector<std::int64_t> extents) {
    return held(type, wave(seed, std::move(extents), 1.5));
  };
  plains in{draw(1, {3, 3, 2, 4}),
            draw(2, {3, 3, 2, 4}),
            draw(3, {3, 3, 2, 4}),
            seen,
            eighths(4, {3, 3, 2, 4}),
            held(type, nasty(5, {5, 3, 4})),
            draw(6, {4}),
            draw(7, {4}),
            draw(8, {4, 4}),
            held(computed, wave(9, {4})),
            held(computed, wave(10, {4})),
            eighths(11, {5, 3, 4})};
  for (real& one : in[10].data) one = one * one + 1;
  in[10] = held(computed, in[10]);
  const plains got = run<Program>(in);
  std::size_t at = 0;
  const auto check = [&](const char* name, const reference& f, std::vector<std::size_t> leaves, std::size_t by,
                         int into, real wide, real narrow) {
    plains given;
    for (const std::size_t leaf : leaves) given.push_back(in[leaf]);
    const plains expected = value_and_gradients(f, given, by, in[static_cast<std::size_t>(into)]);
    for (std::size_t n = 0; n < expected.size(); ++n) {
      INFO(name << (n == 0 ? "" : ", gradient"));
      check_rounded(type, got.at(at++), expected[n], 1, wide, n == 0 ? narrow : 4 * narrow);
    }
  };
  const auto all = [](int, int, int) { return true; };
  const auto past = [&](int n, int i, int j) { return j <= i && seen(n, j) != 0; };
  const auto masked = [&](int, int i, int j) { return seen(i, j) != 0; };
  check(
      "attention", [&](const arguments& a) { return plain_attention(a[0], a[1], a[2], all); }, {0, 1, 2}, 3, 4, 16, 4);
  check(
      "causal and padded attention", [&](const arguments& a) { return plain_attention(a[0], a[1], a[2], past); },
      {0, 1, 2}, 3, 4, 16, 4);
  check(
      "masked attention", [&](const arguments& a) { return plain_attention(a[0], a[1], a[2], masked); }, {0, 1, 2}, 1,
      4, 16, 4);
  check(
      "dense", [](const arguments& a) { return plain_dense(a[0].data, a[1], a[2]); }, {5, 8, 7}, 3, 11, 16, 1);
  check(
      "mlp",
      [](const arguments& a) {
        duals hidden = plain_dense(a[0].data, a[1], a[2]);
        for (dual& one : hidden) one = plain_gelu(one);
        return plain_dense(hidden, a[1], a[2]);
      },
      {5, 8, 7}, 2, 11, 16, 4);
  const auto channel = [](int i) { return static_cast<std::size_t>(i % 4); };
  const auto group = [](int i) { return static_cast<std::size_t>(i / 12 * 2 + i % 4 / 2); };
  duals mean, variance;
  check(
      "batch_norm",
      [&](const arguments& a) { return scaled(plain_standard(a[0], 4, channel, mean, variance), a[1], a[2]); },
      {5, 6, 7}, 3, 11, ep::is_for_storage(type) ? 16 : 200, 0);
  check(
      "batch_norm_with",
      [&](const arguments& a) {
        duals y;
        for (int i = 0; i < a[0].elements(); ++i)
          y.push_back((a[0][i] - in[9](i % 4)) / std::sqrt(in[10](i % 4) + 1e-5L));
        return scaled(y, a[1], a[2]);
      },
      {5, 6, 7}, 1, 11, 16, 0);
  check(
      "group_norm",
      [&](const arguments& a) { return scaled(plain_standard(a[0], 10, group, mean, variance), a[1], a[2]); },
      {5, 6, 7}, 3, 11, ep::is_for_storage(type) ? 16 : 200, 0);
  static_cast<void>(plain_standard(as_arguments(in)[5], 4, channel, mean, variance));
  for (const duals& one : {mean, variance}) {
    plain expected({4});
    for (std::size_t i = 0; i < 4; ++i) expected.data[i] = one[i].v;
    check_rounded(computed, got.at(at++), expected, 1, 16, 0);
  }
  CHECK(at == got.size());
}

// --- layers that say how they start ---------------------------------------------------------------------------------

constexpr ep::convolution_settings same{.low = {1, 1}, .high = {1, 1}};
template <class Leaf> struct net {
  BOOST_HANA_DEFINE_STRUCT(net, (ep::nn::layer<Leaf, ep::nn::convolution_layer<ep::f32<3, 3, 16, 32>, same>>, stem),
                           (ep::nn::layer<Leaf, ep::nn::layer_norm_layer<32>>, norm),
                           (ep::nn::layer<Leaf, ep::nn::embedding<50, 32>>, words),
                           (ep::nn::layer<Leaf, ep::nn::linear<32, 10>>, head),
                           (ep::leaf<Leaf, ep::f16<64, 64>>, other));
};
template <class On> struct net_of {
  constexpr auto operator()(auto p, auto x, auto tokens) const {
    const auto seen = p.norm(p.stem(ep::shard<typename On::data, ep::none, ep::none, ep::none>(x)));
    return ep::results(p.head(ep::mean<1, 2>(seen) + p.words(tokens)), p.stem.weight, p.stem.bias, p.norm.gain,
                       p.words.table, p.head.weight, p.other);
  }
};
template <class On>
using net_program = ep::program<typename On::mesh, net_of<On>, net<ep::spec>, ep::f32<4, 5, 5, 16>, ep::i32<4>>;

template <class Program> plains started_and_run(const plain& x, const plain& tokens) {
  ep::world world(Program::mesh::value);
  ep::runner<Program> runner(world);
  auto p = runner.template argument<0>();
  auto given = runner.template argument<1>();
  auto words = runner.template argument<2>();
  ep::nn::initialise(p, 42);
  write_array(given, x);
  write_array(words, tokens);
  array_list results;
  results.add(runner(p, given, words));
  return results.read();
}
/// The deviation from 0.
real deviation(const plain& x) {
  real sum = 0;
  for (const real one : x.data) sum += one * one;
  return std::sqrt(sum / static_cast<real>(x.data.size()));
}

// --- memory: nothing of the full size in f32 ------------------------------------------------------------------------

constexpr std::int64_t elements = 64 * 256;
template <class On> using wide = ep::sharded<ep::bf16<64, 256>, typename On::data, typename On::model>;
template <class On> using vector = ep::sharded<ep::bf16<256>, typename On::model>;

template <class F, int... By> struct gradients_of {
  constexpr auto operator()(auto cotangent, auto... x) const { return with_gradients<F, By...>({}, cotangent, x...); }
};
using softmax_last = decltype([](auto x) { return ep::softmax<-1>(x); });
using log_softmax_last = decltype([](auto x) { return ep::log_softmax<-1>(x); });
using rms = decltype([](auto x, auto g) { return ep::nn::rms_norm(x, g); });
using layer = decltype([](auto x, auto g) { return ep::nn::layer_norm(x, g, g); });
struct entropy {
  constexpr auto operator()(auto x, auto labels) const {
    return of_loss([&](auto at) { return ep::nn::cross_entropy(at, labels, ep::nn::ignore{-100}); }, x);
  }
};
/// Four blocks: what the loop keeps for its gradient is in sixteen bits, too.
struct blocks {
  constexpr auto operator()(auto x, auto w, auto g) const {
    return of_loss(
        [&](auto at) {
          return ep::sum(ep::scan([&](auto h, auto one) { return ep::matmul(ep::nn::rms_norm(h, g), one); }, x, at));
        },
        w);
  }
};

/// Bytes of all that is computed on the way, of which one value in f32 would be the half of.
template <class On, class F, class... More>
inline constexpr std::int64_t bytes_between = ep::program<typename On::mesh, F, wide<On>, More...>::arena_bytes();
template <class On>
inline constexpr bool keeps_little =
    bytes_between<On, gradients_of<softmax_last, 0>, wide<On>> <
    4 * elements / On::mesh::devices&& bytes_between<On, gradients_of<log_softmax_last, 0>, wide<On>> <
    4 * elements / On::mesh::devices&& bytes_between<On, gradients_of<rms, 0, 1>, wide<On>, vector<On>> <
    4 * elements / On::mesh::devices&& bytes_between<On, gradients_of<layer, 0, 1>, wide<On>, vector<On>> <
    4 * elements / On::mesh::devices&& bytes_between<On, entropy, ep::i32<64>> < 4 * elements / On::mesh::devices;
static_assert(keeps_little<on<1, 1>> && keeps_little<on<1, 2>> && keeps_little<on<2, 1>>);
// Two stacks of four, of h and of the rows' roots, the cotangent and a gradient of one block.
using block_program = ep::program<on<1, 1>::mesh, blocks, ep::bf16<64, 64>, ep::bf16<4, 64, 64>, ep::bf16<64>>;
static_assert(block_program::arena_bytes() < 14 * 2 * 64 * 64);

}  // namespace

TEST_CASE("kinds: a batch of which no label counts has the loss 0, and the gradient 0", "[kinds]") {
  const plains in{wave(1, {6, 7}), plain({6}, -100)};
  const plains expected{plain::number(0), plain({6, 7}, 0)};
  gives<ep::program<on<2, 2>::mesh, entropy, ep::sharded<ep::f32<6, 7>, on<2, 2>::data, on<2, 2>::model>, ep::i32<6>>>(
      in, expected, 0);
}

TEST_CASE("kinds: softmax, norms and losses in every type of floats, rounded once", "[kinds]") {
#if ESPALIER_TEST_ALL_MESHES
  check_rows<rows_program<on<1, 1>, ep::f16>>(ep::dtype::f16);
  check_rows<rows_program<on<1, 2>, ep::bf16>>(ep::dtype::bf16);
#endif
  check_rows<rows_program<on<1, 2>, ep::f16>>(ep::dtype::f16);
  check_rows<rows_program<on<2, 1>, ep::bf16>>(ep::dtype::bf16);
  check_rows<rows_program<on<1, 2>, ep::f32>>(ep::dtype::f32);
  check_rows<rows_program<on<1, 2>, ep::f64>>(ep::dtype::f64);
}

TEST_CASE("kinds: attention, dense layers and norms of batches and groups in every type of floats", "[kinds]") {
  check_layers<layers_program<on<1, 1>, ep::f16, ep::f32>>(ep::dtype::f16);
  check_layers<layers_program<on<1, 2>, ep::bf16, ep::f32>>(ep::dtype::bf16);
  check_layers<layers_program<on<2, 1>, ep::f32, ep::f32>>(ep::dtype::f32);
  check_layers<layers_program<on<2, 2>, ep::f64, ep::f64>>(ep::dtype::f64);
}

TEST_CASE("kinds: layers start as they say, the same on any mesh", "[kinds]") {
  const plain x = wave(1, {4, 5, 5, 16});
  const plain tokens = indices(2, {4}, 50);
  const plains one = started_and_run<net_program<on<1, 1>>>(x, tokens);
  const plains two = started_and_run<net_program<on<2, 1>>>(x, tokens);
  for (std::size_t n = 1; n < one.size(); ++n) CHECK(one[n].data == two[n].data);
  CHECK(difference(two[0], one[0], 1e-6) == "");
  CHECK(std::abs(deviation(one[1]) / std::sqrt(2.0L / (9 * 16)) - 1) < 0.05L);
  CHECK(deviation(one[2]) == 0);
  CHECK(one[3].data == std::vector<real>(32, 1));
  CHECK(std::abs(deviation(one[4]) / 0.02L - 1) < 0.05L);
  CHECK(std::abs(deviation(one[5]) / std::sqrt(1.0L / 32) - 1) < 0.1L);
  CHECK(std::abs(deviation(one[6]) / 0.02L - 1) < 0.05L);
  // Element 77 of leaf 0, whatever holds it.
  CHECK(std::abs(one[1].data[77] - static_cast<real>(std::sqrt(2.0 / 144) * ep::nn::normal_at(42, 0, 77))) < 1e-7L);
}
