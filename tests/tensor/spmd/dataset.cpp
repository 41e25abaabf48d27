// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <espalier/tensor/run/io/checkpoint.hpp>
#include <espalier/tensor/run/io/dataset.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

using namespace espalier;
using Catch::Matchers::Contains;

struct data_2 : axis<"data", 2> {};
struct model_2 : axis<"model", 2> {};

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
  [[nodiscard]] std::filesystem::path file(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return folder / name;
  }
};

/// The bytes that numpy.save writes.
template <class T>
std::string npy_bytes(const std::string& type, const std::string& shape, const std::vector<T>& values,
                      const std::string& order = "False") {
  std::string header = "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() % 256);
  bytes += static_cast<char>(header.size() / 256);
  bytes += header;
  return bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class F> std::string text_of_error(const F& f) {
  try {
    f();
  } catch (const std::exception& error) { return error.what(); }
  return "";
}

TEST_CASE("a permutation has every number once, and others for other seeds and epochs") {
  for (const std::int64_t n : {1, 2, 3, 5, 16, 17, 1000, 4097}) {
    std::vector<std::int64_t> seen;
    const io::permutation order(n, 3, 1);
    for (std::int64_t i = 0; i < n; ++i) seen.push_back(order(i));
    std::sort(seen.begin(), seen.end());
    bool each_once = true;
    for (std::int64_t i = 0; i < n; ++i) each_once = each_once && seen[static_cast<std::size_t>(i)] == i;
    CHECK(each_once);
  }
  // Counts where row 0 of ten comes over 2,000 epochs: about 200 times each place. Five deviations are 67.
  std::vector<int> counts(10);
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch)
    ++counts[static_cast<std::size_t>(io::permutation(10, 5, epoch)(0))];
  CHECK(*std::min_element(counts.begin(), counts.end()) > 133);
  CHECK(*std::max_element(counts.begin(), counts.end()) < 267);
  int same = 0;
  for (std::int64_t i = 0; i < 1000; ++i) same += io::permutation(1000, 1, 0)(i) == io::permutation(1000, 2, 0)(i);
  CHECK(same < 20);
  // Computed by a second program from the description. This does not change: runs go on where they stopped.
  constexpr std::int64_t first[]{56230, 17242, 42223, 54573};
  constexpr std::int64_t second[]{32567, 29665, 40554, 1611};
  for (std::int64_t i = 0; i < 4; ++i) {
    CHECK(io::permutation(60000, 3, 0)(i) == first[i]);
    CHECK(io::permutation(60000, 3, 1)(i) == second[i]);
  }
}

TEST_CASE("files of rows are read as they were written") {
  const scratch place;
  std::vector<float> out(4);
  SECTION(".npy") {
    const auto file = io::npy(place.file("a.npy", npy_bytes<float>("<f4", "(2, 2, 1)", {1, 2, 3, 4.5F})));
    CHECK(file.shape() == std::vector<std::int64_t>{2, 2, 1});
    file.read(1, 0, 2, out.data());
    CHECK(out[1] == 4.5F);
    const std::vector<std::uint8_t> swapped{0, 0, 1, 2, 255, 255, 255, 254};
    std::int64_t number = 0;
    const auto big = io::npy(place.file("c.npy", npy_bytes(">i4", "(2,)", swapped)));
    big.read(0, 0, 1, &number);
    CHECK(number == 258);
    big.read(1, 0, 1, &number);
    CHECK(number == -2);
  }
  SECTION("IDX") {
    const auto file =
        io::idx(place.file("a.idx", std::string("\0\0\x08\x02\0\0\0\x02\0\0\0\x03", 12) + "\x01\x02\x03\x04\x05\xff"));
    CHECK(file.type() == dtype::u8);
    file.scaled(0.5, 1).read(1, 0, 3, out.data());
    CHECK((out[0] == 3.0F && out[2] == 128.5F));
    const auto floats = io::idx(place.file("b.idx", std::string("\0\0\x0d\x01\0\0\0\x01\x3f\xc0\0\0", 12)));
    floats.read(0, 0, 1, out.data());
    CHECK(out[0] == 1.5F);
  }
  SECTION("CSV") {
    const auto path = place.file("a.csv", "x,y,label\n1,2.5,3\r\n-4,5e-1, 6\n\n");
    const auto file = io::csv(path, {.header_lines = 1});
    CHECK(file.shape() == std::vector<std::int64_t>{2, 3});
    file.read(0, 1, 2, out.data());
    CHECK((out[0] == 2.5F && out[1] == 3.0F));
    std::int32_t label = 0;
    const auto labels = io::csv(path, {.header_lines = 1, .first_column = 2});
    CHECK(labels.shape() == std::vector<std::int64_t>{2});
    labels.read(1, 0, 1, &label);
    CHECK(label == 6);
  }
  SECTION("bytes") {
    const auto file = io::raw(place.file("a.bin", "headabcdef"), dtype::u8, {3, 2}, 4);
    file.read(2, 0, 2, out.data());
    CHECK(out[1] == 'f');
  }
}

TEST_CASE("a bad file is one sentence") {
  const scratch place;
  const auto npy_error = [&](const std::string& bytes) {
    const auto path = place.file("x.npy", bytes);
    return text_of_error([&] { (void)io::npy(path); });
  };
  CHECK_THAT(text_of_error([&] { (void)io::npy(place.folder / "absent.npy"); }),
             Contains("absent.npy: it does not open: No such file"));
  CHECK_THAT(text_of_error([&] { (void)io::npy(place.folder); }), Contains("it is no regular file"));
  CHECK_THAT(npy_error(""), Contains("it is empty"));
  CHECK_THAT(npy_error("x,y\n1,2\n3,4\n"), Contains("numpy.save"));
  CHECK_THAT(npy_error(npy_bytes<float>("<f4", "(2, 2)", {1, 2, 3})),
             Contains("it holds f32 [2, 2], 16 bytes, but 12 follow the header. It is cut off"));
  CHECK_THAT(npy_error(npy_bytes<float>("<f4", "(2, 2)", {1, 2, 3, 4}, "True")), Contains("ascontiguousarray"));
  CHECK_THAT(npy_error(npy_bytes<float>("<c8", "(2,)", {1, 2, 3, 4})),
             Contains("type \"<c8\". Convert the array with astype"));
  CHECK_THAT(npy_error(npy_bytes<float>("<f4", "()", {1})), Contains("one number, not rows"));
  CHECK_THAT(npy_error(npy_bytes<float>("<f4", "(0, 3)", {})), Contains("f32 [0, 3], which has no elements"));
  CHECK_THAT(npy_error(npy_bytes<float>("<f4", "(99999999999999999999,)", {1})), Contains("beyond 63 bits"));
  CHECK_THAT(npy_error(npy_bytes<float>("<f4", "(4611686018427387904, 4)", {1})), Contains("more than 2^63 bytes"));
  CHECK_THAT(npy_error(npy_bytes<float>("<f4", "(2,)", {1, 2}).substr(0, 40)), Contains("header is cut off"));
  const auto idx_error = [&](const std::string& bytes) {
    const auto path = place.file("x.idx", bytes);
    return text_of_error([&] { (void)io::idx(path); });
  };
  CHECK_THAT(idx_error("\x1f\x8bzzzz"), Contains("gunzip"));
  CHECK_THAT(idx_error(std::string("\0\0\x0b\x01\0\0\0\x01zz", 10)), Contains("of type 11"));
  CHECK_THAT(idx_error(std::string("\0\0\x08\x01\0\0\0\x03zz", 10)), Contains("u8 [3], 3 bytes, but 2 follow"));
  const auto csv_error = [&](const std::string& text, const io::csv_options& options = {}) {
    const auto path = place.file("x.csv", text);
    return text_of_error([&] { (void)io::csv(path, options); });
  };
  CHECK_THAT(csv_error("1,2\n3,four\n"), Contains("line 2, column 2 is \"four\", which is no number"));
  CHECK_THAT(csv_error("a,b\n1,2\n3,\n", {.header_lines = 1}), Contains("line 3, column 2 is \"\""));
  CHECK_THAT(csv_error("1,2\n3\n"), Contains("line 2 has 1 cells, and the first row 2"));
  CHECK_THAT(csv_error("1,2\n", {.first_column = 1, .columns = 2}),
             Contains("columns 1 to 2 are asked for of rows of 2"));
  CHECK_THAT(csv_error("a,b\n", {.header_lines = 1}), Contains("no rows after 1 header lines"));
  CHECK_THAT(text_of_error([&] { (void)io::raw(place.file("x.bin", "abc"), dtype::f32, {1}); }),
             Contains("4 bytes, but 3 follow"));
}

/// Row r of 23: images r * 10 ... r * 10 + 5 as u8 [2, 3], label r.
struct small_set {
  scratch place;
  io::row_file images = io::npy(place.file("images.npy", [] {
    std::vector<std::uint8_t> values;
    for (int r = 0; r < 23; ++r)
      for (int e = 0; e < 6; ++e) values.push_back(static_cast<std::uint8_t>(r * 10 + e));
    return npy_bytes("|u1", "(23, 2, 3)", values);
  }()));
  io::row_file labels = io::npy(place.file("labels.npy", [] {
    std::vector<std::int64_t> values;
    for (int r = 0; r < 23; ++r) values.push_back(r);
    return npy_bytes("<i8", "(23,)", values);
  }()));
};

using images = f32<5, 2, 3>;
using labels = i32<5>;

/// Images over both axes, unevenly; labels whole.
template <class Tensor> sharded_array<Tensor> array_on(const world& where, std::vector<int> axes) {
  sharding placement = sharding::whole(Tensor::rank);
  for (std::size_t d = 0; d < axes.size(); ++d)
    if (axes[d] >= 0) placement.dim[static_cast<int>(d)] = axis_list(axes[d]);
  return sharded_array<Tensor>(where, placement);
}

/// The rows of a batch by its labels; -1 if the images are not those of these rows.
std::vector<int> rows_of(const sharded_array<images>& x, const sharded_array<labels>& y) {
  std::vector<int> rows(5, -1);
  y.for_each([&](const std::int32_t& e, std::int64_t i) { rows[static_cast<std::size_t>(i)] = e; });
  const std::vector<int> expected = rows;
  x.for_each([&](const float& e, std::int64_t i) {
    const auto r = static_cast<std::size_t>(i / 6);
    if (e != static_cast<float>(expected[r] * 10 + i % 6)) rows[r] = -1;
  });
  return rows;
}

TEST_CASE("batches are equal on every mesh, have each row once, and go on where they stopped") {
  const small_set set;
  std::vector<std::vector<int>> drawn;
  {
    world one(mesh<>::value);
    io::dataset batches(one, {.seed = 3}, io::column(array_on<images>(one, {}), set.images),
                        io::column(array_on<labels>(one, {}), set.labels.within(0, 22)));
    REQUIRE(batches.batches() == 4);
    for (int n = 0; n < 8; ++n) {
      const auto& [x, y] = batches.next();
      drawn.push_back(rows_of(x, y));
    }
    CHECK(batches.place() == io::dataset_place{3, 2, 0});
  }
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<int> seen;
    for (int n = 0; n < 4; ++n)
      seen.insert(drawn[static_cast<std::size_t>(epoch * 4 + n)].begin(),
                  drawn[static_cast<std::size_t>(epoch * 4 + n)].end());
    CHECK(seen.size() == 20);
    CHECK(*seen.begin() >= 0);
  }
  CHECK(std::vector(drawn.begin(), drawn.begin() + 4) != std::vector(drawn.begin() + 4, drawn.end()));

  world four(mesh<data_2, model_2>::value);
  const bool ahead = GENERATE(true, false);
  const auto axes = GENERATE(std::vector<int>{0, -1, 1}, std::vector<int>{1, 0}, std::vector<int>{-1, -1, 0});
  const auto draw = [&](std::int64_t seed) {
    return std::make_unique<io::dataset<images, labels>>(four, io::dataset_options{.seed = seed, .read_ahead = ahead},
                                                         io::column(array_on<images>(four, axes), set.images),
                                                         io::column(array_on<labels>(four, {0}), set.labels));
  };
  const auto batches = draw(3);
  const auto kept = batches->next();  // handles that are still held keep their elements
  for (std::size_t n = 1; n < 6; ++n) {
    const auto& [x, y] = batches->next();
    CHECK(rows_of(x, y) == drawn[n]);
  }
  CHECK(rows_of(std::get<0>(kept), std::get<1>(kept)) == drawn[0]);

  // The place goes through a checkpoint, and into a dataset that was made with another seed.
  const auto file = set.place.folder / "place.safetensors";
  save_checkpoint(four, io::leaves_of(four, batches->place()), file);
  const auto loaded = io::leaves_of(four);
  (void)load_checkpoint(four, loaded, file);
  const auto others = draw(99);
  others->seek(io::place_in(loaded));
  for (std::size_t n = 6; n < 8; ++n) {
    const auto& [x, y] = others->next();
    CHECK(rows_of(x, y) == drawn[n]);
  }
  CHECK_THROWS_WITH(others->seek({3, 0, 4}), Contains("an epoch has 4 batches"));
}

TEST_CASE("rows in order, and rows that are held out") {
  const small_set set;
  world one(mesh<>::value);
  io::dataset batches(one, {.shuffle = false, .first_row = 11, .rows = 11},
                      io::column(array_on<images>(one, {}), set.images),
                      io::column(array_on<labels>(one, {}), set.labels));
  for (const int first : {11, 16, 11}) {
    const auto& [x, y] = batches.next();
    CHECK(rows_of(x, y) == std::vector<int>{first, first + 1, first + 2, first + 3, first + 4});
  }
}

TEST_CASE("files that do not fit are refused, and a bad row when it is drawn") {
  const small_set set;
  world one(mesh<>::value);
  const auto x = array_on<images>(one, {});
  const auto y = array_on<labels>(one, {});
  const auto error = [&](const io::dataset_options& options, auto... columns) {
    return text_of_error([&] { io::dataset all(one, options, columns...); });
  };
  CHECK_THAT(error({}, io::column(x, set.labels)),
             Contains("it holds i64 [23], whose rows are not those of f32[5, 2, 3]"));
  CHECK_THAT(error({}, io::column(array_on<f32<5, 3, 2>>(one, {}), set.images)), Contains("whose rows are not those"));
  CHECK(error({}, io::column(array_on<f32<5, 6>>(one, {}), set.images)).empty());
  CHECK(error({}, io::column(array_on<f32<5, 2, 3, 1>>(one, {}), set.images)).empty());
  CHECK_THAT(error({}, io::column(array_on<i32<5, 6>>(one, {}), set.images.scaled(0.5))),
             Contains("scaled, which does not become i32[5, 6]"));
  CHECK_THAT(error({.rows = 4}, io::column(x, set.images)), Contains("4 rows do not fill a batch of 5"));
  CHECK_THAT(error({.first_row = 20, .rows = 5}, io::column(x, set.images)),
             Contains("rows 20 to 24 are asked for of 23"));
  const auto fewer = io::raw(set.place.file("fewer.bin", "abcdefg"), dtype::u8, {7});
  CHECK_THAT(error({}, io::column(x, set.images), io::column(y, fewer)), Contains("it has 7 rows, and"));
  CHECK_THAT(error({}, io::column(sharded_array<images>(), set.images)), Contains("is empty"));
  world other(mesh<data_2>::value);
  CHECK_THAT(error({}, io::column(array_on<images>(other, {}), set.images)), Contains("is of another world"));

  for (const bool ahead : {true, false}) {
    io::dataset batches(one, {.shuffle = false, .read_ahead = ahead}, io::column(y, set.labels.within(0, 9)));
    (void)batches.next();
    (void)batches.next();
    CHECK_THROWS_WITH(batches.next(), Contains("row 10, element 0 is 10, not within 0 and 9"));
    CHECK_THROWS_WITH(batches.next(), Contains("row 10"));
    batches.seek({});
    CHECK_NOTHROW(batches.next());
  }
  std::vector<std::int64_t> large{1, std::int64_t{1} << 40};
  io::dataset wide(
      one, {.shuffle = false},
      io::column(array_on<i32<1>>(one, {}), io::npy(set.place.file("l.npy", npy_bytes("<i8", "(2,)", large)))));
  (void)wide.next();
  CHECK_THROWS_WITH(wide.next(), Contains("which i32 cannot hold"));
}

}  // namespace
