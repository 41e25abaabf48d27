// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// ranks: 4

#include <espalier/tensor/run/execute/array_trees.hpp>
#include <espalier/tensor/run/io/checkpoint.hpp>
#include <espalier/tensor/run/io/file.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>
#include <support/mpi_require.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace espalier;

struct data : axis<"data", 2> {};
struct model : axis<"model", 2> {};
using weight = f32<6, 5>;

template <class Leaf> struct tree {
  BOOST_HANA_DEFINE_STRUCT(tree, (leaf<Leaf, weight>, split), (leaf<Leaf, weight>, copied));
};

template <class Leaf> struct masked_tree {
  BOOST_HANA_DEFINE_STRUCT(masked_tree, (leaf<Leaf, weight>, split), (leaf<Leaf, boolean<6, 5>>, mask));
};

tree<arrays> make(const world& where) {
  sharding both = sharding::whole(2);
  both.dim[0] = axis_list(1);
  both.dim[1] = axis_list(0);
  sharding copies = sharding::whole(2);
  copies.dim[1] = axis_list(1);
  return {sharded_array<weight>(where, both), sharded_array<weight>(where, copies)};
}

void fill(const tree<arrays>& t, float factor) {
  t.split.for_each([=](float& e, std::int64_t index) { e = factor * static_cast<float>(index); });
  t.copied.for_each([=](float& e, std::int64_t index) { e = factor * static_cast<float>(index) + 0.5F; });
}
int wrong(const tree<arrays>& t, float factor) {
  int count = 0;
  t.split.for_each([&](const float& e, std::int64_t index) { count += e != factor * static_cast<float>(index); });
  t.copied.for_each(
      [&](const float& e, std::int64_t index) { count += e != factor * static_cast<float>(index) + 0.5F; });
  return count;
}

TEST_CASE("ranks write one checkpoint and restore it; a failure of one is everybody's") {
  char name[] = "checkpoint";
  char* arguments[] = {&name[0], nullptr};
  int count = 1;
  char** values = &arguments[0];
  world where(count, values, mesh<data, model>{});
  // One name on all ranks, and another for each run at the same time.
  std::int64_t job = 0;
  together(where, [&] { job = static_cast<std::int64_t>(::getppid()); });
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("espalier_mpi_" + std::to_string(job) + ".safetensors");

  const tree<arrays> saved = make(where);
  fill(saved, 2);
  save_checkpoint(where, saved, file, {{"step", "3"}});
  fill(saved, -1);
  CHECK(load_checkpoint(where, saved, file).at("step") == "3");
  REQUIRE_ALL(MPI_COMM_WORLD, wrong(saved, 2) == 0);

  world alone(mesh<>::value);
  const tree<arrays> whole{sharded_array<weight>(alone, sharding::whole(2)),
                           sharded_array<weight>(alone, sharding::whole(2))};
  (void)load_checkpoint(alone, whole, file);
  REQUIRE_ALL(MPI_COMM_WORLD, wrong(whole, 2) == 0);

  // Functions of trees of arrays: an element counts once, however many ranks have a copy.
  double squares = 0;
  for (int i = 0; i < 30; ++i) squares += 4.0 * i * i + (2 * i + 0.5) * (2 * i + 0.5);
  const tree<arrays> none = zeros_like(saved);
  REQUIRE_ALL(MPI_COMM_WORLD, std::abs(global_norm(where, saved) - std::sqrt(squares)) < 1e-9);
  REQUIRE_ALL(MPI_COMM_WORLD, global_norm(where, none) == 0);
  REQUIRE_ALL(MPI_COMM_WORLD, std::abs(clip_by_global_norm(where, saved, 1) - std::sqrt(squares)) < 1e-9);
  REQUIRE_ALL(MPI_COMM_WORLD, std::abs(global_norm(where, saved) - 1) < 1e-6);
  REQUIRE_ALL(MPI_COMM_WORLD, all_finite(where, saved));
  saved.split.for_each(
      [](float& e, std::int64_t index) { e = index == 29 ? std::numeric_limits<float>::infinity() : e; });
  REQUIRE_ALL(MPI_COMM_WORLD, !all_finite(where, saved));

  std::string text;
  try {
    together(where, [&] {
      if (where.device(0) == 2) throw std::runtime_error("no disk here");
    });
  } catch (const known_to_all_ranks&) { text = "told"; }
  REQUIRE_ALL(MPI_COMM_WORLD, text == "told");
  text.clear();
  try {
    save_checkpoint(where, saved, file / "not_a_folder");
  } catch (const error_on_all_ranks& error) { text = error.what(); }
  REQUIRE_ALL(MPI_COMM_WORLD, text.find("not_a_folder") != std::string::npos);

  // One byte is damaged, in what one rank reads: no rank's arrays change.
  sharding rows = sharding::whole(2);
  rows.dim[0] = axis_list(0);
  const masked_tree<arrays> masked{sharded_array<weight>(where, rows), sharded_array<boolean<6, 5>>(where, rows)};
  save_checkpoint(where, masked, file);
  together(where, [&] {
    if (!where.is_root()) return;
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const std::int64_t behind = io::safetensors_reader(file).find("split")->begin == 0 ? 0 : 6 * 5 * 4;
    bytes.seekp(-1 - behind, std::ios::end);  // the mask's last element
    bytes.put('\x02');
  });
  masked.split.for_each([](float& e, std::int64_t) { e = 9; });
  text.clear();
  try {
    (void)load_checkpoint(where, masked, file);
  } catch (const error_on_all_ranks& error) { text = error.what(); }
  REQUIRE_ALL(MPI_COMM_WORLD, text.find("the byte 2 in tensor \"mask\"") != std::string::npos);
  int changed = 0;
  masked.split.for_each([&](const float& e, std::int64_t) { changed += e != 9.0F; });
  REQUIRE_ALL(MPI_COMM_WORLD, changed == 0);
  if (where.is_root()) std::filesystem::remove(file);
}

using large = f32<1021, 1361>;  // 5.6 MB, and uneven over two and over four devices

template <class Leaf> struct large_tree {
  BOOST_HANA_DEFINE_STRUCT(large_tree, (leaf<Leaf, large>, columns), (leaf<Leaf, large>, both),
                           (leaf<Leaf, large>, rows), (leaf<Leaf, large>, copied), (leaf<Leaf, f16<7, 3>>, small),
                           (leaf<Leaf, i32<>>, step));
};

template <class Tree, class F> void for_each_array(const Tree& tree, const F& f) {
  float first = 0;
  detail::for_each_leaf(tree, [&](const auto& array) { f(array, first += 1000); });
}
template <class Element> Element number(float first, std::int64_t index) {
  return static_cast<Element>(static_cast<computed_t<Element>>(first + static_cast<float>(index % 509)));
}
int changed(const large_tree<arrays>& tree) {
  int count = 0;
  for_each_array(tree, [&](const auto& array, float first) {
    array.for_each([&]<class E>(const E& e, std::int64_t index) { count += e != number<E>(first, index); });
  });
  return count;
}

TEST_CASE("a checkpoint of 22 MB is written in a few calls, however its arrays are split") {
  char name[] = "checkpoint";
  char* arguments[] = {&name[0], nullptr};
  int count = 1;
  char** values = &arguments[0];
  // The worlds are of all four ranks, and of two of them.
  world all(count, values, mesh<data, model>{});
  auto [pair, others] = all.divide(mesh<model>{}, mesh<data>{});
  for (const bool four : {true, false}) {
    world* const where = four ? &all : pair ? &*pair : nullptr;
    if (where == nullptr) continue;
    const int last = four ? 1 : 0;
    sharding columns = sharding::whole(2);
    columns.dim[1] = axis_list(last);
    sharding rows = sharding::whole(2);
    rows.dim[0] = axis_list(0);
    sharding both = columns;
    if (four) both.dim[0] = axis_list(0);
    const auto make_tree = [&](const sharding& small) {
      return large_tree<arrays>{
          sharded_array<large>(*where, columns),   sharded_array<large>(*where, both),
          sharded_array<large>(*where, rows),      sharded_array<large>(*where, sharding::whole(2)),
          sharded_array<f16<7, 3>>(*where, small), sharded_array<i32<>>(*where, sharding::whole(0))};
    };
    const large_tree<arrays> tree = make_tree(rows);
    for_each_array(tree, [&](const auto& array, float first) {
      array.for_each([&]<class E>(E& e, std::int64_t index) { e = number<E>(first, index); });
    });
    std::int64_t job = 0;
    together(*where, [&] { job = static_cast<std::int64_t>(::getppid()); });
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("espalier_mpi_22_" + std::to_string(job) + ".safetensors");

    const std::int64_t writes = detail::file_calls::writes;
    save_checkpoint(*where, tree, file);
    // A window a rank in each of three rounds, of which the last may be empty; the root writes the header, too.
    const std::int64_t calls = detail::file_calls::writes - writes;
    CHECK(calls >= 2);
    CHECK(calls <= (where->is_root() ? 4 : 3));

    const large_tree<arrays> loaded = make_tree(columns);
    const std::int64_t reads = detail::file_calls::reads;
    (void)load_checkpoint(*where, loaded, file);
    CHECK(detail::file_calls::reads - reads <= 100);
    CHECK(changed(loaded) == 0);
    if (where->is_root()) {
      world alone(mesh<>::value);
      const large_tree<arrays> whole{
          sharded_array<large>(alone, sharding::whole(2)),     sharded_array<large>(alone, sharding::whole(2)),
          sharded_array<large>(alone, sharding::whole(2)),     sharded_array<large>(alone, sharding::whole(2)),
          sharded_array<f16<7, 3>>(alone, sharding::whole(2)), sharded_array<i32<>>(alone, sharding::whole(0))};
      (void)load_checkpoint(alone, whole, file);
      CHECK(changed(whole) == 0);
      CHECK(std::filesystem::file_size(file) >= 4 * 1021 * 1361 * 4 + 7 * 3 * 2 + 4);
    }

    // One rank may write no more than 4 KiB to a file: all are told, none waits, and the old file stays.
    ::rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const bool is_limited = where->device(0) == where->mesh_value().devices() - 1;
    if (is_limited) {
      ::rlimit small = before;
      small.rlim_cur = 4096;
      ::setrlimit(RLIMIT_FSIZE, &small);
    }
    std::string text;
    tree.step.for_each([](std::int32_t& e, std::int64_t) { e = 7; });
    try {
      save_checkpoint(*where, tree, file);
    } catch (const error_on_all_ranks& error) { text = error.what(); }
    if (is_limited) ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(text.find("cannot write it") != std::string::npos);
    CHECK(text.find("rank " + std::to_string(where->mesh_value().devices() - 1)) == 0);
    (void)load_checkpoint(*where, loaded, file);
    CHECK(changed(loaded) == 0);
    together(*where, [&] {
      if (where->is_root()) std::filesystem::remove(file);
    });
  }
  REQUIRE_ALL(MPI_COMM_WORLD, true);
}

}  // namespace
