// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>
#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/graph/builder.hpp>
#include <espalier/tensor/core/graph/tree.hpp>

namespace espalier {

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
class called_from {
 public:
  template <class Tensor> constexpr called_from(const Tensor& tensor, source_line where) {
    builder_ = detail::owner_of(tensor);
    if (builder_ == nullptr) return;
    outer_ = builder_->caller;
    where.caller = outer_;
    builder_->caller = place_of(where) + 1;
  }
  constexpr ~called_from() {
    if (builder_ == nullptr) return;
    builder_->caller = outer_;
    builder_->where.caller = outer_;
  }
  called_from(const called_from&) = delete;
  called_from& operator=(const called_from&) = delete;

 private:
  /// Calls that are equal share a place, so that what is called in a loop of C++ is one caller.
  [[nodiscard]] constexpr int place_of(const source_line& call) {
    detail::list<source_line>& all = builder_->callers;
    for (int n = 0; n < all.size(); ++n) {
      if (all[n].line != call.line) continue;
      if (all[n].caller != call.caller) continue;
      if (detail::same_text(all[n].file, call.file)) return n;
    }
    all.push_back(call);
    return all.size() - 1;
  }

  builder* builder_ = nullptr;
  int outer_ = 0;
};

}  // namespace espalier
