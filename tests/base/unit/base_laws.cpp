// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/base/json.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/place_in.hpp>
#include <espalier/base/light_std/sort_few.hpp>
#include <espalier/base/table.hpp>
#include <espalier/base/xml_text.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The laws that comments state as @post: each test has the name of the function and the law, as they stand there.

namespace {

using namespace espalier::detail;

std::vector<int> random_list(std::mt19937& random, unsigned most_elements, unsigned numbers) {
  std::vector<int> list(random() % (most_elements + 1));
  for (int& one : list) one = static_cast<int>(random() % numbers);
  return list;
}

/// Any bytes, with those often that have a meaning in JSON, XML or UTF-8.
std::string random_text(std::mt19937& random) {
  constexpr std::string_view special = "\"\\/<>&u{}\n\t\x01\x1f\x7f\xc3\xa9";
  std::string text;
  for (auto left = random() % 20; left > 0; --left) {
    text += random() % 2 == 0 ? special[random() % special.size()] : static_cast<char>(random() % 256);
  }
  return text;
}

std::runtime_error json_error(const json_place& /*at*/, const std::string& found, const std::string& expected) {
  return std::runtime_error("found " + found + ", expected " + expected);
}

}  // namespace

TEST_CASE("place_in: it is the least k with list[k] == number, or -1 if there is none", "[law]") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<int> list = random_list(random, 12, 10);
    for (int number = -1; number <= 10; ++number) {
      const int k = place_in(list, number);
      const auto before = list.begin() + (k < 0 ? static_cast<std::ptrdiff_t>(list.size()) : k);
      REQUIRE(std::count(list.begin(), before, number) == 0);
      if (k >= 0) REQUIRE(list.at(static_cast<std::size_t>(k)) == number);
    }
  }
}

TEST_CASE("sort_few: the list has the same elements, ascending, equal ones in their order", "[law]") {
  std::mt19937 random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::pair<int, int>> list;
    for (const int key : random_list(random, 12, 6)) list.emplace_back(key, static_cast<int>(list.size()));
    std::vector<std::pair<int, int>> sorted = list;
    sort_few(sorted, [](const auto& a, const auto& b) { return a.first < b.first; });
    std::sort(list.begin(), list.end());  // by key, then by place
    REQUIRE(sorted == list);
  }
}

TEST_CASE("joined: joined({a, n, b}) == a + std::to_string(n) + b", "[law]") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::string a = random_text(random);
    const std::string b = random_text(random);
    const auto n = static_cast<std::int32_t>(random());
    REQUIRE(joined({a, n, b}) == a + std::to_string(n) + b);
  }
}

TEST_CASE("json_string: json_reader reads the same text back", "[law]") {
  std::mt19937 random(4);
  for (int trial = 0; trial < 5000; ++trial) {
    const std::string text = random_text(random);
    const std::string written = json_string(text);
    json_reader reader(written, json_error);
    REQUIRE(reader.string() == text);
    REQUIRE(reader.at_end());
  }
}

TEST_CASE("json_number: json_reader reads the same number back, if it is finite", "[law]") {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 20000; ++trial) {
    const auto value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const std::string written = json_number(value);
    json_reader reader(written, json_error);
    REQUIRE(std::bit_cast<std::uint64_t>(reader.number()) == std::bit_cast<std::uint64_t>(value));
    REQUIRE(reader.at_end());
  }
}

TEST_CASE("xml_text: no <, > or \" is left, and named characters read back are the text", "[law]") {
  std::mt19937 random(6);
  for (int trial = 0; trial < 5000; ++trial) {
    const std::string text = random_text(random);
    std::string rest = xml_text(text);
    REQUIRE(rest.find_first_of("<>\"") == std::string::npos);
    std::string read;
    while (!rest.empty()) {
      std::size_t length = 1;
      char c = rest[0];
      if (c == '&') {
        length = rest.find(';') + 1;
        REQUIRE(length > 0);
        const std::string name = rest.substr(0, length);
        c = name == "&lt;" ? '<' : name == "&gt;" ? '>' : name == "&quot;" ? '"' : '&';
        REQUIRE((c != '&' || name == "&amp;"));
      }
      read += c;
      rest.erase(0, length);
    }
    REQUIRE(read == text);
  }
}

TEST_CASE("format_count: without its commas it is std::to_string(value), and three digits follow each comma", "[law]") {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> values{0, std::numeric_limits<std::int64_t>::min(),
                                   std::numeric_limits<std::int64_t>::max()};
  for (int trial = 0; trial < 5000; ++trial)
    values.push_back(static_cast<std::int64_t>(random()) >> static_cast<int>(random() % 64));
  for (const std::int64_t value : values) {
    const std::string text = espalier::report::format_count(value);
    std::string digits;
    for (std::size_t n = 0; n < text.size(); ++n) {
      const bool has_comma = (text.size() - n) % 4 == 0 && n > (value < 0 ? 1U : 0U);
      REQUIRE((text[n] == ',') == has_comma);
      if (!has_comma) digits += text[n];
    }
    REQUIRE(digits == std::to_string(value));
  }
}
