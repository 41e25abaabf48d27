// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/run/report/explain.hpp>
#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- conjugate gradients until the residual is small ----------------------------------------------------------------

template <class On> struct conjugate_gradients {
  constexpr auto operator()(auto a, auto b, auto tolerance) const {
    const auto matrix = ep::shard<typename On::data, typename On::model>(a);
    const auto start =
        ep::results(ep::constant<ep::f64<8>>(b, 0.0), b, b, ep::sum(b * b), ep::constant<ep::i32<>>(b, 0));
    const auto is_large = [&](const auto& s) { return s.template get<3>() > tolerance; };
    const auto step = [&](const auto& s) {
      const auto [x, r, p, square, steps] = s;
      const auto ap = ep::matmul(matrix, p);
      const auto alpha = square / ep::sum(p * ap);
      const auto residual = r - alpha * ap;
      const auto next = ep::sum(residual * residual);
      return ep::results(x + alpha * p, residual, residual + (next / square) * p, next, steps + 1);
    };
    const auto last = ep::while_loop(is_large, step, start);
    return ep::results(last.template get<0>(), last.template get<4>());
  }
};
template <class On>
using conjugate_program = ep::program<typename On::mesh, conjugate_gradients<On>, ep::f64<8, 8>, ep::f64<8>, ep::f64<>>;

/// The solution and the number of steps.
plains plain_conjugate(const plains& in) {
  const plain& a = in[0];
  plain x({8}), r = in[1], p = in[1];
  real square = 0;
  for (const real one : r.data) square += one * one;
  int steps = 0;
  for (; square > in[2](); ++steps) {
    plain ap({8});
    real below = 0, next = 0;
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 8; ++j) ap(i) += a(i, j) * p(j);
      below += p(i) * ap(i);
    }
    for (int i = 0; i < 8; ++i) {
      x(i) += square / below * p(i);
      r(i) -= square / below * ap(i);
      next += r(i) * r(i);
    }
    for (int i = 0; i < 8; ++i) p(i) = r(i) + next / square * p(i);
    square = next;
  }
  return {x, plain::number(steps)};
}

// --- Jacobi's iteration until nothing changes much; a grid that is split unevenly, with halos ------------------------

template <class On> struct jacobi {
  constexpr auto operator()(auto start, auto source, auto tolerance) const {
    const auto sweep = [&](const auto& u) {
      return 0.25 *
             (ep::pad<0, 1, -1>(u) + ep::pad<0, -1, 1>(u) + ep::pad<1, 1, -1>(u) + ep::pad<1, -1, 1>(u) + source);
    };
    const auto first = ep::shard<typename On::data, typename On::model>(start);
    const auto body = [&](const auto& s) {
      const auto [u, change, steps] = s;
      const auto next = sweep(u);
      return ep::results(next, ep::max(ep::abs(next - u)), steps + 1);
    };
    const auto last =
        ep::while_loop([&](const auto& s) { return s.template get<1>() > tolerance; }, body,
                       ep::results(first, ep::constant<ep::f64<>>(start, 1.0), ep::constant<ep::i32<>>(start, 0)));
    return ep::results(last.template get<0>(), last.template get<2>());
  }
};
template <class On>
using jacobi_program = ep::program<typename On::mesh, jacobi<On>, ep::f64<10, 7>, ep::f64<10, 7>, ep::f64<>>;

plains plain_jacobi(const plains& in) {
  plain u = in[0];
  int steps = 0;
  for (real change = 1; change > in[2](); ++steps) {
    plain next({10, 7});
    change = 0;
    for (int i = 0; i < 10; ++i) {
      for (int j = 0; j < 7; ++j) {
        const auto at = [&](int r, int c) { return r < 0 || c < 0 || r > 9 || c > 6 ? real{0} : u(r, c); };
        next(i, j) = (at(i - 1, j) + at(i + 1, j) + at(i, j - 1) + at(i, j + 1) + in[1](i, j)) / 4;
        change = std::max(change, std::abs(next(i, j) - u(i, j)));
      }
    }
    u = next;
  }
  return {u, plain::number(steps)};
}

// --- power iteration, at most so many steps -------------------------------------------------------------------------

template <class On, int Most> struct power_iteration {
  constexpr auto operator()(auto a, auto v) const {
    const auto matrix = ep::shard<typename On::data, typename On::model>(a);
    const auto body = [&](const auto& s) {
      const auto [x, before, value, steps] = s;
      const auto y = ep::matmul(matrix, x);
      const auto length = ep::sqrt(ep::sum(y * y));
      return ep::results(y / length, value, length, steps + 1);
    };
    const auto changes = [](const auto& s) {
      return ep::abs(s.template get<2>() - s.template get<1>()) > 1e-7 * s.template get<2>();
    };
    const auto last = ep::while_loop(
        changes, body,
        ep::results(v, ep::constant<ep::f64<>>(v, 0.0), ep::constant<ep::f64<>>(v, 1.0), ep::constant<ep::i32<>>(v, 0)),
        ep::at_most_iterations<Most>);
    return ep::results(last.template get<2>(), last.template get<3>());
  }
};
template <class On>
using power_program = ep::program<typename On::mesh, power_iteration<On, 200>, ep::f64<8, 8>, ep::f64<8>>;
template <class On>
using stopped_power_program = ep::program<typename On::mesh, power_iteration<On, 6>, ep::f64<8, 8>, ep::f64<8>>;

plains plain_power(const plains& in, int most) {
  plain x = in[1];
  real before = 0, value = 1;
  int steps = 0;
  for (; steps < most && std::abs(value - before) > 1e-7L * value; ++steps) {
    plain y({8});
    real length = 0;
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 8; ++j) y(i) += in[0](i, j) * x(j);
      length += y(i) * y(i);
    }
    length = std::sqrt(length);
    for (int i = 0; i < 8; ++i) x(i) = y(i) / length;
    before = value;
    value = length;
  }
  return {plain::number(value), plain::number(steps)};
}

// --- whole numbers decide; carries change places; loops in loops ----------------------------------------------------

/// For each of five numbers the steps of Collatz's sequence down to 1, and a sum that each step adds to.
template <class On> struct collatz {
  constexpr auto operator()(auto numbers, auto x) const {
    const auto total = ep::constant<ep::f64<6>>(x, 0.0);
    const auto one = [&](const auto& sum, const auto& number) {
      const auto body = [&](const auto& s) {
        const auto [n, steps, added] = s;
        const auto half = n / 2;
        const auto next = ep::select(half * 2 == n, half, 3 * n + 1);
        return ep::results(next, steps + 1, added + x);
      };
      const auto last = ep::while_loop([](const auto& s) { return s.template get<0>() > 1; }, body,
                                       ep::results(number, ep::constant<ep::i32<>>(number, 0), sum));
      return ep::results(last.template get<2>(), last.template get<1>());
    };
    return ep::scan(one, ep::shard<typename On::data>(total), numbers);
  }
};
template <class On> using collatz_program = ep::program<typename On::mesh, collatz<On>, ep::i32<5>, ep::f64<6>>;

/// Euclid's algorithm: two carries that are passed on as each other, and a truth value that is a carry.
template <class On> struct euclid {
  constexpr auto operator()(auto a, auto b, auto goes_on) const {
    const auto body = [&](const auto& s) {
      const auto [x, y, more] = s;
      const auto rest = x - (x / y) * y;
      return ep::results(y, rest, rest != 0);
    };
    const auto last =
        ep::while_loop([](const auto& s) { return s.template get<2>(); }, body, ep::results(a, b, goes_on));
    return ep::results(last.template get<0>(), last.template get<1>());
  }
};
template <class On>
using euclid_program = ep::program<typename On::mesh, euclid<On>, ep::i32<>, ep::i32<>, ep::boolean<>>;

// --- k-means until no centre moves ----------------------------------------------------------------------------------

template <class On> struct k_means {
  constexpr auto operator()(auto points, auto centres) const {
    const auto all = ep::shard<typename On::data, ep::open>(points);
    const auto body = [&](const auto& s) {
      const auto [now, moved, steps] = s;
      const auto apart = ep::expand_dims<1>(all) - ep::expand_dims<0>(now);
      const auto distance = ep::sum<2>(apart * apart);
      const auto nearest = ep::argmin<1>(distance);
      const auto member = ep::convert<ep::dtype::f64>(ep::one_hot<3>(nearest));
      const auto count = ep::sum<0>(member);
      const auto next = ep::einsum<"nk,nd->kd">(member, all) / ep::expand_dims<1>(count);
      return ep::results(next, ep::max(ep::abs(next - now)), steps + 1);
    };
    const auto last = ep::while_loop(
        [](const auto& s) { return s.template get<1>() > 1e-9; }, body,
        ep::results(centres, ep::constant<ep::f64<>>(centres, 1.0), ep::constant<ep::i32<>>(centres, 0)));
    return ep::results(last.template get<0>(), last.template get<2>());
  }
};
template <class On> using k_means_program = ep::program<typename On::mesh, k_means<On>, ep::f64<21, 2>, ep::f64<3, 2>>;

plains plain_k_means(const plains& in) {
  plain centres = in[1];
  int steps = 0;
  for (real moved = 1; moved > 1e-9L; ++steps) {
    plain sum({3, 2}), count({3});
    for (int n = 0; n < 21; ++n) {
      int nearest = 0;
      real least = 1e9L;
      for (int k = 0; k < 3; ++k) {
        real distance = 0;
        for (int d = 0; d < 2; ++d) distance += (in[0](n, d) - centres(k, d)) * (in[0](n, d) - centres(k, d));
        if (distance < least) {
          least = distance;
          nearest = k;
        }
      }
      count(nearest) += 1;
      for (int d = 0; d < 2; ++d) sum(nearest, d) += in[0](n, d);
    }
    moved = 0;
    for (int k = 0; k < 3; ++k) {
      for (int d = 0; d < 2; ++d) {
        const real next = sum(k, d) / count(k);
        moved = std::max(moved, std::abs(next - centres(k, d)));
        centres(k, d) = next;
      }
    }
  }
  return {centres, plain::number(steps)};
}

// --- devices that would go on for different times -------------------------------------------------------------------

/// What decides in a loop: a number that all devices add up, against one from outside; one that each device adds up by
/// itself; whole numbers; or whether something holds anywhere, which an all_reduce says.
enum class decided_by { common, own, steps, any };

/// Halves x while its sum is above a limit.
template <class On, decided_by By> struct halve {
  constexpr auto operator()(auto x, auto limit, auto most) const {
    const auto all = ep::shard<typename On::data>(x);
    const auto body = [](const auto& s) {
      const auto next = 0.5 * s.template get<0>();
      return ep::results(next, ep::sum(next), s.template get<2>() + 1);
    };
    const auto goes_on = [&](const auto& s) {
      if constexpr (By == decided_by::steps) {
        return s.template get<2>() < most;
      } else if constexpr (By == decided_by::common) {
        return s.template get<1>() > limit;
      } else if constexpr (By == decided_by::any) {
        return ep::any(s.template get<0>() > 0.3);
      } else {
        const auto quarters = ep::constant<ep::f64<4>>(x, 0.25) * (limit + 0.0 * s.template get<1>());
        const auto is_later = ep::convert<ep::dtype::f64>(s.template get<2>() > 0);
        return s.template get<1>() > ep::sum(quarters) * is_later;
      }
    };
    return ep::while_loop(goes_on, body, ep::results(all, ep::sum(all), ep::constant<ep::i32<>>(x, 0)));
  }
};
template <class On, decided_by By>
using halve_program = ep::program<typename On::mesh, halve<On, By>, ep::f64<12>, ep::f64<>, ep::i32<>>;

// --- branches -------------------------------------------------------------------------------------------------------

/// One of two layers that communicate in other ways, and a number: which results are trees.
template <class On> struct either {
  constexpr auto operator()(auto x, auto w, auto limit) const {
    const auto h = ep::shard<typename On::data, ep::open>(x);
    return ep::cond(
        ep::sum(h * h) > limit,
        [&] {
          const auto y = ep::matmul(h, w);
          return ep::results(y, ep::sum<0>(y));
        },
        [&] { return ep::results(h - ep::max(h), ep::sum<1>(ep::matmul(w, w))); });
  }
};
template <class On>
using either_program = ep::program<typename On::mesh, either<On>, ep::f64<10, 6>, ep::f64<6, 6>, ep::f64<>>;

plains plain_either(const plains& in) {
  real square = 0, most = in[0].data[0];
  for (const real one : in[0].data) {
    square += one * one;
    most = std::max(most, one);
  }
  plain y({10, 6}), sums({6});
  if (square > in[2]()) {
    for (int i = 0; i < 10; ++i) {
      for (int j = 0; j < 6; ++j) {
        for (int k = 0; k < 6; ++k) y(i, j) += in[0](i, k) * in[1](k, j);
        sums(j) += y(i, j);
      }
    }
    return {y, sums};
  }
  y = in[0];
  for (real& one : y.data) one -= most;
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      for (int k = 0; k < 6; ++k) sums(i) += in[1](i, k) * in[1](k, j);
    }
  }
  return {y, sums};
}

/// In a loop, one of three steps for each number; the last of them chooses again.
template <class On> struct interpreter {
  constexpr auto operator()(auto x, auto codes) const {
    const auto body = [](const auto& h, const auto& code) {
      const auto step = ep::switch_case(
          code, [&] { return h + 1.0; }, [&] { return h * ep::mean(h); },
          [&] {
            return ep::cond(
                ep::sum(h) > 0.0, [&] { return -1.0 * h; }, [&] { return h; });
          });
      return ep::results(step, ep::sum(step));
    };
    return ep::scan(body, ep::shard<typename On::data>(x), codes);
  }
};
template <class On> using interpreter_program = ep::program<typename On::mesh, interpreter<On>, ep::f64<9>, ep::i32<8>>;

/// A step that skips gradients that are not finite, and counts them.
template <class On> struct careful_training {
  constexpr auto operator()(auto w, auto batches) const {
    const auto step = [](const auto& s, const auto& batch) {
      const auto& now = s.template get<0>();
      const auto x = ep::shard<typename On::data, ep::open>(batch);
      const auto loss = [&](auto p) { return ep::mean(ep::exp(ep::matmul(x, p))); };
      const auto [value, gradient] = ep::value_and_grad(loss)(now);
      const auto by = gradient;
      const auto size = ep::sum(ep::abs(by));
      const auto is_finite = size - size == 0.0;
      return ep::cond(
          is_finite, [&] { return ep::results(now - 0.5 * by, s.template get<1>()); },
          [&] { return ep::results(now, s.template get<1>() + 1); });
    };
    const auto first = ep::results(w, ep::constant<ep::i32<>>(w, 0));
    const auto body = [&](const auto& s, const auto& batch) { return step(s, batch); };
    return ep::scan(body, first, batches);
  }
};
template <class On>
using careful_program = ep::program<typename On::mesh, careful_training<On>, ep::f64<3>, ep::f64<5, 10, 3>>;

// --- decoding that stops at the end of a text ----------------------------------------------------------------------

/// Each token is the likeliest after the sum of the embeddings of all before it, until one is the last of the alphabet
/// or there is no more room. The table is split by rows, the product by what it adds up.
template <class On> struct decoder {
  constexpr auto operator()(auto table, auto w, auto prompt) const {
    const auto rows = ep::shard<typename On::data, ep::open>(table);
    const auto out = ep::shard<ep::open, typename On::data>(w);
    const auto next_token = [&](const auto& hidden) { return ep::argmax<0>(ep::matmul(hidden, out)); };
    const auto text = ep::dynamic_update_slice<0>(ep::constant<ep::i32<9>>(prompt, -1.0), ep::reshape<1>(prompt),
                                                  ep::constant<ep::i32<>>(prompt, 0.0));
    const auto start =
        ep::results(text, prompt, ep::constant<ep::f64<4>>(table, 0.0), ep::constant<ep::i32<>>(prompt, 1));
    const auto goes_on = [](const auto& s) { return s.template get<1>() != 10 && s.template get<3>() < 9; };
    const auto body = [&](const auto& s) {
      const auto [so_far, token, hidden, length] = s;
      const auto sum = 0.5 * hidden + ep::take<0>(rows, token);
      const auto next = next_token(sum);
      return ep::results(ep::dynamic_update_slice<0>(so_far, ep::reshape<1>(next), length), next, sum, length + 1);
    };
    const auto last = ep::while_loop(goes_on, body, start);
    return ep::results(last.template get<0>(), last.template get<3>());
  }
};
template <class On>
using decoder_program = ep::program<typename On::mesh, decoder<On>, ep::f64<11, 4>, ep::f64<4, 11>, ep::i32<>>;

plains plain_decoder(const plains& in) {
  plain text({9}, -1), hidden({4});
  int token = static_cast<int>(in[2]());
  text(0) = token;
  int length = 1;
  for (; token != 10 && length < 9; ++length) {
    for (int k = 0; k < 4; ++k) hidden(k) = hidden(k) / 2 + in[0](token, k);
    real most = -1e9L;
    for (int t = 0; t < 11; ++t) {
      real likely = 0;
      for (int k = 0; k < 4; ++k) likely += hidden(k) * in[1](k, t);
      if (likely > most) {
        most = likely;
        token = t;
      }
    }
    text(length) = token;
  }
  return {text, plain::number(length)};
}

// --- gradients ------------------------------------------------------------------------------------------------------

/// A layer again and again until its values are small, at most seven times; in a loop over inputs.
template <class On> struct until_small {
  constexpr auto operator()(auto w, auto xs) const {
    const auto loss = [&](const auto& p) {
      const auto one = [&](const auto& sum, const auto& x) {
        const auto first = ep::shard<typename On::data, ep::open>(x);
        const auto last =
            ep::while_loop([](const auto& h) { return ep::mean(h * h) > 0.02; },
                           [&](const auto& h) { return ep::tanh(ep::matmul(h, p)); }, first, ep::at_most_iterations<7>);
        return sum + ep::mean(last * x);
      };
      return ep::scan(one, ep::constant<ep::f64<>>(p, 0.0), xs);
    };
    const auto both = ep::value_and_grad(loss)(w);
    const auto& [value, gradient] = both;
    return ep::results(value, gradient);
  }
};
template <class On>
using until_small_program = ep::program<typename On::mesh, until_small<On>, ep::f64<3, 3>, ep::f64<4, 10, 3>>;

real plain_until_small(const plains& in, int* iterations) {
  real loss = 0;
  for (int t = 0; t < 4; ++t) {
    plain h({10, 3});
    for (int n = 0; n < 10; ++n) {
      for (int k = 0; k < 3; ++k) h(n, k) = in[1](t, n, k);
    }
    const auto mean_square = [&] {
      real sum = 0;
      for (const real one : h.data) sum += one * one / 30;
      return sum;
    };
    int steps = 0;
    for (; steps < 7 && mean_square() > 0.02L; ++steps) {
      plain next({10, 3});
      for (int n = 0; n < 10; ++n) {
        for (int j = 0; j < 3; ++j) {
          for (int k = 0; k < 3; ++k) next(n, j) += h(n, k) * in[0](k, j);
          next(n, j) = std::tanh(next(n, j));
        }
      }
      h = next;
    }
    if (iterations != nullptr) iterations[t] = steps;
    for (int n = 0; n < 10; ++n) {
      for (int k = 0; k < 3; ++k) loss += h(n, k) * in[1](t, n, k) / 30;
    }
  }
  return loss;
}

/// In a loop, a number says which of two layers comes, of which one is taken twice if its input is large.
template <class On> struct chosen_layers {
  constexpr auto operator()(auto v, auto w, auto x, auto codes) const {
    const auto loss = [&](const auto& p) {
      const auto& one = p.template get<0>();
      const auto& other = p.template get<1>();
      const auto body = [&](const auto& h, const auto& code) {
        const auto twice = [&] { return ep::tanh(ep::matmul(ep::sin(ep::matmul(h, other)), other)); };
        return ep::switch_case(
            code, [&] { return h + ep::tanh(ep::matmul(h, one)); },
            [&] { return ep::cond(ep::sum(h * h) > 9.0, twice, [&] { return ep::sin(ep::matmul(h, other)); }); },
            [&] { return h; });
      };
      const auto last = ep::scan(body, ep::shard<typename On::data, ep::open>(x), codes);
      return ep::mean(last * last);
    };
    const auto both = ep::value_and_grad(loss)(ep::results(v, w));
    const auto& [value, gradient] = both;
    return ep::results(value, gradient);
  }
};
template <class On>
using chosen_program =
    ep::program<typename On::mesh, chosen_layers<On>, ep::f64<3, 3>, ep::f64<3, 3>, ep::f64<10, 3>, ep::i32<6>>;

real plain_chosen(const plains& in, int* taken) {
  plain h = in[2];
  const auto through = [&](const plain& x, const plain& w) {
    plain y({10, 3});
    for (int n = 0; n < 10; ++n) {
      for (int j = 0; j < 3; ++j) {
        for (int k = 0; k < 3; ++k) y(n, j) += x(n, k) * w(k, j);
      }
    }
    return y;
  };
  for (int t = 0; t < 6; ++t) {
    real square = 0;
    for (const real one : h.data) square += one * one;
    if (in[3](t) == 0) {
      const plain y = through(h, in[0]);
      for (std::size_t i = 0; i < 30; ++i) h.data[i] += std::tanh(y.data[i]);
    } else if (in[3](t) == 1) {
      if (taken != nullptr) ++taken[square > 9 ? 1 : 0];
      plain y = through(h, in[1]);
      for (real& one : y.data) one = std::sin(one);
      if (square > 9) {
        y = through(y, in[1]);
        for (real& one : y.data) one = std::tanh(one);
      }
      h = y;
    }
  }
  real loss = 0;
  for (const real one : h.data) loss += one * one / 30;
  return loss;
}

/// A symmetric matrix whose eigenvalues are all positive.
plain positive_matrix() {
  const plain root = wave(1, {8, 8});
  plain a({8, 8});
  for (int i = 0; i < 8; ++i) {
    a(i, i) = 2;
    for (int j = 0; j < 8; ++j) {
      for (int k = 0; k < 8; ++k) a(i, j) += root(i, k) * root(j, k);
    }
  }
  return a;
}

}  // namespace

TEST_CASE("kinds: conjugate gradients until the residual is small", "[kinds]") {
  const plains in{positive_matrix(), wave(2, {8}), plain::number(1e-6L)};
  const plains expected = plain_conjugate(in);
  CHECK(expected[1]() > 3);
  CHECK(expected[1]() < 8);
  everywhere<conjugate_program>(both_ways{}, in, expected, 1e-8);
}

TEST_CASE("kinds: a loop whose condition is false at once", "[kinds]") {
  const plains in{positive_matrix(), wave(2, {8}), plain::number(100)};
  everywhere<conjugate_program>(both_ways{}, in, {plain({8}), plain::number(0)});
}

TEST_CASE("kinds: Jacobi's iteration until nothing changes much", "[kinds]") {
  const plains in{wave(1, {10, 7}), wave(2, {10, 7}), plain::number(1e-4L)};
  const plains expected = plain_jacobi(in);
  CHECK(expected[1]() > 20);
  everywhere<jacobi_program>(both_ways{}, in, expected, 1e-8);
}

TEST_CASE("kinds: power iteration, and one that stops before it has converged", "[kinds]") {
  const plains in{positive_matrix(), wave(3, {8})};
  const plains expected = plain_power(in, 200);
  CHECK(expected[1]() > 6);
  CHECK(expected[1]() < 200);
  everywhere<power_program>(both_ways{}, in, expected, 1e-8);
  everywhere<stopped_power_program>(both_ways{}, in, plain_power(in, 6), 1e-8);
}

TEST_CASE("kinds: while loops in a loop, on whole numbers", "[kinds]") {
  plain numbers({5});
  const real given[]{6, 1, 7, 2, 9};
  const real steps[]{8, 0, 16, 1, 19};
  plain lengths({5});
  for (int i = 0; i < 5; ++i) {
    numbers(i) = given[i];
    lengths(i) = steps[i];
  }
  const plain x = wave(4, {6});
  plain sum({6});
  for (int i = 0; i < 6; ++i) sum(i) = 44 * x(i);
  everywhere<collatz_program>(data_axis{}, {numbers, x}, {sum, lengths});
}

TEST_CASE("kinds: a while loop that exchanges its carries", "[kinds]") {
  everywhere<euclid_program>(both_axes{}, {plain::number(1071), plain::number(462), plain::number(1)},
                             {plain::number(21), plain::number(0)});
  everywhere<euclid_program>(both_axes{}, {plain::number(12), plain::number(0), plain::number(0)},
                             {plain::number(12), plain::number(0)});
}

TEST_CASE("kinds: k-means until no centre moves", "[kinds]") {
  plains in{wave(6, {21, 2}), plain({3, 2})};
  for (int n = 0; n < 21; ++n) in[0](n, 0) += n % 3;
  for (int k = 0; k < 3; ++k) {
    for (int d = 0; d < 2; ++d) in[1](k, d) = in[0](k, d);
  }
  const plains expected = plain_k_means(in);
  CHECK(expected[1]() > 2);
  everywhere<k_means_program>(data_axis{}, in, expected);
}

TEST_CASE("kinds: decoding stops at the last token, or where there is no room", "[kinds]") {
  bool stops[2]{};
  for (int seed = 1; seed <= 12; ++seed) {
    plains in{wave(seed, {11, 4}), wave(seed + 20, {4, 11}), plain::number(seed % 7)};
    const plains expected = plain_decoder(in);
    stops[expected[1]() < 9 ? 0 : 1] = true;
    everywhere<decoder_program>(data_axis{}, in, expected);
  }
  CHECK(stops[0]);
  CHECK(stops[1]);
}

/// Runs on devices of which each has another limit; every one takes as many steps.
template <class Program> void takes_steps(int steps) {
  ep::world world(Program::mesh::value);
  ep::runner<Program> runner(world);
  const auto x = runner.template argument<0>();
  const auto limit = runner.template argument<1>();
  const auto most = runner.template argument<2>();
  write_array(x, plain({12}, 1));
  write_array(most, plain::number(0));
  // The sums are 12, 6, 3, 1.5, ...: the devices would take 2, 5, 0 and 3 steps.
  const real limits[]{3.5L, 0.5L, 100, 2};
  for (int k = 0; k < limit.local_count(); ++k) shard_of(limit, k).set(0, limits[limit.device(k)]);
  const real size = std::ldexp(real{1}, -steps);
  for (int n = 0; n < 20; ++n) {
    const auto last = runner(x, limit, most);
    array_list results;
    results.add(last);
    check_results(results.read(), {plain({12}, size), plain::number(12 * size), plain::number(steps)}, 1e-12);
  }
}

TEST_CASE("kinds: devices agree on how long a loop goes on", "[kinds]") {
  using four = on<4, 1>;
  // A loop goes on while it does on any device; of a number from outside the largest is taken, once.
  using own = halve_program<four, decided_by::own>;
  using common = halve_program<four, decided_by::common>;
  using steps = halve_program<four, decided_by::steps>;
  using any = halve_program<four, decided_by::any>;
  takes_steps<own>(5);
  takes_steps<common>(0);
  takes_steps<any>(2);
  // The sum before the loop and the one in it; the limit; or the decision, before the loop and in it. Whether anything
  // is above 0.3 is known to all as soon as they have asked each other.
  CHECK(steps::collectives<ep::all_reduce>() == 2);
  CHECK(common::collectives<ep::all_reduce>() == 3);
  CHECK(own::collectives<ep::all_reduce>() == 4);
  CHECK(any::collectives<ep::all_reduce>() == 4);
  std::ostringstream told;
  ep::explain<own>(told, ep::collectives_only);
  // What runs once is not counted with what runs in the loop.
  CHECK(told.str().find("1 per iteration") != std::string::npos);
  CHECK(told.str().find("2 per iteration") == std::string::npos);
  gives<steps>({plain({12}, 1), plain::number(0), plain::number(3)},
               {plain({12}, 0.125L), plain::number(1.5L), plain::number(3)});
}

TEST_CASE("kinds: one of two branches", "[kinds]") {
  for (const real limit : {real{0}, real{1000}}) {
    const plains in{wave(1, {10, 6}), wave(2, {6, 6}), plain::number(limit)};
    everywhere<either_program>(both_axes{}, in, plain_either(in));
  }
}

TEST_CASE("kinds: of branches the one that takes more counts", "[kinds]") {
  // Over two devices: the predicate's sum and the agreement on it. Then one branch adds up ten sums of six columns, and
  // the other one a maximum, in f64.
  using two = on<2, 1>;
  using program = either_program<two>;
  CHECK(program::collectives() == 3);
  CHECK(program::collectives<ep::all_reduce>() == 3);
  CHECK(program::bytes<ep::all_reduce>() == 8 + 1 + 6 * 8);
  // 2 x 5 x 6 x 6 for y, 30 to add its columns up; against 2 x 6 x 6 x 6 for w w.
  CHECK(program::flops() > 360);
  CHECK(program::flops() < 360 + 432);
}

TEST_CASE("kinds: one of several branches in a loop, and branches in a branch", "[kinds]") {
  plain h = wave(3, {9}), codes({8}), sums({8});
  const int given[]{0, 2, 1, -3, 2, 7, 1, 2};
  const plain x = h;
  for (int n = 0; n < 8; ++n) {
    codes(n) = given[n];
    real sum = 0;
    for (const real one : h.data) sum += one;
    for (real& one : h.data) {
      if (given[n] <= 0) {
        one += 1;
      } else if (given[n] == 1) {
        one *= sum / 9;
      } else if (sum > 0) {
        one = -one;
      }
      sums(n) += one;
    }
  }
  everywhere<interpreter_program>(data_axis{}, {x, codes}, {h, sums});
}

TEST_CASE("kinds: steps that skip gradients that are not finite", "[kinds]") {
  plains in{wave(1, {3}), wave(2, {5, 10, 3})};
  in[1](1, 4, 2) = std::numeric_limits<real>::infinity();
  in[1](3, 0, 0) = std::numeric_limits<real>::quiet_NaN();
  plain w = in[0];
  for (const int t : {0, 2, 4}) {
    plain gradient({3});
    for (int n = 0; n < 10; ++n) {
      real y = 0;
      for (int k = 0; k < 3; ++k) y += in[1](t, n, k) * w(k);
      for (int k = 0; k < 3; ++k) gradient(k) += std::exp(y) * in[1](t, n, k) / 10;
    }
    for (int k = 0; k < 3; ++k) w(k) -= gradient(k) / 2;
  }
  everywhere<careful_program>(data_axis{}, in, {w, plain::number(2)});
}

TEST_CASE("kinds: gradients of loops that run until a condition is false", "[kinds]") {
  plains in{wave(4, {3, 3}, 0.8), wave(5, {4, 10, 3})};
  for (int n = 0; n < 10; ++n) {
    for (int k = 0; k < 3; ++k) {
      in[1](1, n, k) *= 0.1L;  // small at once
      in[1](3, n, k) *= 4;
    }
  }
  for (int k = 0; k < 3; ++k) in[0](k, k) += 0.5L;
  int steps[4]{};
  static_cast<void>(plain_until_small(in, &steps[0]));
  CAPTURE(steps[0], steps[1], steps[2], steps[3]);
  CHECK(steps[1] == 0);
  CHECK(steps[0] > 1);
  CHECK(steps[3] > steps[2]);
  const auto loss = [](const plains& at) { return plain_until_small(at, nullptr); };
  everywhere<until_small_program>(data_axis{}, in, value_and_slopes(loss, in, 1), 1e-8);
}

TEST_CASE("kinds: gradients of branches in a loop, and of branches in these", "[kinds]") {
  plains in{wave(1, {3, 3}), wave(2, {3, 3}, 1.5), wave(3, {10, 3}, 0.7), plain({6})};
  const int given[]{1, 0, 1, 2, 0, 1};
  for (int t = 0; t < 6; ++t) in[3](t) = given[t];
  int taken[2]{};
  static_cast<void>(plain_chosen(in, &taken[0]));
  CAPTURE(taken[0], taken[1]);
  CHECK(taken[0] > 0);
  CHECK(taken[1] > 0);
  const auto loss = [](const plains& at) { return plain_chosen(at, nullptr); };
  everywhere<chosen_program>(data_axis{}, in, value_and_slopes(loss, in, 2), 1e-8);
}
