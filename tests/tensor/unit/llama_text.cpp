// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// together: rules

#include <llama/text/tokenizer.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// The tokenizer of examples/llama, against what the `tokenizers` of Hugging Face made of the same texts (written by
// benchmarks/peers/llama/write_checkpoints.py), and its patterns by themselves.

namespace {

std::filesystem::path data(const char* model) {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "data" / "llama" / model;
}

/// The first match of a pattern in a text, from each place on: "ab|c|" for matches "ab", "c" and an empty one.
std::string matches(std::string_view pattern, std::u32string_view text) {
  const llama::pattern made(pattern);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = made.match(text, at);
    out += llama::utf8(text.substr(at, end - at)) + '|';
    at = end > at ? end : at + 1;
  }
  return out;
}

}  // namespace

TEST_CASE("texts become the tokens that tokenizers gives", "[llama]") {
  for (const char* model : {"llama", "gpt2"}) {
    const llama::tokenizer words(data(model));
    const llama::json expected = llama::json::read(data(model) / "expected.json");
    REQUIRE(expected.at("texts").elements().size() >= 8);
    for (const llama::json& one : expected.at("texts").elements()) {
      const std::string text = one.elements().at(0).string();
      std::vector<std::int32_t> tokens;
      for (const llama::json& id : one.elements().at(1).elements()) tokens.push_back(id.integer());
      INFO(model << ": " << text);
      CHECK(words.encode(text) == tokens);
      // Every byte has a token, so nothing is lost but what is special.
      if (text.find("<|") == std::string::npos) CHECK(words.decode(tokens) == text);
    }
  }
}

TEST_CASE("bytes that are no UTF-8 have tokens too", "[llama]") {
  const llama::tokenizer words(data("gpt2"));
  CHECK(words.decode(words.encode("a\xff\xe6\x9d")) == "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("patterns take what is longest first, and the first alternative that fits", "[llama]") {
  CHECK(matches("a+|b", U"aabxb") == "aa|b||b|");
  CHECK(matches("a|ab", U"ab") == "a||");
  CHECK(matches("(?:ab)+a?", U"ababab") == "ababab|");
  CHECK(matches("(?i:'re)", U"'RE're") == "'RE|'re|");
  CHECK(matches("x{2,3}", U"xxxxx") == "xxx|xx|");
  CHECK(matches("x{2}", U"xxx") == "xx||");
  CHECK(matches("[^a-c\\n]+", U"xyabz\n") == "xy|||z||");
  CHECK(matches("[a-c]+", U"cab-d") == "cab|||");
  // It takes as much space as there is, but for the last, if a word follows.
  CHECK(matches("\\s+(?!\\S)|\\s", U"   w") == "  | ||");
  CHECK(matches("a(?=b)", U"abac") == "a||||");
  CHECK(matches("\\p{L}+|\\p{N}", U"éß東x²7") == "éß東x|²|7|");
  // Back from what was taken first.
  CHECK(matches("a*ab", U"aaab") == "aaab|");
  CHECK(matches("(?:a|ab)(?:c|bcd)", U"abcd") == "abcd|");
}

TEST_CASE("a pattern of another kind is refused", "[llama]") {
  for (const char* text : {"a+?", "a++", "(?<=a)b", "[a", "(a", "a)", "\\w", "\\p{Lu}", "a{,2}", ".", "^a", "*"}) {
    INFO(text);
    CHECK_THROWS_AS(llama::pattern(text), llama::pattern_error);
  }
}
