// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// processors: 1
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/report/draw_layout.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
struct stage : ep::axis<"stage", 3> {};
using square = ep::mesh<data, model>;
using cube = ep::mesh<data, stage, model>;

/// Tags open and close in order, attributes are quoted, and no bare & or < stands in a text.
bool is_well_formed(const std::string& picture) {
  static const std::regex tag("<(/?)([a-z]+)((?: [a-zA-Z-]+=\"[^\"<&]*\")*)(/?)>");
  static const std::regex text("(?:[^<>&]|&(?:lt|gt|amp|quot);)*");
  std::vector<std::string> open;
  std::string::const_iterator at = picture.begin();
  std::smatch found;
  while (std::regex_search(at, picture.end(), found, tag)) {
    if (!std::regex_match(at, found[0].first, text)) return false;
    at = found[0].second;
    if (found[1].length() > 0) {
      if (open.empty() || open.back() != found[2]) return false;
      open.pop_back();
    } else if (found[4].length() == 0) {
      open.push_back(found[2]);
    }
  }
  return open.empty() && std::string(at, picture.end()) == "\n";
}

struct cell {
  double x = 0, y = 0, width = 0, height = 0;
  std::string box;
  std::string devices;
};

std::vector<cell> cells_of(const std::string& picture) {
  static const std::regex pattern(
      "<rect class=\"part\" x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\" height=\"([0-9.]+)\"[^>]*>"
      "<title>([^<]*): devices ([^<]*)</title></rect>");
  std::vector<cell> all;
  for (std::sregex_iterator at(picture.begin(), picture.end(), pattern), end; at != end; ++at)
    all.push_back(
        {std::stod((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3]), std::stod((*at)[4]), (*at)[5], (*at)[6]});
  return all;
}

std::map<std::string, std::string> devices_of(const std::string& picture) {
  std::map<std::string, std::string> of_box;
  for (const cell& one : cells_of(picture)) of_box[one.box] = one.devices;
  return of_box;
}

using expected = std::map<std::string, std::string>;

TEST_CASE("a part of a tensor is a cell with the devices that hold it") {
  CHECK(devices_of(ep::draw_layout<square, ep::sharded<ep::f32<64, 256>, data, model>>()) ==
        expected{{"[0, 32) x [0, 128)", "0"},
                 {"[0, 32) x [128, 256)", "1"},
                 {"[32, 64) x [0, 128)", "2"},
                 {"[32, 64) x [128, 256)", "3"}});
  CHECK(devices_of(ep::draw_layout<square, ep::sharded<ep::f32<64, 256>, ep::none, data>>()) ==
        expected{{"[0, 64) x [0, 128)", "0, 1"}, {"[0, 64) x [128, 256)", "2, 3"}});
  CHECK(devices_of(ep::draw_layout<square, ep::f32<64, 256>>()) == expected{{"[0, 64) x [0, 256)", "0, 1, 2, 3"}});
  CHECK(devices_of(ep::draw_layout<square, ep::f32<>>()) == expected{{"the scalar", "0, 1, 2, 3"}});
}

TEST_CASE("each axis cuts the chunk of the axis before it") {
  CHECK(devices_of(ep::draw_layout<square, ep::sharded<ep::f32<7>, ep::axes<data, model>>>()) ==
        expected{{"[0, 2)", "0"}, {"[2, 4)", "1"}, {"[4, 6)", "2"}, {"[6, 7)", "3"}});
  CHECK(devices_of(ep::draw_layout<square, ep::sharded<ep::f32<7>, ep::axes<model, data>>>()) ==
        expected{{"[0, 2)", "0"}, {"[2, 4)", "2"}, {"[4, 6)", "1"}, {"[6, 7)", "3"}});
  const std::string picture = ep::draw_layout<square, ep::sharded<ep::f32<5>, ep::axes<data, model>>>();
  CHECK(devices_of(picture) == expected{{"[0, 2)", "0"}, {"[2, 3)", "1"}, {"[3, 5)", "2"}});
  CHECK(picture.find(">nothing on device 3<") != std::string::npos);
}

TEST_CASE("terms of a pending sum stand together, copies apart") {
  const std::string one = ep::draw_layout<square, ep::sharded<ep::f32<4, 6>, data, ep::none, ep::unreduced<model>>>();
  CHECK(devices_of(one) == expected{{"[0, 2) x [0, 6)", "0 + 1"}, {"[2, 4) x [0, 6)", "2 + 3"}});
  CHECK(one.find("f32[4@data, 6] sum@model") != std::string::npos);
  CHECK(one.find("a term of a sum over model") != std::string::npos);
  CHECK(one.find("a copy") == std::string::npos);
  const std::string two =
      ep::draw_layout<square, ep::sharded<ep::f32<4, 6>, ep::none, ep::none, ep::unreduced<data>>>();
  CHECK(devices_of(two) == expected{{"[0, 4) x [0, 6)", "0 + 2, 1 + 3"}});
  CHECK(two.find("a copy") != std::string::npos);
}

struct element_count {
  std::int64_t elements = 0;
  std::set<int> devices;
};

/// All elements of `[0, 2) x [3, 5)`, and all numbers in `0 + 1, 2 + 3`.
element_count count(const cell& one) {
  element_count result{1, {}};
  static const std::regex range("\\[([0-9]+), ([0-9]+)\\)");
  for (std::sregex_iterator at(one.box.begin(), one.box.end(), range), end; at != end; ++at)
    result.elements *= std::stoll((*at)[2]) - std::stoll((*at)[1]);
  static const std::regex device("[0-9]+");
  for (std::sregex_iterator at(one.devices.begin(), one.devices.end(), device), end; at != end; ++at)
    CHECK(result.devices.insert(std::stoi((*at)[0])).second);
  return result;
}

TEST_CASE("for every layout cells are all devices and all elements, each once, as large as they are") {
  const ep::mesh_shape mesh = cube::value;
  const ep::extents shape{3, {5, 7, 4}};
  // Each axis splits a dimension, or none, or is one of a partial sum: 5^3 layouts.
  for (int code = 0; code < 125; ++code) {
    ep::sharding placement = ep::sharding::whole(3);
    int rest = code;
    for (int axis = 0; axis < 3; ++axis, rest /= 5) {
      if (rest % 5 < 3) placement.dim[rest % 5] = placement.dim[rest % 5].with(axis);
      if (rest % 5 == 3) placement.unreduced |= ep::bit_of(axis);
    }
    CAPTURE(ep::to_string(mesh, ep::dtype::bf16, shape, placement));
    const std::string picture = ep::draw_layout(mesh, ep::dtype::bf16, {shape, placement});
    CHECK(is_well_formed(picture));

    const std::vector<cell> cells = cells_of(picture);
    std::int64_t elements = 0;
    std::set<int> devices;
    double area = 0;
    for (const cell& one : cells) {
      const element_count here = count(one);
      elements += here.elements;
      for (const int device : here.devices) CHECK(devices.insert(device).second);
      // Cells of the same panel are in proportion to their elements.
      area += one.width * one.height;
      const double scale = cells[0].width * cells[0].height / static_cast<double>(count(cells[0]).elements);
      const bool one_panel = picture.find("<g transform") == picture.rfind("<g transform");
      if (one_panel) CHECK(one.width * one.height == Approx(scale * static_cast<double>(here.elements)).epsilon(0.02));
    }
    CHECK(elements == 5 * 7 * 4);
    CHECK(area > 0);
    const std::regex idle("nothing on devices? ([0-9, ]+)<");
    std::smatch found;
    if (std::regex_search(picture, found, idle)) {
      const cell rest_of{0, 0, 0, 0, "", found[1]};
      for (const int device : count(rest_of).devices) CHECK(devices.insert(device).second);
    }
    CHECK(devices.size() == 12);
  }
}

TEST_CASE("many devices stay legible, and numbers do not run into one another") {
  struct wide : ep::axis<"wide", 64> {};
  const std::string picture = ep::draw_layout<ep::mesh<wide>, ep::sharded<ep::f32<100>, wide>>();
  CHECK(is_well_formed(picture));
  CHECK(cells_of(picture).size() == 50);
  const std::string whole = ep::draw_layout<ep::mesh<wide>, ep::f32<100>>();
  CHECK(cells_of(whole).size() == 1);
}

struct mlp {
  constexpr auto operator()(auto x, auto w) const {
    return ep::label<"hidden">(ep::shard<data, model>(ep::relu(ep::matmul(x, w))));
  }
};

TEST_CASE("a labelled value of a program is drawn as it was laid out") {
  using step = ep::program<square, mlp, ep::bf16<6, 4>, ep::bf16<4, 10>>;
  const std::string picture = ep::draw_layout<step>("hidden");
  CHECK(picture.find("<title>bf16[6@data, 10@model]</title>") != std::string::npos);
  CHECK(cells_of(picture).size() == 4);
}

TEST_CASE("an array is drawn as it lies in its world") {
  const ep::world world(square::value);
  ep::sharding by_columns = ep::sharding::whole(2);
  by_columns.dim[1] = ep::axis_list(1);
  const ep::sharded_array<ep::i8<4, 3>> array(world, by_columns);
  const std::string picture = ep::draw_layout(world, array);
  CHECK(picture.find("<title>i8[4, 3@model]</title>") != std::string::npos);
  CHECK(devices_of(picture) == expected{{"[0, 4) x [0, 2)", "0, 2"}, {"[0, 4) x [2, 3)", "1, 3"}});
}

}  // namespace
