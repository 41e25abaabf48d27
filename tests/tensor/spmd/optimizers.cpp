// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/core/nn/training.hpp>

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

/// Optimizers against plain loops: parameters of every float type, split, in sizes that do not divide.
namespace ep = espalier;
namespace nn = espalier::nn;
using namespace testing::kinds;

namespace {

/// A tensor, laid out as these entries say or not at all.
template <bool Placed, class Tensor, class... Entries>
using placed = std::conditional_t<Placed, ep::sharded<Tensor, Entries...>, Tensor>;

template <class On, bool Placed, ep::dtype T> struct part {
  using data = typename On::data;
  template <int... Extents> using tensor = typename ep::detail::dtype_row<T>::template tensor<Extents...>;
  template <class Leaf> struct leaves {
    BOOST_HANA_DEFINE_STRUCT(leaves, (ep::leaf<Leaf, placed<Placed, tensor<5, 6>, data, ep::none>>, wide),
                             (ep::leaf<Leaf, placed<Placed, tensor<7, 3>, ep::none, data>>, tall),
                             (ep::leaf<Leaf, placed<Placed, tensor<6>, data>>, bias),
                             (ep::leaf<Leaf, tensor<>>, scale));
  };
};
/// Parameters of two types: of f64 and f16 on one device, of f32 and bf16 on several, where sixteen bits travel.
template <class On> struct tree {
  static constexpr bool is_split = On::mesh::value.devices() > 1;
  static constexpr ep::dtype wide_type = is_split ? ep::dtype::f32 : ep::dtype::f64;
  static constexpr ep::dtype narrow_type = is_split ? ep::dtype::bf16 : ep::dtype::f16;
  template <ep::dtype T, class Leaf> using part_of = typename part<On, true, T>::template leaves<Leaf>;
  template <class Leaf> struct net {
    BOOST_HANA_DEFINE_STRUCT(net, (part_of<wide_type, Leaf>, wide), (part_of<narrow_type, Leaf>, narrow));
  };
};
/// Parameters of every float type, laid out nowhere.
template <class On> struct tree_of_all {
  template <ep::dtype T, class Leaf> using part_of = typename part<On, false, T>::template leaves<Leaf>;
  template <class Leaf> struct net {
    BOOST_HANA_DEFINE_STRUCT(net, (part_of<ep::dtype::f64, Leaf>, doubles), (part_of<ep::dtype::f32, Leaf>, floats),
                             (part_of<ep::dtype::bf16, Leaf>, brains), (part_of<ep::dtype::f16, Leaf>, halves));
  };
};

/// One leaf of the trees above, for plain loops.
struct leaf_facts {
  ep::dtype type;
  std::vector<std::int64_t> extents;
  bool is_bias;

  /// Returns the relative error of storing it.
  [[nodiscard]] double unit() const {
    switch (type) {
      case ep::dtype::f64: return 1e-14;
      case ep::dtype::f32: return 1e-6;
      case ep::dtype::bf16: return 0x1p-8;
      default: return 0x1p-11;
    }
  }
  /// The same of a moment.
  [[nodiscard]] double moment_unit() const { return type == ep::dtype::f64 ? 1e-14 : 1e-6; }
};

using leaf_list = std::vector<leaf_facts>;

leaf_list leaves_of(std::initializer_list<ep::dtype> types) {
  leaf_list all;
  for (const ep::dtype type : types) {
    all.push_back({type, {5, 6}, false});
    all.push_back({type, {7, 3}, false});
    all.push_back({type, {6}, true});
    all.push_back({type, {}, false});
  }
  return all;
}

real rounded(ep::dtype type, real value) {
  return static_cast<real>(ep::detail::stored_as(type, static_cast<double>(value)));
}

/// Numbers of these leaves, as they are stored. Odd seeds give small ones, whose squares are below every f16.
plains numbers(const leaf_list& leaves, int seed) {
  plains all;
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    plain one = wave(seed * 100 + static_cast<int>(l), leaves[l].extents, seed % 2 == 1 ? 1e-3 : 1);
    for (real& x : one.data) x = rounded(leaves[l].type, x);
    all.push_back(one);
  }
  return all;
}
plains zeros(const leaf_list& leaves) {
  plains all;
  for (const leaf_facts& leaf : leaves) all.emplace_back(leaf.extents);
  return all;
}

constexpr int steps = 4;
real rate_of(int step) { return rounded(ep::dtype::f32, 0.02L / (step + 1)); }

/// Runs a step over its own state with gradients of `numbers(leaves, 10 + step)`, and returns the state.
template <class Program> plains after_steps(const leaf_list& leaves, const plains& start) {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto state = run.template argument<0>();
  const auto gradients = run.template argument<1>();
  const auto rate = run.template argument<2>();
  array_list arrays, gradient_arrays;
  arrays.add(state);
  gradient_arrays.add(gradients);
  arrays.write(start);
  for (int step = 0; step < steps; ++step) {
    gradient_arrays.write(numbers(leaves, 10 + step));
    write_array(rate, plain::number(rate_of(step)));
    run(state, gradients, rate);
  }
  return arrays.read();
}

/// Parameters to half a unit of their last place a step, moments as exact as what they are computed in.
template <class Program> void agrees(const leaf_list& leaves, const plains& start, const plains& expected) {
  INFO("on a mesh of " << mesh_text(Program::mesh::value));
  const plains got = after_steps<Program>(leaves, start);
  REQUIRE(got.size() == expected.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    const leaf_facts& leaf = leaves[r % leaves.size()];
    INFO("leaf " << r);
    CHECK(difference(got[r], expected[r], r < leaves.size() ? leaf.unit() : leaf.moment_unit()) == "");
  }
}
/// Runs from `start(leaves)` on each mesh, and compares with what `plain_steps(leaves, start)` finds.
template <template <class> class Program, class... On>
void agrees_everywhere(const auto& start, const auto& plain_steps) {
  const auto one = [&]<class Here>(Here) {
    const leaf_list leaves = leaves_of({tree<Here>::wide_type, tree<Here>::narrow_type});
    agrees<Program<Here>>(leaves, start(leaves), plain_steps(leaves, start(leaves)));
  };
  (one(On{}), ...);
}

void append(plains& to, const plains& more) { to.insert(to.end(), more.begin(), more.end()); }

/// Numbers, and this many moments of each leaf that are zero, before the first step.
auto with_moments(int moments) {
  return [moments](const leaf_list& leaves) {
    plains start = numbers(leaves, 2);
    for (int m = 0; m < moments; ++m) append(start, zeros(leaves));
    start.push_back(plain::number(0));
    return start;
  };
}

template <class State, class On, class Step>
using step_program =
    ep::program<typename On::mesh, Step, ep::donated<State>, typename tree<On>::template net<ep::spec>, ep::f32<>>;

// --- AdamW ----------------------------------------------------------------------------------------------------------

constexpr nn::adamw_settings adam{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.3};

struct adamw_step {
  constexpr auto operator()(const auto& state, const auto& gradients, auto rate) const {
    return nn::adamw_step(state, gradients, rate, adam);
  }
};
template <class On>
using adamw_program =
    step_program<typename nn::adamw<tree<On>::template net>::template state<ep::spec>, On, adamw_step>;

template <class On> struct split_adamw_step {
  constexpr auto operator()(const auto& state, const auto& gradients, auto rate) const {
    return nn::adamw_step(state, gradients, rate, adam, nn::split_state<typename On::model, 6>{});
  }
};
template <class On>
using split_adamw =
    ep::program<typename On::mesh, split_adamw_step<On>,
                ep::donated<typename nn::adamw<tree_of_all<On>::template net>::template state<ep::spec>>,
                typename tree_of_all<On>::template net<ep::spec>, ep::f32<>>;

plains plain_adamw(const leaf_list& list, plains state) {
  const std::size_t leaves = list.size();
  for (int step = 0; step < steps; ++step) {
    const plains gradients = numbers(list, 10 + step);
    const real t = step + 1;
    for (std::size_t l = 0; l < leaves; ++l) {
      for (std::size_t i = 0; i < gradients[l].data.size(); ++i) {
        const real g = gradients[l].data[i];
        real& p = state[l].data[i];
        real& m = state[leaves + l].data[i];
        real& v = state[2 * leaves + l].data[i];
        m = 0.8L * m + 0.2L * g;
        v = 0.95L * v + 0.05L * g * g;
        const real by = m / (1 - std::pow(0.8L, t)) / (std::sqrt(v / (1 - std::pow(0.95L, t))) + 1e-6L);
        p = rounded(list[l].type, p - rate_of(step) * (by + (list[l].is_bias ? 0 : 0.3L) * p));
      }
    }
  }
  state.back() = plain::number(steps);
  return state;
}

// --- SGD ------------------------------------------------------------------------------------------------------------

template <bool Nesterov> struct sgd_step {
  constexpr auto operator()(const auto& state, const auto& gradients, auto rate) const {
    return nn::sgd_step(state, gradients, rate, {.momentum = 0.7, .weight_decay = 0.2, .nesterov = Nesterov});
  }
};
template <class On> using sgd_state = typename nn::sgd<tree<On>::template net>::template state<ep::spec>;
template <class On> using sgd_program = step_program<sgd_state<On>, On, sgd_step<false>>;
template <class On> using nesterov_program = step_program<sgd_state<On>, On, sgd_step<true>>;

plains plain_sgd(const leaf_list& list, plains state, bool nesterov) {
  const std::size_t leaves = list.size();
  for (int step = 0; step < steps; ++step) {
    const plains gradients = numbers(list, 10 + step);
    for (std::size_t l = 0; l < leaves; ++l) {
      for (std::size_t i = 0; i < gradients[l].data.size(); ++i) {
        const real g = gradients[l].data[i];
        real& p = state[l].data[i];
        real& velocity = state[leaves + l].data[i];
        velocity = 0.7L * velocity + g;
        const real by = nesterov ? 0.7L * velocity + g : velocity;
        p = rounded(list[l].type, p * (1 - (list[l].is_bias ? 0 : rate_of(step) * 0.2L)) - rate_of(step) * by);
      }
    }
  }
  state.back() = plain::number(steps);
  return state;
}

// --- Lion -----------------------------------------------------------------------------------------------------------

struct lion_step {
  constexpr auto operator()(const auto& state, const auto& gradients, auto rate) const {
    return nn::lion_step(state, gradients, rate, {.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.3});
  }
};
template <class On>
using lion_program = step_program<typename nn::lion<tree<On>::template net>::template state<ep::spec>, On, lion_step>;

plains plain_lion(const leaf_list& list, plains state) {
  const std::size_t leaves = list.size();
  for (int step = 0; step < steps; ++step) {
    const plains gradients = numbers(list, 10 + step);
    for (std::size_t l = 0; l < leaves; ++l) {
      for (std::size_t i = 0; i < gradients[l].data.size(); ++i) {
        const real g = gradients[l].data[i];
        real& p = state[l].data[i];
        real& m = state[leaves + l].data[i];
        const real c = 0.8L * m + 0.2L * g;
        const real by = c > 0 ? 1 : c < 0 ? -1 : 0;
        m = 0.95L * m + 0.05L * g;
        p = rounded(list[l].type, p * (1 - (list[l].is_bias ? 0 : rate_of(step) * 0.3L)) - rate_of(step) * by);
      }
    }
  }
  state.back() = plain::number(steps);
  return state;
}

// --- Adafactor ------------------------------------------------------------------------------------------------------

struct adafactor_step {
  constexpr auto operator()(const auto& state, const auto& gradients, auto rate) const {
    return nn::adafactor_step(state, gradients, rate, {.clip = 0.75, .weight_decay = 0.3});
  }
};
template <class On>
using adafactor_program =
    step_program<typename nn::adafactor<tree<On>::template net>::template state<ep::spec>, On, adafactor_step>;

real root_mean_square(const plain& x) {
  real sum = 0;
  for (const real one : x.data) sum += one * one;
  return std::sqrt(sum / static_cast<real>(x.data.size()));
}

/// The paper's algorithms 4 and 5, with its sums.
plains plain_adafactor(const leaf_list& list, plains state) {
  const std::size_t leaves = list.size();
  for (int step = 0; step < steps; ++step) {
    const plains gradients = numbers(list, 10 + step);
    const real old = 1 - std::pow(step + 1.0L, -0.8L);
    for (std::size_t l = 0; l < leaves; ++l) {
      const plain& g = gradients[l];
      plain& p = state[l];
      plain& rows = state[leaves + l];
      plain& columns = state[2 * leaves + l];
      plain update = g;
      if (g.extents.size() < 2) {
        for (std::size_t i = 0; i < g.data.size(); ++i) {
          rows.data[i] = old * rows.data[i] + (1 - old) * (g.data[i] * g.data[i] + 1e-30L);
          update.data[i] = g.data[i] / std::sqrt(rows.data[i]);
        }
      } else {
        const int m = g.size(0), n = g.size(1);
        plain row_sums({m}), column_sums({n});
        for (int i = 0; i < m; ++i) {
          for (int j = 0; j < n; ++j) {
            row_sums(i) += g(i, j) * g(i, j) + 1e-30L;
            column_sums(j) += g(i, j) * g(i, j) + 1e-30L;
          }
        }
        // The state has means: R / n and C / m.
        real total = 0;
        for (int i = 0; i < m; ++i) total += n * (rows(i) = old * rows(i) + (1 - old) * row_sums(i) / n);
        for (int j = 0; j < n; ++j) columns(j) = old * columns(j) + (1 - old) * column_sums(j) / m;
        for (int i = 0; i < m; ++i) {
          for (int j = 0; j < n; ++j) update(i, j) = g(i, j) / std::sqrt(n * rows(i) * m * columns(j) / total);
        }
      }
      const real size = std::max(1e-3L, root_mean_square(p)) * rate_of(step);
      const real clipped = size / std::max(1.0L, root_mean_square(update) / 0.75L);
      for (std::size_t i = 0; i < p.data.size(); ++i) {
        const real kept = p.data[i] * (1 - (list[l].is_bias ? 0 : rate_of(step) * 0.3L));
        p.data[i] = rounded(list[l].type, kept - clipped * update.data[i]);
      }
    }
  }
  state.back() = plain::number(steps);
  return state;
}

// --- Muon -----------------------------------------------------------------------------------------------------------

struct muon_step {
  constexpr auto operator()(const auto& state, const auto& gradients, auto rate) const {
    return nn::muon_step(state, gradients, rate, {.momentum = 0.9, .weight_decay = 0.3, .others = adam});
  }
};
template <class On>
using muon_program = step_program<typename nn::muon<tree<On>::template net>::template state<ep::spec>, On, muon_step>;

plain product(const plain& a, const plain& b) {
  plain c({a.size(0), b.size(1)});
  for (int i = 0; i < a.size(0); ++i) {
    for (int j = 0; j < b.size(1); ++j) {
      for (int k = 0; k < a.size(1); ++k) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}
plain transposed(const plain& a) {
  plain b({a.size(1), a.size(0)});
  for (int i = 0; i < a.size(0); ++i) {
    for (int j = 0; j < a.size(1); ++j) b(j, i) = a(i, j);
  }
  return b;
}
/// Computes as its publication writes it, always x x^T x.
plain newton_schulz(plain x) {
  const real norm = root_mean_square(x) * std::sqrt(static_cast<real>(x.data.size()));
  for (real& one : x.data) one /= norm + 1e-7L;
  for (int n = 0; n < 5; ++n) {
    const plain a = product(x, transposed(x));
    const plain cubed = product(a, x);
    const plain fifth = product(a, cubed);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      x.data[i] = 3.4445L * x.data[i] - 4.7750L * cubed.data[i] + 2.0315L * fifth.data[i];
    }
  }
  return x;
}

plains plain_muon(const leaf_list& list, plains state) {
  const std::size_t leaves = list.size();
  for (int step = 0; step < steps; ++step) {
    const plains gradients = numbers(list, 10 + step);
    const real t = step + 1;
    for (std::size_t l = 0; l < leaves; ++l) {
      const plain& g = gradients[l];
      const bool is_matrix = g.extents.size() == 2;
      plain update = g;
      for (std::size_t i = 0; i < g.data.size(); ++i) {
        real& m = state[leaves + l].data[i];
        if (is_matrix) {
          m = 0.9L * m + g.data[i];
          update.data[i] = g.data[i] + 0.9L * m;
        } else {
          real& v = state[2 * leaves + l].data[i];
          m = 0.8L * m + 0.2L * g.data[i];
          v = 0.95L * v + 0.05L * g.data[i] * g.data[i];
          update.data[i] = m / (1 - std::pow(0.8L, t)) / (std::sqrt(v / (1 - std::pow(0.95L, t))) + 1e-6L);
        }
      }
      if (is_matrix) update = newton_schulz(update);
      const real size = is_matrix ? 0.2L * std::sqrt(static_cast<real>(std::max(g.size(0), g.size(1)))) : 1;
      for (std::size_t i = 0; i < g.data.size(); ++i) {
        real& p = state[l].data[i];
        p = rounded(list[l].type,
                    p * (1 - (list[l].is_bias ? 0 : rate_of(step) * 0.3L)) - rate_of(step) * size * update.data[i]);
      }
    }
  }
  state.back() = plain::number(steps);
  return state;
}

/// Elementwise: on any mesh nothing travels.
template <class Program> constexpr bool moves_nothing = Program::collectives() == 0;

}  // namespace

TEST_CASE("optimizers: AdamW of every float type") {
#if ESPALIER_TEST_ALL_MESHES
  agrees_everywhere<adamw_program, on<1, 1>>(with_moments(2), plain_adamw);
#endif
  agrees_everywhere<adamw_program, on<4, 1>>(with_moments(2), plain_adamw);
  const leaf_list all = leaves_of({ep::dtype::f64, ep::dtype::f32, ep::dtype::bf16, ep::dtype::f16});
  agrees<split_adamw<on<2, 2>>>(all, with_moments(2)(all), plain_adamw(all, with_moments(2)(all)));
  STATIC_REQUIRE(moves_nothing<adamw_program<on<4, 1>>>);
  // ZeRO: of sixteen bits the new parameter is all-gathered, of others the update. Half of 5 x 6 and of 6 elements.
  STATIC_REQUIRE(split_adamw<on<2, 2>>::bytes<ep::all_gather>() == 18 * (8 + 4 + 2 + 2));
}

TEST_CASE("optimizers: SGD with momentum, and Nesterov's") {
  const auto plain_steps = [](const leaf_list& leaves, const plains& start) { return plain_sgd(leaves, start, false); };
  const auto nesterov_steps = [](const leaf_list& leaves, const plains& start) {
    return plain_sgd(leaves, start, true);
  };
  agrees_everywhere<sgd_program, on<4, 1>>(with_moments(1), plain_steps);
#if ESPALIER_TEST_ALL_MESHES
  agrees_everywhere<nesterov_program, on<2, 1>>(with_moments(1), nesterov_steps);
#endif
  agrees_everywhere<nesterov_program, on<1, 1>>(with_moments(1), nesterov_steps);
  STATIC_REQUIRE(moves_nothing<sgd_program<on<4, 1>>>);
}

TEST_CASE("optimizers: Lion") {
#if ESPALIER_TEST_ALL_MESHES
  agrees_everywhere<lion_program, on<1, 1>>(with_moments(1), plain_lion);
#endif
  agrees_everywhere<lion_program, on<4, 1>>(with_moments(1), plain_lion);
  STATIC_REQUIRE(moves_nothing<lion_program<on<4, 1>>>);
}

TEST_CASE("optimizers: Adafactor, with second moments of rows and columns") {
  const auto start = [](const leaf_list& leaves) {
    plains all = numbers(leaves, 2);
    for (const bool rows : {true, false}) {
      for (const leaf_facts& leaf : leaves) {
        const bool factored = leaf.extents.size() == 2;
        all.emplace_back(factored ? std::vector<std::int64_t>{leaf.extents[rows ? 0 : 1]}
                         : rows   ? leaf.extents
                                  : std::vector<std::int64_t>{});
      }
    }
    all.push_back(plain::number(0));
    return all;
  };
#if ESPALIER_TEST_ALL_MESHES
  agrees_everywhere<adafactor_program, on<1, 1>>(start, plain_adafactor);
#endif
  agrees_everywhere<adafactor_program, on<4, 1>>(start, plain_adafactor);
}

TEST_CASE("optimizers: Muon for matrices, and AdamW for vectors") {
  const auto start = [](const leaf_list& leaves) {
    plains all = numbers(leaves, 2);
    append(all, zeros(leaves));
    for (const leaf_facts& leaf : leaves) {
      all.emplace_back(leaf.extents.size() == 2 ? std::vector<std::int64_t>{} : leaf.extents);
    }
    all.push_back(plain::number(0));
    return all;
  };
#if ESPALIER_TEST_ALL_MESHES
  agrees_everywhere<muon_program, on<1, 1>>(start, plain_muon);
#endif
  agrees_everywhere<muon_program, on<4, 1>>(start, plain_muon);
}

namespace {

// --- movement -------------------------------------------------------------------------------------------------------

template <class On, bool Rows> struct one_matrix {
  using tensor = std::conditional_t<Rows, ep::sharded<ep::f32<16, 24>, typename On::data, ep::none>,
                                    ep::sharded<ep::f32<16, 24>, ep::none, typename On::data>>;
  template <class Leaf> struct net { BOOST_HANA_DEFINE_STRUCT(net, (ep::leaf<Leaf, tensor>, weight)); };
};
template <template <template <class> class> class Optimizer, class Step, bool Rows>
using matrix_step =
    ep::program<typename on<4, 1>::mesh, Step,
                ep::donated<typename Optimizer<one_matrix<on<4, 1>, Rows>::template net>::template state<ep::spec>>,
                typename one_matrix<on<4, 1>, Rows>::template net<ep::spec>, ep::f32<>>;
struct gathering_muon_step {
  constexpr auto operator()(const auto& state, const auto& gradients, auto rate) const {
    return nn::muon_step(state, gradients, rate, {.gather = true});
  }
};

// --- ZeRO with a norm -----------------------------------------------------------------------------------------------

template <class Leaf> struct two_matrices {
  BOOST_HANA_DEFINE_STRUCT(two_matrices, (ep::leaf<Leaf, ep::f32<64, 48>>, up),
                           (ep::leaf<Leaf, ep::f32<48, 64>>, down));
};
template <class On> struct clipped_step {
  constexpr auto operator()(const auto& state, auto x, auto rate) const {
    using data = typename On::data;
    const auto loss = [](const auto& p, auto rows) {
      const auto y = ep::matmul(ep::tanh(ep::matmul(ep::shard<data, ep::none>(rows), p.up)), p.down);
      return ep::mean(y * y);
    };
    const auto here = nn::scattered(ep::grad(loss)(state.parameters, x), nn::split_state<data, 48>{});
    const auto [clipped, norm] = ep::clip_by_global_norm(here, 1e-3);
    return ep::results(nn::adamw_step(state, clipped, rate, {}, nn::split_state<data, 48>{}), norm);
  }
};
template <class On>
using clipped_program = ep::program<typename On::mesh, clipped_step<On>,
                                    ep::donated<nn::adamw<two_matrices>::state<ep::spec>>, ep::f32<16, 64>, ep::f32<>>;

/// The same matrices under Muon, whose momentum is split along the shorter dimension of either.
template <class On> struct split_muon_step {
  constexpr auto operator()(const auto& state, auto x, auto rate) const {
    using data = typename On::data;
    const auto loss = [](const auto& p, auto rows) {
      const auto y = ep::matmul(ep::tanh(ep::matmul(ep::shard<data, ep::none>(rows), p.up)), p.down);
      return ep::mean(y * y);
    };
    const auto gradient = ep::grad(loss)(state.parameters, x);
    return nn::muon_step(state, gradient, rate, {}, nn::split_state<data, 48>{});
  }
};
template <class On>
using split_muon_program =
    ep::program<typename On::mesh, split_muon_step<On>, ep::donated<nn::muon<two_matrices>::state<ep::spec>>,
                ep::f32<16, 64>, ep::f32<>>;

// --- stacks ---------------------------------------------------------------------------------------------------------

template <class Leaf> struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::bf16<4, 3>>, weight), (ep::leaf<Leaf, ep::f64<3>>, bias),
                           (ep::leaf<Leaf, ep::f32<>>, scale));
};
template <class Leaf> struct layers { BOOST_HANA_DEFINE_STRUCT(layers, (layer<ep::stacked<Leaf, 2>>, all)); };
template <class Leaf> struct apart { BOOST_HANA_DEFINE_STRUCT(apart, (layer<Leaf>, first), (layer<Leaf>, second)); };
template <template <template <class> class> class Optimizer, class Step> struct stack_steps {
  using mesh = typename on<1, 1>::mesh;
  using together = ep::program<mesh, Step, ep::donated<typename Optimizer<layers>::template state<ep::spec>>,
                               layers<ep::spec>, ep::f32<>>;
  using one_by_one = ep::program<mesh, Step, ep::donated<typename Optimizer<apart>::template state<ep::spec>>,
                                 apart<ep::spec>, ep::f32<>>;
};

/// The leaves of two layers, and of a stack of them.
template <template <template <class> class> class Optimizer, class Step> void stack_is_as_layers() {
  using steps_of = stack_steps<Optimizer, Step>;
  ep::world world(on<1, 1>::mesh::value);
  ep::runner<typename steps_of::together> together(world);
  ep::runner<typename steps_of::one_by_one> one_by_one(world);
  auto a = together.template argument<0>();
  auto b = one_by_one.template argument<0>();
  const auto ga = together.template argument<1>();
  const auto gb = one_by_one.template argument<1>();
  const auto rate = together.template argument<2>();
  write_array(rate, plain::number(0.01L));
  const auto fill = [](const auto& stack, const auto& first, const auto& second, int seed) {
    array_list all, one, two;
    all.add(stack), one.add(first), two.add(second);
    for (std::size_t l = 0; l < all.all.size(); ++l) {
      const plain left = wave(seed + static_cast<int>(l), read_array(*one.all[l]).extents);
      plain both(read_array(*all.all[l]).extents), right = left;
      for (real& x : right.data) x = -3 * x + 0.25L;
      std::copy(left.data.begin(), left.data.end(), both.data.begin());
      std::copy(right.data.begin(), right.data.end(),
                both.data.begin() + static_cast<std::ptrdiff_t>(left.data.size()));
      write_array(*all.all[l], both), write_array(*one.all[l], left), write_array(*two.all[l], right);
    }
  };
  fill(a.parameters.all, b.parameters.first, b.parameters.second, 1);
  for (int step = 0; step < 2; ++step) {
    fill(ga.all, gb.first, gb.second, 10 + step);
    together(a, ga, rate);
    one_by_one(b, gb, rate);
  }
  array_list all, one, two;
  all.add(a.parameters), one.add(b.parameters.first), two.add(b.parameters.second);
  for (std::size_t l = 0; l < 3; ++l) {
    plain apart = read_array(*one.all[l]);
    const plain second = read_array(*two.all[l]);
    apart.data.insert(apart.data.end(), second.data.begin(), second.data.end());
    INFO("leaf " << l);
    CHECK(difference(read_array(*all.all[l]), apart, l == 0 ? 0x1p-8 : 1e-6) == "");
  }
}

}  // namespace

TEST_CASE("optimizers: what travels is what each needs") {
  // Rows on four devices: the sums of 24 columns and two scalars in one collective, and then what clips the update.
  using rows = matrix_step<nn::adafactor, adafactor_step, true>;
  STATIC_REQUIRE(rows::collectives() == 2);
  STATIC_REQUIRE(rows::bytes<ep::all_reduce>() == 172);
  // Columns: the sums of 16 rows and a scalar, then one more.
  using columns = matrix_step<nn::adafactor, adafactor_step, false>;
  STATIC_REQUIRE(columns::collectives() == 2);
  STATIC_REQUIRE(columns::bytes<ep::all_reduce>() == 120);
  // Muon of columns: a scalar, and 16 x 16 numbers in each of five iterations.
  using split = matrix_step<nn::muon, muon_step, false>;
  STATIC_REQUIRE(split::collectives<ep::all_reduce>() == 6);
  STATIC_REQUIRE(split::collectives() == 6);
  STATIC_REQUIRE(split::bytes<ep::all_reduce>() == 12 + 5 * 2 * 3 * 16 * 16 * 4 / 4);
  // Gathered once: a quarter of the matrix to each of three others.
  using gathered = matrix_step<nn::muon, gathering_muon_step, true>;
  STATIC_REQUIRE(gathered::collectives() == 1);
  STATIC_REQUIRE(gathered::bytes<ep::all_gather>() == 3 * 16 * 24);
  // One that is split so that it would be gathered in each iteration is gathered once without being asked.
  using short_rows = matrix_step<nn::muon, muon_step, true>;
  STATIC_REQUIRE(short_rows::collectives() == 1);
  STATIC_REQUIRE(short_rows::bytes<ep::all_gather>() == 3 * 16 * 24);
  // So ZeRO's Muon moves what AdamW's does: each gradient is scattered, and each direction gathered.
  using scattered = split_muon_program<on<4, 1>>;
  STATIC_REQUIRE(scattered::collectives() == 2);
  STATIC_REQUIRE(scattered::bytes<ep::reduce_scatter>() == 3 * 2 * 64 * 48 * 4 / 4);
  STATIC_REQUIRE(scattered::bytes<ep::all_gather>() == 3 * 2 * 64 * 48 * 4 / 4);
  // ZeRO: a reduce-scatter of gradients, one number for their norm, an all-gather of updates.
  using clipped = clipped_program<on<4, 1>>;
  STATIC_REQUIRE(clipped::collectives() == 3);
  STATIC_REQUIRE(clipped::bytes<ep::reduce_scatter>() == 3 * 2 * 64 * 48 * 4 / 4);
  STATIC_REQUIRE(clipped::bytes<ep::all_gather>() == 3 * 2 * 64 * 48 * 4 / 4);
  STATIC_REQUIRE(clipped::bytes<ep::all_reduce>() <= 16);
}

TEST_CASE("optimizers: layers of a stack are as apart as layers") {
  stack_is_as_layers<nn::muon, muon_step>();
  stack_is_as_layers<nn::adafactor, adafactor_step>();
}

TEST_CASE("optimizers: a gathered Muon is Muon, and ZeRO with a norm is what one device does") {
  plains state{wave(1, {16, 24}), plain({16, 24}), plain::number(0), plain::number(0)};
  state.push_back(wave(2, {16, 24}));
  state.push_back(plain::number(0.01L));
  plain update = state[4];
  for (real& x : update.data) x *= 1.95L;
  update = newton_schulz(update);
  plain expected = state[0];
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    expected.data[i] -= 0.01L * (0.2L * std::sqrt(24.0L) * update.data[i] + 0.1L * expected.data[i]);
  }
  const plains got = run<matrix_step<nn::muon, gathering_muon_step, true>>(state);
  CHECK(difference(got[0], expected, 1e-6) == "");
  CHECK(difference(got[1], state[4], 1e-7) == "");
  plains in{wave(1, {64, 48}, 0.2), wave(2, {48, 64}, 0.2)};
  for (int n = 0; n < 4; ++n) in.push_back(plain(in[static_cast<std::size_t>(n % 2)].extents));
  in.push_back(plain::number(0));
  in.push_back(wave(3, {16, 64}));
  in.push_back(plain::number(0.01L));
  check_results(run<clipped_program<on<4, 1>>>(in), run<clipped_program<on<1, 1>>>(in), 1e-5);
  in.erase(in.begin() + 4, in.begin() + 6);
  in.insert(in.begin() + 4, 2, plain::number(0));
  check_results(run<split_muon_program<on<4, 1>>>(in), run<split_muon_program<on<1, 1>>>(in), 1e-5);
}

namespace {

// --- memory ---------------------------------------------------------------------------------------------------------

template <class Leaf> struct large { BOOST_HANA_DEFINE_STRUCT(large, (ep::leaf<Leaf, ep::bf16<512, 1024>>, weight)); };
template <class On>
using large_step = ep::program<typename On::mesh, adamw_step, ep::donated<nn::adamw<large>::state<ep::spec>>,
                               large<ep::spec>, ep::f32<>>;

}  // namespace

TEST_CASE("optimizers: a step of bf16 parameters stores nothing but parameters, moments and gradients") {
  constexpr std::int64_t elements = 512 * 1024;
  // Parameter and gradient of 2 bytes, two moments of 4, and a few scalars.
  STATIC_REQUIRE(large_step<on<1, 1>>::peak_bytes_per_device() <= elements * 12 + 4096);
}
