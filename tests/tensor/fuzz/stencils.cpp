// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300
// optimised: yes

#include <espalier/testing/executed.hpp>
#include <espalier/testing/naive.hpp>
#include <espalier/testing/random_program_graph.hpp>
#include <support/instrumented.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

// Random programs of shifts, rolls, slices, pads, joins and elementwise ops, some in a loop, many of them of one value:
// what their exchanges share. ESPALIER_FUZZ_SEED and ESPALIER_FUZZ_CASES choose others.

namespace {

using namespace espalier;
using namespace espalier::test;

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtol(text, nullptr, 10);
}

/// A stencil program, drawn from a seed.
class stencil_program {
 public:
  explicit stencil_program(std::uint32_t seed) : random_(seed) {
    static const std::vector<std::vector<int>> meshes{{2}, {4}, {8}, {2, 2}, {4, 2}, {2, 4}, {3, 2}, {2, 2, 2}, {5}};
    mesh = mesh_of(meshes[static_cast<std::size_t>(random_.integer(0, static_cast<int>(meshes.size()) - 1))]);
    for (int d = random_.integer(1, 3); d > 0; --d) shape_.append(random_.integer(3, d == 1 ? 33 : 12));
    wraps_ = random_.one_of({0.0, 0.5, 1.0});
    sharding split = sharding::whole(shape_.rank);
    for (int axis = 0; axis < mesh.rank; ++axis) {
      if (!random_.chance(0.9)) continue;
      const int d = random_.integer(0, shape_.rank - 1);
      split.dim[d] = split.dim[d].with(axis);
    }
    split_ = split;
    const int arguments = random_.integer(1, 3);
    for (int n = 0; n < arguments; ++n) {
      const int id = emit::argument(b_, dtype::f64, shape_, n);
      b_[id].annotation = b_.annotate(shape_, split);
      given_.push_back(id);
    }
    std::vector<int> values = given_;
    if (random_.chance(0.4)) {
      values = loop(values);
    } else {
      steps(values);
    }
    int loss = -1;
    for (std::size_t n = values.size() > 3 ? values.size() - 3 : 0; n < values.size(); ++n) {
      emit::result(b_, values[n], results_++);
      const int squares = emit::multiply(b_, values[n], values[n]);
      std::int64_t all = 0;
      for (int d = 0; d < shape_.rank; ++d) all |= std::int64_t{1} << d;
      const int sum = emit::reduce_sum(b_, squares, all);
      loss = loss < 0 ? sum : emit::add(b_, loss, sum);
    }
    if (!random_.chance(0.5)) return;
    std::vector<int> gradients(given_.size(), -1);
    differentiate(b_, loss, given_.data(), static_cast<int>(given_.size()), gradients.data());
    for (const int g : gradients) emit::result(b_, g, results_++);
  }

  [[nodiscard]] const graph& code() { return b_.result(); }
  /// Whether exchanges along several dimensions may be one, which brings corners.
  [[nodiscard]] bool has_corners() const {
    int split = 0;
    for (int d = 0; d < shape_.rank; ++d) split += split_.dim[d].empty() ? 0 : 1;
    return split > 1;
  }
  mesh_shape mesh;

 private:
  int any(const std::vector<int>& values) {
    return values[static_cast<std::size_t>(random_.integer(0, static_cast<int>(values.size()) - 1))];
  }

  /// Something that moves one value.
  int moved(int x) {
    const int d = random_.integer(0, shape_.rank - 1);
    const auto n = static_cast<int>(shape_[d]);
    const int way = random_.integer(0, 1) * 2 - 1;
    // Some are longer than a shard.
    const int by = random_.chance(0.6)   ? way
                   : random_.chance(0.7) ? random_.integer(-2, 2)
                                         : way * random_.integer(2, n - 1);
    if (random_.chance(wraps_)) return emit::roll(b_, x, d, by);
    switch (random_.integer(0, 10)) {
      case 0: {
        // Both ends stay, and the inner part is from neighbours.
        const int inner = emit::slice(b_, x, d, random_.integer(0, 2), n - 2);
        const int other = emit::slice(b_, x, d, random_.integer(0, 2), n - 2);
        const int middle = emit::add(b_, inner, emit::scale(b_, other, 0.5));
        const int parts[]{emit::slice(b_, x, d, 0, 1), middle, emit::slice(b_, x, d, n - 1, 1)};
        return emit::concat(b_, &parts[0], 3, d);
      }
      case 1: {
        const int inner = emit::slice(b_, x, d, random_.integer(0, 2), n - 2);
        return emit::pad(b_, emit::scale(b_, inner, 0.75), d, random_.integer(0, 2), n);
      }
      case 2: {
        if (random_.chance(0.5)) return emit::reverse(b_, x, d);
        const int second = emit::slice(b_, x, d, 0, (n + 1) / 2, 2);
        return emit::pad(b_, second, d, n % 2 == 0 ? random_.integer(0, 1) : 0, n, 2);
      }
      default: return emit::pad_around(b_, x, d, by, -by, 0);
    }
  }
  void steps(std::vector<int>& values) {
    for (int n = random_.integer(2, 9); n > 0; --n) {
      const int x = random_.chance(0.5) ? values[0] : any(values);
      switch (random_.integer(0, 5)) {
        case 0: values.push_back(emit::multiply(b_, x, any(values))); break;
        case 1: values.push_back(emit::scale(b_, x, random_.real(-1, 1))); break;
        case 2: values.push_back(emit::add(b_, x, moved(any(values)))); break;
        default: values.push_back(moved(x)); break;
      }
    }
    int sum = values.back();
    for (std::size_t n = values.size() > 5 ? values.size() - 5 : 0; n + 1 < values.size(); ++n)
      sum = emit::add(b_, sum, values[n]);
    values.push_back(emit::scale(b_, sum, 0.2));
  }
  std::vector<int> loop(const std::vector<int>& start) {
    emit::region_begin(b_, random_.integer(1, 4), false, false);
    std::vector<int> carries;
    for (const int x : start) carries.push_back(emit::region_parameter(b_, x));
    std::vector<int> values = carries;
    if (random_.chance(0.3)) values.push_back(any(start));
    steps(values);
    std::vector<int> passed;
    for (std::size_t n = 0; n < carries.size(); ++n)
      passed.push_back(emit::region_yield(b_, carries[n], values[values.size() - 1 - n]));
    emit::region_end(b_);
    std::vector<int> results;
    for (const int next : passed) results.push_back(emit::region_result(b_, next));
    return results;
  }

  dice random_;
  builder b_;
  extents shape_;
  sharding split_;
  double wraps_ = 0;
  std::vector<int> given_;
  int results_ = 0;
};

/// What is wrong with a program, or an empty text. `dearer` counts programs that send more than they would without
/// sharing.
std::string fault_of_stencil(std::uint32_t seed, std::int64_t& bytes_before, std::int64_t& bytes, int& dearer) {
  stencil_program made(seed);
  const graph& raw = made.code();
  try {
    const std::vector<tensor_value> arguments = random_program_arguments(raw, seed, numbers::smooth);
    const std::vector<tensor_value> expected = naive_run(raw, arguments, naive_storage::exact).results;
    const spmd_program apart = partitioned_program(made.mesh, raw);
    const spmd_program program = merged_program(apart);
    std::string text = fault_of(seed % 2 == 0 ? program : apart, expected, arguments, 1e-9);
    if (!text.empty()) text += " (interpreted)";
    if (text.empty()) text = difference(execute(program.mesh, program.parts.program, arguments), expected, 1e-9);
    // Without what exchanges share.
    spmd_program alone = completed_program(made.mesh, raw, program.axes.count != made.mesh.rank);
    alone.parts = partition(alone.mesh, alone.traced, alone.rules.data(), alone.of.data());
    alone.parts.program = merge_common_subexpressions(alone.parts.program);
    list_collectives(alone);
    bytes += program.most_bytes();
    bytes_before += alone.most_bytes();
    // Corners come along where that saves a round.
    const std::int64_t corners = made.has_corners() ? alone.most_bytes() / 2 + 64 : 0;
    if (program.most_bytes() > alone.most_bytes() + corners) {
      std::cout << "ESPALIER_FUZZ_SEED=" << seed << " ESPALIER_FUZZ_CASES=1: sends " << program.summary() << ", alone "
                << alone.summary() << '\n';
      ++dearer;
    }
    if (from_environment("ESPALIER_FUZZ_CASES", 0) == 1)
      std::cout << alone.text() << "joined\n" << listing(program.parts.program);
    return text;
  } catch (const std::exception& e) { return e.what(); }
}

}  // namespace

TEST_CASE("random stencils execute on a mesh as they mean on one device", "[fuzz]") {
  const long cases = from_environment("ESPALIER_FUZZ_CASES", is_instrumented ? 200 : 1000);
  const auto base = static_cast<std::uint32_t>(from_environment("ESPALIER_FUZZ_SEED", 1));
  int wrong = 0;
  int dearer = 0;
  std::int64_t before = 0;
  std::int64_t after = 0;
  for (std::uint32_t n = 0; n < cases; ++n) {
    const std::string text = fault_of_stencil(base + n, before, after, dearer);
    if (text.empty()) continue;
    if (++wrong <= 10) std::cout << "ESPALIER_FUZZ_SEED=" << base + n << " ESPALIER_FUZZ_CASES=1: " << text << '\n';
  }
  std::cout << cases << " random stencils from seed " << base << ": " << before << " bytes alone, " << after
            << " with what exchanges share\n";
  CHECK(wrong == 0);
  // A last shard of one row may read fewer rows than the block of all others that decides what is shared.
  CHECK(dearer <= 1 + cases / 2000);
  if (cases >= 200) CHECK(after < before);
}
