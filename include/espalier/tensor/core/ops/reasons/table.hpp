// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct table_size_mismatch {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "constant: the table has another number of elements than the tensor. Give the tensor as many, or leave "
        "its type out: constant<table>(like) has the table's shape.");
  };
};

}  // namespace espalier::why
