// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace espalier::comm::detail {

/// What a rank is doing, for the handler of a signal: only what is safe to read there.
struct last_words {
  std::atomic<const context*> where{nullptr};
  std::atomic<int> rank{-1};
  std::atomic<int> size{0};
};
inline last_words last_words_of_this_rank;

/// A line of text made without memory, locks or formatting, none of which a handler may use.
class signal_safe_line {
 public:
  signal_safe_line& operator<<(const char* text) {
    for (; *text != '\0' && used_ + 1 < text_.size(); ++text) text_[used_++] = *text;
    return *this;
  }
  signal_safe_line& operator<<(int number) {
    std::array<char, 12> digits{};
    std::size_t first = digits.size() - 1;
    for (unsigned rest = number < 0 ? 0U : static_cast<unsigned>(number); first > 0;) {
      digits[--first] = static_cast<char>('0' + rest % 10);
      rest /= 10;
      if (rest == 0) break;
    }
    return *this << &digits[first];
  }
  void write() {
#if defined(STDERR_FILENO)
    if (used_ > 0 && ::write(STDERR_FILENO, text_.data(), used_) < 0) used_ = 0;
#endif
  }

 private:
  std::array<char, 512> text_{};
  std::size_t used_ = 0;
};

/// An MPI launcher ends the ranks that are left by SIGTERM when one has died: those in the middle of a step say where.
extern "C" inline void espalier_say_where_it_ended(int signal) {
  const context* const where = last_words_of_this_rank.where.load(std::memory_order_relaxed);
  if (where != nullptr) {
    signal_safe_line line;
    line << "espalier: rank " << last_words_of_this_rank.rank.load(std::memory_order_relaxed) << " of "
         << last_words_of_this_rank.size.load(std::memory_order_relaxed) << " was ended after " << where->name << " ("
         << where->file << ":" << where->line
         << ") began: another rank died (the launcher says which); start again from"
         << " the last checkpoint\n";
    line.write();
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// From now on this rank says what it was doing when it is ended. A handler of the user's own stays.
inline void announce_termination(int rank, int size) {
  last_words_of_this_rank.rank.store(rank, std::memory_order_relaxed);
  last_words_of_this_rank.size.store(size, std::memory_order_relaxed);
  const auto before = std::signal(SIGTERM, espalier_say_where_it_ended);
  if (before != SIG_DFL && before != SIG_ERR) std::signal(SIGTERM, before);
}

}  // namespace espalier::comm::detail
