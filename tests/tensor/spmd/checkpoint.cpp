// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/core/nn/optimizers.hpp>
#include <espalier/tensor/run/io/checkpoint.hpp>
#include <espalier/tensor/run/io/convert.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

using namespace espalier;
using Catch::Matchers::Contains;

struct data_2 : axis<"data", 2> {};
struct model_2 : axis<"model", 2> {};
struct data_4 : axis<"data", 4> {};
struct model_1 : axis<"model", 1> {};
using square = mesh<data_2, model_2>;
using column = mesh<data_4, model_1>;

template <class Leaf> struct dense {
  BOOST_HANA_DEFINE_STRUCT(dense, (leaf<Leaf, f32<6, 5>>, weight), (leaf<Leaf, f64<5>>, bias));
};
template <class Leaf> struct two_layers {
  BOOST_HANA_DEFINE_STRUCT(two_layers, (dense<Leaf>, first), (dense<stacked<Leaf, 3>>, others),
                           (leaf<Leaf, i32<>>, step));
};
template <class Leaf> struct masked {
  BOOST_HANA_DEFINE_STRUCT(masked, (leaf<Leaf, f32<6, 5>>, weight), (leaf<Leaf, boolean<6, 5>>, mask),
                           (leaf<Leaf, boolean<>>, done), (leaf<Leaf, i32<>>, step));
};
template <class Leaf> struct another_model {
  BOOST_HANA_DEFINE_STRUCT(another_model, (dense<Leaf>, first), (leaf<Leaf, f32<>>, step));
};

template <class Leaf> struct half {
  BOOST_HANA_DEFINE_STRUCT(half, (leaf<Leaf, bf16<6, 5>>, weight), (leaf<Leaf, f16<5>>, bias),
                           (leaf<Leaf, f64<>>, gain));
};
template <class Leaf> struct half_layers {
  BOOST_HANA_DEFINE_STRUCT(half_layers, (half<Leaf>, first), (half<stacked<Leaf, 3>>, others));
};
/// The state as `nn::sgd::state` was.
template <class Leaf> struct narrow_state {
  BOOST_HANA_DEFINE_STRUCT(narrow_state, (half_layers<Leaf>, parameters), (half_layers<Leaf>, velocity),
                           (leaf<Leaf, f32<>>, step));
};
template <class Leaf> using wide_state = nn::sgd<half_layers>::state<Leaf>;
/// One of its parameters is of another type.
template <class Leaf> struct single {
  BOOST_HANA_DEFINE_STRUCT(single, (leaf<Leaf, f32<6, 5>>, weight), (leaf<Leaf, f16<5>>, bias),
                           (leaf<Leaf, f64<>>, gain));
};
template <class Leaf> struct single_layers {
  BOOST_HANA_DEFINE_STRUCT(single_layers, (single<Leaf>, first), (half<stacked<Leaf, 3>>, others));
};
template <class Leaf> using other_state = nn::sgd<single_layers>::state<Leaf>;

/// Dimension d of every array over axis `axes[d]` of the mesh; -1: not split.
template <template <class> class Tree> Tree<arrays> place(const world& where, const std::vector<int>& axes) {
  Tree<arrays> tree;
  detail::for_each_leaf(tree, [&](auto& array) {
    using tensor = typename std::remove_cvref_t<decltype(array)>::tensor;
    sharding placement = sharding::whole(tensor::rank);
    for (int d = 0; d < tensor::rank && d < static_cast<int>(axes.size()); ++d) {
      if (axes[static_cast<std::size_t>(d)] >= 0) placement.dim[d] = axis_list(axes[static_cast<std::size_t>(d)]);
    }
    array = std::remove_cvref_t<decltype(array)>(where, placement);
  });
  return tree;
}

template <class Element> Element number(double first, std::int64_t index) {
  return static_cast<Element>(static_cast<computed_t<Element>>(first + 3 * static_cast<double>(index)));
}

template <class Tree> void fill(const Tree& tree, double first) {
  double leaf_value = first;
  detail::for_each_leaf(tree, [&](const auto& array) {
    using element = typename std::remove_cvref_t<decltype(array)>::value_type;
    array.for_each([&](element& e, std::int64_t index) { e = number<element>(leaf_value, index); });
    leaf_value += 1000;
  });
}

/// How many elements of the tree on this world's devices are not what `fill(tree, first)` makes them.
template <class Tree> std::int64_t wrong(const Tree& tree, double first) {
  std::int64_t count = 0;
  double leaf_value = first;
  detail::for_each_leaf(tree, [&](const auto& array) {
    using element = typename std::remove_cvref_t<decltype(array)>::value_type;
    array.for_each([&](const element& e, std::int64_t index) {
      if (e != number<element>(leaf_value, index)) ++count;
    });
    leaf_value += 1000;
  });
  return count;
}

/// A folder of its own, gone at the end.
struct scratch {
  std::filesystem::path folder;
  scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "espalier_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder = name;
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() { std::filesystem::remove_all(folder); }
};

TEST_CASE("a checkpoint written on one mesh is restored on others") {
  const scratch place_for_files;
  const std::filesystem::path file = place_for_files.folder / "model.safetensors";
  world four(square::value);
  const auto saved = place<two_layers>(four, {0, 1});  // 5 over 2 devices and 3 over 2: uneven
  fill(saved, 1);
  save_checkpoint(four, saved, file, {{"step", "7"}});

  SECTION("on the same mesh, laid out otherwise") {
    const auto loaded = place<two_layers>(four, {-1, 0});
    CHECK(load_checkpoint(four, loaded, file).at("step") == "7");
    CHECK(wrong(loaded, 1) == 0);
  }
  SECTION("on a mesh of another shape") {
    world other(column::value);
    const auto loaded = place<two_layers>(other, {-1, 0});
    (void)load_checkpoint(other, loaded, file);
    CHECK(wrong(loaded, 1) == 0);
  }
  SECTION("on one device, and back") {
    world one(mesh<>::value);
    const auto loaded = place<two_layers>(one, {});
    (void)load_checkpoint(one, loaded, file);
    CHECK(wrong(loaded, 1) == 0);
    save_checkpoint(one, loaded, file);
    const auto back = place<two_layers>(four, {1, 0});
    (void)load_checkpoint(four, back, file);
    CHECK(wrong(back, 1) == 0);
  }
  SECTION("the names are the members'") {
    const io::safetensors_reader reader(file);
    REQUIRE(reader.tensors().size() == 5);
    REQUIRE(reader.find("others.weight") != nullptr);
    CHECK(reader.find("others.weight")->shape == std::vector<std::int64_t>{3, 6, 5});
    CHECK(reader.find("first.bias")->type == dtype::f64);
    CHECK(reader.find("step")->shape.empty());
  }
  CHECK(std::distance(std::filesystem::directory_iterator(place_for_files.folder), {}) == 1);
}

TEST_CASE("moments of sixteen bits, as they were saved once, are read as f32") {
  const scratch place_for_files;
  const std::filesystem::path file = place_for_files.folder / "model.safetensors";
  world four(square::value);
  const auto saved = place<narrow_state>(four, {0, 1});
  const auto small = [](const auto& tree, auto f) {
    int leaf = 0;
    detail::for_each_leaf(tree, [&](const auto& array) {
      array.for_each([&](auto& e, std::int64_t i) { f(e, static_cast<float>(leaf) + 0.125F * static_cast<float>(i)); });
      ++leaf;
    });
  };
  small(saved, [](auto& e, float value) { e = static_cast<std::remove_reference_t<decltype(e)>>(value); });
  save_checkpoint(four, saved, file);
  world other(column::value);
  const auto loaded = place<wide_state>(other, {-1, 0});
  static_assert(decltype(loaded.velocity.others.weight)::tensor::type == dtype::f32);
  static_assert(decltype(loaded.velocity.others.weight)::tensor::rank == 3);
  static_assert(decltype(loaded.velocity.first.gain)::tensor::type == dtype::f64);
  (void)load_checkpoint(other, loaded, file);
  std::int64_t differ = 0, seen = 0;
  small(loaded, [&](auto& e, float value) { differ += static_cast<float>(e) == value ? 0 : 1, ++seen; });
  CHECK(differ == 0);
  CHECK(seen > 4 * 36);
  // A checkpoint that is saved now has f32, and is read as it is; parameters are never converted.
  save_checkpoint(other, loaded, file);
  CHECK(io::safetensors_reader(file).find("velocity.first.weight")->type == dtype::f32);
  CHECK_NOTHROW(load_checkpoint(other, loaded, file));
  CHECK_THROWS_WITH(load_checkpoint(other, place<other_state>(other, {}), file), Contains("1 different"));
}

TEST_CASE("a file that does not fit is refused before anything changes") {
  const scratch place_for_files;
  const std::filesystem::path file = place_for_files.folder / "model.safetensors";
  world four(square::value);
  const auto tree = place<two_layers>(four, {0, 1});
  fill(tree, 1);
  save_checkpoint(four, tree, file);
  fill(tree, 50);

  SECTION("truncated") {
    for (const std::int64_t missing : {1, 40, 900}) {
      const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file));
      std::filesystem::resize_file(file, static_cast<std::uintmax_t>(size - missing));
      CHECK_THROWS_AS(load_checkpoint(four, tree, file), io::checkpoint_error);
    }
  }
  SECTION("not a checkpoint") {
    std::ofstream(file) << "step,loss\n1,2.5\n";
    CHECK_THROWS_AS(load_checkpoint(four, tree, file), io::checkpoint_error);
  }
  SECTION("of another model") {
    const auto other = place<another_model>(four, {1});
    fill(other, 9);
    CHECK_THROWS_WITH(load_checkpoint(four, other, file),
                      Contains("another model") && Contains("others.weight") && Contains("step"));
    CHECK(wrong(other, 9) == 0);
  }
  SECTION("of another world") {
    world two_by_none(mesh<data_2>::value);
    CHECK_THROWS_WITH(load_checkpoint(two_by_none, tree, file), Contains("on data 2, model 2"));
    CHECK_THROWS_WITH(save_checkpoint(two_by_none, tree, file), Contains("on data 2, model 2"));
  }
  SECTION("absent") { CHECK_THROWS_AS(load_checkpoint(four, tree, file.string() + "x"), io::checkpoint_error); }
  CHECK(wrong(tree, 50) == 0);
}

TEST_CASE("a truth value that is neither true nor false is found before anything changes") {
  const scratch place_for_files;
  const std::filesystem::path file = place_for_files.folder / "model.safetensors";
  world four(square::value);
  // Columns of a row-major file, uneven, and copies.
  const std::vector<int> axes = GENERATE(std::vector<int>{}, std::vector<int>{-1, 0}, std::vector<int>{1, 0});
  const auto tree = place<masked>(four, axes);
  fill(tree, 0);
  save_checkpoint(four, tree, file);
  const bool scalar = GENERATE(false, true);
  const int element = scalar ? 0 : GENERATE(0, 13, 29);
  {
    const io::safetensors_reader reader(file);
    const io::tensor_info& info = *reader.find(scalar ? "done" : "mask");
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header = 0;
    bytes.read(reinterpret_cast<char*>(&header), sizeof header);
    bytes.seekp(static_cast<std::streamoff>(8 + header) + info.begin + element);
    bytes.put('\x07');
  }
  fill(tree, 51);
  CHECK_THROWS_WITH(load_checkpoint(four, tree, file),
                    Contains("the byte 7 in tensor") && Contains(scalar ? "done" : "mask"));
  CHECK(wrong(tree, 51) == 0);
}

TEST_CASE("a checkpoint that cannot be written leaves the old one") {
  const scratch place_for_files;
  const std::filesystem::path file = place_for_files.folder / "model.safetensors";
  world four(square::value);
  const auto tree = place<two_layers>(four, {0, 1});
  fill(tree, 1);
  save_checkpoint(four, tree, file);
  two_layers<arrays> unmade;
  CHECK_THROWS_WITH(save_checkpoint(four, unmade, file), Contains("first.weight is empty"));
  CHECK_THROWS_AS(save_checkpoint(four, tree, place_for_files.folder / "absent" / "x"), io::checkpoint_error);
  fill(tree, 3);
  (void)load_checkpoint(four, tree, file);
  CHECK(wrong(tree, 1) == 0);
}

template <class Leaf> struct old_network {
  BOOST_HANA_DEFINE_STRUCT(old_network, (dense<Leaf>, body), (leaf<Leaf, f32<5, 7>>, head), (leaf<Leaf, i32<>>, step));
};
template <class Leaf> struct new_network {
  BOOST_HANA_DEFINE_STRUCT(new_network, (dense<Leaf>, body), (leaf<Leaf, f32<5, 2>>, head));
};
template <class Leaf> struct half_dense {
  BOOST_HANA_DEFINE_STRUCT(half_dense, (leaf<Leaf, bf16<6, 5>>, weight), (leaf<Leaf, f32<5>>, bias));
};
template <class Leaf> struct small_numbers {
  BOOST_HANA_DEFINE_STRUCT(small_numbers, (leaf<Leaf, f16<6, 5>>, weight), (leaf<Leaf, f64<5>>, bias));
};
template <class Leaf> struct renamed_network {
  BOOST_HANA_DEFINE_STRUCT(renamed_network, (dense<Leaf>, encoder), (leaf<Leaf, f32<5, 7>>, out));
};

TEST_CASE("a part of a checkpoint is loaded when it is asked for by name") {
  const scratch place_for_files;
  const std::filesystem::path file = place_for_files.folder / "model.safetensors";
  world four(square::value);
  const auto saved = place<old_network>(four, {0, 1});
  fill(saved, 1);
  save_checkpoint(four, saved, file, {{"step", "7"}});
  const auto after = [&](auto&& tree, const io::load_options& options) {
    fill(tree, 50);
    try {
      (void)load_checkpoint(four, tree, file, options);
    } catch (const io::checkpoint_error& error) {
      CHECK(wrong(tree, 50) == 0);
      return std::string(error.what());
    }
    return std::string();
  };

  SECTION("a subtree") {
    const auto net = place<new_network>(four, {1, 0});
    fill(net, 50);
    CHECK(load_checkpoint(four, net.body, file, {.subtree = "body"}).at("step") == "7");
    CHECK(wrong(net.body, 1) == 0);
    CHECK(after(place<new_network>(four, {1}), {.subtree = "body"}) != "");
    CHECK_THAT(after(place<dense>(four, {1}), {}), Contains("2 missing") && Contains("4 unexpected"));
    CHECK_THAT(after(place<dense>(four, {1}), {.subtree = "head"}),
               Contains("\"weight\" (in the file \"head.weight\")"));
  }
  SECTION("only some leaves; the others keep their values") {
    const auto net = place<new_network>(four, {-1, 0});
    CHECK(after(net, {.only = {"body"}}).empty());
    CHECK(wrong(net.body, 1) == 0);
    net.head.for_each([](float& e, std::int64_t index) { CHECK(e == 2050 + 3 * static_cast<float>(index)); });
    CHECK(after(net, {.only = {"body.bias"}}).empty());
    CHECK(wrong(net.body, 50) == wrong(net.body.bias, 1050));  // the weight keeps its values
    CHECK_THAT(after(net, {}), Contains("1 unexpected") && Contains("\"step\"") && Contains("1 different") &&
                                   Contains("F32 [5, 7]") && Contains("F32 [5, 2]"));
    CHECK_THAT(after(net, {.keep = {"head"}}), Contains("1 unexpected") && Contains("\"step\""));
    CHECK_THAT(after(net, {.ignore = {"step"}}), Contains("1 different"));
    CHECK(after(net, {.keep = {"head"}, .ignore = {"step"}}).empty());
    CHECK(wrong(net.body, 1) == 0);
  }
  SECTION("leaves with other names") {
    const auto net = place<renamed_network>(four, {0});
    CHECK(after(net, {.rename = {{"encoder", "body"}, {"out", "head"}}, .ignore = {"step"}}).empty());
    CHECK(wrong(net, 1) == 0);
    CHECK_THAT(after(net, {.rename = {{"encoder", "body"}}, .ignore = {"step"}}),
               Contains("1 missing") && Contains("\"out\"") && Contains("1 unexpected") && Contains("\"head\""));
  }
  SECTION("names that nothing has") {
    const auto net = place<new_network>(four, {0});
    CHECK_THAT(after(net, {.only = {"bdy"}}), Contains("only names \"bdy\""));
    CHECK_THAT(after(net, {.keep = {"head", "bod"}}), Contains("keep names \"bod\""));
    CHECK_THAT(after(net, {.rename = {{"boy", "body"}}}), Contains("rename names \"boy\""));
    CHECK_THAT(after(net, {.ignore = {"steps"}}), Contains("ignore names \"steps\""));
  }
  SECTION("types are converted when asked") {
    const auto half = place<half_dense>(four, {1, 0});
    CHECK_THAT(after(half, {.subtree = "body"}), Contains("2 different") && Contains(".convert = true"));
    CHECK(after(half, {.subtree = "body", .convert = true}).empty());
    CHECK(wrong(half, 1) == 0);
    // 1001 + 3 index in f16: exact below 2048. A bias of 1e300 is no f32, a weight of 70000 no f16.
    saved.body.weight.for_each([](float& e, std::int64_t index) { e = index == 29 ? 70000.0F : 1.0F; });
    saved.body.bias.for_each([](double& e, std::int64_t index) { e = index == 4 ? 1e300 : 1.0; });
    save_checkpoint(four, saved, file);
    CHECK_THAT(after(place<small_numbers>(four, {1, 0}), {.subtree = "body", .convert = true}),
               Contains("the element 70000 in tensor \"body.weight\"") && Contains("range of f16"));
    CHECK_THAT(after(half, {.subtree = "body", .convert = true}),
               Contains("the element 1e+300 in tensor \"body.bias\"") && Contains("range of f32"));
  }
}

TEST_CASE("elements are rounded once to the nearest of the other type") {
  const auto to_bf16 = [](double value) { return static_cast<float>(detail::rounded_once<bfloat16>(value)); };
  CHECK(to_bf16(1.0 + 1.0 / 256) == 1.0F);  // halfway: to even
  CHECK(to_bf16(1.0 + 1.0 / 256 + 1e-12) == 1.0F + 1.0F / 128);
  CHECK(to_bf16(1.0 + 3.0 / 256 - 1e-12) == 1.0F + 1.0F / 128);
  CHECK(static_cast<float>(detail::rounded_once<float16>(std::int32_t{2049})) == 2048.0F);
  CHECK(detail::rounded_once<double>(0.1F) == static_cast<double>(0.1F));
  CHECK(detail::converts(dtype::i8, dtype::f32));
  CHECK(detail::converts(dtype::i64, dtype::i8));
  CHECK_FALSE(detail::converts(dtype::f32, dtype::i32));
  CHECK_FALSE(detail::converts(dtype::i32, dtype::boolean));
  const std::int64_t numbers[]{7, -128, 128};
  std::int8_t small[3]{};
  CHECK(detail::convert_elements(dtype::i64, reinterpret_cast<const std::byte*>(numbers), dtype::i8,
                                 reinterpret_cast<std::byte*>(small), 1, 3) == "128");
  CHECK(small[1] == -128);
}

}  // namespace
