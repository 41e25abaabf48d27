// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

// Slices whose start is known when the program runs, along dimensions that are split and whole, against plain loops;
// and loops over stacks that are split along their layers.

namespace ep = espalier;
using namespace testing::kinds;

namespace {

/// Returns where a slice starts that is to start at `start`, in this file's own words.
int moved(real start, int extent, int size) {
  int at = static_cast<int>(start);
  while (at < 0) ++at;
  while (at + size > extent) --at;
  return at;
}
plain cut(const plain& x, int dim, int size, real start) {
  plain part(x.extents);
  part.extents[static_cast<std::size_t>(dim)] = size;
  part.data.clear();
  const int first = moved(start, x.size(dim), size);
  std::int64_t inner = 1;
  for (std::size_t d = static_cast<std::size_t>(dim) + 1; d < x.extents.size(); ++d) inner *= x.extents[d];
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / inner % x.size(dim);
    if (row >= first && row < first + size) part.data.push_back(x.data[i]);
  }
  return part;
}
plain put(const plain& x, const plain& update, int dim, real start) {
  plain made = x;
  const int first = moved(start, x.size(dim), update.size(dim));
  std::int64_t inner = 1;
  for (std::size_t d = static_cast<std::size_t>(dim) + 1; d < x.extents.size(); ++d) inner *= x.extents[d];
  std::size_t next = 0;
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / inner % x.size(dim);
    if (row >= first && row < first + update.size(dim)) made.data[i] = update.data[next++];
  }
  return made;
}

// --- forward, every type, starts of every type ----------------------------------------------------------------------

template <class On, template <int...> class Tensor, int Rows, int Columns> struct cutting {
  constexpr auto operator()(auto x, auto rows, auto columns, auto low, auto middle, auto high, auto beyond) const {
    const auto split = ep::shard<ep::axes<typename On::data, typename On::model>, ep::none>(x);
    const auto crossed = ep::reshard<typename On::model, typename On::data>(x);
    return ep::results(ep::dynamic_slice<0, 3>(split, low), ep::dynamic_slice<0, 3>(split, middle),
                       ep::dynamic_slice<0, 3>(crossed, high), ep::dynamic_slice<1, 2>(crossed, beyond),
                       // A part of each: along both dimensions, one after the other.
                       ep::dynamic_slice<1, 2>(ep::dynamic_slice<0, 3>(crossed, middle), middle),
                       // The slice is split, the tensor is whole.
                       ep::shard<typename On::model, ep::none>(ep::dynamic_slice<0, 4>(x, high)),
                       ep::dynamic_update_slice<0>(split, rows, middle),
                       ep::dynamic_update_slice<-1>(crossed, columns, beyond),
                       ep::dynamic_update_slice<0>(crossed, rows, low),
                       ep::dynamic_update_slice<0, 1>(crossed, ep::dynamic_slice<1, 2>(rows, low), high, middle));
  }
};
template <class On, template <int...> class Tensor, int Rows, int Columns>
using cutting_of = ep::program<typename On::mesh, cutting<On, Tensor, Rows, Columns>, Tensor<Rows, Columns>,
                               Tensor<3, Columns>, Tensor<Rows, 2>, ep::i8<>, ep::u32<>, ep::i64<>, ep::i32<>>;
template <class On> using even_cutting = cutting_of<On, ep::f32, 8, 8>;
template <class On> using uneven_cutting = cutting_of<On, ep::f64, 11, 7>;
template <class On> using bf16_cutting = cutting_of<On, ep::bf16, 10, 5>;
template <class On> using f16_cutting = cutting_of<On, ep::f16, 5, 9>;
template <class On> using i32_cutting = cutting_of<On, ep::i32, 9, 4>;
template <class On> using i64_cutting = cutting_of<On, ep::i64, 8, 3>;
template <class On> using u32_cutting = cutting_of<On, ep::u32, 7, 6>;
template <class On> using i8_cutting = cutting_of<On, ep::i8, 12, 4>;
template <class On> using boolean_cutting = cutting_of<On, ep::boolean, 9, 5>;

plains cutting_arguments(int rows, int columns, int below) {
  return {indices(1, {rows, columns}, below),
          indices(2, {3, columns}, below),
          indices(3, {rows, 2}, below),
          plain::number(-3),
          plain::number(2),
          plain::number(rows - 3),
          plain::number(99)};
}
plains plain_cutting(const plains& in) {
  const plain &x = in[0], &rows = in[1], &columns = in[2];
  const real low = in[3](), middle = in[4](), high = in[5](), beyond = in[6]();
  const plain corner = cut(rows, 1, 2, low);
  return {cut(x, 0, 3, low),
          cut(x, 0, 3, middle),
          cut(x, 0, 3, high),
          cut(x, 1, 2, beyond),
          cut(cut(x, 0, 3, middle), 1, 2, middle),
          cut(x, 0, 4, high),
          put(x, rows, 0, middle),
          put(x, columns, 1, beyond),
          put(x, rows, 0, low),
          put(x, put(cut(x, 0, 3, high), corner, 1, middle), 0, high)};
}

template <template <class> class Program, class Meshes> void cuts(Meshes on_these, int rows, int columns, int below) {
  const plains in = cutting_arguments(rows, columns, below);
  everywhere<Program>(on_these, in, plain_cutting(in), 0);
}
/// Which elements are cut does not depend on the type, and how they are cut not on the mesh.
using other_types = few_or_all<meshes<on<2, 2>>, both_ways>;

// --- what travels ---------------------------------------------------------------------------------------------------

template <class On> struct owners_cut {
  constexpr auto operator()(auto x, auto start) const { return ep::dynamic_slice<0, 2>(x, start); }
};
template <class On>
using owners_cut_program = ep::program<typename On::mesh, owners_cut<On>,
                                       ep::sharded<ep::f32<16, 4>, typename On::model, ep::none>, ep::i32<>>;
template <class On> struct owners_put {
  constexpr auto operator()(auto x, auto update, auto start) const {
    return ep::dynamic_update_slice<0>(x, update, start);
  }
};
template <class On>
using owners_put_program =
    ep::program<typename On::mesh, owners_put<On>,
                ep::donated<ep::sharded<ep::f32<16, 4>, typename On::model, ep::none>>, ep::f32<2, 4>, ep::i32<>>;

/// The slice travels, never the tensor; of an update nothing, and it is made where the tensor is.
template <class On> constexpr bool stays_at_home() {
  using slice = owners_cut_program<On>;
  using update = owners_put_program<On>;
  constexpr int n = On::model::size;
  bool ok = n == 1 || (slice::collectives() == 1 && slice::template collectives<ep::all_reduce>() == 1);
  ok = ok && slice::template bytes<ep::all_reduce>() == 2 * (n - 1) * 32 / n;
  ok = ok && update::collectives() == 0 && update::arena_bytes() == 0 && update::result_bytes() == 0;
  for (int id = 0; id < update::code.size; ++id) ok = ok && !update::plan.copied[id];
  return ok;
}
static_assert(stays_at_home<on<1, 1>>() && stays_at_home<on<1, 2>>() && stays_at_home<on<1, 4>>() &&
              stays_at_home<on<1, 8>>());

// --- what is read again is not overwritten --------------------------------------------------------------------------

template <class On> struct kept {
  constexpr auto operator()(auto x, auto donated, auto update, auto at) const {
    const auto rows = ep::shard<ep::axes<typename On::data, typename On::model>, ep::none>(x);
    const auto once = ep::dynamic_update_slice<0>(rows, update, at);             // x is the caller's
    const auto twice = ep::dynamic_update_slice<0>(once, update * 2.0, at + 2);  // in place of `once`
    const auto other = ep::dynamic_update_slice<0>(twice, update * 3.0, at - 1);
    // `twice` is read by both, and after the update.
    const auto old = donated * 2.0 + 1.0;
    const auto written = ep::dynamic_update_slice<0>(donated, update, at);
    return ep::results(written, other, twice, old, ep::sum<0>(twice * other));
  }
};

template <class On>
using kept_program =
    ep::program<typename On::mesh, kept<On>, ep::f64<9, 3>, ep::donated<ep::f64<9, 3>>, ep::f64<2, 3>, ep::i32<>>;

plains plain_kept(const plains& in) {
  plain doubled = in[2], tripled = in[2], old = in[1];
  for (real& one : doubled.data) one *= 2;
  for (real& one : tripled.data) one *= 3;
  for (real& one : old.data) one = one * 2 + 1;
  const plain twice = put(put(in[0], in[2], 0, in[3]()), doubled, 0, in[3]() + 2);
  const plain other = put(twice, tripled, 0, in[3]() - 1);
  plain sums({3});
  for (int i = 0; i < 9; ++i) {
    for (int j = 0; j < 3; ++j) sums(j) += twice(i, j) * other(i, j);
  }
  return {put(in[1], in[2], 0, in[3]()), other, twice, old, sums};
}

/// A carry that its own update reads, one that is read after its update, two that start from the same value, and one
/// whose last value is updated after the loop.
template <class On> struct carried {
  constexpr auto operator()(auto x, auto y, auto update) const {
    const auto body = [&](const auto& c, auto step) {
      const auto& a = c.template get<0>();
      const auto& b = c.template get<1>();
      const auto& d = c.template get<2>();
      const auto now = ep::dynamic_update_slice<0>(a, ep::dynamic_slice<0, 2>(a, step + 1) * 0.5 + update, step);
      const auto then = ep::dynamic_update_slice<0>(b, update, step * 2);
      const auto sums = ep::sum<0>(b * then);
      return ep::results(
          ep::results(now, then, ep::dynamic_update_slice<1>(d, ep::reshape<7, 1>(ep::sum<1>(now)), step)), sums);
    };
    const auto split = ep::shard<typename On::data, typename On::model>(x);
    const auto out = ep::repeat<4>(body, ep::results(split, split, ep::shard<ep::none, typename On::model>(y)));
    const auto& last = out.template get<0>();
    const auto a = last.template get<0>();
    return ep::results(ep::dynamic_update_slice<0>(a, update, ep::constant<ep::i32<>>(a, 5)), last.template get<1>(),
                       last.template get<2>(), out.template get<1>());
  }
};

template <class On>
using carried_program =
    ep::program<typename On::mesh, carried<On>, ep::f64<7, 4>, ep::donated<ep::f64<7, 5>>, ep::f64<2, 4>>;

plains plain_carried(const plains& in) {
  plain a = in[0], b = in[0], d = in[1], sums({4, 4});
  const plain& update = in[2];
  for (int t = 0; t < 4; ++t) {
    plain row = cut(a, 0, 2, t + 1);
    for (std::size_t i = 0; i < row.data.size(); ++i) row.data[i] = row.data[i] / 2 + update.data[i];
    a = put(a, row, 0, t);
    const plain then = put(b, update, 0, 2 * t);
    for (int i = 0; i < 7; ++i) {
      real sum = 0;
      for (int j = 0; j < 4; ++j) {
        sums(t, j) += b(i, j) * then(i, j);
        sum += a(i, j);
      }
      d(i, t) = sum;
    }
    b = then;
  }
  return {put(a, update, 0, 5), b, d, sums};
}

// --- gradients ------------------------------------------------------------------------------------------------------

template <class On> struct differentiated {
  constexpr auto operator()(auto x, auto update, auto at, auto other, auto weight) const {
    const auto loss = [&](const auto& p) {
      const auto v = ep::shard<typename On::data, typename On::model>(p.template get<0>());
      const auto part = ep::dynamic_slice<0, 3>(v, at);
      const auto inner = ep::dynamic_slice<1, 2>(part * part, other);
      const auto all = ep::dynamic_update_slice<0>(ep::tanh(v), p.template get<1>(), other);
      const auto both = ep::dynamic_update_slice<0, 1>(all * weight, inner, at, other);
      return ep::sum(inner) + ep::sum(both * both * weight);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(x, update));
    return ep::results(value, gradient);
  }
};
template <class On>
using differentiated_program = ep::program<typename On::mesh, differentiated<On>, ep::f64<9, 6>, ep::f64<2, 6>,
                                           ep::i32<>, ep::i64<>, ep::f64<9, 6>>;

real plain_differentiated(const plains& in) {
  const plain &x = in[0], &weight = in[4];
  const real at = in[2](), other = in[3]();
  plain square = cut(x, 0, 3, at);
  for (real& one : square.data) one *= one;
  const plain inner = cut(square, 1, 2, other);
  plain all = x;
  for (real& one : all.data) one = std::tanh(one);
  all = put(all, in[1], 0, other);
  for (std::size_t i = 0; i < all.data.size(); ++i) all.data[i] *= weight.data[i];
  const plain both = put(all, put(cut(all, 0, 3, at), inner, 1, other), 0, at);
  real total = 0;
  for (const real one : inner.data) total += one;
  for (std::size_t i = 0; i < both.data.size(); ++i) total += both.data[i] * both.data[i] * weight.data[i];
  return total;
}

/// A slice in a loop: each step reads one row of a table and writes one row of a history.
template <class On> struct recurrent {
  constexpr auto operator()(auto table, auto weight) const {
    const auto loss = [&](auto t) {
      const auto rows = ep::shard<ep::axes<typename On::data, typename On::model>, ep::none>(t);
      const auto body = [&](const auto& history, auto step) {
        const auto before = ep::dynamic_slice<0, 1>(history, step - 1);
        const auto row = ep::tanh(ep::dynamic_slice<0, 1>(rows, step * 2) + before * 0.5);
        return ep::dynamic_update_slice<0>(history, row, step);
      };
      const auto start = ep::constant<ep::f64<5, 3>>(t, 0.25);
      return ep::sum(ep::repeat<5>(body, ep::shard<typename On::model, ep::none>(start)) * weight);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(table);
    return ep::results(value, gradient);
  }
};
template <class On>
using recurrent_program = ep::program<typename On::mesh, recurrent<On>, ep::f64<7, 3>, ep::f64<5, 3>>;

real plain_recurrent(const plains& in) {
  plain history({5, 3}, 0.25L);
  for (int t = 0; t < 5; ++t) {
    const plain before = cut(history, 0, 1, t - 1);
    plain row = cut(in[0], 0, 1, 2 * t);
    for (int j = 0; j < 3; ++j) row(0, j) = std::tanh(row(0, j) + before(0, j) / 2);
    history = put(history, row, 0, t);
  }
  real total = 0;
  for (std::size_t i = 0; i < history.data.size(); ++i) total += history.data[i] * in[1].data[i];
  return total;
}

// --- bit by bit -----------------------------------------------------------------------------------------------------

/// The sign of a zero shows in 1 / x.
template <class On> struct signs {
  constexpr auto operator()(auto x, auto at) const {
    const auto rows = ep::shard<ep::axes<typename On::data, typename On::model>>(x);
    return 1.0 / ep::dynamic_slice<0, 5>(rows, at);
  }
};
template <class On> using signs_program = ep::program<typename On::mesh, signs<On>, ep::f32<8>, ep::i32<>>;
template <class On> using short_signs_program = ep::program<typename On::mesh, signs<On>, ep::bf16<8>, ep::i32<>>;

// --- a KV cache -----------------------------------------------------------------------------------------------------

inline constexpr int layers = 4, heads = 4, positions = 12, width = 3, steps = 5;

/// Decodes `steps` tokens: in every layer the step's key and value go into the cache, and all up to it are attended to.
template <class On> struct decode {
  constexpr auto operator()(auto keys, auto values, auto x, auto wq, auto wk, auto wv, auto start) const {
    const auto token = [&](const auto& carry, auto step) {
      const auto at = start + step;
      const auto layer = [&](const auto& c, auto l) {
        const auto h = c.template get<0>();
        const auto of_layer = [&](auto w) { return ep::reshape<heads, width>(ep::dynamic_slice<0, 1>(w, l)); };
        const auto row = [&](auto one) { return ep::reshape<1, heads, 1, width>(one); };
        const auto all = [&](auto one) {
          return ep::reshape<heads, positions, width>(ep::dynamic_slice<0, 1>(one, l));
        };
        const auto k = ep::dynamic_update_slice<0, 2>(c.template get<1>(), row(ep::tanh(h * of_layer(wk))), l, at);
        const auto v = ep::dynamic_update_slice<0, 2>(c.template get<2>(), row(h * of_layer(wv)), l, at);
        const auto scores = ep::einsum<"hd,hpd->hp">(h * of_layer(wq), all(k));
        const auto seen = ep::iota<ep::i32<heads, positions>, 1>(h) <= at;
        const auto weights =
            ep::softmax<1>(ep::select(seen, scores, ep::constant<ep::f64<heads, positions>>(h, -1e30)));
        const auto next = h + ep::einsum<"hp,hpd->hd">(weights, all(v));
        return ep::results(next, k, v);
      };
      const auto done = ep::repeat<layers>(layer, carry);
      return ep::results(done, done.template get<0>());
    };
    const auto out = ep::repeat<steps>(token, ep::results(x, keys, values));
    const auto& last = out.template get<0>();
    return ep::results(last.template get<1>(), last.template get<2>(), out.template get<1>());
  }
};
template <class On, class... Entries>
using cache_of = ep::donated<ep::sharded<ep::f64<layers, heads, positions, width>, Entries...>>;
template <class On, class Cache>
using decode_of =
    ep::program<typename On::mesh, decode<On>, Cache, Cache, ep::f64<heads, width>, ep::f64<layers, heads, width>,
                ep::f64<layers, heads, width>, ep::f64<layers, heads, width>, ep::i32<>>;
template <class On>
using decode_program = decode_of<On, cache_of<On, ep::none, typename On::data, typename On::model, ep::none>>;
/// Split along its layers, too.
template <class On>
using layered_decode_program = decode_of<On, cache_of<On, typename On::data, ep::none, typename On::model, ep::none>>;

plains plain_decode(const plains& in) {
  plain keys = in[0], values = in[1], h = in[2], said({steps, heads, width});
  for (int t = 0; t < steps; ++t) {
    const int at = static_cast<int>(in[6]()) + t;
    const int row = at < positions ? at : positions - 1;
    for (int l = 0; l < layers; ++l) {
      plain next = h;
      for (int n = 0; n < heads; ++n) {
        std::vector<real> weights;
        real total = 0;
        for (int d = 0; d < width; ++d) {
          keys(l, n, row, d) = std::tanh(h(n, d) * in[4](l, n, d));
          values(l, n, row, d) = h(n, d) * in[5](l, n, d);
        }
        for (int p = 0; p < positions && p <= at; ++p) {
          real score = 0;
          for (int d = 0; d < width; ++d) score += h(n, d) * in[3](l, n, d) * keys(l, n, p, d);
          weights.push_back(std::exp(score));
          total += weights.back();
        }
        for (std::size_t p = 0; p < weights.size(); ++p) {
          for (int d = 0; d < width; ++d) next(n, d) += weights[p] / total * values(l, n, static_cast<int>(p), d);
        }
      }
      h = next;
    }
    for (int n = 0; n < heads; ++n) {
      for (int d = 0; d < width; ++d) said(t, n, d) = h(n, d);
    }
  }
  return {keys, values, said};
}

/// No step copies the cache, nor does the call: it is updated in the caller's own memory, and nowhere else.
template <class Program> constexpr bool keeps_its_cache() {
  const ep::layout& cache = Program::argument_layout(0);
  const ep::extents part = ep::local_shape(Program::mesh::value, cache.shape, cache.placement);
  bool ok = true;
  int updates = 0;
  for (int id = 0; id < Program::code.size; ++id) {
    const ep::instruction& i = Program::code.code[id];
    if (i.op != &ep::ops::result && i.shape == part)
      ok = ok && !Program::plan.copied[id] && Program::plan.where[id].space == ep::memory_space::argument;
    if (i.op == &ep::ops::result && i.operand_count == 2) ok = ok && !Program::plan.copied[id];
    updates += i.op == &ep::ops::dynamic_update_slice ? 1 : 0;
  }
  return ok && updates == 2;
}
static_assert(keeps_its_cache<decode_program<on<1, 1>>>() && keeps_its_cache<decode_program<on<2, 2>>>());
static_assert(keeps_its_cache<layered_decode_program<on<2, 1>>>());

// --- a stack of layers that is split along its layers ---------------------------------------------------------------

/// Trains a stack of layers one step; `Further` splits the layers' columns where they are used.
template <class On, class Further> struct pipeline_free {
  constexpr auto operator()(auto w, auto gain, auto x, auto weight) const {
    const auto loss = [&](const auto& p) {
      const auto body = [](auto h, const auto& layer) {
        const auto one = ep::shard<ep::none, Further>(layer.template get<0>());
        return ep::tanh(ep::matmul(h, one)) * layer.template get<1>() + h;
      };
      return ep::sum(ep::scan(body, x, p) * weight);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, gain));
    return ep::results(w - 0.5 * gradient.template get<0>(), gain - 0.5 * gradient.template get<1>(), value);
  }
};
template <class On, int Layers, class Further, class... Along>
using layered =
    ep::program<typename On::mesh, pipeline_free<On, Further>,
                ep::donated<ep::sharded<ep::f64<Layers, 4, 4>, Along..., ep::none, ep::none>>,
                ep::donated<ep::sharded<ep::f64<Layers, 4>, Along..., ep::none>>, ep::f64<3, 4>, ep::f64<3, 4>>;
template <class On> using even_layers = layered<On, 8, ep::none, typename On::data>;
template <class On> using uneven_layers = layered<On, 5, ep::none, ep::axes<typename On::data, typename On::model>>;
template <class On> using split_layers = layered<On, 4, typename On::model, typename On::data>;
template <class On>
using scattered_layers = layered<On, 6, typename On::model, ep::axes<typename On::data, typename On::model>>;

real plain_loss_of_layers(const plains& in) {
  plain h = in[2];
  for (int l = 0; l < in[0].size(0); ++l) {
    plain next = h;
    for (int b = 0; b < 3; ++b) {
      for (int j = 0; j < 4; ++j) {
        real sum = 0;
        for (int i = 0; i < 4; ++i) sum += h(b, i) * in[0](l, i, j);
        next(b, j) += std::tanh(sum) * in[1](l, j);
      }
    }
    h = next;
  }
  real total = 0;
  for (std::size_t i = 0; i < h.data.size(); ++i) total += h.data[i] * in[3].data[i];
  return total;
}
plains plain_layers(const plains& in) {
  plains slopes = value_and_slopes(plain_loss_of_layers, in, 2);
  for (std::size_t leaf = 0; leaf < 2; ++leaf) {
    plain& slope = slopes[leaf + 1];
    for (std::size_t i = 0; i < slope.data.size(); ++i) slope.data[i] = in[leaf].data[i] - slope.data[i] / 2;
  }
  return {slopes[1], slopes[2], slopes[0]};
}
plains layers_arguments(int count) {
  return {wave(1, {count, 4, 4}), wave(2, {count, 4}), wave(3, {3, 4}), wave(4, {3, 4})};
}

/// One layer travels at a time, and no device ever has room for more of the stack than its part and some layers.
template <class Program> constexpr bool one_layer_travels(std::int64_t reductions) {
  bool ok = Program::template collectives<ep::all_gather>() == 0 &&
            Program::template collectives<ep::all_to_all>() == 0 &&
            Program::template collectives<ep::all_reduce>() + Program::template collectives<ep::exchange>() ==
                Program::collectives() &&
            Program::template collectives<ep::collective_permute>() == 0;
  ok = ok && (Program::mesh::devices == 1 || Program::collectives() == reductions);
  const ep::layout& stack = Program::argument_layout(0);
  const std::int64_t part = 8 * ep::local_shape(Program::mesh::value, stack.shape, stack.placement).elements();
  for (int id = 0; id < Program::code.size; ++id) {
    const ep::instruction& i = Program::code.code[id];
    if (i.shape.rank == 3 && i.shape[1] == 4) ok = ok && ep::bytes_of(i) <= part;
  }
  return ok;
}
// A layer and its gain as one, forward and in the gradient; the gradients are the same on all devices.
static_assert(one_layer_travels<even_layers<on<1, 1>>>(0) && one_layer_travels<even_layers<on<2, 1>>>(16) &&
              one_layer_travels<even_layers<on<8, 1>>>(16));

/// A loop's stacked outputs may be split along its iterations, and another loop may read them so.
template <class On> struct handed_out {
  constexpr auto operator()(auto x, auto xs) const {
    const auto first = ep::scan(
        [](auto h, auto one) {
          const auto next = ep::tanh(h + one);
          return ep::results(next, ep::results(next * one, h > one));
        },
        x, xs);
    const auto ys =
        ep::shard<ep::axes<typename On::data, typename On::model>, ep::none>(first.template get<1>().template get<0>());
    const auto above = ep::shard<typename On::model, ep::none>(first.template get<1>().template get<1>());
    const auto second = ep::scan(
        [](auto h, const auto& both) {
          return ep::select(both.template get<1>(), h * 0.5 + both.template get<0>(), h - both.template get<0>());
        },
        x, ep::results(ys, above));
    return ep::results(ys, above, second);
  }
};
template <class On> using handed_program = ep::program<typename On::mesh, handed_out<On>, ep::f32<3>, ep::f32<6, 3>>;

plains plain_handed(const plains& in) {
  plain h = in[0], ys({6, 3}), above({6, 3}), last = in[0];
  for (int t = 0; t < 6; ++t) {
    for (int j = 0; j < 3; ++j) {
      above(t, j) = h(j) > in[1](t, j) ? 1 : 0;
      h(j) = std::tanh(h(j) + in[1](t, j));
      ys(t, j) = h(j) * in[1](t, j);
    }
  }
  for (int t = 0; t < 6; ++t) {
    for (int j = 0; j < 3; ++j) last(j) = above(t, j) != 0 ? last(j) / 2 + ys(t, j) : last(j) - ys(t, j);
  }
  return {ys, above, last};
}

}  // namespace

TEST_CASE("dynamic slices and updates of floats, starts of every type, even and uneven", "[kinds]") {
  cuts<even_cutting>(both_ways{}, 8, 8, 100);
  cuts<uneven_cutting>(both_ways{}, 11, 7, 100);
  cuts<bf16_cutting>(other_types{}, 10, 5, 100);
  cuts<f16_cutting>(other_types{}, 5, 9, 100);
}

TEST_CASE("dynamic slices and updates of integers and truth values", "[kinds]") {
  cuts<i32_cutting>(other_types{}, 9, 4, 100);
  cuts<i64_cutting>(other_types{}, 8, 3, 100);
  cuts<u32_cutting>(other_types{}, 7, 6, 100);
  cuts<i8_cutting>(other_types{}, 12, 4, 100);
  cuts<boolean_cutting>(other_types{}, 9, 5, 2);
}

TEST_CASE("dynamic slices move slices, dynamic updates nothing", "[kinds]") {
  const plains in{wave(1, {16, 4}), plain::number(7)};
  const plains with_update{wave(1, {16, 4}), wave(2, {2, 4}), plain::number(7)};
  everywhere<owners_cut_program>(model_axis{}, in, {cut(in[0], 0, 2, 7)}, 1e-7);
  everywhere<owners_put_program>(model_axis{}, with_update, {put(in[0], with_update[1], 0, 7)}, 1e-7);
}

TEST_CASE("dynamic updates overwrite nothing that is read again", "[kinds]") {
  for (const int at : {0, 3, 8}) {
    const plains in{wave(1, {9, 3}), wave(2, {9, 3}), wave(3, {2, 3}), plain::number(at)};
    everywhere<kept_program>(both_ways{}, in, plain_kept(in), 1e-14);
  }
  const plains in{wave(1, {7, 4}), wave(2, {7, 5}), wave(3, {2, 4})};
  everywhere<carried_program>(both_axes{}, in, plain_carried(in), 1e-14);
}

TEST_CASE("gradients of dynamic slices and updates", "[kinds]") {
  for (const int at : {-1, 2, 7}) {
    const plains in{wave(1, {9, 6}), wave(2, {2, 6}), plain::number(at), plain::number(3), wave(3, {9, 6})};
    everywhere<differentiated_program>(both_ways{}, in, value_and_slopes(plain_differentiated, in, 2), 1e-9);
  }
  const plains in{wave(1, {7, 3}), wave(2, {5, 3})};
  everywhere<recurrent_program>(both_axes{}, in, value_and_slopes(plain_recurrent, in, 1), 1e-9);
}

TEST_CASE("a dynamic slice is the same bit by bit on any number of devices", "[kinds]") {
  const real infinity = std::numeric_limits<real>::infinity();
  plain x({8});
  x.data = {1, -0.0L, 0.0L, -infinity, std::numeric_limits<real>::quiet_NaN(), -0.0L, -2, infinity};
  const plains expected{[&] {
    plain y({5});
    y.data = {-infinity, infinity, -0.0L, std::numeric_limits<real>::quiet_NaN(), -infinity};
    return y;
  }()};
  everywhere<signs_program>(both_ways{}, {x, plain::number(1)}, expected, 0);
  everywhere<short_signs_program>(both_ways{}, {x, plain::number(1)}, expected, 0);
}

TEST_CASE("a KV cache that is split over heads, layers and positions", "[kinds]") {
  for (const int start : {0, 4, 9}) {
    const plains in{wave(1, {layers, heads, positions, width}),
                    wave(2, {layers, heads, positions, width}),
                    wave(3, {heads, width}),
                    wave(4, {layers, heads, width}),
                    wave(5, {layers, heads, width}),
                    wave(6, {layers, heads, width}),
                    plain::number(start)};
    everywhere<decode_program>(both_ways{}, in, plain_decode(in), 1e-12);
    everywhere<layered_decode_program>(both_ways{}, in, plain_decode(in), 1e-12);
  }
}

TEST_CASE("loops over stacks that are split along their layers", "[kinds]") {
  everywhere<even_layers>(data_axis{}, layers_arguments(8), plain_layers(layers_arguments(8)), 1e-9);
  everywhere<uneven_layers>(both_ways{}, layers_arguments(5), plain_layers(layers_arguments(5)), 1e-9);
  everywhere<split_layers>(both_ways{}, layers_arguments(4), plain_layers(layers_arguments(4)), 1e-9);
  everywhere<scattered_layers>(both_axes{}, layers_arguments(6), plain_layers(layers_arguments(6)), 1e-9);
}

TEST_CASE("a loop's outputs that are split along its iterations", "[kinds]") {
  const plains in{wave(1, {3}), wave(2, {6, 3})};
  everywhere<handed_program>(both_ways{}, in, plain_handed(in), 1e-6);
}
