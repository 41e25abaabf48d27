// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// processors: 1
// together: rules
#include <gpt/corpus.hpp>
#include <gpt/losses.hpp>
#include <gpt/ngram.hpp>
#include <gpt/resume.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

std::string random_text(std::size_t length, unsigned seed, int letters = 26) {
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < length; ++i)
    text += static_cast<char>('a' + static_cast<int>(random() % static_cast<unsigned>(letters)));
  return text;
}

/// Distinct values, so that a token says where in the text it comes from (as far as 255 symbols reach).
std::string counting_text(std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += static_cast<char>(static_cast<unsigned char>(i % 251));
  return text;
}

std::vector<std::span<const std::int32_t>> training_parts(const gpt::corpus& data) {
  std::vector<std::span<const std::int32_t>> parts;
  for (const auto& part : data.training()) parts.push_back(data.tokens(part));
  return parts;
}

/// The cross entropy of an n-gram model on all held-out windows.
double held_out_loss(const gpt::corpus& data, const gpt::ngram_model& model) {
  const auto size = static_cast<std::size_t>(data.held_out_windows() * data.context());
  std::vector<std::int32_t> tokens(size), targets(size);
  data.held_out_batch(0, tokens, targets);
  return model.cross_entropy(tokens, targets, data.context());
}

double sum_after(const gpt::ngram_model& model, const std::vector<std::int32_t>& before) {
  double sum = 0;
  for (std::int32_t next = 0; next < model.symbols(); ++next) {
    const double p = model.probability(before, next);
    REQUIRE(p > 0);
    sum += p;
  }
  return sum;
}

}  // namespace

TEST_CASE("a vocabulary numbers the distinct bytes of a text", "[gpt]") {
  const gpt::vocabulary symbols("banana\n", 8);
  CHECK(symbols.size() == 4);
  CHECK(symbols.encode("\nabn") == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(symbols.encode('z') == symbols.unknown());
  CHECK(symbols.unknown() == 7);
  CHECK(symbols.dropped_bytes() == 0);
  CHECK(symbols.decode(symbols.encode("nab\nz")) == "nab\n?");
  CHECK(symbols.decode(5) == '?');
  CHECK(symbols.decode(-1) == '?');
  CHECK_THROWS_AS(gpt::vocabulary("a", 1), std::invalid_argument);
  CHECK_THROWS_AS(gpt::vocabulary("a", 257), std::invalid_argument);
}

TEST_CASE("a vocabulary that is too small keeps the most frequent bytes and says what it dropped", "[gpt]") {
  const gpt::vocabulary symbols(
      "aaa\xff\xff"
      "bccd",
      4);
  CHECK(symbols.size() == 3);
  CHECK(symbols.dropped_bytes() == 2);
  CHECK(symbols.dropped_characters() == 2);
  CHECK(symbols.encode("ac\xff"
                       "b") == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(gpt::vocabulary(counting_text(251), 252).dropped_bytes() == 0);
  CHECK(gpt::vocabulary(counting_text(251), 251).dropped_bytes() == 1);
}

TEST_CASE("training and held-out text are disjoint, cover the text, and are a tenth apart", "[gpt]") {
  for (const std::size_t length : {1290UL, 5000UL, 99'999UL, 1'000'003UL}) {
    const std::string text = random_text(length, 1);
    const gpt::corpus data(text, gpt::vocabulary(text, 64), 128);
    std::vector<int> part_of(length, 0);
    for (const auto& part : data.training())
      for (std::int64_t i = part.begin; i < part.end; ++i) part_of[static_cast<std::size_t>(i)] += 1;
    for (const auto& part : data.held_out())
      for (std::int64_t i = part.begin; i < part.end; ++i) part_of[static_cast<std::size_t>(i)] += 10;
    CHECK(std::all_of(part_of.begin(), part_of.end(), [](int once) { return once == 1 || once == 10; }));
    CHECK(data.training_characters() + data.held_out_characters() == static_cast<std::int64_t>(length));
    CHECK(std::abs(static_cast<double>(data.held_out_characters()) / static_cast<double>(length) - 0.1) < 0.002);
    CHECK(data.held_out_windows() >= 1);
    if (length > 900'000) CHECK(data.held_out().size() == 24);

    bool all_inside = true;
    for (std::int64_t row = 0; row < 2'000; ++row) {
      const std::int64_t at = data.training_window(3, 17, row);
      for (std::int64_t i = at; i <= at + 128; ++i) all_inside &= part_of.at(static_cast<std::size_t>(i)) == 1;
    }
    CHECK(all_inside);
    for (const auto& part : data.held_out()) REQUIRE(part.size() >= 129);
  }
}

TEST_CASE("training windows reach both ends of every block, evenly", "[gpt]") {
  const std::string text = random_text(81'920 + 5, 1);  // two periods
  const gpt::corpus data(text, gpt::vocabulary(text, 64), 8);
  REQUIRE(data.training().size() == 2);
  std::map<std::int64_t, int> hits;
  const std::int64_t draws = 2'000'000;
  for (std::int64_t row = 0; row < draws; ++row) ++hits[data.training_window(1, 0, row)];
  std::int64_t starts = 0;
  for (const auto& part : data.training()) {
    CHECK(hits.contains(part.begin));
    CHECK(hits.contains(part.end - 9));
    CHECK_FALSE(hits.contains(part.end - 8));
    starts += part.size() - 8;
  }
  CHECK(static_cast<std::int64_t>(hits.size()) == starts);
  double chi = 0;
  const double expected = static_cast<double>(draws) / static_cast<double>(starts);
  for (const auto& [at, n] : hits) chi += (n - expected) * (n - expected) / expected;
  const auto degrees = static_cast<double>(starts - 1);
  CHECK(std::abs(chi - degrees) < 5 * std::sqrt(2 * degrees));
}

TEST_CASE("a batch depends on seed, step and row only", "[gpt]") {
  const std::string text = counting_text(60'000);
  const gpt::vocabulary symbols(text, 256);
  const gpt::corpus data(text, symbols, 16);
  const auto batch = [&](std::uint64_t seed, std::int64_t step, std::int64_t first, std::size_t rows) {
    std::vector<std::int32_t> tokens(rows * 16), targets(rows * 16);
    data.training_batch(seed, step, first, tokens, targets);
    for (std::size_t i = 0; i < tokens.size(); ++i) REQUIRE(targets[i] == (tokens[i] + 1) % 251);
    return tokens;
  };
  const auto whole = batch(5, 3, 0, 12);
  std::vector<std::int32_t> parts;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const auto mine = batch(5, 3, rank * 3, 3);
    parts.insert(parts.end(), mine.begin(), mine.end());
  }
  CHECK(parts == whole);
  CHECK(batch(5, 4, 0, 12) != whole);
  CHECK(batch(6, 3, 0, 12) != whole);
  std::set<std::int64_t> distinct;
  for (std::int64_t step = 0; step < 10; ++step)
    for (std::int64_t row = 0; row < 10; ++row) distinct.insert(data.training_window(5, step, row));
  CHECK(distinct.size() > 95);
  // Fixed for good: another result would make runs of different builds incomparable.
  CHECK(data.training_window(0, 0, 0) == 12913);
  CHECK(data.training_window(1, 2, 3) == 12439);

  std::vector<std::int32_t> odd(17), even(16);
  CHECK_THROWS_AS(data.training_batch(0, 0, 0, odd, odd), std::invalid_argument);
  CHECK_THROWS_AS(data.training_batch(0, 0, 0, even, odd), std::invalid_argument);
}

TEST_CASE("held-out windows ask for each held-out character at most once", "[gpt]") {
  const std::string text = random_text(100'000, 3);
  const gpt::corpus data(text, gpt::vocabulary(text, 64), 100);
  const auto windows = static_cast<std::size_t>(data.held_out_windows());
  std::vector<std::int32_t> tokens(windows * 100), targets(windows * 100);
  data.held_out_batch(0, tokens, targets);
  std::size_t row = 0;
  for (const auto& part : data.held_out()) {
    const auto block = data.tokens(part);
    const std::size_t fits = (block.size() - 1) / 100;
    for (std::size_t i = 0; i < fits * 100; ++i) {
      REQUIRE(tokens[row * 100 + i] == block[i]);
      REQUIRE(targets[row * 100 + i] == block[i + 1]);
    }
    row += fits;
  }
  CHECK(row == windows);
  std::vector<std::int32_t> two(200), two_targets(200);
  data.held_out_batch(3, two, two_targets);
  CHECK(std::equal(two.begin(), two.end(), tokens.begin() + 300));
  CHECK_THROWS_WITH(data.held_out_batch(static_cast<std::int64_t>(windows) - 1, two, two_targets),
                    Catch::Contains("there are " + std::to_string(windows)));
}

TEST_CASE("a text shorter than ten windows is refused with the numbers", "[gpt]") {
  const std::string text(1289, 'a');
  const gpt::vocabulary symbols(text, 4);
  CHECK_THROWS_WITH(gpt::corpus(text, symbols, 128),
                    Catch::Contains("1289 characters") && Catch::Contains("1290") && Catch::Contains("--text"));
  CHECK_NOTHROW(gpt::corpus(text + "a", symbols, 128));
  CHECK_THROWS_AS(gpt::corpus(text, symbols, 0), std::invalid_argument);
  CHECK_THROWS_AS(gpt::corpus("", symbols, 1), std::invalid_argument);
}

TEST_CASE("the project's text is its documentation and headers in a fixed order", "[gpt]") {
  const fs::path root = fs::temp_directory_path() / ("espalier-gpt-text-" + std::to_string(::getpid()));
  const auto put = [&](const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name, std::ios::binary) << text;
  };
  put("docs/b.md", "B\n");
  put("docs/a/z.md", "Z");
  put("docs/picture.svg", "no");
  put("include/espalier/x.hpp", "X\n");
  put("include/other/y.hpp", "no");
  put("README.md", "R\n");
  put("src/no.md", "no");
  const gpt::source_text source = gpt::read_project_text(root.string());
  CHECK(source.files == std::vector<std::string>{"README.md", "docs/a/z.md", "docs/b.md", "include/espalier/x.hpp"});
  CHECK(source.text == "R\nZ\nB\nX\n");
  CHECK(gpt::read_text_file((root / "docs/b.md").string()).text == "B\n");
  CHECK_THROWS_WITH(gpt::read_text_file((root / "missing").string()), Catch::Contains("missing"));
  CHECK_THROWS_AS(gpt::read_text_file(root.string()), std::runtime_error);
  CHECK_THROWS_WITH(gpt::read_project_text((root / "src").string()), Catch::Contains("--text"));
  fs::remove_all(root);
}

TEST_CASE("an n-gram model is a distribution after every context", "[gpt]") {
  const std::string text =
      "the cat sat on the mat; the hat that the bat had sat on was flat. " + random_text(300, 5, 4);
  const gpt::vocabulary symbols(text, 40);
  const std::vector<std::int32_t> tokens = symbols.encode(text);
  const std::span<const std::int32_t> all(tokens);
  for (int order = 1; order <= 8; ++order) {
    INFO("order " << order);
    const std::vector<std::span<const std::int32_t>> parts{all.first(100), all.subspan(100, 2), all.subspan(110)};
    const gpt::ngram_model model(40, order, parts);
    std::mt19937 random(9);
    CHECK(sum_after(model, {}) == Approx(1).margin(1e-12));
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<std::int32_t> before;
      const std::size_t length = 1 + random() % 9;
      const std::size_t at = random() % (tokens.size() - length);
      for (std::size_t i = 0; i < length; ++i)
        before.push_back(trial % 2 == 0 ? tokens[at + i] : static_cast<std::int32_t>(random() % 40));
      CHECK(sum_after(model, before) == Approx(1).margin(1e-12));
    }
  }
}

TEST_CASE("degenerate texts still give distributions", "[gpt]") {
  const std::vector<std::int32_t> same(1000, 3);
  const std::vector<std::int32_t> one{1};
  for (const auto& parts :
       {std::vector<std::span<const std::int32_t>>{same}, std::vector<std::span<const std::int32_t>>{one},
        std::vector<std::span<const std::int32_t>>{}}) {
    const gpt::ngram_model model(5, 4, parts);
    CHECK(sum_after(model, {}) == Approx(1));
    CHECK(sum_after(model, {3, 3, 3}) == Approx(1));
    CHECK(sum_after(model, {1, 2}) == Approx(1));
  }
  // The last letter of a stretch begins no longer n-gram, and counts as a letter all the same.
  const std::vector<std::int32_t> pair{0, 1};
  const gpt::ngram_model two(5, 2, std::vector<std::span<const std::int32_t>>{pair});
  CHECK(two.probability({}, 1) == Approx(two.probability({}, 0)));
  CHECK(two.probability({}, 1) > two.probability({}, 2));

  const gpt::ngram_model sure(5, 4, std::vector<std::span<const std::int32_t>>{same});
  CHECK(sure.probability(std::vector<std::int32_t>{3, 3, 3}, 3) > 0.99);
  CHECK_THROWS_WITH(sure.probability(one, 5), Catch::Contains("token 5"));
  CHECK_THROWS_AS(gpt::ngram_model(2, 4, std::vector<std::span<const std::int32_t>>{same}), std::invalid_argument);
  CHECK_THROWS_AS(gpt::ngram_model(5, 9, std::vector<std::span<const std::int32_t>>{same}), std::invalid_argument);
  CHECK_THROWS_AS(sure.cross_entropy(one, same, 1), std::invalid_argument);
}

TEST_CASE("an n-gram model equals a direct computation from the formula", "[gpt]") {
  // Interpolated modified Kneser-Ney of order 3 from maps and the published formula, for full contexts.
  const std::string text = random_text(4000, 11, 5);
  std::string correlated;
  for (std::size_t i = 0; i < text.size(); ++i) correlated += i % 3 == 2 ? correlated[i - 2] : text[i];
  const gpt::vocabulary symbols(correlated, 8);
  const std::vector<std::int32_t> tokens = symbols.encode(correlated);
  const std::vector<std::span<const std::int32_t>> parts{std::span<const std::int32_t>(tokens)};
  const gpt::ngram_model model(8, 3, parts);

  using gram = std::vector<std::int32_t>;
  std::array<std::map<gram, double>, 4> c;
  for (std::size_t i = 0; i + 3 <= tokens.size(); ++i) c[3][{tokens[i], tokens[i + 1], tokens[i + 2]}] += 1;
  for (const auto& entry : c[3]) c[2][{entry.first[1], entry.first[2]}] += 1;
  std::set<gram> pairs;
  for (std::size_t i = 0; i + 2 <= tokens.size(); ++i) pairs.insert({tokens[i], tokens[i + 1]});
  for (const auto& pair : pairs) c[1][{pair[1]}] += 1;
  std::array<std::array<double, 4>, 4> d{};
  for (std::size_t k = 1; k <= 3; ++k) {
    std::array<double, 5> n{};
    for (const auto& [key, count] : c[k])
      if (count < 4.5) n[static_cast<std::size_t>(count)] += 1;
    for (std::size_t r = 1; r <= 3; ++r) {
      const auto x = static_cast<double>(r);
      const bool usable = n[r] > 0 && n[r + 1] > 0;
      const double value = usable ? x - (x + 1) * n[1] / (n[1] + 2 * n[2]) * n[r + 1] / n[r] : -1;
      d[k][r] = value > 0 && value < x ? value : 0.25 + 0.25 * x;
    }
  }
  const std::function<double(gram)> direct = [&](const gram& g) -> double {
    const std::size_t k = g.size();
    double total = 0, freed = 0;
    for (const auto& [key, count] : c[k])
      if (std::equal(g.begin(), g.end() - 1, key.begin())) {
        total += count;
        freed += d[k][static_cast<std::size_t>(std::min(count, 3.0))];
      }
    const double lower = k == 1 ? 1.0 / 8 : direct(gram(g.begin() + 1, g.end()));
    if (total == 0) return lower;
    const double count = c[k].contains(g) ? c[k].at(g) : 0;
    return (count - d[k][static_cast<std::size_t>(std::min(count, 3.0))] + freed * lower) / total;
  };
  for (std::int32_t a = 0; a < 8; ++a)
    for (std::int32_t b = 0; b < 8; ++b)
      for (std::int32_t w = 0; w < 8; ++w) {
        INFO(a << ' ' << b << ' ' << w);
        CHECK(model.probability(gram{a, b}, w) == Approx(direct({a, b, w})).epsilon(1e-12));
      }
}

TEST_CASE("cross entropy approaches the entropy of a known source", "[gpt]") {
  // A Markov chain of order 2 over 6 letters: the last two decide between one likely and five unlikely next ones.
  std::mt19937 random(21);
  const double likely = 0.7;
  const auto preferred = [](std::int64_t before, std::int64_t last) { return (before + 2 * last + 1) % 6; };
  std::string text = "ab";
  while (text.size() < 400'000) {
    const std::int64_t usual = preferred(text[text.size() - 2] - 'a', text.back() - 'a');
    const bool follows = static_cast<double>(random()) < likely * 4294967296.0;
    const std::int64_t other = (usual + 1 + static_cast<std::int64_t>(random() % 5)) % 6;
    text += static_cast<char>('a' + (follows ? usual : other));
  }
  const double entropy = -likely * std::log(likely) - (1 - likely) * std::log((1 - likely) / 5);
  CHECK(entropy == Approx(1.0937).margin(1e-4));

  // The source itself on the same targets: chance favours it and the model alike.
  const gpt::corpus data(text, gpt::vocabulary(text, 16), 64);
  const auto size = static_cast<std::size_t>(data.held_out_windows() * 64);
  std::vector<std::int32_t> tokens(size), targets(size);
  data.held_out_batch(0, tokens, targets);
  double truth = 0;
  for (std::size_t i = 0; i < size; ++i)
    truth -= i % 64 == 0 ? std::log(1.0 / 6)  // one letter alone says nothing about the next
                         : std::log(targets[i] == preferred(tokens[i - 1], tokens[i]) ? likely : (1 - likely) / 5);
  truth /= static_cast<double>(size);
  CHECK(truth == Approx(entropy + (std::log(6.0) - entropy) / 64).margin(0.03));

  const auto loss = [&](int order) { return held_out_loss(data, gpt::ngram_model(16, order, training_parts(data))); };
  CHECK(loss(3) == Approx(truth).margin(0.001));
  CHECK(loss(4) == Approx(truth).margin(0.003));
  CHECK(loss(2) == Approx(std::log(6.0)).margin(0.001));
  CHECK(loss(1) == Approx(std::log(6.0)).margin(0.001));
}

TEST_CASE("cross entropy is the mean over the same windows a GPT sees", "[gpt]") {
  const std::string text = random_text(3000, 2, 3) + std::string(500, 'c') + random_text(3000, 4, 3);
  const gpt::corpus data(text, gpt::vocabulary(text, 5), 10);
  const gpt::ngram_model model(5, 4, training_parts(data));
  const auto windows = static_cast<std::size_t>(data.held_out_windows());
  std::vector<std::int32_t> tokens(windows * 10), targets(windows * 10);
  data.held_out_batch(0, tokens, targets);
  double sum = 0;
  for (std::size_t w = 0; w < windows; ++w)
    for (std::size_t t = 0; t < 10; ++t)
      sum -= std::log(
          model.probability(std::span<const std::int32_t>(tokens).subspan(w * 10, t + 1), targets[w * 10 + t]));
  CHECK(held_out_loss(data, model) == Approx(sum / static_cast<double>(windows * 10)).epsilon(1e-12));
}

TEST_CASE("training goes on from the step that the checkpoint and its optimizer agree on", "[gpt]") {
  const fs::path file = fs::temp_directory_path() / ("espalier-gpt-step-" + std::to_string(::getpid()));
  const auto done = [&](const espalier::io::metadata_map& notes, float counted, std::int64_t steps) {
    espalier::io::safetensors_writer writer(file, {{"step", espalier::dtype::f32, {}}}, notes);
    writer.write("step", &counted);
    writer.commit();
    return gpt::steps_done(espalier::io::safetensors_reader(file), steps);
  };
  using espalier::io::checkpoint_error;
  CHECK(done({{"gpt.step", "0"}}, 0, 10) == 0);
  CHECK(done({{"gpt.step", "10"}}, 10, 10) == 10);
  CHECK(done({{"gpt.step", "20000001"}}, 16777216, 30000000) == 20000001);
  CHECK_THROWS_WITH(done({}, 3, 10), Catch::Contains("no gpt.step"));
  for (const std::string text : {"", "x", "-1", "3x", " 3", "3.0", "99999999999999999999"}) {
    CHECK_THROWS_WITH(done({{"gpt.step", text}}, 3, 10), Catch::Contains("gpt.step is \"" + text + '"'));
  }
  CHECK_THROWS_WITH(done({{"gpt.step", "4"}}, 3, 10), Catch::Contains("\"4\", but the optimizer has counted 3"));
  CHECK_THROWS_AS(done({{"gpt.step", "3"}}, std::nanf(""), 10), checkpoint_error);
  CHECK_THROWS_AS(done({{"gpt.step", "20000001"}}, 3, 30000000), checkpoint_error);
  CHECK_THROWS_WITH(done({{"gpt.step", "11"}}, 11, 10), Catch::Contains("--steps 11"));
  fs::remove(file);
}

TEST_CASE("losses that cannot be written are told, at once or at the end", "[gpt]") {
  const fs::path file = fs::temp_directory_path() / ("espalier-gpt-losses-" + std::to_string(::getpid()));
  {
    gpt::loss_file losses(file.string());
    losses.add(1, 0.1);
    losses.add(2, 3);
    std::ifstream written(file);  // before the end
    const std::string text{std::istreambuf_iterator<char>(written), {}};
    CHECK(text == "step,loss\n1,0.10000000000000001\n2,3\n");
    losses.finish();
  }
  CHECK_THROWS_WITH(gpt::loss_file((file / "x").string()), Catch::Contains("--losses"));
  if (fs::exists("/dev/full")) CHECK_THROWS_WITH(gpt::loss_file("/dev/full"), Catch::Contains("/dev/full"));

  // A disk that is full after 20 bytes.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  rlimit small = limit;
  small.rlim_cur = 20;
  gpt::loss_file losses(file.string());
  ::setrlimit(RLIMIT_FSIZE, &small);
  for (int step = 1; step < 6; ++step) losses.add(step, 2.5);
  std::string text;
  try {
    losses.finish();
  } catch (const std::runtime_error& error) { text = error.what(); }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  CHECK_THAT(text, Catch::Contains(file.string()) && Catch::Contains("after step 1"));
  fs::remove(file);
}
