// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/run/execute/array.hpp>

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace espalier::detail {

/// sum[i] = the sum of terms[k * count + i] over all k, in order, rounded once.
using term_adder = void (*)(void* sum, const void* terms, std::int64_t count, int members);
template <class T> void add_terms(void* sum, const void* terms, std::int64_t count, int members) {
  using wide = std::conditional_t<std::is_same_v<T, bool>, int, accumulate_t<T>>;
  const T* const from = static_cast<const T*>(terms);
  for (std::int64_t i = 0; i < count; ++i) {
    wide total{};
    for (int k = 0; k < members; ++k) total = static_cast<wide>(total + static_cast<wide>(from[k * count + i]));
    static_cast<T*>(sum)[i] = static_cast<T>(total);
  }
}

/// Replaces an array of partial sums by one of the sums, in new memory: a reduce-scatter and an all-gather among the
/// devices that hold terms, each element sent as often as an all-reduce does. Collective.
void reduce_terms(world& where, any_array& array, term_adder add, source_line line);

/// `reduce_terms`, once `expect_partial_sums` was called. Most programs have no such arrays at their border, and do not
/// compile it.
using terms_reducer = void (*)(world& where, any_array& array, term_adder add, source_line line);
[[nodiscard]] std::atomic<terms_reducer>& reducer_of_terms();

/// Arrays, or a tree of them, without partial sums; those that have none share the memory of the given ones.
/// Collective.
template <class Arrays>
[[nodiscard]] Arrays without_partial_sums(world& where, const Arrays& arrays,
                                          source_line line = source_line::current()) {
  Arrays made = arrays;
  for_each_leaf(made, [&]<class Array>(Array& array) {
    if (array.empty() || array.placed().placement.unreduced == 0) return;
    reducer_of_terms().load()(where, array, &add_terms<typename Array::value_type>, line);
  });
  return made;
}

/// During its lifetime, errors of this device's collectives name an operation of the user's line.
class named_operation {
 public:
  named_operation(comm::any_communicator& communicator, const char* name, source_line line)
      : communicator_(communicator), context_{name, line.file, line.line} {
    communicator_.set_context(&context_);
  }
  ~named_operation() { communicator_.set_context(nullptr); }
  named_operation(const named_operation&) = delete;
  named_operation& operator=(const named_operation&) = delete;

 private:
  comm::any_communicator& communicator_;
  comm::context context_;
};

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/reduce_terms.ipp>
#endif
