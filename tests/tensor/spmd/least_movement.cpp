// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

// Programs whose layouts meet where tensors are large, although a change of layout costs little before or after that.
// The bytes are the least that any plan sends, derived beside each row.

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <catch2/catch.hpp>
#include <support/run_program.hpp>

#include <cstdint>

namespace ep = espalier;

namespace {

using ep::f32;
using ep::none;

template <class Program> void agrees(double tolerance = 1e-5) {
  ep::world world(Program::mesh::value);
  const testing::comparison seen = testing::run_and_compare<Program>(world);
  CHECK(seen.finite);
  CHECK(seen.compared > 0);
  CHECK(seen.worst < tolerance);
}

/// Bytes that the device which sends most sends, in all collectives together.
template <class Program> constexpr std::int64_t sent() {
  return Program::template bytes<ep::all_reduce>() + Program::template bytes<ep::all_gather>() +
         Program::template bytes<ep::reduce_scatter>() + Program::template bytes<ep::all_to_all>() +
         Program::template bytes<ep::collective_permute>() + Program::template bytes<ep::exchange>();
}
template <class Program> constexpr bool sends(int collectives, std::int64_t bytes) {
  return Program::collectives() == collectives && sent<Program>() == bytes;
}

// --- the large side of a broadcast
// ------------------------------------------------------------------------------------

/// Forces between all pairs of points.
struct pairs {
  constexpr auto operator()(const auto& a) const {
    const auto d = ep::expand_dims<0>(a) - ep::expand_dims<1>(a);
    const auto r = ep::sum<2>(d * d) + 0.01;
    return ep::sum<0>(d * ep::expand_dims<-1>(1.0 / (r * ep::sqrt(r))));
  }
};
struct pairs_gradient {
  constexpr auto operator()(const auto& a) const {
    return ep::grad([](const auto& x) { return ep::sum(pairs{}(x)*pairs{}(x)); })(a);
  }
};
/// Returns the number of the nearest centre of each point.
struct nearest {
  constexpr auto operator()(const auto& points, const auto& centres) const {
    const auto d = ep::expand_dims<1>(points) - ep::expand_dims<0>(centres);
    return ep::argmin<1>(ep::sum<2>(d * d));
  }
};
struct outer {
  constexpr auto operator()(const auto& a, const auto& b) const {
    return ep::expand_dims<1>(a) * ep::expand_dims<0>(b);
  }
};
template <int Classes> struct one_hot_whole {
  constexpr auto operator()(const auto& i) const { return ep::reshard<none, none>(ep::one_hot<Classes>(i)); }
};
struct outer_whole {
  constexpr auto operator()(const auto& c, const auto& a) const {
    return ep::shard<none, none, none>(ep::einsum<"c,bd->bcd">(c, a));
  }
};
template <int Devices> struct line {
  struct x : ep::axis<"x", Devices> {};
  using mesh = ep::mesh<x>;
  template <class T> using rows = ep::sharded<T, x, none>;
  template <int N> using points = ep::program<mesh, pairs, rows<f32<N, 3>>>;
  template <int N> using points_gradient = ep::program<mesh, pairs_gradient, rows<f32<N, 3>>>;
  template <int N, int K> using clusters = ep::program<mesh, nearest, rows<f32<N, 8>>, rows<f32<K, 8>>>;
  template <int N> using products = ep::program<mesh, outer, ep::sharded<f32<N>, x>, ep::sharded<f32<N>, x>>;
  template <int N, int C> using classes = ep::program<mesh, one_hot_whole<C>, ep::sharded<ep::i32<N>, x>>;
  template <int C, int B, int D> using cube = ep::program<mesh, outer_whole, ep::sharded<f32<C>, x>, f32<B, D>>;
};
// A device needs all rows of one operand and has a quarter of them: it lacks three quarters of n bytes, which all
// devices together send. The other operand and the result stay.
static_assert(sends<line<4>::points<4096>>(1, 4096 * 3 * 4 * 3 / 4));
static_assert(sends<line<4>::clusters<65536, 64>>(1, 64 * 8 * 4 * 3 / 4));
static_assert(sends<line<4>::products<1024>>(1, 1024 * 4 * 3 / 4));
// What a result of many elements is made of: 4,096 indices, 128 numbers.
static_assert(sends<line<4>::classes<4096, 1000>>(1, 4096 * 4 * 3 / 4));
static_assert(sends<line<4>::cube<128, 512, 192>>(1, 128 * 4 * 3 / 4));
// One broadcast is computed whole where it is read, not stored whole and cut: a quarter of 64 x 64 x 3 at a time.
static_assert(line<4>::points<64>::peak_bytes_per_device() < 64 * 64 * 3 * 4 * 2);

// --- the order of axes
// ------------------------------------------------------------------------------------------------

struct x2 : ep::axis<"x", 2> {};
struct y2 : ep::axis<"y", 2> {};
using square = ep::mesh<x2, y2>;
template <int N, int M> using split_twice = ep::sharded<f32<N, M>, ep::axes<x2, y2>, none>;

template <class... Entries> struct sum_to {
  constexpr auto operator()(const auto& a) const { return ep::shard<Entries...>(ep::sum<1>(a)); }
};
template <class... Entries> struct largest_to {
  constexpr auto operator()(const auto& a) const { return ep::shard<Entries...>(ep::max<1>(a)); }
};
template <class... Entries> struct product_to {
  constexpr auto operator()(const auto& a, const auto& b) const {
    return ep::shard<Entries..., none>(ep::matmul(a, b));
  }
};
template <class... Entries> struct chain_to {
  constexpr auto operator()(const auto& a) const { return ep::shard<Entries...>(ep::sum<1>(ep::tanh(a) * 2.0)); }
};
using reversed = ep::axes<y2, x2>;
template <class Function, int N, class... More>
using of_rows = ep::program<square, Function, split_twice<N, 1024>, More...>;
// Two of four devices have to exchange their rows of the result, 64 x 4 bytes; for fewer axes a device needs 128 of
// them and has at most 64 of those.
static_assert(sends<of_rows<sum_to<reversed>, 256>>(1, 256) && sends<of_rows<largest_to<reversed>, 256>>(1, 256));
static_assert(sends<of_rows<chain_to<reversed>, 256>>(1, 256) && sends<of_rows<sum_to<y2>, 256>>(1, 512));
static_assert(sends<of_rows<product_to<reversed>, 256, f32<1024, 8>>>(1, 2048));
static_assert(sends<of_rows<product_to<y2>, 256, f32<1024, 8>>>(1, 4096));

// --- a chain of products
// ----------------------------------------------------------------------------------------------

/// Attention whose queries lie by heads and whose keys and values lie by places of the sequence, and the projection
/// after it, whose result does.
template <class Model> struct attend {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& w) const {
    const auto loss = [](const auto& query, const auto& key, const auto& value, const auto& weight) {
      const auto o = ep::nn::causal_attention(query, key, value);
      const auto y = ep::shard<none, Model, none>(ep::einsum<"bshd,hdw->bsw">(o, weight));
      return ep::sum(y * y);
    };
    return ep::grad<0, 1, 2, 3>(loss)(q, k, v, w);
  }
};
/// Experts that are split over the devices, groups of tokens that are, too; nothing else is annotated.
struct experts {
  constexpr auto operator()(const auto& x, const auto& mask, const auto& w_in, const auto& w_out) const {
    const auto in = ep::einsum<"gsec,gsm->egcm">(mask, x);
    const auto h = ep::relu(ep::einsum<"egcm,emh->egch">(in, w_in));
    return ep::einsum<"gsec,egcm->gsm">(mask, ep::einsum<"egch,ehm->egcm">(h, w_out));
  }
};
template <int Devices, int Sequence, int Capacity> struct models {
  struct x : ep::axis<"x", Devices> {};
  using mesh = ep::mesh<x>;
  using by_heads = ep::sharded<f32<2, Sequence, 8, 16>, none, none, x, none>;
  using by_places = ep::sharded<f32<2, Sequence, 8, 16>, none, x, none, none>;
  using attention = ep::program<mesh, attend<x>, by_heads, by_places, by_places, f32<8, 16, 128>>;
  static constexpr int tokens = 2 * Capacity;
  using mixture = ep::program<mesh, experts, ep::sharded<f32<4, tokens, 16>, x, none, none>,
                              ep::sharded<f32<4, tokens, 8, Capacity>, x, none, none, none>,
                              ep::sharded<f32<8, 16, 64>, x, none, none>, ep::sharded<f32<8, 64, 16>, x, none, none>>;
};
// Six tensors of 2 x 256 x 8 x 16 change between heads and places: keys and values, their gradients, the attention's
// result and its gradient; a device sends three quarters of its quarter. The projection is gathered, and its gradient
// scattered: 8 x 16 x 128.
static_assert(sent<models<4, 256, 4>::attention>() ==
              6 * (2 * 256 * 8 * 16 * 4 / 4 * 3 / 4) + 2 * (8 * 16 * 128 * 4 / 4 * 3));
// Tokens go to their experts and come back: 8 x 4 x capacity x 16.
static_assert(sends<models<4, 256, 64>::mixture>(2, 2 * (8 * 4 * 64 * 16 * 4 / 4 * 3 / 4)));

// --- a state that loops carry
// -------------------------------------------------------------------------------------

struct two : ep::axis<"two", 2> {};
using pair_of_devices = ep::mesh<two>;
template <class T> using by_columns = ep::sharded<T, none, two, none>;

/// Reads the state in two other layouts; all else is computed where the state is.
struct turn {
  constexpr auto operator()(const auto& s) const {
    const auto a = ep::shard<two, none, none>(ep::roll<0, 2>(s));
    const auto b = ep::shard<none, none, two>(ep::roll<2, 3>(s));
    const auto c = ep::shard<none, two, none>(ep::tanh(ep::roll<0, 1>(s)));
    return s + 0.25 * (a - b) + 0.125 * c * s;
  }
};
/// Computes the next state in another layout than the first one has.
struct by_rows {
  constexpr auto operator()(const auto& s) const {
    const auto t = ep::shard<two, none, none>(ep::tanh(s));
    return 0.5 * t + 0.25 * t * s;
  }
};
/// Two states, of which each is needed for both next ones.
struct both_by_rows {
  constexpr auto operator()(const auto& s) const {
    const auto [x, y] = s;
    const auto t = ep::shard<two, none, none>(ep::tanh(x + y));
    return ep::results(y * t + x, x * t);
  }
};
template <class Step, int Times> struct looped {
  constexpr auto operator()(const auto& s) const { return ep::repeat<Times>(Step{}, s); }
};
template <class Step, int Times> struct unrolled {
  constexpr auto operator()(const auto& s) const {
    if constexpr (Times == 1) {
      return Step{}(s);
    } else {
      return unrolled<Step, Times - 1>{}(Step{}(s));
    }
  }
};
struct both_looped {
  constexpr auto operator()(const auto& x, const auto& y) const {
    const auto [p, q] = ep::repeat<3>(both_by_rows{}, ep::results(x, y));
    return ep::results(ep::shard<none, two, none>(p), q);
  }
};
/// Two fields, one by rows and one by columns, of which each is needed for both next ones, and a number that needs
/// both.
template <class Through> struct two_fields {
  constexpr auto operator()(const auto& s) const {
    const auto [u, v, number] = s;
    const auto a = ep::shard<two, none>(u);
    const auto b = ep::shard<none, two>(v);
    return ep::results(a + 0.1 * Through{}(b), b - 0.1 * Through{}(a), number + ep::sum(a * b));
  }
};
struct as_it_is {
  constexpr auto operator()(const auto& x) const { return x; }
};
struct through_tanh {
  constexpr auto operator()(const auto& x) const { return ep::tanh(x); }
};
template <class Through, int Times> struct fields_looped {
  constexpr auto operator()(const auto& u, const auto& v, const auto& number) const {
    return ep::repeat<Times>(two_fields<Through>{}, ep::results(u, v, number));
  }
};
template <class Through, int A, int B>
using fields = ep::program<pair_of_devices, fields_looped<Through, 5>, ep::sharded<f32<A, B>, two, none>,
                           ep::sharded<f32<A, B>, none, two>, f32<>>;
template <class Function, class... T> using on_pair = ep::program<pair_of_devices, Function, by_columns<T>...>;

/// Elements that the two devices send for a change of the layout of `[A, B, C]` from columns to rows; the first has as
/// many rows and columns as the second, or one more. Back again they send as many the other way round.
template <int A, int B, int C> struct to_rows {
  static constexpr std::int64_t first = std::int64_t{A / 2} * ((B + 1) / 2) * C;
  static constexpr std::int64_t second = std::int64_t{(A + 1) / 2} * (B / 2) * C;
  static constexpr std::int64_t there_and_back = first + second;
  static constexpr std::int64_t most = first > second ? first : second;
};
/// In each step the operands of the two shifts go to their layouts and the shifts come back: four changes, of which a
/// device sends the one way and the other of both.
template <int A, int B, int C> constexpr std::int64_t least_of_turn(int times, int bytes) {
  return times * bytes * (to_rows<A, B, C>::there_and_back + to_rows<C, B, A>::there_and_back);
}
/// Bytes that the device which sends most sends in a run. (Uneven shards: it is not the same one in each collective.)
template <class Program> constexpr std::int64_t sent_by_one() {
  std::int64_t most = 0;
  for (int device = 0; device < Program::mesh::devices; ++device) {
    std::int64_t bytes = 0;
    for (int id = 0; id < Program::code.size; ++id) {
      if (ep::starts_collective(Program::code.code[id]))
        bytes += ep::detail::repetitions(Program::code, id) * Program::sent_bytes_of(id, device);
    }
    most = bytes > most ? bytes : most;
  }
  return most;
}
template <template <int...> class T, int A, int B, int C> constexpr bool loop_turns_with_least(int bytes) {
  return sent_by_one<on_pair<looped<turn, 4>, T<A, B, C>>>() == least_of_turn<A, B, C>(4, bytes);
}
template <template <int...> class T, int A, int B, int C> constexpr bool steps_turn_with_least(int bytes) {
  return sent_by_one<on_pair<unrolled<turn, 3>, T<A, B, C>>>() == least_of_turn<A, B, C>(3, bytes);
}
// 240 elements: (3 x 3 + 3 x 2) x 8 for the first shift, (4 x 3 + 4 x 2) x 6 for the second.
static_assert(least_of_turn<6, 5, 8>(1, 4) == 960);
static_assert(loop_turns_with_least<ep::f64, 6, 5, 8>(8) && steps_turn_with_least<ep::f64, 6, 5, 8>(8));
static_assert(loop_turns_with_least<f32, 24, 20, 32>(4) && steps_turn_with_least<f32, 24, 20, 32>(4));
static_assert(loop_turns_with_least<f32, 128, 100, 128>(4) && steps_turn_with_least<f32, 128, 100, 128>(4));
static_assert(loop_turns_with_least<f32, 7, 9, 11>(4));
// Small tensors count as often as the loop runs.
static_assert(loop_turns_with_least<f32, 6, 5, 8>(4));
// The state changes its layout once, before the loop; of two states both do, and one changes back after it.
static_assert(sends<on_pair<looped<by_rows, 5>, f32<6, 5, 8>>>(1, to_rows<6, 5, 8>::most * 4));
static_assert(sends<on_pair<looped<by_rows, 5>, f32<64, 50, 64>>>(1, to_rows<64, 50, 64>::most * 4));
static_assert(sent<on_pair<both_looped, f32<64, 50, 64>, f32<64, 50, 64>>>() == 3 * to_rows<64, 50, 64>::most * 4);
// In each of five iterations a goes to columns and b to rows: a device sends a quarter of each field, 50 x 70, and of
// 10 x 14 a quarter is 5 x 7. The number needs both where one of them is already. It is summed once, after the loop.
template <class Through, int A, int B> constexpr bool fields_move_twice() {
  return sent<fields<Through, A, B>>() == 5 * 2 * (A / 2 * (B / 2) * 4) + 4;
}
static_assert(sent<fields<as_it_is, 100, 140>>() == 140'004);
static_assert(fields_move_twice<as_it_is, 10, 14>() && fields_move_twice<as_it_is, 100, 140>());
static_assert(fields_move_twice<through_tanh, 10, 14>() && fields_move_twice<through_tanh, 100, 140>());

}  // namespace

TEST_CASE("points, clusters and outer products are those of one device", "[execute]") {
  const auto agree = []<class On>(On) {
    agrees<typename On::template points<16>>();
    agrees<typename On::template points<11>>();
    agrees<typename On::template points_gradient<11>>(1e-4);
    agrees<typename On::template clusters<24, 5>>();
    agrees<typename On::template products<9>>();
    agrees<typename On::template classes<13, 7>>();
    agrees<typename On::template cube<6, 5, 3>>();
  };
  agree(line<1>{});
  agree(line<2>{});
  agree(line<4>{});
  agree(line<8>{});
}

TEST_CASE("rows in another order of axes are those of one device", "[execute]") {
  agrees<of_rows<sum_to<reversed>, 16>>();
  agrees<of_rows<largest_to<reversed>, 6>>();
  agrees<of_rows<chain_to<reversed>, 7>>();
  agrees<of_rows<sum_to<y2>, 10>>();
  agrees<of_rows<product_to<reversed>, 9, f32<1024, 8>>>();
  agrees<of_rows<product_to<y2>, 16, f32<1024, 8>>>();
}

TEST_CASE("attention by heads and places, and experts, are those of one device", "[execute]") {
  const auto agree = []<class On>(On) {
    agrees<typename On::attention>(1e-4);
    agrees<typename On::mixture>(1e-4);
  };
  agree(models<1, 8, 3>{});
  agree(models<2, 10, 3>{});
  agree(models<4, 12, 4>{});
  agree(models<8, 16, 3>{});
}

TEST_CASE("states that loops carry in another layout are those of one device", "[execute]") {
  agrees<on_pair<looped<turn, 4>, f32<6, 5, 8>>>();
  agrees<on_pair<looped<turn, 4>, f32<7, 9, 11>>>();
  agrees<on_pair<unrolled<turn, 3>, f32<7, 9, 11>>>();
  agrees<on_pair<looped<by_rows, 5>, f32<6, 5, 8>>>();
  agrees<on_pair<both_looped, f32<6, 5, 8>, f32<6, 5, 8>>>();
  agrees<fields<as_it_is, 11, 13>>();
  agrees<fields<through_tanh, 10, 14>>();
}
