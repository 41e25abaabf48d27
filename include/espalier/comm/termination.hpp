// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace espalier::comm::detail {

/// The last known place of a rank, for the handler of a signal: it holds only data that is safe to read there. Names
/// are literals, which outlive whatever pointed to them.
struct last_words {
  std::atomic<const char*> name{nullptr};
  std::atomic<const char*> file{nullptr};
  std::atomic<int> line{0};
  std::atomic<int> rank{-1};
  std::atomic<int> size{0};

  void note(const context* where) {
    if (where == nullptr) return;
    file.store(where->file, std::memory_order_relaxed);
    line.store(where->line, std::memory_order_relaxed);
    name.store(where->name, std::memory_order_relaxed);
  }
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

/// An MPI launcher ends the ranks that are left by SIGTERM when one has died: those that
/// have begun say where they were.
extern "C" inline void espalier_say_where_it_ended(int signal) {
  const last_words& last = last_words_of_this_rank;
  if (const char* const name = last.name.load(std::memory_order_relaxed); name != nullptr) {
    signal_safe_line line;
    line << "espalier: rank " << last.rank.load(std::memory_order_relaxed) << " of "
         << last.size.load(std::memory_order_relaxed) << " was ended after " << name << " ("
         << last.file.load(std::memory_order_relaxed) << ":" << last.line.load(std::memory_order_relaxed)
         << ") began: another rank died (the launcher says which); start again from the last checkpoint\n";
    line.write();
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Makes this rank report what it was doing when a signal ends it. A handler of the user's own stays.
inline void announce_termination(int rank, int size) {
  last_words_of_this_rank.rank.store(rank, std::memory_order_relaxed);
  last_words_of_this_rank.size.store(size, std::memory_order_relaxed);
  const auto before = std::signal(SIGTERM, espalier_say_where_it_ended);
  if (before != SIG_DFL && before != SIG_ERR) std::signal(SIGTERM, before);
}

/// Says why and ends this process, from any of its threads, without handlers and destructors: for when the thread that
/// could throw is inside a call that does not return. The launcher then ends the other ranks.
[[noreturn]] inline void end_process(const std::string& why) {
  std::fputs(why.c_str(), stderr);
  std::fflush(stderr);
  std::_Exit(EXIT_FAILURE);
}

/// A thread to which no signal is delivered: those are for the threads of the program.
[[nodiscard]] inline std::thread start_unsignalled(void (*run)(void*), void* on) {
#if defined(STDERR_FILENO)
  sigset_t all{};
  sigset_t before{};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread made(run, on);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
#else
  return std::thread(run, on);
#endif
}

}  // namespace espalier::comm::detail
