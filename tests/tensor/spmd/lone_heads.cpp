// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/nn/losses.hpp>
#include <support/plain_attention.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ep = espalier;
using namespace testing::attention;

namespace {

template <int Queries, int Keys = 1> struct lone_on {
  struct queries : ep::axis<"queries", Queries> {};
  struct keys : ep::axis<"keys", Keys> {};
  using mesh = ep::mesh<queries, keys>;
};

/// Attention of matrices: q [queries, features], k and v [keys, features], a bias [queries, keys].
template <class On, mask Mask, bool Biased> struct lone_head {
  constexpr auto operator()(const auto& query, const auto& key, const auto& value, const auto& bias) const {
    const auto q = ep::shard<typename On::queries, ep::none>(query);
    const auto k = ep::shard<typename On::keys, ep::none>(key);
    const auto v = ep::shard<typename On::keys, ep::none>(value);
    const auto products = ep::matmul(q, ep::transpose<1, 0>(k)) * 0.35;
    const auto scores = [&] {
      if constexpr (Biased) {
        return products + bias;
      } else {
        return products;
      }
    }();
    const auto seen = [&] {
      if constexpr (Mask == mask::causal) {
        return ep::nn::hide_future(scores);
      } else {
        return scores;
      }
    }();
    return ep::shard<typename On::queries, ep::none>(ep::matmul(ep::softmax<-1>(seen), v));
  }
};
/// Several heads that all have the same keys (multi-query attention) of one text: q [queries, heads, features].
template <class On, mask Mask, bool Biased> struct shared_keys {
  constexpr auto operator()(const auto& query, const auto& key, const auto& value, const auto& /*bias*/) const {
    const auto q = ep::shard<typename On::queries, ep::none, ep::none>(query);
    const auto scores = ep::einsum<"qhd,kd->hqk">(q, key) * 0.35;
    return ep::einsum<"hqk,kd->qhd">(ep::softmax<-1>(ep::nn::hide_future(scores)), value);
  }
};
template <class Attention> struct lone_gradients {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& bias) const {
    const auto loss = [](const auto& query, const auto& key, const auto& value, const auto& b) {
      const auto y = Attention{}(query, key, value, b);
      return ep::results(ep::sum(y * y * y), y);
    };
    const auto found = ep::value_and_grad<0, 1, 2>(loss)(q, k, v, bias);
    return ep::results(found.value.template get<1>(), found.gradient);
  }
};
template <class On, mask Mask, bool Biased, template <int...> class T, int Queries, int Keys, int Features>
struct lone_setting {
  using attention = lone_head<On, Mask, Biased>;
  using bias = std::conditional_t<Biased, T<Queries, Keys>, T<1, 1>>;
  using value =
      ep::program<typename On::mesh, attention, T<Queries, Features>, T<Keys, Features>, T<Keys, Features>, bias>;
  using program = ep::program<typename On::mesh, lone_gradients<attention>, T<Queries, Features>, T<Keys, Features>,
                              T<Keys, Features>, bias>;
  static double worst() { return worst_of<program>({1, Queries, Keys, 1, 1, Features}, Mask, Biased); }
};

template <int... Extents> using lone_f32 = ep::f32<Extents...>;
template <int... Extents> using lone_f64 = ep::f64<Extents...>;
template <int... Extents> using lone_bf16 = ep::bf16<Extents...>;

/// What follows from a matrix of weights: none of it is attention.
struct linear_loss {
  /// The cross entropy of logits, and its gradients by rows and weights.
  constexpr auto operator()(const auto& x, const auto& w, const auto& target) const {
    return ep::value_and_grad<0, 1>([&](const auto& rows, const auto& weights) {
      return ep::nn::cross_entropy(ep::einsum<"bd,vd->bv">(rows, weights), target);
    })(x, w);
  }
};
using linear_loss_program = ep::program<ep::mesh<>, linear_loss, ep::f32<1024, 8>, ep::f32<1024, 8>, ep::i32<1024>>;
struct wide_layers {
  /// Two layers four times as wide as their rows, with a norm between them.
  constexpr auto operator()(const auto& x, const auto& w1, const auto& w2) const {
    const auto h = ep::softmax<-1>(ep::matmul(x, w1));
    return ep::matmul(h, w2);
  }
};
using wide_layers_program =
    ep::program<ep::mesh<>, wide_layers, ep::f32<8192, 128>, ep::f32<128, 512>, ep::f32<512, 128>>;
/// Elementwise values alone between two wide products.
struct wide_gates {
  constexpr auto operator()(const auto& x, const auto& w1, const auto& w2) const {
    return ep::matmul(ep::tanh(ep::matmul(x, w1)), w2);
  }
};
using wide_gates_program = ep::program<ep::mesh<>, wide_gates, ep::f32<1024, 8>, ep::f32<8, 1024>, ep::f32<1024, 8>>;

/// A memory that is keys and values at once.
struct one_memory {
  constexpr auto operator()(const auto& q, const auto& memory) const {
    return ep::matmul(ep::softmax<-1>(ep::matmul(q, ep::transpose<1, 0>(memory))), memory);
  }
};
using one_memory_program = ep::program<ep::mesh<>, one_memory, ep::f64<521, 8>, ep::f64<640, 8>>;

/// A layer of causal attention of a matrix to itself.
struct lone_layer {
  constexpr auto operator()(const auto& y, const auto& scale) const {
    const auto scores = ep::matmul(y * scale, ep::transpose<1, 0>(y));
    return y + ep::matmul(ep::softmax<-1>(ep::nn::hide_future(scores)), y * (scale - 0.5));
  }
};
template <bool Loop>
using lone_layers_program = ep::program<ep::mesh<>, two_layers<lone_layer, Loop>, ep::f64<640, 8>, ep::f64<2, 8>>;

/// Logits that two losses read: a cross entropy, and one of the table's expected row. x [rows, features], table
/// [classes, features].
template <class On> struct two_losses {
  constexpr auto operator()(const auto& x, const auto& given, const auto& targets) const {
    return ep::value_and_grad<0, 1>([&](const auto& rows, const auto& weights) {
      const auto table = ep::shard<typename On::keys, ep::none>(weights);
      const auto logits = ep::einsum<"rd,vd->rv">(ep::shard<typename On::queries, ep::none>(rows), table);
      const auto expected = ep::einsum<"rv,vd->rd">(ep::softmax<-1>(logits), table);
      return ep::nn::cross_entropy(logits, targets) + ep::sum(expected * expected);
    })(x, given);
  }
};
/// The cross entropy alone, computed again for its gradient.
template <class On> struct loss_of_rows {
  constexpr auto operator()(const auto& rows, const auto& weights, const auto& targets) const {
    const auto table = ep::shard<typename On::keys, ep::none>(weights);
    const auto logits = ep::einsum<"rd,vd->rv">(ep::shard<typename On::queries, ep::none>(rows), table);
    return ep::nn::cross_entropy(logits, targets);
  }
};
template <class On> struct loss_again {
  constexpr auto operator()(const auto& x, const auto& given, const auto& targets) const {
    return ep::value_and_grad<0, 1>(ep::checkpoint(loss_of_rows<On>{}))(x, given, targets);
  }
};
/// The same with a table [features, classes], whose gradient is summed up along the classes.
struct loss_of_columns {
  constexpr auto operator()(const auto& rows, const auto& weights, const auto& targets) const {
    return ep::nn::cross_entropy(ep::matmul(rows, weights), targets);
  }
};
struct loss_of_columns_again {
  constexpr auto operator()(const auto& x, const auto& weights, const auto& targets) const {
    return ep::value_and_grad<0, 1>(ep::checkpoint(loss_of_columns{}))(x, weights, targets);
  }
};
constexpr int loss_rows = 301;
constexpr int loss_classes = 4098;
constexpr int loss_features = 8;
template <template <class> class Loss, int Rows, int Classes, template <int...> class T = ep::f64>
using loss_program = ep::program<typename lone_on<Rows, Classes>::mesh, Loss<lone_on<Rows, Classes>>,
                                 T<loss_rows, loss_features>, T<loss_classes, loss_features>, ep::i32<loss_rows>>;
template <int Rows, int Classes> using two_losses_program = loss_program<two_losses, Rows, Classes>;
template <int Rows, int Classes> using loss_again_program = loss_program<loss_again, Rows, Classes>;
template <template <int...> class T>
using loss_of_columns_program = ep::program<ep::mesh<>, loss_of_columns_again, T<loss_rows, loss_features>,
                                            T<loss_features, loss_classes>, ep::i32<loss_rows>>;
/// The same, written out; returns the largest difference of the loss and its gradients. `of_expected`: how much of the
/// expected row is in it.
template <class Program, bool FeaturesFirst = false> double worst_of_losses(double of_expected = 1) {
  constexpr auto rows = static_cast<std::size_t>(loss_rows);
  constexpr auto classes = static_cast<std::size_t>(loss_classes);
  constexpr auto features = static_cast<std::size_t>(loss_features);
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto x = run.template argument<0>();
  auto table = run.template argument<1>();
  auto targets = run.template argument<2>();
  const auto in_doubles = [&](const auto& array) {
    std::vector<double> all;
    for (const auto one : ep::gather(world, array)) all.push_back(static_cast<double>(one));
    return all;
  };
  x.for_each([](auto& one, std::int64_t i) {
    one = static_cast<std::remove_reference_t<decltype(one)>>(static_cast<float>(i * i % 19) / 8 - 1);
  });
  table.for_each([](auto& one, std::int64_t i) {
    one = static_cast<std::remove_reference_t<decltype(one)>>(static_cast<float>(i * i % 23) / 8 - 1);
  });
  targets.for_each([](std::int32_t& one, std::int64_t i) { one = static_cast<std::int32_t>(i * 7919 % loss_classes); });
  const std::vector<double> a = in_doubles(x);
  const std::vector<double> t = in_doubles(table);
  const std::vector<std::int32_t> target = ep::gather(world, targets);
  const auto at = [](std::size_t v, std::size_t d) { return FeaturesFirst ? d * classes + v : v * features + d; };
  double loss = 0;
  std::vector<double> of_x(a.size(), 0);
  std::vector<double> of_table(t.size(), 0);
  for (std::size_t r = 0; r < rows; ++r) {
    const double* const row = &a[r * features];
    std::vector<double> p(classes);
    double total = 0;
    double hit = 0;
    for (std::size_t v = 0; v < classes; ++v) {
      double logit = 0;
      for (std::size_t d = 0; d < features; ++d) logit += row[d] * t[at(v, d)];
      if (v == static_cast<std::size_t>(target[r])) hit = logit;
      total += p[v] = std::exp(logit);
    }
    loss += (std::log(total) - hit) / loss_rows;
    std::vector<double> expected(features, 0);
    for (std::size_t v = 0; v < classes; ++v) {
      p[v] /= total;
      for (std::size_t d = 0; d < features; ++d) expected[d] += p[v] * t[at(v, d)];
    }
    for (const double one : expected) loss += of_expected * one * one;
    double mean = 0;
    std::vector<double> of_p(classes, 0);
    for (std::size_t v = 0; v < classes; ++v) {
      for (std::size_t d = 0; d < features; ++d) of_p[v] += of_expected * 2 * expected[d] * t[at(v, d)];
      mean += p[v] * of_p[v];
    }
    for (std::size_t v = 0; v < classes; ++v) {
      const double is_hit = v == static_cast<std::size_t>(target[r]) ? 1 : 0;
      const double of_logit = (p[v] - is_hit) / loss_rows + p[v] * (of_p[v] - mean);
      for (std::size_t d = 0; d < features; ++d) {
        of_x[r * features + d] += of_logit * t[at(v, d)];
        of_table[at(v, d)] += of_logit * row[d] + of_expected * p[v] * 2 * expected[d];
      }
    }
  }
  const auto& found = run(x, table, targets);
  double worst = std::abs(in_doubles(found.template get<0>())[0] - loss) / loss;
  const auto compare = [&](const std::vector<double>& here, const std::vector<double>& wanted) {
    REQUIRE(here.size() == wanted.size());
    for (std::size_t i = 0; i < here.size(); ++i) {
      const double difference = std::abs(here[i] - wanted[i]) / (1 + std::abs(wanted[i]));
      worst = difference <= worst ? worst : difference;
    }
  };
  compare(in_doubles(found.template get<1>().template get<0>()), of_x);
  compare(in_doubles(found.template get<1>().template get<1>()), of_table);
  return worst;
}

/// What a program computes with so many threads, in bits.
template <class Program> std::vector<std::vector<double>> results_of_loss(int threads) {
#if defined(_OPENMP)
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
#endif
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto x = run.template argument<0>();
  auto table = run.template argument<1>();
  auto targets = run.template argument<2>();
  x.for_each([](auto& one, std::int64_t i) { one = std::sin(static_cast<double>(i)); });
  table.for_each([](auto& one, std::int64_t i) { one = std::cos(static_cast<double>(i)); });
  targets.for_each([](std::int32_t& one, std::int64_t i) { one = static_cast<std::int32_t>(i * 7919 % loss_classes); });
  std::vector<std::vector<double>> found;
  for (int call = 0; call < 2; ++call) {
    const auto& made = run(x, table, targets);
    found.push_back(ep::gather(world, made.template get<0>()));
    found.push_back(ep::gather(world, made.template get<1>().template get<0>()));
    found.push_back(ep::gather(world, made.template get<1>().template get<1>()));
  }
#if defined(_OPENMP)
  omp_set_num_threads(before);
#endif
  return found;
}

}  // namespace

TEST_CASE("attention of matrices, [queries, keys], keeps no scores, forward and gradient", "[execute]") {
  using one = lone_setting<lone_on<1>, mask::causal, false, lone_f32, 640, 640, 24>;
  STATIC_REQUIRE(launches_in_regions<one::value>() == 3);
  STATIC_REQUIRE(one::value::arena_bytes() == 0);
  STATIC_REQUIRE(launches_in_regions<one::program>() == 3 + 7);
  // A score of each query and key would take 1.6 MiB, a truth value of each 400 KiB.
  STATIC_REQUIRE(one::program::arena_bytes() < 640 * 640);
  CHECK(one::worst() < 2e-5);
}

TEST_CASE("a lone head of sizes that are no multiples of a tile, with a bias, in f64; and in bf16", "[execute]") {
  using uneven = lone_setting<lone_on<1>, mask::none, true, lone_f64, 523, 641, 5>;
  STATIC_REQUIRE(launches_in_regions<uneven::program>() == 3 + 7);
  CHECK(uneven::worst() < 1e-12);
  using half = lone_setting<lone_on<1>, mask::causal, false, lone_bf16, 640, 640, 16>;
  STATIC_REQUIRE(half::program::arena_bytes() < 640 * 640 * 2);
  CHECK(half::worst() < 4e-2);
}

TEST_CASE("a lone head whose queries are split over devices", "[execute]") {
  using two = lone_setting<lone_on<2>, mask::causal, false, lone_f32, 1024, 1024, 8>;
  STATIC_REQUIRE(two::value::collectives() == 0);
  STATIC_REQUIRE(launches_in_regions<two::program>() == 3 + 7);
  CHECK(two::worst() < 2e-5);
  using uneven = lone_setting<lone_on<4>, mask::none, false, lone_f64, 2050, 640, 8>;
  // Rows that only fill the last device's part up are set to zero in the region.
  STATIC_REQUIRE(launches_in_regions<uneven::program>() == 3 + 8);
  CHECK(uneven::worst() < 1e-12);
}

TEST_CASE("a lone head whose keys are split over devices combines maxima, sums and rows, and nothing more",
          "[execute]") {
  using over = lone_on<1, 4>;
  using four = lone_setting<over, mask::none, false, lone_f32, 1024, 1280, 8>;
  // An all-reduce of n bytes on 4 devices sends 2 n (4 - 1) / 4.
  constexpr std::int64_t number_of_row = 2 * (1024 * 4) * 3 / 4;
  STATIC_REQUIRE(four::value::bytes<ep::all_reduce, over::keys>() == (2 + 8) * number_of_row);
  STATIC_REQUIRE(launches_in_regions<four::program>() > 0);
  STATIC_REQUIRE(four::program::arena_bytes() < 1024 * 320 * 4);
  CHECK(four::worst() < 2e-5);
  using both = lone_setting<lone_on<2, 2>, mask::causal, false, lone_f64, 1027, 1027, 8>;
  STATIC_REQUIRE(both::program::arena_bytes() < 514 * 514 * 8);
  CHECK(both::worst() < 1e-12);
}

TEST_CASE("heads that share their keys, of one text", "[execute]") {
  using attention = shared_keys<lone_on<2>, mask::causal, false>;
  using program = ep::program<lone_on<2>::mesh, lone_gradients<attention>, ep::f32<1024, 3, 8>, ep::f32<1024, 8>,
                              ep::f32<1024, 8>, ep::f32<1>>;
  STATIC_REQUIRE(program::arena_bytes() < 512 * 1024 * 4);
  CHECK(worst_of<program>({1, 1024, 1024, 1, 3, 8}, mask::causal, false) < 2e-5);
}

TEST_CASE("a memory that is keys and values at once is attention", "[execute]") {
  STATIC_REQUIRE(launches_in_regions<one_memory_program>() == 3);
  ep::world world(one_memory_program::mesh::value);
  ep::runner<one_memory_program> run(world);
  auto q = run.argument<0>();
  auto memory = run.argument<1>();
  q.for_each([](double& one, std::int64_t i) { one = static_cast<double>(i * i % 19) / 10 - 1; });
  memory.for_each([](double& one, std::int64_t i) { one = static_cast<double>(i * i % 23) / 10 - 1; });
  const std::vector<double> query = ep::gather(world, q);
  const std::vector<double> key = ep::gather(world, memory);
  // (Without a mask the scores are products as they are.)
  std::vector<double> scaled = query;
  for (double& one : scaled) one /= 0.35;
  const plain expected = plain_attention({1, 521, 640, 1, 1, 8}, mask::none, false, scaled, key, key, {});
  const std::vector<double> found = ep::gather(world, run(q, memory));
  REQUIRE(found.size() == expected.y.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double here = std::abs(found[i] - expected.y[i]);
    worst = here <= worst ? worst : here;
  }
  CHECK(worst < 1e-13);
}

TEST_CASE("layers of a lone head, in a loop or not, keep neither scores nor their mask", "[execute]") {
  // The scores take 3.1 MiB, and truth values of a mask 400 KiB. Two layers keep ten arrays of 40 KiB, or fewer.
  STATIC_REQUIRE(lone_layers_program<true>::arena_bytes() < 10 * 640 * 8 * 8 + 1024);
  STATIC_REQUIRE(lone_layers_program<false>::arena_bytes() < 10 * 640 * 8 * 8);
  CHECK(worst_difference_of_layers<lone_layers_program<true>, lone_layers_program<false>>() < 1e-11);
}

TEST_CASE("scores that are read for two losses are kept for neither", "[execute]") {
  // The logits take 9.9 MB, and the truth values that tell a row's target 1.2 MB.
  STATIC_REQUIRE(two_losses_program<1, 1>::arena_bytes() < 2 * loss_rows * loss_classes);
  CHECK(worst_of_losses<two_losses_program<1, 1>>() < 1e-12);
  using four = two_losses_program<1, 4>;
  STATIC_REQUIRE(four::arena_bytes() < 2 * loss_rows * 1025);
  // Of each row: the largest logit, the sum, the target's logit, the expected row, and the gradient of x. (A device's
  // part of 301 numbers is rounded up.)
  constexpr std::int64_t numbers = 3 + 2 * loss_features;
  constexpr std::int64_t least = 2 * numbers * loss_rows * 8 * 3 / 4;
  STATIC_REQUIRE(four::collectives() == 5);
  STATIC_REQUIRE(four::bytes<ep::all_reduce>() >= least);
  STATIC_REQUIRE(four::bytes<ep::all_reduce>() <= least + 3 * 2 * 8);
  CHECK(worst_of_losses<two_losses_program<1, 4>>() < 1e-12);
  STATIC_REQUIRE(two_losses_program<2, 2>::arena_bytes() < 2 * 151 * 2049);
  CHECK(worst_of_losses<two_losses_program<2, 2>>() < 1e-12);
}

TEST_CASE("a loss that is computed again keeps no logits", "[execute]") {
  // They take 9.9 MB, 4.9 MB in f32 and 2.5 MB in bf16; the table takes 0.26 MB, 0.13 MB and 0.07 MB.
  STATIC_REQUIRE(loss_again_program<1, 1>::arena_bytes() < loss_rows * loss_classes);
  CHECK(worst_of_losses<loss_again_program<1, 1>>(0) < 1e-12);
  CHECK(worst_of_losses<loss_program<loss_again, 1, 1, ep::f32>>(0) < 1e-5);
  CHECK(worst_of_losses<loss_program<loss_again, 1, 1, ep::bf16>>(0) < 2e-2);
  using rows = loss_again_program<4, 1>;
  STATIC_REQUIRE(rows::arena_bytes() < 76 * loss_classes);
  // The gradient of the table, and the loss, which is rounded up to a number for each device.
  STATIC_REQUIRE(rows::collectives() == 2);
  STATIC_REQUIRE(rows::bytes<ep::all_reduce>() == 2 * 8 * loss_classes * loss_features * 3 / 4 + 3 * 8);
  CHECK(worst_of_losses<rows>(0) < 1e-12);
  using classes = loss_again_program<1, 4>;
  STATIC_REQUIRE(classes::arena_bytes() < loss_rows * 1025);
  // Of each row: the largest logit, the sum and the target's logit, the first two once more, and the gradient of x.
  constexpr std::int64_t least = 2 * (5 + loss_features) * loss_rows * 8 * 3 / 4;
  STATIC_REQUIRE(classes::bytes<ep::all_reduce>() >= least);
  STATIC_REQUIRE(classes::bytes<ep::all_reduce>() <= least + 4 * 2 * 8);
  CHECK(worst_of_losses<classes>(0) < 1e-12);
  STATIC_REQUIRE(loss_again_program<2, 2>::arena_bytes() < 151 * 2049);
  CHECK(worst_of_losses<loss_again_program<2, 2>>(0) < 1e-12);
}

TEST_CASE("a loss that is computed again keeps no logits of a table [features, classes] either", "[execute]") {
  STATIC_REQUIRE(loss_of_columns_program<ep::f64>::arena_bytes() < loss_rows * loss_classes);
  CHECK(worst_of_losses<loss_of_columns_program<ep::f64>, true>(0) < 1e-12);
  CHECK(worst_of_losses<loss_of_columns_program<ep::f32>, true>(0) < 1e-5);
  CHECK(worst_of_losses<loss_of_columns_program<ep::bf16>, true>(0) < 2e-2);
}

TEST_CASE("threads that share what is summed up over rows compute what one thread does", "[execute]") {
  using by_rows = loss_again_program<1, 1>;
  using by_columns = loss_of_columns_program<ep::f64>;
  const auto alone = results_of_loss<by_rows>(1);
  const auto columns_alone = results_of_loss<by_columns>(1);
  for (const int threads : {2, 3}) {
    CHECK((results_of_loss<by_rows>(threads) == alone));
    CHECK((results_of_loss<by_columns>(threads) == columns_alone));
  }
}

TEST_CASE("layers of weights and losses are no attention", "[plan]") {
  STATIC_REQUIRE(launches_in_regions<linear_loss_program>() == 0);
  STATIC_REQUIRE(launches_in_regions<wide_layers_program>() == 0);
  STATIC_REQUIRE(launches_in_regions<wide_gates_program>() == 0);
}
