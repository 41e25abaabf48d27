// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt {

/// The model that a GPT has to beat: a character n-gram model with interpolated modified Kneser-Ney smoothing.
///
/// Chen and Goodman, "An empirical study of smoothing techniques for language modeling" (TR-10-98), section 4.1.6: each
/// order subtracts one of three discounts, estimated from the training text, from its counts and gives the freed mass
/// to the next lower order, whose counts are those of distinct contexts; the lowest order gives its own to the uniform
/// distribution. Where fewer characters precede than the order asks for, a model of that shorter order answers.
class ngram_model {
 public:
  /// Fits on stretches of training text; no n-gram crosses from one to another.
  ///
  /// `symbols`: size of the vocabulary, 2 to 256; `order`: characters including the predicted one, 1 to 8.
  /// Throws `std::invalid_argument` for other values and for tokens outside the vocabulary.
  ngram_model(int symbols, int order, std::span<const std::span<const std::int32_t>> training)
      : symbols_(symbols), order_(order) {
    if (symbols < 2 || symbols > 256 || order < 1 || order > 8)
      throw std::invalid_argument("an n-gram model of order " + std::to_string(order) + " over " +
                                  std::to_string(symbols) + " symbols: order 1 to 8, symbols 2 to 256");
    for (const auto part : training)
      for (const std::int32_t token : part) check(token);
    std::vector<entry> grams = count(training, order);
    for (int k = order; k >= 1; --k) {
      tables_[index(k)].complete = table(grams);
      if (k == 1) break;
      // A shorter n-gram continues as many contexts as there are distinct longer ones that end in it.
      std::vector<entry> endings;
      endings.reserve(grams.size());
      for (const entry& gram : grams) endings.push_back({gram.key & mask(k - 1), 1});
      tables_[index(k - 1)].continuations = table(merge(std::move(endings)));
      // It occurs once as the beginning of each longer one, and once more at the end of each stretch.
      for (entry& gram : grams) gram.key >>= 8U;
      for (const auto part : training)
        if (part.size() >= static_cast<std::size_t>(k - 1))
          grams.push_back({key_of(part.last(static_cast<std::size_t>(k - 1))), 1});
      grams = merge(std::move(grams));
    }
  }

  [[nodiscard]] int symbols() const { return symbols_; }
  [[nodiscard]] int order() const { return order_; }

  /// The probability of `next` after `before`, of which the last `order - 1` characters count. Never 0; the
  /// probabilities of all symbols sum to 1.
  [[nodiscard]] double probability(std::span<const std::int32_t> before, std::int32_t next) const {
    check(next);
    const std::size_t used = std::min(before.size(), static_cast<std::size_t>(order_ - 1));
    const auto context = before.last(used);
    for (const std::int32_t token : context) check(token);
    return probability(key_of(context), static_cast<int>(used), static_cast<std::uint64_t>(next));
  }

  /// Mean negative log-probability of the targets, in nats per character.
  ///
  /// `tokens` and `targets`: i32[windows, context], row-major, as a GPT is evaluated on them: target t of a window is
  /// predicted from its tokens 0 to t, and from nothing outside the window.
  [[nodiscard]] double cross_entropy(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                                     std::int64_t context) const {
    if (tokens.size() != targets.size() || tokens.empty() || context < 1 ||
        tokens.size() % static_cast<std::size_t>(context) != 0)
      throw std::invalid_argument(std::to_string(tokens.size()) + " tokens and " + std::to_string(targets.size()) +
                                  " targets: both must be rows of " + std::to_string(context) + " characters");
    double sum = 0;
    const auto width = static_cast<std::size_t>(context);
    for (std::size_t row = 0; row < tokens.size(); row += width) {
      std::uint64_t key = 0;
      for (std::size_t t = 0; t < width; ++t) {
        check(tokens[row + t]);
        check(targets[row + t]);
        const int used = std::min(static_cast<int>(t) + 1, order_ - 1);
        key = (key << 8U | static_cast<std::uint64_t>(tokens[row + t])) & mask(used);
        sum -= std::log(probability(key, used, static_cast<std::uint64_t>(targets[row + t])));
      }
    }
    return sum / static_cast<double>(tokens.size());
  }

 private:
  /// An n-gram, one byte a character with the last in the lowest byte, and how often it occurs.
  struct entry {
    std::uint64_t key;
    std::uint64_t count;
  };
  /// A context: its n-grams in `table::grams`, their total count, and the mass that discounting frees.
  struct context_entry {
    std::uint64_t key;
    std::size_t begin;
    std::size_t end;
    double total;
    double freed;
  };

  /// The n-grams of one order, sorted, with discounts.
  struct table {
    std::vector<entry> grams;
    std::vector<context_entry> contexts;
    std::array<double, 4> discount{};  // of the counts 0, 1, 2, and 3 or more

    table() = default;
    explicit table(std::vector<entry> sorted) : grams(std::move(sorted)) {
      estimate_discounts();
      for (std::size_t i = 0; i < grams.size();) {
        context_entry context{grams[i].key >> 8U, i, i, 0, 0};
        for (; i < grams.size() && grams[i].key >> 8U == context.key; ++i) {
          context.total += static_cast<double>(grams[i].count);
          context.freed += discount_of(grams[i].count);
        }
        context.end = i;
        contexts.push_back(context);
      }
    }

    [[nodiscard]] double discount_of(std::uint64_t count) const {
      return discount[static_cast<std::size_t>(std::min<std::uint64_t>(count, 3))];
    }

    // Chen and Goodman's estimates; a text too small or too regular for them gets values that work for any text.
    void estimate_discounts() {
      std::array<double, 5> n{};
      for (const entry& gram : grams)
        if (gram.count <= 4) n[static_cast<std::size_t>(gram.count)] += 1;
      const double y = n[1] + n[2] > 0 ? n[1] / (n[1] + 2 * n[2]) : 0;
      for (std::size_t c = 1; c <= 3; ++c) {
        const auto whole = static_cast<double>(c);
        const double estimate = n[c] > 0 ? whole - (whole + 1) * y * n[c + 1] / n[c] : 0;
        const double usual = 0.25 + 0.25 * whole;
        discount[c] = n[c] > 0 && n[c + 1] > 0 && estimate > 0 && estimate < whole ? estimate : usual;
      }
    }
  };

  /// Kneser-Ney needs two kinds of counts: of an order that answers, and of one that a longer order falls back on.
  struct order_tables {
    table complete;
    table continuations;
  };

  [[nodiscard]] static std::size_t index(int order) { return static_cast<std::size_t>(order - 1); }
  [[nodiscard]] static std::uint64_t mask(int characters) {
    return characters >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8U * static_cast<unsigned>(characters))) - 1;
  }
  [[nodiscard]] static std::uint64_t key_of(std::span<const std::int32_t> text) {
    std::uint64_t key = 0;
    for (const std::int32_t token : text) key = key << 8U | static_cast<std::uint64_t>(token);
    return key;
  }
  void check(std::int32_t token) const {
    if (token < 0 || token >= symbols_)
      throw std::invalid_argument("token " + std::to_string(token) + " in a vocabulary of " + std::to_string(symbols_));
  }

  [[nodiscard]] static std::vector<entry> merge(std::vector<entry> entries) {
    std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) { return a.key < b.key; });
    std::size_t kept = 0;
    for (const entry& next : entries) {
      if (kept > 0 && entries[kept - 1].key == next.key)
        entries[kept - 1].count += next.count;
      else
        entries[kept++] = next;
    }
    entries.resize(kept);
    return entries;
  }

  [[nodiscard]] static std::vector<entry> count(std::span<const std::span<const std::int32_t>> training, int order) {
    const auto width = static_cast<std::size_t>(order);
    std::vector<std::uint64_t> keys;
    for (const auto part : training) {
      std::uint64_t key = 0;
      for (std::size_t i = 0; i < part.size(); ++i) {
        key = (key << 8U | static_cast<std::uint64_t>(part[i])) & mask(order);
        if (i + 1 >= width) keys.push_back(key);
      }
    }
    std::sort(keys.begin(), keys.end());
    std::vector<entry> grams;
    for (const std::uint64_t key : keys) {
      if (grams.empty() || grams.back().key != key) grams.push_back({key, 0});
      ++grams.back().count;
    }
    return grams;
  }

  [[nodiscard]] double probability(std::uint64_t context, int used, std::uint64_t next) const {
    // Starts from the uniform distribution and goes upwards; each order keeps its own share and scales what lies below.
    double p = 1.0 / symbols_;
    for (int k = 0; k <= used; ++k) {
      const order_tables& both = tables_[static_cast<std::size_t>(k)];
      const table& level = k == used ? both.complete : both.continuations;
      const std::uint64_t key = context & mask(k);
      const auto at = std::lower_bound(level.contexts.begin(), level.contexts.end(), key,
                                       [](const context_entry& a, std::uint64_t b) { return a.key < b; });
      if (at == level.contexts.end() || at->key != key) continue;
      p *= at->freed / at->total;
      const auto end = level.grams.begin() + static_cast<std::ptrdiff_t>(at->end);
      const auto gram = std::lower_bound(level.grams.begin() + static_cast<std::ptrdiff_t>(at->begin), end,
                                         key << 8U | next, [](const entry& a, std::uint64_t b) { return a.key < b; });
      if (gram != end && gram->key == (key << 8U | next))
        p += (static_cast<double>(gram->count) - level.discount_of(gram->count)) / at->total;
    }
    return p;
  }

  int symbols_;
  int order_;
  std::array<order_tables, 8> tables_;  // [order - 1]
};

}  // namespace gpt
