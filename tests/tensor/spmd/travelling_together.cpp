// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

// Collectives that are ready together travel together, whatever the shapes, layouts and windows of what they move.

#include <espalier/tensor/core/graph/called_from.hpp>
#include <espalier/tensor/core/program/callers.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/report/explain.hpp>

#include <catch2/catch.hpp>
#include <support/run_program.hpp>

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ep = espalier;

namespace {

template <int Devices> struct on {
  struct data : ep::axis<"data", Devices> {};
  using mesh = ep::mesh<data>;
};
struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using square = ep::mesh<data, model>;

// --- halos of fields of different shapes ----------------------------------------------------------------------------

/// The difference of a row from the mean of the rows around it.
constexpr auto rough(const auto& x) {
  constexpr auto rows = std::remove_cvref_t<decltype(x)>::shape[0];
  return ep::slice<0, 1, rows - 1>(x) * 2 - ep::slice<0, 0, rows - 2>(x) - ep::slice<0, 2, rows>(x);
}
struct roughness {
  constexpr auto operator()(const auto& u, const auto& v, const auto& w) const {
    return ep::results(rough(u), rough(v), rough(w));
  }
};
struct smoothing {
  struct loss {
    constexpr auto operator()(const auto& fields) const {
      const auto mean_square = [](const auto& x) { return ep::mean(x * x); };
      return mean_square(rough(fields.template get<0>())) + mean_square(rough(fields.template get<1>())) +
             mean_square(rough(fields.template get<2>()));
    }
  };
  constexpr auto operator()(const auto& u, const auto& v, const auto& w) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(ep::results(u, v, w));
    return ep::results(value, gradient);
  }
};
template <class Function, class On, template <int...> class Type>
using fields = ep::program<typename On::mesh, Function, ep::sharded<Type<24, 5>, typename On::data, ep::none>,
                           ep::sharded<Type<17, 3, 2>, typename On::data, ep::none, ep::none>,
                           ep::sharded<Type<40>, typename On::data>>;

// Each field's rows are read through three windows.
static_assert(fields<roughness, on<2>, ep::f32>::collectives<ep::exchange>() == 1);
static_assert(fields<roughness, on<4>, ep::bf16>::collectives<ep::exchange>() == 1);
static_assert(fields<roughness, on<8>, ep::i32>::collectives() == 1);
// Their gradients need the neighbours' rows once more.
static_assert(fields<smoothing, on<4>, ep::f64>::collectives<ep::exchange>() == 2);
static_assert(fields<smoothing, on<4>, ep::f64>::collectives<ep::all_reduce>() == 1);

/// Two plates that react with one another. They are large and stay where they are, with the neighbours' rows around
/// them: each iteration takes one exchange, and no copy of a plate.
template <int Steps> struct reaction {
  constexpr auto operator()(const auto& hot, const auto& cold, const auto& weights) const {
    constexpr ep::convolution_settings one_around{.low = {1, 1}, .high = {1, 1}};
    return ep::repeat<Steps>(
        [&](const auto& both) {
          const auto h = ep::convolution<one_around>(both.template get<0>(), weights);
          const auto c = ep::convolution<one_around>(both.template get<1>(), weights);
          return ep::results(h + 0.125F * ep::mean(c), c * 0.5F);
        },
        ep::results(hot, cold));
  }
};
template <class On, int Steps = 3>
using plates =
    ep::program<typename On::mesh, reaction<Steps>,
                ep::donated<ep::sharded<ep::f32<1, 128, 64, 1>, ep::none, typename On::data, ep::none, ep::none>>,
                ep::donated<ep::sharded<ep::f32<1, 96, 70, 1>, ep::none, typename On::data, ep::none, ep::none>>,
                ep::f32<3, 3, 1, 1>>;
static_assert(plates<on<4>>::collectives<ep::exchange>() == 3);
// Two halves of a buffer for each plate, and what a convolution makes.
constexpr std::int64_t plate_bytes = (128 * 64 + 96 * 70) * 4 / 4;
static_assert(plates<on<4>>::arena_bytes() < 4 * plate_bytes);

// --- other collectives ----------------------------------------------------------------------------------------------

/// Rows of both are gathered, and columns split instead; lengths that do not divide.
struct laid_out_anew {
  constexpr auto operator()(const auto& x, const auto& y, const auto& z) const {
    return ep::results(ep::shard<ep::none, data>(ep::tanh(x)), ep::shard<ep::none, data>(ep::tanh(y)),
                       ep::shard<data, ep::none>(ep::transpose<1, 0>(ep::tanh(z))));
  }
};
using anew = ep::program<square, laid_out_anew, ep::sharded<ep::f64<8, 6>, data, ep::none>,
                         ep::sharded<ep::f64<7, 3>, data, ep::none>, ep::sharded<ep::f64<5, 9>, data, ep::none>>;
static_assert(anew::collectives() == 1);

struct gathered {
  constexpr auto operator()(const auto& x, const auto& y, const auto& z) const {
    return ep::results(ep::shard<ep::none, ep::none>(ep::tanh(x)), ep::shard<ep::none>(ep::tanh(y)),
                       ep::shard<ep::none, ep::none>(z + z));
  }
};
/// Numbers of one size travel together, whatever they mean.
template <class On>
using gathering =
    ep::program<typename On::mesh, gathered, ep::sharded<ep::f32<8, 6>, typename On::data, ep::none>,
                ep::sharded<ep::f32<13>, typename On::data>, ep::sharded<ep::i32<8, 3>, typename On::data, ep::none>>;
static_assert(gathering<on<4>>::collectives<ep::all_gather>() == 1);

/// Products over a split dimension, whose sums are scattered; and sums over all devices' rows, of uneven parts.
struct summed {
  constexpr auto operator()(const auto& x, const auto& y, const auto& w) const {
    const auto a = ep::shard<data, ep::none>(ep::einsum<"ik,kj->ij">(x, w));
    const auto b = ep::shard<data, ep::none>(ep::einsum<"ik,kj->ij">(y, w));
    return ep::results(ep::tanh(a), ep::tanh(b));
  }
};
using scattering =
    ep::program<square, summed, ep::sharded<ep::f64<8, 12>, ep::none, data>,
                ep::sharded<ep::f64<5, 12>, ep::none, data>, ep::sharded<ep::f64<12, 3>, data, ep::none>>;
static_assert(scattering::collectives<ep::reduce_scatter>() == 1 && scattering::collectives() == 1);

struct column_sums {
  constexpr auto operator()(const auto& x, const auto& y) const {
    return ep::results(ep::tanh(ep::sum<0>(x)), ep::tanh(ep::sum<0>(y)), ep::sum<0>(x * x));
  }
};
/// 5 and 7 columns over two devices: 3 + 2, 4 + 3. What is not there is not sent.
using uneven_sums =
    ep::program<square, column_sums, ep::sharded<ep::f64<6, 5>, data, model>, ep::sharded<ep::f64<4, 7>, data, model>>;
static_assert(uneven_sums::collectives<ep::all_reduce>() == 1);
struct column_sum {
  constexpr auto operator()(const auto& x) const { return ep::tanh(ep::sum<0>(x)); }
};
using uneven_sum = ep::program<square, column_sum, ep::sharded<ep::f64<6, 5>, data, model>>;

// --- checks ---------------------------------------------------------------------------------------------------------

/// Results are those of one device, and devices send what the program says.
template <class Program> void agrees(double tolerance) {
  ep::world world(Program::mesh::value);
  const testing::comparison seen = testing::run_and_compare<Program>(world);
  INFO(Program::mesh::devices << " devices");
  CHECK(seen.finite);
  CHECK(seen.compared > 0);
  CHECK(seen.worst <= tolerance);

  ep::world counted(Program::mesh::value);
  ep::runner<Program> run(counted);
  const auto arguments = testing::make_arguments(run, std::make_integer_sequence<int, Program::arity>{});
  std::vector<std::int64_t> sent(static_cast<std::size_t>(Program::mesh::devices));
  std::vector<std::int64_t> promised(sent.size());
  counted.on_devices([](int, auto& communicator) { communicator.reset_counters(); });
  std::apply([&](const auto&... one) { (void)run(one...); }, arguments);
  counted.on_devices([&](int local, auto& communicator) {
    const int device = counted.device(local);
    for (const std::int64_t bytes : communicator.counters()) sent[static_cast<std::size_t>(device)] += bytes;
    for (int id = 0; id < Program::code.size; ++id) {
      if (!ep::starts_collective(Program::code.code[id])) continue;
      promised[static_cast<std::size_t>(device)] +=
          ep::detail::repetitions(Program::code, id) * Program::sent_bytes_of(id, device);
    }
  });
  CHECK(sent == promised);
}

}  // namespace

TEST_CASE("halos of fields of different shapes travel together", "[execute]") {
  agrees<fields<roughness, on<1>, ep::f32>>(1e-6);
  agrees<fields<roughness, on<2>, ep::f32>>(1e-6);
  agrees<fields<roughness, on<4>, ep::f64>>(1e-14);
  agrees<fields<roughness, on<4>, ep::bf16>>(2e-2);
  agrees<fields<roughness, on<8>, ep::i32>>(0);
  agrees<fields<smoothing, on<2>, ep::f64>>(1e-13);
  agrees<fields<smoothing, on<4>, ep::f64>>(1e-13);
  agrees<fields<smoothing, on<8>, ep::f32>>(1e-5);
}

TEST_CASE("halos of fields that stay where they are travel together", "[execute]") {
  agrees<plates<on<2>>>(1e-5);
  agrees<plates<on<4>>>(1e-5);
  agrees<plates<on<8>, 4>>(1e-5);
}

TEST_CASE("collectives of different shapes and types travel together", "[execute]") {
  agrees<anew>(1e-14);
  agrees<gathering<on<2>>>(1e-6);
  agrees<gathering<on<4>>>(1e-6);
  agrees<gathering<on<8>>>(1e-6);
  agrees<scattering>(1e-13);
  agrees<uneven_sums>(1e-13);
  agrees<uneven_sum>(1e-13);
}

TEST_CASE("what a program says of itself has a row for each collective that travels", "[explain]") {
  std::ostringstream text;
  ep::explain<gathering<on<4>>>(text);
  INFO(text.str());
  const auto has = [&](const char* words) { return text.str().find(words) != std::string::npos; };
  CHECK(has("all_gather over data, with others  f32[8, 6]"));
  CHECK(has("with the all_gather above"));
  CHECK(has("in 1 collective,"));
}

namespace {

// Helpers in helpers, called on several lines, from a function that is differentiated, and in the body of a loop.
constexpr int in_dense = __LINE__ + 3;
constexpr auto dense(auto x, auto w, ep::source_line where = ep::source_line::current()) {
  const ep::called_from caller(x, where);
  return ep::shard<data, ep::none>(ep::matmul(x, w));
}
constexpr int in_block = __LINE__ + 4;
constexpr auto block(auto x, auto up, auto down, ep::source_line where = ep::source_line::current()) {
  const ep::called_from caller(x, where);
  const auto h = ep::shard<data, model>(ep::matmul(x, up));
  return dense(ep::tanh(h), down);
}
constexpr int in_loss = __LINE__ + 3;
struct blocks {
  constexpr auto operator()(auto x, auto up, auto down, auto whole) const {
    const auto y = block(x, up, down);
    const auto body = [whole](auto carry, auto /*step*/) { return ep::tanh(dense(carry, whole)); };
    const auto last = ep::scan(body, block(y, up, down), ep::iota<ep::f32<3>, 0>(y));
    return ep::sum(last * last);  // on no helper's line
  }
};
struct training_blocks {
  constexpr auto operator()(auto x, auto up, auto down, auto whole) const {
    return ep::value_and_grad(blocks{})(x, up, down, whole);
  }
};
using called = ep::program<square, training_blocks, ep::f32<8, 16>, ep::f32<16, 32>, ep::f32<32, 16>,
                           ep::sharded<ep::f32<16, 16>, ep::none, model>>;

}  // namespace

TEST_CASE("a line in a helper function is followed by the lines of the calls", "[explain]") {
  std::ostringstream text;
  ep::explain<called>(text);
  INFO(text.str());
  const auto line = [](int number) { return "travelling_together.cpp:" + std::to_string(number); };
  const auto from = [&](int number) { return ", called from " + line(number); };
  const auto has = [&](const std::string& words) { return text.str().find(words) != std::string::npos; };
  CHECK(has(line(in_dense) + from(in_block) + from(in_loss) + "  all_reduce over model"));
  CHECK(has(line(in_dense) + from(in_block) + from(in_loss + 2) + "  all_reduce over model"));
  CHECK(has(line(in_dense) + from(in_loss + 1) + "  "));
  CHECK(has(line(in_loss + 3) + "  "));
  CHECK_FALSE(has(line(in_dense) + "  "));
  CHECK_FALSE(has(line(in_loss) + from(in_loss)));
  // A gradient is on the line it is the gradient of.
  CHECK(has(line(in_block - 1) + from(in_loss) + "  "));

  // The facts that a budget tells of an instruction, as a type.
  constexpr int calls = ep::detail::callers_of<called>::count;
  STATIC_REQUIRE(calls == 5);
  constexpr int id = [] {
    for (int n = 0; n < called::code.size; ++n) {
      if (ep::starts_collective(called::code.code[n])) return n;
    }
    return -1;
  }();
  using place = ep::detail::place_and_calls<called, id>;
  STATIC_REQUIRE_FALSE(std::is_same_v<place, ep::detail::place_of_instruction<called::code, id>>);
}
