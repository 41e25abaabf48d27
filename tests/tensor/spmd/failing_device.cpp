// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/run/execute/guard.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

/// One device of several in this process fails: the error says which, where it stands on the mesh, and what it was at.
namespace ep = espalier;

namespace {

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

inline constexpr ep::op_info refuse_positive{
    .name = "refuse_positive", .spread = ep::propagation::elementwise, .factors = ep::detail::same_dimensions};

// The sum is carried out where it is read.
constexpr int line_of_use = __LINE__ + 4;
struct checked_sum {
  constexpr auto operator()(auto x) const {
    const auto total = ep::sum(x);
    return ep::sum(ep::detail::unary<&refuse_positive>(x + total, ep::source_line::current()));
  }
};
using step = ep::program<mesh, checked_sum, ep::sharded<ep::f32<4, 2>, data, model>>;

/// The error that `body` throws: its text, and whether an `Inner` is nested in it.
struct seen_error {
  std::string text;
  bool nested = false;
};
template <class Inner, class Body> seen_error error_of(const Body& body) {
  seen_error seen;
  try {
    body();
  } catch (const ep::device_error& error) {
    seen.text = error.what();
    try {
      std::rethrow_if_nested(error);
    } catch (const Inner&) { seen.nested = true; }
  }
  return seen;
}

}  // namespace

namespace espalier::kernels {
template <> struct kernel<&refuse_positive> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    const auto* const from = static_cast<const float*>(call.operand[0]);
    for (std::int64_t n = 0; n < Key.shape.elements(); ++n) {
      if (from[n] > 0) throw std::out_of_range("element " + std::to_string(n) + " is positive");
      static_cast<float*>(call.result)[n] = from[n];
    }
  }
};
}  // namespace espalier::kernels

using Catch::Contains;

TEST_CASE("a kernel that throws on one device names it, its place on the mesh and the line", "[execute]") {
  ep::world world(mesh::value);
  ep::runner<step> run(world);
  auto x = run.argument<0>();
  run(x);  // zeros: nothing to refuse
  const int failing = GENERATE(0, 1, 2, 3);
  for (int k = 0; k < 4; ++k) x.data(k)[0] = k == failing ? 5.0F : -3.0F;
  const seen_error seen = error_of<std::out_of_range>([&] { run(x); });
  const std::string place = "data " + std::to_string(failing / 2) + ", model " + std::to_string(failing % 2);
  CHECK_THAT(seen.text,
             Contains("rank " + std::to_string(failing) + " (" + place + ") failed: element 0 is positive\n"));
  CHECK_THAT(seen.text,
             Contains("all_reduce (") && Contains("failing_device.cpp:" + std::to_string(line_of_use) + ")"));
  CHECK(seen.nested);

  // Later calls do not repeat the old text as if it had happened again.
  const seen_error later = error_of<std::out_of_range>([&] { run(x); });
  CHECK(later.text == "this world has stopped, because of an earlier error: rank " + std::to_string(failing) + " (" +
                          place + ") failed: element 0 is positive. Make a new world, and runners on it");
  CHECK_FALSE(later.nested);
}

TEST_CASE("what a device throws between collectives, and what all ranks know", "[execute]") {
  ep::world world(mesh::value);
  const seen_error seen = error_of<std::logic_error>([&] {
    world.on_devices([](int device, auto& communicator) {
      if (device == 2) throw std::logic_error("no such row");
      communicator.barrier();
    });
  });
  CHECK(seen.text == "rank 2 (data 1, model 0) failed: no such row");
  CHECK(seen.nested);

  ep::world other(mesh::value);
  CHECK_THROWS_AS(other.on_devices([](int, auto&) { throw ep::launch_error("not here"); }), ep::launch_error);
}

TEST_CASE("a device that keeps the others waiting is named with its place", "[execute]") {
  setenv("ESPALIER_DEADLINE_SECONDS", "0.2", 1);
  ep::world world(mesh::value);
  unsetenv("ESPALIER_DEADLINE_SECONDS");
  static constexpr espalier::comm::context late{"late_op", "model.cpp", 7};
  const seen_error seen = error_of<ep::comm::comm_error>([&] {
    world.on_devices([](int device, auto& communicator) {
      if (device == 1) communicator.set_context(&late);
      communicator.barrier();
      if (device == 1) std::this_thread::sleep_for(std::chrono::milliseconds(800));
      communicator.barrier();
    });
  });
  CHECK_THAT(seen.text, Contains("waited 0.2 s in barrier for rank 1\n"));
  CHECK_THAT(seen.text, Contains("rank 1 (data 0, model 1) was last seen in late_op (model.cpp:7)"));
  CHECK(seen.nested);
}
