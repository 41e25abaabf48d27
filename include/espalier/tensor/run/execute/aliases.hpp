// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/plain_vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace espalier::detail {

/// Which arguments and results of one call lie in the same memory, and what has to be done so that every argument is
/// read as it was when the program was called. A program is compiled for arguments and results that lie apart.
class alias_finder {
 public:
  /// Reserves room for `most` arguments and results; nothing allocates after this.
  explicit alias_finder(int most) {
    uses_.reserve(static_cast<std::size_t>(most));
    copied_.reserve(static_cast<std::size_t>(most));
    renewed_.reserve(static_cast<std::size_t>(most));
  }

  /// The use of memory by a call. Uses of the same memory are sorted in this order.
  enum class role : char {
    changed,  ///< an argument whose place a result takes
    read,     ///< any other argument
    result    ///< a result with memory of its own
  };

  /// The next call: each of its arguments, and of its results those with memory of their own; then `find`.
  void begin() {
    uses_.clear();
    copied_.clear();
    renewed_.clear();
    clash_ = {-1, -1};
  }
  void add(void* memory, role as, int index) { uses_.push_back({memory, as, index}); }
  void find() {
    // std::sort costs every program 30 ms of compilation.
    if (!uses_.empty()) std::qsort(uses_.data(), uses_.size(), sizeof(use), &order);
    for (std::size_t first = 0, end = 0; first < uses_.size(); first = end) {
      for (end = first + 1; end < uses_.size() && uses_[end].memory == uses_[first].memory;) ++end;
      resolve(first, end);
    }
  }

  /// Arguments that have to be read from a copy: a result takes the place of the same array, given as another argument.
  [[nodiscard]] const std::vector<int>& copied() const { return copied_; }
  /// Results that need other memory: what they have is an argument.
  [[nodiscard]] const std::vector<int>& renewed() const { return renewed_; }
  /// Two arguments in the same memory that both change, for which nothing can be done; -1 if there are none.
  struct pair {
    int first;
    int second;
  };
  [[nodiscard]] pair clash() const { return clash_; }

 private:
  struct use {
    void* memory;
    role as;
    int index;
  };
  static int order(const void* left, const void* right) {
    const use& x = *static_cast<const use*>(left);
    const use& y = *static_cast<const use*>(right);
    const auto here = reinterpret_cast<std::uintptr_t>(x.memory);
    const auto there = reinterpret_cast<std::uintptr_t>(y.memory);
    if (here != there) return here < there ? -1 : 1;
    return x.as != y.as ? static_cast<int>(x.as) - static_cast<int>(y.as) : x.index - y.index;
  }

  void resolve(std::size_t first, std::size_t end) {
    for (std::size_t n = first + 1; n < end; ++n) {
      const use& other = uses_[n];
      if (other.as == role::changed) {
        clash_ = {uses_[first].index, other.index};
      } else if (other.as == role::result) {
        renewed_.push_back(other.index);
      } else if (uses_[first].as == role::changed) {
        copied_.push_back(other.index);
      }
    }
  }

  plain_vector<use> uses_;
  std::vector<int> copied_;
  std::vector<int> renewed_;
  pair clash_{-1, -1};
};

}  // namespace espalier::detail
