// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <espalier/tensor/core/nn/attention.hpp>
#include <support/plain_attention.hpp>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Queries, or keys, that are multiplied with a number before they meet: no scaled array is stored
// (partition/scaled_operands.hpp), and every bit is as if it were.

namespace ep = espalier;
using namespace testing::attention;

namespace {

template <int Data, int Heads> struct on {
  struct data : ep::axis<"data", Data> {};
  struct heads : ep::axis<"heads", Heads> {};
  using mesh = ep::mesh<data, heads>;
  static constexpr int devices = Data * Heads;
};

/// What is scaled, by 0.35 in all.
enum class scaled : std::uint8_t { query, query_divided, query_rounded_once, query_from_left, key, both };
/// What else is a result.
enum class also : std::uint8_t { nothing, query, scaled_query, sum_of_scaled_query };

template <scaled How> constexpr auto scaled_query(const auto& q) {
  if constexpr (How == scaled::query) {
    return q * 0.35;
  } else if constexpr (How == scaled::query_divided) {
    return q / 2.857142857142857;
  } else if constexpr (How == scaled::query_rounded_once) {
    return ep::convert<ep::dtype::bf16>(ep::convert<ep::dtype::f32>(q) * 0.35);
  } else if constexpr (How == scaled::query_from_left) {
    return 0.35 * q;
  } else if constexpr (How == scaled::key) {
    return q;
  } else {
    return q * 0.5;
  }
}
template <scaled How> constexpr auto scaled_key(const auto& k) {
  if constexpr (How == scaled::key) {
    return k * 0.35;
  } else if constexpr (How == scaled::both) {
    return k * 0.7;
  } else {
    return k;
  }
}
template <also Also, scaled How> constexpr auto further(const auto& q) {
  if constexpr (Also == also::nothing) {
    return ep::results();
  } else if constexpr (Also == also::query) {
    return ep::results(q, q + 1);
  } else if constexpr (Also == also::scaled_query) {
    return ep::results(scaled_query<How>(q));
  } else {
    return ep::results(ep::sum(scaled_query<How>(q)));
  }
}

/// q [batch, queries, groups, heads, features], k and v [batch, keys, groups, features].
template <class On, scaled How> struct attention {
  constexpr auto operator()(const auto& query, const auto& k, const auto& v, const auto& /*bias*/) const {
    const auto q = ep::shard<typename On::data, ep::none, typename On::heads, ep::none, ep::none>(query);
    const auto scores = ep::einsum<"bqghd,bkgd->bghqk">(scaled_query<How>(q), scaled_key<How>(k));
    return ep::einsum<"bghqk,bkgd->bqghd">(ep::softmax<-1>(ep::nn::hide_future(scores)), v);
  }
};
template <class On, scaled How, also Also> struct with_gradients {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& bias) const {
    const auto loss = [](const auto& query, const auto& key, const auto& value, const auto& b) {
      const auto y = attention<On, How>{}(query, key, value, b);
      return ep::results(ep::sum(y * y * y), y);
    };
    const auto found = ep::value_and_grad<0, 1, 2>(loss)(q, k, v, bias);
    return ep::results(found.value.template get<1>(), found.gradient, further<Also, How>(q));
  }
};

template <class On, template <int...> class T, scaled How, also Also = also::nothing> struct setting {
  static constexpr sizes of{2, 512, 512, 2, 1, 24};
  using q = T<2, 512, 2, 1, 24>;
  using k = T<2, 512, 2, 24>;
  using forward = ep::program<typename On::mesh, attention<On, How>, q, k, k, T<1>>;
  using program = ep::program<typename On::mesh, with_gradients<On, How, Also>, q, k, k, T<1>>;
  static constexpr std::int64_t element = ep::size_of(program::code.code[0].type);
  /// q, k and v have as many elements.
  static constexpr std::int64_t array = 2 * 512 * 2 * 24 * element / On::devices;
  static constexpr std::int64_t number_of_row = 2 * 512 * 2 * element / On::devices;
  static double worst() { return worst_of<program>(of, mask::causal, false); }
};

template <int... Extents> using f32 = ep::f32<Extents...>;
template <int... Extents> using f64 = ep::f64<Extents...>;
template <int... Extents> using f16 = ep::f16<Extents...>;
template <int... Extents> using bf16 = ep::bf16<Extents...>;

/// The operands that products of a program scale where they read them.
template <class Program> constexpr int scaled_reads() {
  int count = 0;
  for (const ep::launch& u : Program::plan.launches) {
    for (const int from : u.unscaled) count += from >= 0 ? 1 : 0;
  }
  return count;
}

/// All elements of results `Result`... of a run with some arguments, as double: every element of the types has one of
/// its own.
template <class Program, int... Result> class run_once {
 public:
  run_once() : world_(Program::mesh::value), run_(world_) {}

  std::vector<double> operator()() {
    return [&]<int... I>(std::integer_sequence<int, I...> /*all*/) {
      auto arguments = std::make_tuple(run_.template argument<I>()...);
      (fill(std::get<I>(arguments), I + 1), ...);
      const auto& results = run_(std::get<I>(arguments)...);
      if constexpr (requires { results.data(0); }) {
        add(results);
      } else {
        (add(results.template get<Result>()), ...);
      }
      return all_;
    }
    (std::make_integer_sequence<int, Program::argument_count()>{});
  }

 private:
  template <class Array> static void fill(Array& array, int leaf) {
    using element = typename Array::value_type;
    array.for_each([leaf](element& one, std::int64_t i) {
      [[maybe_unused]] const double x = 2 * std::sin(static_cast<double>(leaf * i % 1013));
      if constexpr (std::is_integral_v<element>) {
        one = 100;
      } else {
        one = static_cast<element>(static_cast<ep::computed_t<element>>(x));
      }
    });
  }
  template <class Part> void add(const Part& part) {
    if constexpr (requires { part.data(0); }) {
      for (const auto& one : ep::gather(world_, part)) all_.push_back(static_cast<double>(one));
    } else {
      add(part.template get<0>());
      add(part.template get<1>());
      add(part.template get<2>());
    }
  }

  ep::world world_;
  ep::runner<Program> run_;
  std::vector<double> all_;
};

/// Whether a program that stores no scaled array makes the same bits as one that does, since the array is a result.
template <class On, template <int...> class T, scaled How> bool makes_same_bits() {
  using without = setting<On, T, How>;
  using with = setting<On, T, How, also::scaled_query>;
  // The result, and nothing else.
  STATIC_REQUIRE(with::program::peak_bytes_per_device() == without::program::peak_bytes_per_device() + with::array);
  STATIC_REQUIRE(scaled_reads<typename without::program>() == 3);
  STATIC_REQUIRE(scaled_reads<typename with::program>() == 0);
  return run_once<typename without::program, 0, 1>()() == run_once<typename with::program, 0, 1>()();
}

/// The queries are scaled, then changed where they are, and only then meet the keys. `Stored`: the scaled queries are a
/// result.
template <bool Stored> struct changed_between {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& row, const auto& at) const {
    const auto scaled = q * 0.35;
    const auto changed = ep::dynamic_update_slice<1>(q, row, at);
    const auto y =
        ep::nn::attention_mix(ep::softmax<-1>(ep::nn::hide_future(ep::einsum<"bqhd,bkhd->bhqk">(scaled, k))), v);
    if constexpr (Stored) {
      return ep::results(changed, y, scaled);
    } else {
      return ep::results(changed, y);
    }
  }
};
template <bool Stored, class Mesh>
using changed_between_program =
    ep::program<Mesh, changed_between<Stored>, ep::donated<ep::f32<1, 512, 2, 8>>, ep::f32<1, 512, 2, 8>,
                ep::f32<1, 512, 2, 8>, ep::f32<1, 1, 2, 8>, ep::i32<>>;

/// The result takes the place of the queries, which the products read until the end.
template <bool Stored> struct in_place_of_queries {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    const auto scaled = q / 3;
    const auto y = ep::nn::attention_mix(ep::softmax<-1>(ep::einsum<"bqhd,bkhd->bhqk">(scaled, k)), v);
    if constexpr (Stored) {
      return ep::results(y, y * 2, scaled);
    } else {
      return ep::results(y, y * 2);
    }
  }
};
template <bool Stored, class Mesh>
using in_place_program = ep::program<Mesh, in_place_of_queries<Stored>, ep::donated<ep::f32<1, 512, 2, 8>>,
                                     ep::f32<1, 512, 2, 8>, ep::f32<1, 512, 2, 8>>;

/// A loop's state is queries, and changes. `Stored`: the sum of the scaled ones needs them in a chain.
template <bool Stored> struct looped {
  constexpr auto operator()(const auto& start, const auto& k, const auto& v, const auto& shifts) const {
    const auto step = [&](const auto& state, const auto& shift) {
      const auto scaled = state * 0.35;
      const auto y =
          ep::nn::attention_mix(ep::softmax<-1>(ep::nn::hide_future(ep::einsum<"bqhd,bkhd->bhqk">(scaled, k))), v);
      const auto next = state * 0.75 + y * shift;
      if constexpr (Stored) {
        return ep::results(next, ep::sum(scaled));
      } else {
        return next;
      }
    };
    return ep::scan(step, start, shifts);
  }
};
template <bool Stored, class Mesh>
using looped_program = ep::program<Mesh, looped<Stored>, ep::f64<1, 512, 2, 8>, ep::f64<1, 512, 2, 8>,
                                   ep::f64<1, 512, 2, 8>, ep::f64<3, 8>>;

}  // namespace

TEST_CASE("scaled queries are not stored: forward there is nothing but arguments and result", "[execute]") {
  using one = setting<on<1, 1>, f32, scaled::query>;
  STATIC_REQUIRE(one::forward::peak_bytes_per_device() == 4 * one::array + 4);
  STATIC_REQUIRE(one::forward::arena_bytes() == 0);
  using divided = setting<on<1, 1>, f64, scaled::query_divided>;
  STATIC_REQUIRE(divided::forward::peak_bytes_per_device() == 4 * divided::array + 8);
  using rounded = setting<on<1, 1>, bf16, scaled::query_rounded_once>;
  STATIC_REQUIRE(rounded::forward::peak_bytes_per_device() == 4 * rounded::array + 2);
  using key = setting<on<1, 1>, f16, scaled::key>;
  STATIC_REQUIRE(key::forward::peak_bytes_per_device() == 4 * key::array + 2);
  using both = setting<on<2, 1>, f32, scaled::both>;
  STATIC_REQUIRE(both::forward::peak_bytes_per_device() == 4 * both::array + 4);
  using four = setting<on<2, 2>, bf16, scaled::query>;
  STATIC_REQUIRE(four::forward::peak_bytes_per_device() == 4 * four::array + 2);
}

TEST_CASE("gradients through scaled queries on one, two and four devices", "[execute]") {
  // Seven arguments and results, the gradients by y and by the scaled queries, and two numbers for each row.
  using one = setting<on<1, 1>, f32, scaled::query>;
  STATIC_REQUIRE(one::program::peak_bytes_per_device() == 9 * one::array + 2 * one::number_of_row + 4);
  STATIC_REQUIRE(launches_in_regions<one::program>() == 3 + 7);
  CHECK(one::worst() < 2e-5);
  using two = setting<on<1, 2>, f32, scaled::query_from_left>;
  STATIC_REQUIRE(two::program::peak_bytes_per_device() == 9 * two::array + 2 * two::number_of_row + 4);
  CHECK(two::worst() < 2e-5);
  using four = setting<on<2, 2>, f32, scaled::both>;
  CHECK(four::worst() < 2e-5);
}

TEST_CASE("queries divided in f64, scaled in bf16 and in f16, and scaled keys", "[execute]") {
  using divided = setting<on<1, 1>, f64, scaled::query_divided>;
  STATIC_REQUIRE(divided::program::peak_bytes_per_device() == 9 * divided::array + 2 * divided::number_of_row + 8);
  CHECK(divided::worst() < 1e-12);
  using key = setting<on<2, 1>, f64, scaled::key>;
  CHECK(key::worst() < 1e-12);
  using rounded = setting<on<2, 2>, bf16, scaled::query_rounded_once>;
  CHECK(rounded::worst() < 4e-2);
  using half = setting<on<1, 1>, f16, scaled::both>;
  CHECK(half::worst() < 1e-2);
}

TEST_CASE("queries that are results and are read elsewhere, too", "[execute]") {
  using read = setting<on<1, 1>, f32, scaled::query, also::query>;
  using plain = setting<on<1, 1>, f32, scaled::query>;
  STATIC_REQUIRE(read::program::peak_bytes_per_device() == plain::program::peak_bytes_per_device() + 2 * read::array);
  CHECK(read::worst() < 2e-5);
  // A sum of the scaled queries adds them up without storing them, or stores them: the products read the same.
  using summed = setting<on<2, 2>, f32, scaled::query_divided, also::sum_of_scaled_query>;
  CHECK(summed::worst() < 2e-5);
}

TEST_CASE("what is scaled where it is read has the bits of what is stored", "[execute]") {
  CHECK(makes_same_bits<on<1, 1>, f32, scaled::query>());
  CHECK(makes_same_bits<on<1, 1>, f64, scaled::query_divided>());
  CHECK(makes_same_bits<on<1, 1>, bf16, scaled::query>());
  CHECK(makes_same_bits<on<1, 1>, bf16, scaled::query_divided>());
  CHECK(makes_same_bits<on<1, 2>, bf16, scaled::query_rounded_once>());
  CHECK(makes_same_bits<on<2, 2>, f16, scaled::query_divided>());
}

TEST_CASE("queries whose place something else takes are read as they were", "[execute]") {
  using one = ep::mesh<>;
  STATIC_REQUIRE(scaled_reads<changed_between_program<false, one>>() == 1);
  STATIC_REQUIRE(scaled_reads<changed_between_program<true, one>>() == 0);
  const auto changed = run_once<changed_between_program<false, one>, 0, 1>()();
  CHECK(changed == run_once<changed_between_program<true, one>, 0, 1>()());
  STATIC_REQUIRE(scaled_reads<in_place_program<false, one>>() == 1);
  STATIC_REQUIRE(scaled_reads<in_place_program<true, one>>() == 0);
  const auto replaced = run_once<in_place_program<false, one>, 0, 1>()();
  CHECK(replaced == run_once<in_place_program<true, one>, 0, 1>()());
}

TEST_CASE("queries that are the state of a loop", "[execute]") {
  using one = ep::mesh<>;
  STATIC_REQUIRE(scaled_reads<looped_program<false, one>>() == 1);
  STATIC_REQUIRE(scaled_reads<looped_program<true, one>>() == 0);
  constexpr std::int64_t array = 512 * 2 * 8 * 8;
  STATIC_REQUIRE(looped_program<false, one>::arena_bytes() + array <= looped_program<true, one>::arena_bytes());
  const auto without = run_once<looped_program<false, one>, 0>()();
  REQUIRE(without.size() == 512 * 2 * 8);
  CHECK(without == run_once<looped_program<true, one>, 0>()());
}
