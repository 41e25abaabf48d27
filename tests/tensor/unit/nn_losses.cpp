// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include "nn_check.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace {

using namespace nn_check;

struct each {
  constexpr auto operator()(const auto& logits, const auto& targets) const {
    return nn::cross_entropy_each(logits, targets);
  }
};
struct total {
  constexpr auto operator()(const auto& logits, const auto& targets) const {
    return nn::cross_entropy_sum(logits, targets);
  }
};
struct average {
  constexpr auto operator()(const auto& logits, const auto& targets) const {
    return nn::cross_entropy(logits, targets);
  }
};

std::vector<double> plain_cross_entropy(const tensor_value& logits, const tensor_value& targets) {
  const std::size_t classes = logits.data.size() / targets.data.size();
  std::vector<double> losses;
  for (std::size_t r = 0; r < targets.data.size(); ++r) {
    const double* const row = &logits.data[r * classes];
    const double top = *std::max_element(row, row + classes);
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(row[c] - top);
    losses.push_back(top + std::log(sum) - row[static_cast<std::size_t>(targets.data[r])]);
  }
  return losses;
}

using logits = f64<2, 3, 5>;
using targets = i32<2, 3>;

}  // namespace

TEST_CASE("nn: cross entropy as loops compute it") {
  random_source random(1);
  for (const double size : {1.0, 1000.0}) {
    const auto data = random_arguments<logits, targets>(random, 5, -size, size);
    const auto expected = plain_cross_entropy(data[0], data[1]);
    double sum = 0;
    for (const double loss : expected) sum += loss;
    require_close(run<each, logits, targets>(data)[0].data, expected);
    require_close(run<total, logits, targets>(data)[0].data, {sum});
    require_close(run<average, logits, targets>(data)[0].data, {sum / 6});
  }
}

TEST_CASE("nn: the gradient of cross entropy is softmax minus the target") {
  random_source random(2);
  check_gradient<each, f64<2, 3>, logits, targets>(random, 5);
  check_gradient<average, f64<>, logits, targets>(random, 5);
}

namespace {

template <class Type> using s = symbol<one_device, Type>;
using broken = failed<why::out_of_bounds<f32<1>>>;
template <class T, template <class...> class Reason> inline constexpr bool is_reason = false;
template <class... Details, template <class...> class Reason>
inline constexpr bool is_reason<failed<Reason<Details...>>, Reason> = true;
template <class F, class A, class B> using made = decltype(F{}(std::declval<const A&>(), std::declval<const B&>()));

static_assert(std::is_same_v<made<average, broken, s<targets>>, broken>);
static_assert(std::is_same_v<made<average, s<logits>, broken>, broken>);
static_assert(std::is_same_v<made<average, s<logits>, s<targets>>, s<f64<>>>);
static_assert(is_reason<made<average, s<logits>, s<i32<3, 2>>>, why::shape_mismatch>);
static_assert(is_reason<made<total, s<logits>, s<f32<2, 3>>>, why::indices_are_not_integers>);
static_assert(is_reason<made<each, s<i32<2, 3, 5>>, s<targets>>, why::operand_is_not_floating>);

}  // namespace
