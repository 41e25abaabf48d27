// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>
#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/graph/builder.hpp>
#include <espalier/tensor/core/graph/tree.hpp>

namespace espalier {

namespace detail {

/// While it lives, the builder's instructions have this entry in the chain of their callers.
class caller_entry {
 public:
  constexpr caller_entry(builder* to, source_line entry) : builder_(to) {
    if (builder_ == nullptr) return;
    outer_ = builder_->caller;
    entry.caller = outer_;
    builder_->caller = place_of(entry) + 1;
  }
  constexpr ~caller_entry() {
    if (builder_ == nullptr) return;
    builder_->caller = outer_;
    builder_->where.caller = outer_;
  }
  caller_entry(const caller_entry&) = delete;
  caller_entry& operator=(const caller_entry&) = delete;

 private:
  /// Calls that are equal share a place, so that what is called in a loop of C++ is one caller.
  [[nodiscard]] constexpr int place_of(const source_line& call) {
    list<source_line>& all = builder_->callers;
    for (int n = 0; n < all.size(); ++n) {
      if (all[n].line != call.line) continue;
      if (all[n].caller != call.caller) continue;
      if (same_text(all[n].file, call.file)) return n;
    }
    all.push_back(call);
    return all.size() - 1;
  }

  builder* builder_ = nullptr;
  int outer_ = 0;
};

}  // namespace detail

/// Keeps the line of a helper function's caller: while this object lives, `explain` shows what the function computes on
/// its own line, "called from" the one on which the function was called. Helpers that call helpers make a chain. A
/// function template has no other way to learn where it was called than a default argument:
///
///     constexpr auto layer(auto x, auto w, ep::source_line where = ep::source_line::current()) {
///       const ep::called_from caller(x, where);
///       return ep::relu(ep::matmul(x, w));
///     }
///
/// `tensor` is any tensor, tree or results of the program that is traced.
class called_from : detail::caller_entry {
 public:
  template <class Tensor>
  constexpr called_from(const Tensor& tensor, source_line where)
      : detail::caller_entry(detail::owner_of(tensor), where) {}
};

}  // namespace espalier
