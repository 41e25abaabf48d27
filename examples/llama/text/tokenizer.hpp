// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../json.hpp"
#include "pattern.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace llama {

/// A byte-level BPE tokenizer (Sennrich et al., arXiv 1508.07909, on bytes as in GPT-2), read from `tokenizer.json`.
class tokenizer {
 public:
  /// Errors: `checkpoint_error` if the file is damaged, or of another kind of tokenizer.
  explicit tokenizer(const std::filesystem::path& folder) {
    const json file = json::read(folder / "tokenizer.json");
    spell_bytes();
    const json& model = file.at("model");
    if (const std::string kind = model.string_or("type", "BPE"); kind != "BPE") {
      throw model.fail("a tokenizer of kind " + kind, "BPE");
    }
    if (model.boolean_or("byte_fallback", false)) throw model.fail("\"byte_fallback\": true", "byte-level BPE");
    ignore_merges_ = model.boolean_or("ignore_merges", false);
    for (const auto& [token, id] : model.at("vocab").members()) add(token, id.integer());
    std::int32_t rank = 0;
    for (const json& merge : model.at("merges").elements()) {
      // "left right", and in newer files ["left", "right"].
      std::string left;
      std::string right;
      if (merge.is_string()) {
        const std::string& both = merge.string();
        left = both.substr(0, both.find(' '));
        right = both.substr(left.size() + 1);
      } else {
        left = merge.elements().at(0).string();
        right = merge.elements().at(1).string();
      }
      const auto a = ids_.find(left);
      const auto b = ids_.find(right);
      const auto both = ids_.find(left + right);
      if (a == ids_.end() || b == ids_.end() || both == ids_.end()) {
        throw merge.fail("a merge of " + left + " and " + right, "tokens of the vocabulary");
      }
      merges_.emplace(pair_key(a->second, b->second), std::pair(rank++, both->second));
    }
    if (const json* added = file.find("added_tokens")) {
      for (const json& one : added->elements()) {
        const std::int32_t id = one.at("id").integer();
        add(one.at("content").string(), id);
        added_.emplace_back(one.at("content").string(), id);
        plain_[static_cast<std::size_t>(id)] = true;
        special_[static_cast<std::size_t>(id)] = one.boolean_or("special", false);
      }
    }
    if (const json* found = file.find("normalizer")) throw found->fail("a normalizer", "none");
    if (const json* found = file.find("pre_tokenizer")) read_splits(*found);
    if (const json* found = file.find("post_processor")) read_template(*found);
  }

  /// The tokens of a text, with those that the model wants before and after it.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> out = before_;
    while (!text.empty()) {
      // The next added token, of those that start there the longest.
      std::size_t begin = text.size();
      const std::pair<std::string, std::int32_t>* next = nullptr;
      for (const auto& one : added_) {
        const std::size_t at = text.find(one.first);
        if (at == std::string_view::npos) continue;
        if (next == nullptr || at < begin || (at == begin && one.first.size() > next->first.size())) {
          begin = at;
          next = &one;
        }
      }
      encode_plain(text.substr(0, begin), out);
      if (next == nullptr) break;
      out.push_back(next->second);
      text.remove_prefix(begin + next->first.size());
    }
    out.insert(out.end(), behind_.begin(), behind_.end());
    return out;
  }

  /// The bytes that tokens stand for; special ones stand for none. (A character may be spread over several tokens.)
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const {
    std::string out;
    for (const std::int32_t id : tokens) {
      const auto at = static_cast<std::size_t>(id);
      if (id < 0 || at >= tokens_.size() || special_[at]) continue;
      if (plain_[at]) {
        out += tokens_[at];
        continue;
      }
      for (const char32_t c : code_points(tokens_[at])) {
        const auto byte = bytes_.find(c);
        if (byte != bytes_.end()) out += byte->second;
      }
    }
    return out;
  }

 private:
  static std::uint64_t pair_key(std::int32_t a, std::int32_t b) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32U | static_cast<std::uint32_t>(b);
  }

  /// GPT-2's alphabet: printable bytes of Latin-1 are their own characters, the others follow from U+0100 on.
  void spell_bytes() {
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
      spelled_[byte] = utf8(std::u32string_view(&c, 1));
      bytes_.emplace(c, static_cast<char>(byte));
    }
  }

  void add(const std::string& token, std::int32_t id) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= tokens_.size()) {
      tokens_.resize(at + 1);
      plain_.resize(at + 1);
      special_.resize(at + 1);
    }
    tokens_[at] = token;
    ids_[token] = id;
  }

  void read_splits(const json& rule) {
    const std::string kind = rule.at("type").string();
    if (kind == "Sequence") {
      for (const json& one : rule.at("pretokenizers").elements()) read_splits(one);
    } else if (kind == "Split") {
      if (const std::string how = rule.at("behavior").string(); how != "Isolated" || rule.boolean_or("invert", false)) {
        throw rule.fail("a split that is " + how, "Isolated");
      }
      add_split(rule, rule.at("pattern").at("Regex").string());
    } else if (kind == "ByteLevel") {
      if (rule.boolean_or("add_prefix_space", false)) throw rule.fail("\"add_prefix_space\": true", "false");
      if (rule.boolean_or("use_regex", true)) {
        add_split(rule, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
      }
    } else {
      throw rule.fail("text split by " + kind, "Split or ByteLevel");
    }
  }
  void add_split(const json& rule, const std::string& text) {
    try {
      splits_.emplace_back(text);
    } catch (const pattern_error& mistake) { throw rule.fail(mistake.what(), "a simpler pattern"); }
  }

  void read_template(const json& rule) {
    const std::string kind = rule.at("type").string();
    if (kind == "Sequence") {
      for (const json& one : rule.at("processors").elements()) read_template(one);
    } else if (kind == "TemplateProcessing") {
      bool is_behind = false;
      for (const json& one : rule.at("single").elements()) {
        if (one.find("Sequence") != nullptr) {
          is_behind = true;
          continue;
        }
        const std::string name = one.at("SpecialToken").at("id").string();
        for (const json& id : rule.at("special_tokens").at(name).at("ids").elements()) {
          (is_behind ? behind_ : before_).push_back(id.integer());
        }
      }
    } else if (kind != "ByteLevel") {
      throw rule.fail("a post-processor " + kind, "TemplateProcessing or ByteLevel");
    }
  }

  void encode_plain(std::string_view text, std::vector<std::int32_t>& out) const {
    std::vector<std::u32string> words;
    if (!text.empty()) words.push_back(code_points(text));
    for (const pattern& split : splits_) {
      std::vector<std::u32string> parts;
      for (const std::u32string& word : words) {
        std::size_t begin = 0;  // of what lies between matches
        for (std::size_t at = 0; at < word.size();) {
          const std::size_t end = split.match(word, at);
          if (end == at) {
            ++at;
            continue;
          }
          if (at > begin) parts.push_back(word.substr(begin, at - begin));
          parts.push_back(word.substr(at, end - at));
          begin = at = end;
        }
        if (begin < word.size()) parts.push_back(word.substr(begin));
      }
      words = std::move(parts);
    }
    for (const std::u32string& word : words) encode_word(utf8(word), out);
  }

  void encode_word(const std::string& bytes, std::vector<std::int32_t>& out) const {
    std::string spelled;
    for (const char c : bytes) spelled += spelled_[static_cast<unsigned char>(c)];
    if (ignore_merges_) {
      if (const auto whole = ids_.find(spelled); whole != ids_.end()) {
        out.push_back(whole->second);
        return;
      }
    }
    std::vector<std::int32_t> parts;
    for (const char c : bytes) {
      const auto id = ids_.find(spelled_[static_cast<unsigned char>(c)]);
      if (id != ids_.end()) parts.push_back(id->second);
    }
    // The pair that was merged first in training is merged first, wherever it stands.
    while (parts.size() > 1) {
      std::size_t best = parts.size();
      std::pair<std::int32_t, std::int32_t> merge{};
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = merges_.find(pair_key(parts[i], parts[i + 1]));
        if (found == merges_.end() || (best < parts.size() && found->second.first >= merge.first)) continue;
        best = i;
        merge = found->second;
      }
      if (best == parts.size()) break;
      parts[best] = merge.second;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    out.insert(out.end(), parts.begin(), parts.end());
  }

  std::array<std::string, 256> spelled_;
  std::unordered_map<char32_t, char> bytes_;
  std::vector<std::string> tokens_;
  std::vector<bool> plain_;    ///< written as it is, not in the alphabet of bytes
  std::vector<bool> special_;  ///< means something else than text
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::uint64_t, std::pair<std::int32_t, std::int32_t>> merges_;  // rank, merged
  std::vector<std::pair<std::string, std::int32_t>> added_;
  std::vector<pattern> splits_;
  std::vector<std::int32_t> before_;
  std::vector<std::int32_t> behind_;
  bool ignore_merges_ = false;
};

}  // namespace llama
