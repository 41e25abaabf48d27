// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/read_file.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt {

/// A text to train on and the files it came from.
struct source_text {
  std::string text;
  std::vector<std::string> files;
};

/// Reads one file. Throws `std::runtime_error` when it cannot be read or is empty.
[[nodiscard]] inline source_text read_text_file(const std::string& path) {
  espalier::detail::file_text file = espalier::detail::read_file(path);
  if (!file.failure.empty())
    throw std::runtime_error("cannot read the text " + path + ": " + file.failure + "; give the path of a file");
  if (file.text.empty()) throw std::runtime_error("the text " + path + " is empty: give another with --text");
  return {std::move(file.text), {path}};
}

/// Reads the project's own documentation and headers: docs/**/*.md, README.md and include/espalier/**/*.hpp below
/// `source_root`, in the order of their relative paths. Throws `std::runtime_error` when there are none.
[[nodiscard]] inline source_text read_project_text(const std::string& source_root) {
  namespace fs = std::filesystem;
  const fs::path root(source_root);
  source_text source;
  const auto collect = [&](const fs::path& folder, std::string_view extension) {
    if (!fs::is_directory(root / folder)) return;
    for (const fs::directory_entry& at : fs::recursive_directory_iterator(root / folder))
      if (at.path().extension() == extension && at.is_regular_file())
        source.files.push_back(at.path().lexically_relative(root).generic_string());
  };
  collect("docs", ".md");
  collect(fs::path("include") / "espalier", ".hpp");
  if (fs::is_regular_file(root / "README.md")) source.files.emplace_back("README.md");
  // A directory's own order depends on the file system; the text must not.
  std::sort(source.files.begin(), source.files.end());
  for (const std::string& name : source.files) {
    source.text += espalier::detail::read_file(root / name).text;
    if (!source.text.empty() && source.text.back() != '\n') source.text += '\n';
  }
  if (source.text.empty())
    throw std::runtime_error("no documentation or headers below " + source_root +
                             ": give the project's root with --root, or a text with --text FILE");
  return source;
}

/// Bytes as small numbers: the distinct bytes of a text in ascending order are 0, 1, 2, ..., and the last number,
/// `capacity - 1`, stands for any other byte.
class vocabulary {
 public:
  /// `capacity` is the model's (compile-time) vocabulary size, 2 to 256. A text with more than `capacity - 1` distinct
  /// bytes keeps the most frequent; what that loses is in `dropped_bytes` and `dropped_characters`.
  vocabulary(std::string_view text, int capacity) : capacity_(capacity) {
    if (capacity < 2 || capacity > 256)
      throw std::invalid_argument("a vocabulary of " + std::to_string(capacity) + " symbols: choose 2 to 256");
    std::array<std::int64_t, 256> counts{};
    for (const char c : text) ++counts[static_cast<unsigned char>(c)];
    std::vector<int> bytes;
    for (int b = 0; b < 256; ++b)
      if (counts[static_cast<std::size_t>(b)] > 0) bytes.push_back(b);
    const auto room = static_cast<std::size_t>(capacity - 1);
    if (bytes.size() > room) {
      std::sort(bytes.begin(), bytes.end(), [&](int a, int b) {
        const std::int64_t more = counts[static_cast<std::size_t>(a)] - counts[static_cast<std::size_t>(b)];
        return more != 0 ? more > 0 : a < b;
      });
      for (std::size_t i = room; i < bytes.size(); ++i)
        dropped_characters_ += counts[static_cast<std::size_t>(bytes[i])];
      dropped_bytes_ = static_cast<int>(bytes.size() - room);
      bytes.resize(room);
      std::sort(bytes.begin(), bytes.end());
    }
    ids_.fill(unknown());
    for (const int b : bytes) {
      ids_[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(bytes_.size());
      bytes_ += static_cast<char>(static_cast<unsigned char>(b));
    }
  }

  [[nodiscard]] int capacity() const { return capacity_; }
  /// Distinct bytes with a number of their own.
  [[nodiscard]] int size() const { return static_cast<int>(bytes_.size()); }
  /// Distinct bytes of the text that had to share the unknown symbol.
  [[nodiscard]] int dropped_bytes() const { return dropped_bytes_; }
  /// How often they occur in the text.
  [[nodiscard]] std::int64_t dropped_characters() const { return dropped_characters_; }
  [[nodiscard]] std::int32_t unknown() const { return capacity_ - 1; }

  [[nodiscard]] std::int32_t encode(char c) const { return ids_[static_cast<unsigned char>(c)]; }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(encode(c));
    return ids;
  }
  /// '?' for the unknown symbol and for numbers without a byte.
  [[nodiscard]] char decode(std::int32_t id) const {
    return id >= 0 && id < size() ? bytes_[static_cast<std::size_t>(id)] : '?';
  }
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const std::int32_t id : ids) text += decode(id);
    return text;
  }

 private:
  int capacity_;
  std::array<std::int32_t, 256> ids_{};
  std::string bytes_;
  int dropped_bytes_ = 0;
  std::int64_t dropped_characters_ = 0;
};

/// A stretch [begin, end) of the text.
struct stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

/// A text as numbers, divided for good into a training and a held-out part, and windows of `context + 1` characters
/// (`context` inputs, and as targets the same shifted by one) from either part.
///
/// The text is cut into equal periods, and the last tenth of each period is held out, so both parts are the same mix of
/// files. A held-out block is about 4,096 characters, and never shorter than a window. Windows lie within one block:
/// none sees both parts. What training reads depends on seed, step and row only: the same on any number of ranks.
class corpus {
 public:
  /// Throws `std::invalid_argument` when the text is too short for ten windows.
  corpus(std::string_view text, const vocabulary& symbols, std::int64_t context)
      : tokens_(symbols.encode(text)), context_(context) {
    const auto length = static_cast<std::int64_t>(tokens_.size());
    const std::int64_t window = context + 1;
    if (context < 1) throw std::invalid_argument("a context of " + std::to_string(context) + ": at least 1 character");
    if (length / 10 < window)
      throw std::invalid_argument("the text has " + std::to_string(length) + " characters, but a context of " +
                                  std::to_string(context) + " needs at least " + std::to_string(10 * window) +
                                  ", so that a tenth of it holds one held-out window: give a longer text with --text "
                                  "FILE, or choose a shorter context");
    const std::int64_t periods = std::max<std::int64_t>(1, length / 10 / std::max<std::int64_t>(4096, window));
    std::int64_t begin = 0;
    std::int64_t starts = 0;
    for (std::int64_t p = 0; p < periods; ++p) {
      const std::int64_t end = length * (p + 1) / periods;
      const std::int64_t cut = end - (end - begin) / 10;
      training_.push_back({begin, cut});
      held_out_.push_back({cut, end});
      starts += cut - begin - context;
      starts_before_end_.push_back(starts);
      // Each held-out target is asked for once: a window's last target is the next window's first input.
      for (std::int64_t at = cut; at + window <= end; at += context) windows_.push_back(at);
      begin = end;
    }
  }

  [[nodiscard]] std::int64_t context() const { return context_; }
  [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const stretch> training() const { return training_; }
  [[nodiscard]] std::span<const stretch> held_out() const { return held_out_; }
  /// The characters of a stretch.
  [[nodiscard]] std::span<const std::int32_t> tokens(const stretch& part) const {
    return tokens().subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.size()));
  }
  [[nodiscard]] std::int64_t training_characters() const { return total(training_); }
  [[nodiscard]] std::int64_t held_out_characters() const { return total(held_out_); }

  /// Returns where the training window of global row `row` in step `step` begins: uniform over the training part's
  /// windows.
  [[nodiscard]] std::int64_t training_window(std::uint64_t seed, std::int64_t step, std::int64_t row) const {
    const std::uint64_t draw = mix(mix(mix(seed) + static_cast<std::uint64_t>(step)) + static_cast<std::uint64_t>(row));
    // The remainder's bias is below 2^-30 for any text that fits in memory here.
    const auto index = static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(starts_before_end_.back()));
    const auto at = std::upper_bound(starts_before_end_.begin(), starts_before_end_.end(), index);
    const auto block = static_cast<std::size_t>(at - starts_before_end_.begin());
    return training_[block].begin + index - (block == 0 ? 0 : starts_before_end_[block - 1]);
  }

  /// Fills rows [first_row, first_row + rows) of a step's global batch, where rows = tokens.size() / context.
  ///
  /// `tokens` and `targets`: i32[rows, context], row-major. A rank that holds part of the batch asks for its rows only.
  void training_batch(std::uint64_t seed, std::int64_t step, std::int64_t first_row, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const {
    const std::int64_t rows = rows_of(tokens, targets);
    for (std::int64_t r = 0; r < rows; ++r) copy(training_window(seed, step, first_row + r), r, tokens, targets);
  }

  /// The held-out windows: a fixed list, the same for every model.
  [[nodiscard]] std::int64_t held_out_windows() const { return static_cast<std::int64_t>(windows_.size()); }
  /// Returns where window `index` of the list begins. @pre 0 <= index < held_out_windows()
  [[nodiscard]] std::int64_t held_out_window(std::int64_t index) const {
    return windows_[static_cast<std::size_t>(index)];
  }

  /// Fills windows [first_window, first_window + rows) of the list; shapes as in `training_batch`.
  void held_out_batch(std::int64_t first_window, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const {
    const std::int64_t rows = rows_of(tokens, targets);
    if (first_window < 0 || rows > held_out_windows() - first_window)
      throw std::invalid_argument("held-out windows " + std::to_string(first_window) + " to " +
                                  std::to_string(first_window + rows) + ", but there are " +
                                  std::to_string(held_out_windows()) + ": evaluate fewer rows");
    for (std::int64_t r = 0; r < rows; ++r)
      copy(windows_[static_cast<std::size_t>(first_window + r)], r, tokens, targets);
  }

 private:
  // One round of SplitMix64: a counter in, an independent-looking number out, no state.
  [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31U);
  }

  [[nodiscard]] static std::int64_t total(std::span<const stretch> parts) {
    std::int64_t sum = 0;
    for (const stretch& part : parts) sum += part.size();
    return sum;
  }

  [[nodiscard]] std::int64_t rows_of(std::span<const std::int32_t> tokens,
                                     std::span<const std::int32_t> targets) const {
    const auto size = static_cast<std::int64_t>(tokens.size());
    if (tokens.size() != targets.size() || size % context_ != 0)
      throw std::invalid_argument("a batch of " + std::to_string(tokens.size()) + " tokens and " +
                                  std::to_string(targets.size()) + " targets: both must be rows of " +
                                  std::to_string(context_) + " characters");
    return size / context_;
  }

  void copy(std::int64_t begin, std::int64_t row, std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const {
    const auto from = tokens_.begin() + begin;
    std::copy_n(from, context_, tokens.begin() + row * context_);
    std::copy_n(from + 1, context_, targets.begin() + row * context_);
  }

  std::vector<std::int32_t> tokens_;
  std::int64_t context_;
  std::vector<stretch> training_;
  std::vector<stretch> held_out_;
  std::vector<std::int64_t> starts_before_end_;  // training windows in this block and all before
  std::vector<std::int64_t> windows_;            // where the held-out windows begin
};

}  // namespace gpt
