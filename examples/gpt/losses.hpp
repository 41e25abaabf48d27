// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace gpt {

/// A file of `step,loss` that holds every step so far: each line is written out at once.
class loss_file {
 public:
  /// Errors: `std::runtime_error` if nothing can be written there.
  explicit loss_file(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "w")) {
    if (!file_) fail(errno);
    std::fputs("step,loss\n", file_.get());
    flush();
    if (error_ != 0) fail(error_);
  }

  /// A line that cannot be written is no reason to lose the training: `finish` tells.
  void add(std::int64_t step, double loss) {
    if (error_ != 0) return;
    if (std::fprintf(file_.get(), "%lld,%.17g\n", static_cast<long long>(step), loss) < 0) error_ = errno;
    flush();
    if (error_ == 0) last_ = step;
  }

  /// Errors: `std::runtime_error` if a line could not be written.
  void finish() {
    if (file_ && std::fclose(file_.release()) != 0 && error_ == 0) error_ = errno;
    if (error_ != 0) fail(error_);
  }

 private:
  struct closed {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void flush() {
    if (std::fflush(file_.get()) != 0 && error_ == 0) error_ = errno;
  }
  [[noreturn]] void fail(int code) const {
    throw std::runtime_error("the losses cannot be written to " + path_ + ": " + std::strerror(code) +
                             (last_ == 0 ? "" : " (after step " + std::to_string(last_) + ")") +
                             "; make room there, or choose another file with --losses");
  }

  std::string path_;
  std::unique_ptr<std::FILE, closed> file_;
  int error_ = 0;
  std::int64_t last_ = 0;
};

}  // namespace gpt
