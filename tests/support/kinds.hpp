// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <catch2/catch.hpp>
#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Programs as a new user writes them, against numbers that plain loops find without this library.
namespace testing::kinds {

namespace ep = espalier;

/// Plain loops compute with it, so that central differences of them are good to eleven digits.
using real = long double;

/// A tensor for plain loops: whole, row-major.
class plain {
 public:
  std::vector<std::int64_t> extents;
  std::vector<real> data;

  plain() = default;
  explicit plain(std::vector<std::int64_t> shape, real value = 0) : extents(std::move(shape)) {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    data.assign(static_cast<std::size_t>(count), value);
  }
  /// A scalar.
  static plain number(real value) { return plain({}, value); }

  template <class... Index> [[nodiscard]] real operator()(Index... index) const { return data[at({index...})]; }
  template <class... Index> [[nodiscard]] real& operator()(Index... index) { return data[at({index...})]; }
  /// The extent of a dimension, for loops.
  [[nodiscard]] int size(int dim) const { return static_cast<int>(extents[static_cast<std::size_t>(dim)]); }

 private:
  [[nodiscard]] std::size_t at(std::initializer_list<std::int64_t> index) const {
    if (index.size() != extents.size()) throw std::out_of_range("a plain loop counts the dimensions wrongly");
    std::int64_t flat = 0;
    std::size_t d = 0;
    for (const std::int64_t i : index) {
      if (i < 0 || i >= extents[d]) throw std::out_of_range("a plain loop leaves its tensor");
      flat = flat * extents[d++] + i;
    }
    return static_cast<std::size_t>(flat);
  }
};

using plains = std::vector<plain>;

/// Numbers in (-scale, scale) without a pattern.
[[nodiscard]] inline plain wave(int seed, std::vector<std::int64_t> extents, double scale = 1) {
  plain made(std::move(extents));
  for (std::size_t i = 0; i < made.data.size(); ++i) {
    const std::uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15U ^ static_cast<std::uint64_t>(seed) * 0xd1342543de82ef95U;
    const std::uint64_t bits = (mixed ^ mixed >> 31U) * 0xbf58476d1ce4e5b9U >> 40U;
    made.data[i] = static_cast<real>(scale * (static_cast<double>(bits) / 8388608.0 - 1.0));
  }
  return made;
}
/// Whole numbers 0 ... below - 1.
[[nodiscard]] inline plain indices(int seed, std::vector<std::int64_t> extents, int below) {
  plain made = wave(seed, std::move(extents));
  for (real& one : made.data) one = std::floor((one + 1) / 2 * static_cast<real>(below));
  return made;
}

/// The derivative of f, a number, by every element of `arguments[leaf]`: central differences.
template <class F> [[nodiscard]] plain slope(const F& f, plains arguments, std::size_t leaf) {
  constexpr real step = 1e-6L;
  plain result = arguments[leaf];
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    const real here = arguments[leaf].data[i];
    arguments[leaf].data[i] = here + step;
    const real above = f(arguments);
    arguments[leaf].data[i] = here - step;
    const real below = f(arguments);
    arguments[leaf].data[i] = here;
    result.data[i] = (above - below) / (2 * step);
  }
  return result;
}

/// The value of a loss and its slope by the first `leaves` arguments.
template <class F> [[nodiscard]] plains value_and_slopes(const F& f, const plains& in, std::size_t leaves) {
  plains out{plain::number(f(in))};
  for (std::size_t leaf = 0; leaf < leaves; ++leaf) out.push_back(slope(f, in, leaf));
  return out;
}

/// Calls f(flat index in the whole tensor, index in the shard's buffer) for the elements that a device holds.
template <class F> void for_each_held(const ep::mesh_shape& mesh, const ep::layout& placed, int device, const F& f) {
  const ep::extents local = ep::local_shape(mesh, placed.shape, placed.placement);
  ep::interval held[ep::max_rank];
  std::int64_t count = 1;
  for (int d = 0; d < placed.shape.rank; ++d) {
    held[d] = ep::local_interval(mesh, placed.shape[d], placed.placement.dim[d], device);
    count *= held[d].size;
  }
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t whole = 0;
    std::int64_t own = 0;
    std::int64_t rest = n;
    for (int d = placed.shape.rank - 1; d >= 0; --d) {
      const std::int64_t i = rest % held[d].size;
      rest /= held[d].size;
      whole += (held[d].start + i) * ep::stride_of(placed.shape, d);
      own += i * ep::stride_of(local, d);
    }
    f(static_cast<std::size_t>(whole), own);
  }
}

/// One shard as numbers, whatever its type.
struct shard_data {
  ep::dtype type;
  void* memory;

  [[nodiscard]] real get(std::int64_t i) const {
    return ep::with_storage(type, [&]<class T>(T) {
      return static_cast<real>(static_cast<ep::computed_t<T>>(static_cast<const T*>(memory)[i]));
    });
  }
  void set(std::int64_t i, real value) const {
    ep::with_storage(type, [&]<class T>(T) {
      T& element = static_cast<T*>(memory)[i];
      if constexpr (std::is_same_v<T, bool>) {
        element = value != 0;
      } else if constexpr (std::is_integral_v<T>) {
        element = static_cast<T>(static_cast<std::int64_t>(value));
      } else {
        element = static_cast<T>(static_cast<ep::computed_t<T>>(value));
      }
    });
  }
};

/// Writes one device's part. Its padding belongs to no device, and shows if it is read.
inline void write_shard(const ep::mesh_shape& mesh, const ep::layout& placed, int device, shard_data shard,
                        const plain& values) {
  const bool floating = ep::is_floating(shard.type);
  const std::int64_t all = ep::local_shape(mesh, placed.shape, placed.placement).elements();
  for (std::int64_t i = 0; i < all; ++i) shard.set(i, floating ? std::numeric_limits<real>::quiet_NaN() : 77777);
  for_each_held(mesh, placed, device, [&](std::size_t whole, std::int64_t own) { shard.set(own, values.data[whole]); });
}

/// Reads one device's part, and notes where it differs from a copy that another device has.
inline void read_shard(const ep::mesh_shape& mesh, const ep::layout& placed, int device, shard_data shard,
                       plain& values, std::vector<bool>& seen, std::string& fault) {
  for_each_held(mesh, placed, device, [&](std::size_t whole, std::int64_t own) {
    const real value = shard.get(own);
    const bool same = value == values.data[whole] || (value != value && values.data[whole] != values.data[whole]);
    if (seen[whole] && !same && fault.empty()) {
      fault = "device " + std::to_string(device) + " has another element " + std::to_string(whole) + " than others";
    }
    seen[whole] = true;
    values.data[whole] = value;
  });
}

[[nodiscard]] inline shard_data shard_of(const ep::any_array& array, int local) {
  return {array.type(), ep::detail::array_memory::shards(array)[static_cast<std::size_t>(local)].data()};
}

inline void write_array(const ep::any_array& array, const plain& values) {
  REQUIRE(values.data.size() == static_cast<std::size_t>(array.shape().elements()));
  for (int k = 0; k < array.local_count(); ++k) {
    write_shard(array.mesh(), array.placed(), array.device(k), shard_of(array, k), values);
  }
}
[[nodiscard]] inline plain read_array(const ep::any_array& array) {
  plain values;
  const ep::extents& shape = array.shape();
  for (int d = 0; d < shape.rank; ++d) values.extents.push_back(shape[d]);
  values.data.resize(static_cast<std::size_t>(shape.elements()));
  std::vector<bool> seen(values.data.size());
  std::string fault;
  for (int k = 0; k < array.local_count(); ++k) {
    read_shard(array.mesh(), array.placed(), array.device(k), shard_of(array, k), values, seen, fault);
  }
  CHECK(fault.empty());
  REQUIRE(std::count(seen.begin(), seen.end(), false) == 0);
  return values;
}

/// The first element that differs by more than `tolerance`, relative to the largest one, or an empty string.
[[nodiscard]] inline std::string difference(const plain& got, const plain& expected, double tolerance) {
  if (got.data.size() != expected.data.size()) {
    return std::to_string(got.data.size()) + " elements instead of " + std::to_string(expected.data.size());
  }
  real scale = 1e-30L;
  for (const real one : expected.data) {
    if (std::isfinite(one)) scale = std::max(scale, std::abs(one));
  }
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    const real a = got.data[i];
    const real b = expected.data[i];
    if (a == b || (a != a && b != b) || std::abs(a - b) <= static_cast<real>(tolerance) * scale) continue;
    std::ostringstream text;
    text << "element " << i << " is " << a << " instead of " << b;
    return text.str();
  }
  return "";
}

[[nodiscard]] inline std::string mesh_text(const ep::mesh_shape& mesh) {
  std::string text;
  for (int a = 0; a < mesh.rank; ++a) text += (a > 0 ? " x " : "") + std::to_string(mesh.size[a]);
  return text;
}

/// The arrays of arguments and of results: of all types the same code, as there are hundreds of programs.
struct array_list {
  std::vector<const ep::any_array*> all;

  /// The function for `for_each_leaf`.
  struct adder {
    array_list& to;
    void operator()(const ep::any_array& array) const { to.all.push_back(&array); }
  };
  template <class Tree> void add(const Tree& tree) { ep::detail::for_each_leaf(tree, adder{*this}); }
  void write(const plains& leaves) const {
    REQUIRE(leaves.size() == all.size());
    for (std::size_t leaf = 0; leaf < all.size(); ++leaf) write_array(*all[leaf], leaves[leaf]);
  }
  [[nodiscard]] plains read() const {
    plains got;
    for (const ep::any_array* array : all) got.push_back(read_array(*array));
    return got;
  }
};

/// The leaves that a result takes the place of.
[[nodiscard]] inline std::vector<bool> donated_leaves(ep::graph_view code, int leaves) {
  std::vector<bool> taken(static_cast<std::size_t>(leaves));
  for (int id = 0; id < code.size; ++id) {
    const ep::instruction& i = code[id];
    if (i.op == &ep::ops::result && i.operand_count == 2) {
      const int replaced = ep::attributes_of<ep::border_attributes>(code[i.operand[1]]).number;
      taken[static_cast<std::size_t>(replaced)] = true;
    }
  }
  return taken;
}

/// Checks that arguments that were not donated are as they were.
inline void check_unchanged(ep::graph_view code, const array_list& arguments, const plains& leaves) {
  const std::vector<bool> taken = donated_leaves(code, static_cast<int>(leaves.size()));
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    if (!taken[leaf]) CHECK(difference(read_array(*arguments.all[leaf]), leaves[leaf], 1e-2) == "");
  }
}

template <class Program, int... I>
[[nodiscard]] plains run_with(ep::runner<Program>& runner, const plains& leaves, int times,
                              std::integer_sequence<int, I...> /*arguments*/) {
  const auto run_on = [&](auto... argument) {
    array_list arguments;
    (arguments.add(argument), ...);
    arguments.write(leaves);
    for (int n = 1; n < times; ++n) runner(argument...);
    array_list results;
    results.add(runner(argument...));
    plains got = results.read();
    check_unchanged(Program::code, arguments, leaves);
    return got;
  };
  return run_on(runner.template argument<I>()...);
}

/// Runs a program `times` times on threads, one for each device: the leaves of the results of the last run.
template <class Program> [[nodiscard]] plains run(const plains& leaves, int times = 1) {
  ep::world world(Program::mesh::value);
  ep::runner<Program> runner(world);
  return run_with(runner, leaves, times, std::make_integer_sequence<int, Program::arity>{});
}

inline void check_results(const plains& got, const plains& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    INFO("result " << r);
    CHECK(difference(got[r], expected[r], tolerance) == "");
  }
}

/// The program gives these results.
template <class Program>
void gives(const plains& arguments, const plains& expected, double tolerance = 1e-9, int times = 1) {
  INFO("on a mesh of " << mesh_text(Program::mesh::value));
  check_results(run<Program>(arguments, times), expected, tolerance);
}

/// Two axes.
template <int Data, int Model> struct on {
  struct data : ep::axis<"data", Data> {};
  struct model : ep::axis<"model", Model> {};
  using mesh = ep::mesh<data, model>;
};

/// Meshes to run a kind of program on.
template <class... On> struct meshes {};

/// A program takes a compiler as long on every mesh: `All` of them with ESPALIER_TEST_ALL_MESHES (tests/run --long),
/// else the `Few` that differ most.
#if ESPALIER_TEST_ALL_MESHES
template <class Few, class All> using few_or_all = All;
#else
template <class Few, class All> using few_or_all = Few;
#endif

/// Meshes of 1, 2, 4 and 8 devices: always the largest, whose parts are the smallest and most uneven, and one other:
/// one device in the lists of one split axis, an axis of one part in the first list, two equal axes in the second.
using both_axes = few_or_all<meshes<on<1, 2>, on<2, 4>>, meshes<on<1, 1>, on<1, 2>, on<2, 2>, on<2, 4>>>;
using both_ways = few_or_all<meshes<on<2, 2>, on<4, 2>>, meshes<on<1, 1>, on<2, 1>, on<2, 2>, on<4, 2>>>;
using data_axis = few_or_all<meshes<on<1, 1>, on<8, 1>>, meshes<on<1, 1>, on<2, 1>, on<4, 1>, on<8, 1>>>;
using model_axis = few_or_all<meshes<on<1, 1>, on<1, 8>>, meshes<on<1, 1>, on<1, 2>, on<1, 4>, on<1, 8>>>;

/// Every file has its own: g++ names an instantiation after the alias it is given, not after the file that the alias is
/// local to, so that two files with aliases of one name would share the program of one of them.
template <template <class> class Program, class... On>
static void everywhere(meshes<On...> /*meshes*/, const plains& arguments, const plains& expected,
                       double tolerance = 1e-9, int times = 1) {
  (gives<Program<On>>(arguments, expected, tolerance, times), ...);
}

}  // namespace testing::kinds
