// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: passes
#include <catch2/catch.hpp>
#include <espalier/tensor/core/graph/builder.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

// Checks what windows need, and what an exchange brings, against the definition: each element, output and tap.
// ESPALIER_WINDOW_CASES: how many random windows (100,000 if it is not set).

namespace {

using namespace espalier;

struct drawn_window {
  placed_window window;
  std::int64_t extent = 0;  // of what is read
};

class window_draw {
 public:
  explicit window_draw(std::uint32_t seed) : engine_(seed) {}

  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  [[nodiscard]] drawn_window any() {
    drawn_window d;
    window w;
    w.size = integer(1, 5);
    w.stride = integer(1, 4) * (integer(0, 7) == 0 ? -1 : 1);
    w.dilation = integer(1, 3);
    w.base_dilation = integer(0, 2) == 0 ? integer(2, 4) : 1;
    w.low = integer(-6, 12);
    d.extent = integer(1, 40);
    d.window = place_window(w, 0, integer(1, 40), axis_list{});
    return d;
  }

 private:
  std::mt19937 engine_;
};

[[nodiscard]] int window_cases() {
  const char* const given = std::getenv("ESPALIER_WINDOW_CASES");
  return given == nullptr ? 100000 : std::atoi(given);
}

/// The elements that the outputs of an interval see, by definition.
[[nodiscard]] std::set<std::int64_t> seen(const drawn_window& d, interval part) {
  std::set<std::int64_t> all;
  const placed_window& w = d.window;
  for (std::int64_t o = part.start; o < part.start + part.size; ++o) {
    for (std::int64_t k = 0; k < w.size; ++k) {
      for (std::int64_t p = 0; p < d.extent; ++p) {
        if (w.base_dilation * p == w.stride * o + w.dilation * k - w.low) all.insert(p);
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("what a part of the outputs needs is all it sees, and no more at either end", "[windows]") {
  window_draw draw(1);
  const int cases = window_cases();
  int not_empty = 0;
  for (int n = 0; n < cases; ++n) {
    const drawn_window d = draw.any();
    const std::int64_t start = draw.integer(0, d.window.extent - 1);
    const interval part{start, draw.integer(0, std::min<std::int64_t>(d.window.extent - start, 9))};
    const std::set<std::int64_t> all = seen(d, part);
    const interval got = detail::needed(d.window, part, d.extent);
    CAPTURE(n, d.window.size, d.window.stride, d.window.low, d.window.dilation, d.window.base_dilation, d.extent,
            part.start, part.size, got.start, got.size);
    for (const std::int64_t p : all) REQUIRE((p >= got.start && p < got.start + got.size));
    REQUIRE(got.size <= detail::most_needed(d.window, part.size, d.extent));
    REQUIRE((got.start >= 0 && got.start + got.size <= d.extent && got.size >= 0));
    REQUIRE((all.empty() ? got.size == 0 : *all.begin() == got.start && *all.rbegin() == got.start + got.size - 1));
    // Taps and outputs without gaps see everything between the first and the last.
    const bool dense =
        d.window.dilation == 1 && std::abs(d.window.stride) <= d.window.size && d.window.base_dilation == 1;
    if (dense) REQUIRE(static_cast<std::int64_t>(all.size()) == got.size);
    if (!all.empty()) ++not_empty;
  }
  CHECK(not_empty > cases / 3);
}

TEST_CASE("read the other way a window sees what saw it", "[windows]") {
  window_draw draw(2);
  for (int n = 0; n < 2000; ++n) {
    const drawn_window d = draw.any();
    const placed_window back = d.window.reversed();
    CHECK(back.reversed() == d.window);
    for (std::int64_t o = 0; o < d.window.extent; ++o) {
      for (std::int64_t p = 0; p < d.extent; ++p) {
        bool forth = false;
        bool other = false;
        for (std::int64_t k = 0; k < d.window.size; ++k) {
          forth = forth || d.window.base_dilation * p == d.window.stride * o + d.window.dilation * k - d.window.low;
          other = other || back.base_dilation * o == back.stride * p + back.dilation * k - back.low;
        }
        REQUIRE(forth == other);
      }
    }
  }
}

TEST_CASE("windows that find everything at home are known, from a few devices", "[windows]") {
  window_draw draw(4);
  const int cases = window_cases() / 5;
  int home = 0;
  int found = 0;
  for (int n = 0; n < cases; ++n) {
    mesh_shape mesh;
    mesh.rank = 2;
    mesh.size[0] = static_cast<int>(draw.integer(1, 9));
    mesh.size[1] = static_cast<int>(draw.integer(1, 3));
    drawn_window d = draw.any();
    if (draw.integer(0, 1) == 0) d.window.low = d.window.reach() / 2;
    if (draw.integer(0, 1) == 0) d.window.extent = d.extent;
    if (draw.integer(0, 3) == 0) d.window.size = 1;
    axis_list axes = axis_list{}.with(0);
    if (draw.integer(0, 3) == 0) axes = axes.with(1);
    d.window.axes = (axes.size() == 1 && draw.integer(0, 1) == 0 ? axes.with(1) : axes).code();
    bool all = true;
    for (int device = 0; device < mesh.devices(); ++device) {
      const interval want = detail::needed(
          d.window, local_interval(mesh, d.window.extent, axis_list::from_code(d.window.axes), device), d.extent);
      const interval have = local_interval(mesh, d.extent, axes, device);
      all = all && (want.size == 0 || (want.start >= have.start && want.start + want.size <= have.start + have.size));
    }
    const bool said = detail::stays_at_home(mesh, d.window, d.extent, axes);
    CAPTURE(n, mesh.size[0], mesh.size[1], axes.code(), d.window.axes, d.window.extent, d.extent, d.window.size,
            d.window.stride, d.window.low, d.window.dilation, d.window.base_dilation);
    // stays_at_home may be false although all is at home: the exchange then moves nothing.
    REQUIRE((!said || all));
    home += all ? 1 : 0;
    found += said ? 1 : 0;
  }
  // Most of what is at home is so because nothing is needed.
  CHECK(found > home / 12);
}

TEST_CASE("on a circle nobody is said to have what another device holds", "[windows]") {
  // Rolls move on by less than the circle; windows of a user's op may have several taps, or see the circle many times.
  window_draw draw(5);
  const int cases = window_cases() / 5;
  int lacking = 0;
  for (int n = 0; n < cases; ++n) {
    mesh_shape mesh;
    mesh.rank = 1;
    mesh.size[0] = static_cast<int>(draw.integer(1, 9));
    const axis_list axes(0);
    const std::int64_t extent = draw.integer(1, 12);
    window w{.size = draw.integer(1, 3), .low = draw.integer(-12, 12), .wraps = true};
    const std::int64_t outputs = draw.integer(0, 1) == 0 ? extent : draw.integer(1, 40);
    const placed_window placed = place_window(w, 0, outputs, axes);
    bool all = true;
    for (int device = 0; device < mesh.devices(); ++device) {
      const interval part = local_interval(mesh, outputs, axes, device);
      const interval have = local_interval(mesh, extent, axes, device);
      for (std::int64_t o = part.start; o < part.start + part.size; ++o) {
        for (std::int64_t k = 0; k < w.size; ++k) {
          const std::int64_t p = ((o + k - w.low) % extent + extent) % extent;
          all = all && p >= have.start && p < have.start + have.size;
        }
      }
    }
    CAPTURE(n, mesh.size[0], extent, outputs, w.size, w.low);
    REQUIRE((!detail::stays_at_home(mesh, placed, extent, axes) || all));
    lacking += all ? 0 : 1;
  }
  CHECK(lacking > cases / 2);
}

TEST_CASE("an exchange brings every device exactly what its window needs and it lacks", "[windows]") {
  window_draw draw(3);
  const int cases = window_cases() / 20;
  int moved = 0;
  for (int n = 0; n < cases; ++n) {
    mesh_shape mesh;
    mesh.rank = static_cast<int>(draw.integer(1, 2));
    for (int a = 0; a < mesh.rank; ++a) mesh.size[a] = static_cast<int>(draw.integer(1, 4));
    const drawn_window d = draw.any();
    const auto any_axes = [&] {
      axis_list axes;
      for (int a = 0; a < mesh.rank; ++a) {
        if (draw.integer(0, 1) == 1) axes = axes.with(a);
      }
      return axes;
    };
    graph g;
    sharding held = sharding::whole(1);
    held.dim[0] = any_axes();
    const extents shape{1, {d.extent}};
    instruction source = builder::make(ops::argument, dtype::f32, local_shape(mesh, shape, held));
    source.annotation = g.annotations.push_back({shape, held});
    g.code.push_back(source);
    placed_window placed = d.window;
    placed.axes = any_axes().code();
    instruction exchange = builder::make(ops::exchange, dtype::f32, shape, 0);
    const int first = g.windows.push_back(placed);
    set_attributes(exchange,
                   collective_attributes{.axes = held.dim[0].mask(), .first_window = first, .window_count = 1});
    exchange.annotation = g.annotations.push_back({shape, sharding::whole(1)});
    g.code.push_back(exchange);

    std::vector<std::int64_t> sent(static_cast<std::size_t>(mesh.devices()), 0);
    for (int device = 0; device < mesh.devices(); ++device) {
      const interval part = local_interval(mesh, placed.extent, axis_list::from_code(placed.axes), device);
      const interval wanted = detail::needed(placed, part, d.extent);
      const interval mine = local_interval(mesh, d.extent, held.dim[0], device);
      std::vector<int> times(static_cast<std::size_t>(wanted.size), 0);
      detail::for_each_window_piece(mesh, g, 1, device, [&](const piece& p, int) {
        const interval theirs = local_interval(mesh, d.extent, held.dim[0], p.source);
        REQUIRE(p.source_start[0] + p.extent[0] <= theirs.size);
        for (std::int64_t i = 0; i < p.extent[0]; ++i) {
          // The element that arrives is the one that belongs there.
          REQUIRE(theirs.start + p.source_start[0] + i == wanted.start + p.target_start[0] + i);
          ++times.at(static_cast<std::size_t>(p.target_start[0] + i));
          const std::int64_t element = wanted.start + p.target_start[0] + i;
          const bool lacking = element < mine.start || element >= mine.start + mine.size;
          REQUIRE(lacking == (p.source != device));
          if (lacking) {
            ++sent[static_cast<std::size_t>(p.source)];
            ++moved;
          }
        }
      });
      for (const int count : times) REQUIRE(count == 1);
    }
    for (int device = 0; device < mesh.devices(); ++device) {
      REQUIRE(detail::bytes_sent_for_windows(mesh, g, 1, device) == 4 * sent[static_cast<std::size_t>(device)]);
    }
  }
  CHECK(moved > cases);
}
