// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: kernels
#include <espalier/tensor/run/io/safetensors.hpp>
#include <espalier/tensor/run/io/safetensors_header.hpp>

#include <espalier/base/dtype.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

namespace {

namespace fs = std::filesystem;
namespace io = espalier::io;
using espalier::dtype;
using sizes = std::vector<std::int64_t>;

/// A directory of this test's own that goes away with it.
class scratch {
 public:
  scratch() {
    static std::atomic<int> next{0};
    folder_ = fs::temp_directory_path() / ("espalier-io-" + std::to_string(::getpid()) + "-" + std::to_string(next++));
    fs::create_directories(folder_);
  }
  ~scratch() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  fs::path operator/(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

 private:
  fs::path folder_;
};

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void store(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string with_length(const std::string& json, const std::string& data = "") {
  std::string out;
  for (unsigned shift = 0; shift < 64; shift += 8)
    out += static_cast<char>((static_cast<std::uint64_t>(json.size()) >> shift) & 0xffU);
  return out + json + data;
}

/// The error text of opening a file with these bytes; empty when it opens.
std::string refusal(const fs::path& path, const std::string& bytes) {
  store(path, bytes);
  try {
    const io::safetensors_reader reader(path);
    return "";
  } catch (const io::checkpoint_error& error) { return error.what(); }
}

std::string header_refusal(const std::string& json, const std::string& data = "") {
  const scratch folder;
  return refusal(folder / "header.safetensors", with_length(json, data));
}

std::int64_t product(const sizes& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Element (i, j, ...) of the box at `starts` has its row-major index in `shape` as its value: the oracle of every box.
template <class T> std::vector<T> box_of(const sizes& shape, const sizes& starts, const sizes& extents) {
  std::vector<T> out;
  const std::int64_t elements = product(extents);
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t rest = i;
    std::int64_t flat = 0;
    std::int64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      flat += (starts[d] + rest % extents[d]) * stride;
      rest /= extents[d];
      stride *= shape[d];
    }
    out.push_back(static_cast<T>(static_cast<float>(flat)));
  }
  return out;
}

void write_counting(const fs::path& path, const std::string& name, const sizes& shape) {
  io::safetensors_writer writer(path, {{name, dtype::f32, shape}});
  writer.write(name, box_of<float>(shape, sizes(shape.size(), 0), shape).data());
  writer.commit(writer.bytes_written());
}

}  // namespace

TEST_CASE("a checkpoint comes back as it was written", "[io]") {
  const scratch folder;
  const fs::path path = folder / "all.safetensors";
  const std::vector<float> f32{1.5F, -2.0F, 3.25F, 0.0F, -0.0F, 1e30F};
  const std::vector<double> f64{3.14159, -1e300};
  const std::vector<espalier::bfloat16> bf16{espalier::bfloat16(1.0F), espalier::bfloat16(-3.0F),
                                             espalier::bfloat16(0.5F)};
  const std::vector<std::int32_t> i32{-1, 2, std::numeric_limits<std::int32_t>::min()};
  const std::vector<std::uint32_t> u32{0, 7, std::numeric_limits<std::uint32_t>::max()};
  const std::vector<std::int64_t> i64{std::numeric_limits<std::int64_t>::min(), -1};
  const std::vector<std::int8_t> i8{-128, 0, 127, 1, -1};
  const std::vector<espalier::float16> f16{espalier::float16(0.1F), espalier::float16(-65504.0F)};
  const bool flags[3] = {true, false, true};
  const float scalar = 42.0F;
  const std::vector<io::tensor_spec> specs{{"block.0/w \"q\"\n\\ \xC3\xA9", dtype::f32, {2, 3}},
                                           {"d", dtype::f64, {2}},
                                           {"h", dtype::bf16, {3, 1}},
                                           {"i", dtype::i32, {3}},
                                           {"n", dtype::u32, {3}},
                                           {"l", dtype::i64, {1, 2}},
                                           {"c", dtype::i8, {5}},
                                           {"s", dtype::f16, {2}},
                                           {"mask", dtype::boolean, {3}},
                                           {"scalar", dtype::f32, {}},
                                           {"none", dtype::f32, {4, 0, 2}}};
  {
    io::safetensors_writer writer(path, specs, {{"step", "120"}, {"note", "a\tb"}});
    writer.write(specs[0].name, f32.data());
    writer.write("d", f64.data());
    writer.write("h", bf16.data());
    writer.write("i", i32.data());
    writer.write("n", u32.data());
    writer.write("l", i64.data());
    writer.write("c", i8.data());
    writer.write("s", f16.data());
    writer.write("mask", flags);
    writer.write("scalar", &scalar);
    writer.write("none", nullptr);
    CHECK(writer.bytes_written() == writer.data_bytes());
    CHECK_FALSE(fs::exists(path));
    writer.commit(writer.bytes_written());
    CHECK_THROWS_AS(writer.commit(), io::checkpoint_error);
  }
  CHECK(folder.files() == 1);

  const io::safetensors_reader reader(path);
  CHECK(reader.metadata() == io::metadata_map{{"step", "120"}, {"note", "a\tb"}});
  CHECK_NOTHROW(io::check_matches(reader, specs));
  CHECK(reader.tensors().size() == specs.size());
  std::vector<float> f32_back(6);
  std::vector<double> f64_back(2);
  std::vector<espalier::bfloat16> bf16_back(3);
  std::vector<std::int32_t> i32_back(3);
  std::vector<std::uint32_t> u32_back(3);
  std::vector<std::int64_t> i64_back(2);
  std::vector<std::int8_t> i8_back(5);
  std::vector<espalier::float16> f16_back(2);
  bool flags_back[3] = {false, true, false};
  float scalar_back = 0;
  reader.read(specs[0].name, f32_back.data());
  reader.read("d", f64_back.data());
  reader.read("h", bf16_back.data());
  reader.read("i", i32_back.data());
  reader.read("n", u32_back.data());
  reader.read("l", i64_back.data());
  reader.read("c", i8_back.data());
  reader.read("s", f16_back.data());
  reader.read("mask", flags_back);
  reader.read("scalar", &scalar_back);
  reader.read("none", nullptr);
  CHECK(std::memcmp(f32_back.data(), f32.data(), 24) == 0);  // -0.0 too
  CHECK(f64_back == f64);
  CHECK(std::memcmp(bf16_back.data(), bf16.data(), 6) == 0);
  CHECK(i32_back == i32);
  CHECK(u32_back == u32);
  CHECK(i64_back == i64);
  CHECK(i8_back == i8);
  CHECK(std::memcmp(f16_back.data(), f16.data(), 4) == 0);
  // The names are those that other readers of the format use.
  for (const char* const name : {"F32", "F64", "BF16", "I32", "U32", "I64", "I8", "F16", "BOOL"}) {
    CHECK(contents(path).find(std::string("\"dtype\":\"") + name + '"') != std::string::npos);
  }
  CHECK(std::memcmp(flags_back, flags, 3) == 0);
  CHECK(scalar_back == scalar);
  for (const io::tensor_info& info : reader.tensors()) {
    INFO(info.name);
    CHECK((8 + static_cast<std::int64_t>(contents(path)[0]) + info.begin) % espalier::size_of(info.type) == 0);
  }
}

TEST_CASE("boxes of every rank are read and written with any strides", "[io]") {
  const scratch folder;
  std::mt19937 random(7);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 120; ++round) {
    const auto rank = static_cast<std::size_t>(round % 5);
    sizes shape(rank), starts(rank), extents(rank), strides(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      shape[d] = pick(1, 7);
      starts[d] = pick(0, shape[d]);
      extents[d] = pick(round % 9 == 0 ? 0 : std::min<std::int64_t>(1, shape[d] - starts[d]), shape[d] - starts[d]);
      if (round % 3 == 0) starts[d] = 0, extents[d] = shape[d];
    }
    // Strides of a permuted and padded layout, as a transposed shard or one with a halo has.
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (round % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    std::int64_t room = 1;
    for (std::size_t k = rank; k-- > 0;) {
      strides[order[k]] = room;
      room *= extents[order[k]] + pick(0, 2);
    }
    INFO("round " << round << " rank " << rank);
    const fs::path path = folder / "box.safetensors";
    write_counting(path, "x", shape);
    const io::safetensors_reader reader(path);
    const std::vector<float> expected = box_of<float>(shape, starts, extents);

    std::vector<float> packed(expected.size(), -1.0F);
    reader.read_box("x", starts, extents, packed.data());
    REQUIRE(packed == expected);

    const auto at = [&](std::size_t i) {
      auto rest = static_cast<std::int64_t>(i);
      std::int64_t offset = 0;
      for (std::size_t d = rank; d-- > 0;) {
        offset += rest % extents[d] * strides[d];
        rest /= extents[d];
      }
      return static_cast<std::size_t>(offset);
    };
    std::vector<float> strided(static_cast<std::size_t>(std::max<std::int64_t>(room, 1)), -1.0F);
    reader.read_box("x", starts, extents, strided.data(), strides);
    std::vector<bool> touched(strided.size(), false);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      REQUIRE(strided[at(i)] == expected[i]);
      touched[at(i)] = true;
    }
    for (std::size_t i = 0; i < strided.size(); ++i) REQUIRE((touched[i] || strided[i] == -1.0F));

    const fs::path copy = folder / "copy.safetensors";
    {
      io::safetensors_writer writer(copy, {{"x", dtype::f32, shape}});
      writer.write_box("x", starts, extents, strided.data(), strides);
      REQUIRE(writer.bytes_written() == 4 * product(extents));
      writer.commit();
    }
    std::vector<float> whole(static_cast<std::size_t>(product(shape)));
    io::safetensors_reader(copy).read("x", whole.data());
    std::vector<float> zeros(whole.size(), 0.0F);
    const std::vector<float> all = box_of<float>(shape, sizes(rank, 0), shape);
    for (const float value : expected) zeros[static_cast<std::size_t>(value)] = all[static_cast<std::size_t>(value)];
    REQUIRE(whole == zeros);
  }
}

TEST_CASE("a box larger than the staging buffer is read and written transposed", "[io]") {
  const scratch folder;
  const fs::path path = folder / "large.safetensors";
  for (const sizes& shape : {sizes{700, 900}, sizes{2, 600'000}, sizes{600'000, 2}, sizes{3, 1, 500'000}}) {
    const auto elements = static_cast<std::size_t>(product(shape));
    sizes strides(shape.size());
    std::int64_t room = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {  // column-major memory
      strides[d] = room;
      room *= shape[d];
    }
    std::vector<float> source(elements), back(elements, -1.0F), plain(elements);
    std::iota(source.begin(), source.end(), 0.0F);
    {
      io::safetensors_writer writer(path, {{"x", dtype::f32, shape}});
      writer.write_box("x", sizes(shape.size(), 0), shape, source.data(), strides);
      writer.commit(writer.bytes_written());
    }
    const io::safetensors_reader reader(path);
    reader.read_box("x", sizes(shape.size(), 0), shape, back.data(), strides);
    REQUIRE(back == source);
    reader.read("x", plain.data());
    REQUIRE(plain[1] == static_cast<float>(strides.back()));  // one step along the last dimension
  }
}

TEST_CASE("a box outside its tensor is refused", "[io]") {
  const scratch folder;
  const fs::path path = folder / "box.safetensors";
  write_counting(path, "x", {4, 6});
  const io::safetensors_reader reader(path);
  std::vector<float> room(24, -1.0F);
  const auto read = [&](const sizes& starts, const sizes& extents, const sizes& strides = {}) {
    reader.read_box("x", starts, extents, room.data(), strides);
  };
  CHECK_THROWS_WITH(read({1, 3}, {4, 3}), Catch::Contains("[1+4, 3+3]") && Catch::Contains("F32 [4, 6]"));
  CHECK_THROWS_AS(read({-1, 0}, {1, 1}), io::checkpoint_error);
  CHECK_THROWS_AS(read({0, 0}, {1, -1}), io::checkpoint_error);
  CHECK_THROWS_AS(read({0}, {4}), io::checkpoint_error);
  CHECK_THROWS_AS(read({0, 0}, {4}), io::checkpoint_error);
  CHECK_THROWS_AS(read({0, 0}, {4, 6}, {1}), io::checkpoint_error);
  CHECK_THROWS_AS(read({0, 5}, {1, std::numeric_limits<std::int64_t>::max()}), io::checkpoint_error);
  CHECK_THROWS_WITH(reader.read("y", room.data()), Catch::Contains("no tensor \"y\""));
  CHECK(room == std::vector<float>(24, -1.0F));
}

TEST_CASE("ranks that attach write their uneven shards at the same time", "[io]") {
  const scratch folder;
  const fs::path path = folder / "shards.safetensors";
  const sizes shape{11, 5, 13};
  const std::vector<io::tensor_spec> specs{{"w", dtype::f32, shape}, {"b", dtype::bf16, {7}}};
  const std::vector<io::tensor_spec> same_in_another_order{specs[1], specs[0]};
  constexpr std::int64_t ranks = 4;
  {
    io::safetensors_writer creator(path, specs, {{"step", "3"}}, io::writer_role::create, folder / "job-17.tmp");
    std::vector<std::unique_ptr<io::safetensors_writer>> others;
    for (std::int64_t r = 1; r < ranks; ++r)
      others.push_back(std::make_unique<io::safetensors_writer>(path, same_in_another_order,
                                                                io::metadata_map{{"step", "3"}},
                                                                io::writer_role::attach, folder / "job-17.tmp"));
    std::vector<std::exception_ptr> failures(ranks);
    std::vector<std::thread> threads;
    for (std::int64_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        try {
          io::safetensors_writer& mine = r == 0 ? creator : *others[static_cast<std::size_t>(r - 1)];
          for (std::int64_t half = 0; half < 2; ++half) {  // 4 parts of the last dimension, 2 of the first: all uneven
            const sizes starts{half * 6, 0, r * 13 / ranks};
            const sizes extents{half == 0 ? 6 : 5, 5, (r + 1) * 13 / ranks - r * 13 / ranks};
            mine.write_box("w", starts, extents, box_of<float>(shape, starts, extents).data());
          }
          if (r == 2) mine.write("b", box_of<espalier::bfloat16>({7}, {0}, {7}).data());
          mine.flush();
        } catch (...) { failures[static_cast<std::size_t>(r)] = std::current_exception(); }
      });
    for (auto& thread : threads) thread.join();
    for (const auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
    std::int64_t written = creator.bytes_written();
    for (const auto& other : others) written += other->bytes_written();
    CHECK_THROWS_WITH(creator.commit(written - 4), Catch::Contains("every shard"));
    CHECK_THROWS_WITH(others[0]->commit(), Catch::Contains("attached"));
    creator.commit(written);
  }
  CHECK(folder.files() == 1);
  const io::safetensors_reader reader(path);
  std::vector<float> back(static_cast<std::size_t>(product(shape)));
  reader.read("w", back.data());
  CHECK(back == box_of<float>(shape, {0, 0, 0}, shape));
  std::vector<espalier::bfloat16> b(7);
  reader.read("b", b.data());
  CHECK(static_cast<float>(b[6]) == 6.0F);
}

TEST_CASE("a writer leaves the real name alone until it commits", "[io]") {
  const scratch folder;
  const fs::path path = folder / "kept.safetensors";
  write_counting(path, "x", {3});
  const std::string before = contents(path);
  const std::vector<io::tensor_spec> specs{{"x", dtype::f32, {5}}};
  {
    io::safetensors_writer writer(path, specs);
    CHECK(fs::exists(writer.temporary()));
    const float one = 1.0F;
    writer.write_box("x", sizes{4}, sizes{1}, &one);
    CHECK_THROWS_WITH(io::safetensors_writer(path, specs), Catch::Contains("another writer"));
    CHECK(contents(path) == before);
  }
  CHECK(contents(path) == before);
  CHECK(folder.files() == 1);

  SECTION("a killed job's leftover is taken over, and its data does not show") {
    store(folder / "kept.safetensors.partial", std::string(1000, 'x'));
    {
      io::safetensors_writer writer(path, specs);
      writer.commit();
    }
    std::vector<float> back(5, 1.0F);
    io::safetensors_reader(path).read("x", back.data());
    CHECK(back == std::vector<float>(5, 0.0F));
    CHECK(folder.files() == 1);
  }
  SECTION("attaching to nothing, or to another layout") {
    CHECK_THROWS_AS(io::safetensors_writer(path, specs, {}, io::writer_role::attach), io::checkpoint_error);
    const io::safetensors_writer writer(path, specs, {{"step", "1"}});
    CHECK_THROWS_WITH(io::safetensors_writer(path, specs, {{"step", "2"}}, io::writer_role::attach),
                      Catch::Contains("another header"));
    CHECK_THROWS_WITH(io::safetensors_writer(path, {{"x", dtype::f32, {60}}}, {}, io::writer_role::attach),
                      Catch::Contains("a file of"));
    CHECK(fs::exists(writer.temporary()));
  }
  SECTION("places that cannot be written") {
    CHECK_THROWS_AS(io::safetensors_writer(folder / "no/such/folder.safetensors", specs), io::checkpoint_error);
    fs::create_directory(folder / "directory");
    CHECK_THROWS_WITH(io::safetensors_writer(folder / "directory", specs), Catch::Contains("directory"));
    CHECK_THROWS_AS(io::safetensors_writer(path, {{"x", dtype::f32, {std::int64_t{1} << 58}}}), io::checkpoint_error);
    CHECK_FALSE(fs::exists(folder / "kept.safetensors.partial"));
  }
  SECTION("lists of tensors that make no file") {
    const auto make = [&](const std::vector<io::tensor_spec>& list) { io::safetensors_writer(path, list); };
    CHECK_THROWS_WITH(make({{"a", dtype::f32, {1}}, {"a", dtype::i32, {1}}}), Catch::Contains("\"a\" twice"));
    CHECK_THROWS_AS(make({{"__metadata__", dtype::f32, {1}}}), io::checkpoint_error);
    CHECK_THROWS_AS(make({{"a\xff", dtype::f32, {1}}}), io::checkpoint_error);
    CHECK_THROWS_AS(make({{"a", dtype::f32, {-1}}}), io::checkpoint_error);
    CHECK_THROWS_AS(make({{"a", dtype::f32, {std::int64_t{1} << 40, std::int64_t{1} << 40}}}), io::checkpoint_error);
    CHECK_FALSE(fs::exists(folder / "kept.safetensors.partial"));
  }
}

TEST_CASE("a file cut at any byte is refused", "[io]") {
  const scratch folder;
  write_counting(folder / "whole.safetensors", "w", {5, 7});
  const std::string whole = contents(folder / "whole.safetensors");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    INFO(length << " of " << whole.size() << " bytes");
    REQUIRE_FALSE(refusal(folder / "cut.safetensors", whole.substr(0, length)).empty());
  }
  CHECK(refusal(folder / "cut.safetensors", whole).empty());
  CHECK_FALSE(refusal(folder / "cut.safetensors", whole + "x").empty());
}

TEST_CASE("a file that shrinks while open is an error", "[io]") {
  const scratch folder;
  const fs::path path = folder / "shrinks.safetensors";
  write_counting(path, "w", {500});
  const io::safetensors_reader reader(path);
  fs::resize_file(path, 300);
  std::vector<float> back(500);
  CHECK_THROWS_WITH(reader.read("w", back.data()), Catch::Contains("ends at byte"));
}

TEST_CASE("files of other kinds are refused with a reason", "[io]") {
  const scratch folder;
  const fs::path path = folder / "foreign";
  CHECK_THAT(refusal(path, "\x89PNG\r\n\x1a\n" + std::string(200, '\0')), Catch::Contains("PNG"));
  CHECK_THAT(refusal(path, "PK\x03\x04" + std::string(200, 'z')), Catch::Contains("PyTorch"));
  CHECK_THAT(refusal(path, "# Just some text\n" + std::string(2000, 'a')), Catch::Contains("header length"));
  CHECK_THAT(refusal(path, std::string(5000, '\0')), Catch::Contains("header length of 0"));
  CHECK_THAT(refusal(path, ""), Catch::Contains("0 bytes"));
  CHECK_THROWS_WITH(io::safetensors_reader(folder / "missing"), Catch::Contains("missing") && Catch::Contains("fix"));
  CHECK_THROWS_AS(io::safetensors_reader(folder / "."), io::checkpoint_error);
}

TEST_CASE("a header that is not exactly right is refused", "[io]") {
  const std::string data(8, '\0');
  const std::string x = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  CHECK(header_refusal(x, data).empty());
  CHECK(header_refusal(x + "   \n", data).empty());
  CHECK(header_refusal("{}").empty());
  CHECK(header_refusal(R"({ "\u0078\ud83d\ude00" : { "shape" : [ 2 ] , "data_offsets":[0,8], "dtype":"F32" } })", data)
            .empty());
  CHECK(header_refusal(R"({"__metadata__":{},"a":{"dtype":"I32","shape":[3,0],"data_offsets":[0,0]},)"
                       R"("b":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
                       data)
            .empty());

  const auto refused = [&](const std::string& json, const std::string& words) {
    INFO(json);
    CHECK_THAT(header_refusal(json, data), Catch::Contains(words));
  };
  refused(" " + x, "first byte");
  refused(x + "}", "after the closing");
  refused(x.substr(0, x.size() - 1) + ",}", "expected");
  refused(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"shape":[2]}})", "twice");
  refused(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":[2]}})", "extra");
  refused(R"({"x":{"dtype":"F32","shape":[2]}})", "without data_offsets");
  refused(R"({"x":{"dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8]}})", "F8_E5M2");
  refused(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "whole number");
  refused(R"({"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "expected");
  refused(R"({"x":{"dtype":"F32","shape":[02],"data_offsets":[0,8]}})", "leading zeros");
  refused(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", "3 data_offsets");
  refused(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12 bytes");
  refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "8 bytes of data");
  refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "without overlap or hole");
  refused(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "hole");
  const std::string low = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string high = R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  const std::string both = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  CHECK(header_refusal("{\"x\":" + high + ",\"y\":" + low + "}", data).empty());
  refused("{\"x\":" + both + ",\"y\":" + high + "}", "overlap");
  refused("{\"x\":" + low + ",\"x\":" + high + "}", "\"x\" twice");
  refused("{\"x\":" + low + ",\"\\u0078\":" + high + "}", "\"x\" twice");
  refused(R"({"__metadata__":{"a":"1","a":"2"}})", "metadata key \"a\" twice");
  refused(R"({"__metadata__":{"a":1}})", "expected");
  refused(R"({"__metadata__":{},"__metadata__":{}})", "second");
  refused(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", "2^63");
  refused(R"({"x":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", "63 bits");
  refused("{\"x\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "UTF-8");
  refused("{\"x\n\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "control");
  refused(R"({"\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "surrogate");
  refused(R"({"\q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "escape");
  refused(R"({"\u00)", "hexadecimal");
  refused(R"({"x)", "closing");
}

TEST_CASE("UTF-8 is recognised exactly", "[io]") {
  using espalier::detail::is_utf8;
  for (const char* good :
       {"", "plain", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
    CHECK(is_utf8(good));
  for (const char* bad : {"\x80", "\xC0\xAF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xC3(", "\xFF"})
    CHECK_FALSE(is_utf8(bad));
}

TEST_CASE("a byte other than 0 and 1 never becomes a bool", "[io]") {
  const scratch folder;
  const fs::path path = folder / "bool.safetensors";
  store(path,
        with_length(R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", std::string("\x01\x02\x00", 3)));
  const io::safetensors_reader reader(path);
  bool flags[3] = {true, true, true};
  CHECK_THROWS_WITH(reader.read("m", flags), Catch::Contains("byte 2"));
  CHECK_NOTHROW(reader.read_box("m", sizes{2}, sizes{1}, flags));
  CHECK_FALSE(flags[0]);
}

TEST_CASE("mutated headers give a clean error or consistent metadata", "[io]") {
  const scratch folder;
  const fs::path path = folder / "base.safetensors";
  {
    io::safetensors_writer writer(path,
                                  {{"wte", dtype::f32, {16, 4}},
                                   {"h.0.b", dtype::f64, {3}},
                                   {"mask", dtype::boolean, {2, 2}},
                                   {"n\xC3\xA9", dtype::bf16, {}}},
                                  {{"step", "12"}});
    writer.commit();
  }
  const std::string base = contents(path);
  const std::size_t header = 8 + static_cast<unsigned char>(base[0]) + 256 * static_cast<std::size_t>(base[1]);
  const std::string symbols = "{}[]\",:0123456789\\u-.eE \n\xC3\x80";
  std::mt19937 random(2026);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };

  // Thousands of mutations are parsed in memory; a part goes through a file.
  std::size_t refused = 0;
  std::size_t accepted = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string bytes = base;
    std::string text;
    const bool through_file = round % 20 == 0;
    const std::size_t first = through_file ? 0 : 8;
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      const std::size_t at = first + below(header - first);
      switch (below(4)) {
        case 0: bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1U << below(8))); break;
        case 1: bytes[at] = symbols[below(symbols.size())]; break;
        case 2: bytes[at] = bytes[first + below(header - first)]; break;
        default: std::swap(bytes[at], bytes[first + below(header - first)]);
      }
    }
    const auto data = static_cast<std::int64_t>(base.size() - header);
    std::vector<io::tensor_info> tensors;
    std::int64_t data_bytes = data;
    try {
      if (through_file) {
        store(folder / "mutant.safetensors", bytes);
        const io::safetensors_reader reader(folder / "mutant.safetensors");
        tensors = reader.tensors();
        data_bytes = static_cast<std::int64_t>(bytes.size()) - 8 - static_cast<unsigned char>(bytes[0]) -
                     256 * static_cast<std::int64_t>(static_cast<unsigned char>(bytes[1]));
        std::vector<double> room(1000);
        for (const auto& info : tensors) {
          try {
            reader.read(info.name, room.data());
          } catch (const io::checkpoint_error&) {  // a BOOL of other bytes
          }
        }
      } else {
        text = bytes.substr(8, header - 8);
        auto parsed = espalier::detail::safetensors_header_parser(path, text).parse();
        espalier::detail::check_layout(path, parsed, data);
        tensors = std::move(parsed.tensors);
      }
    } catch (const io::checkpoint_error& error) {
      ++refused;
      REQUIRE_FALSE(error.actual().empty());
      REQUIRE_FALSE(error.remedy().empty());
      continue;
    }
    ++accepted;
    std::int64_t end = 0;
    for (const auto& info : tensors) {
      REQUIRE(info.begin == end);
      REQUIRE(espalier::detail::bytes_of(info) == info.end - info.begin);
      end = info.end;
    }
    REQUIRE(end == data_bytes);
  }
  CHECK(refused > 10'000);
  CHECK(accepted > 100);  // a changed letter in a name is a valid file of other names
}

TEST_CASE("a checkpoint of another model is refused with one full list", "[io]") {
  const scratch folder;
  const fs::path path = folder / "model.safetensors";
  {
    io::safetensors_writer writer(path, {{"wte", dtype::f32, {128, 64}},
                                         {"old", dtype::f32, {1}},
                                         {"b", dtype::f32, {4}},
                                         {"same", dtype::i32, {2, 2}}});
    writer.commit();
  }
  const io::safetensors_reader reader(path);
  const std::vector<io::tensor_spec> model{
      {"wte", dtype::f32, {128, 96}}, {"b", dtype::bf16, {4}}, {"same", dtype::i32, {2, 2}}, {"fresh", dtype::f64, {}}};
  std::string text;
  try {
    io::check_matches(reader, model);
  } catch (const io::checkpoint_error& error) { text = error.what(); }
  CHECK_THAT(text, Catch::Contains(path.string()));
  CHECK_THAT(text, Catch::Contains("1 missing") && Catch::Contains("\"fresh\": the model has F64 []"));
  CHECK_THAT(text, Catch::Contains("1 unexpected") && Catch::Contains("\"old\": the file has F32 [1]"));
  CHECK_THAT(text, Catch::Contains("2 different"));
  CHECK_THAT(text, Catch::Contains("\"wte\": the file has F32 [128, 64], the model F32 [128, 96]"));
  CHECK_THAT(text, Catch::Contains("\"b\": the file has F32 [4], the model BF16 [4]"));
  CHECK_THAT(text, !Catch::Contains("same"));

  std::vector<io::tensor_spec> many;
  for (int i = 0; i < 100; ++i) many.push_back({"layer." + std::to_string(i), dtype::f32, {1}});
  CHECK_THROWS_WITH(io::check_matches(reader, many), Catch::Contains("100 missing") && Catch::Contains("and 80 more"));
}
