// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/constant.hpp>
#include <espalier/tensor/core/ops/while_loop.hpp>

namespace espalier {

namespace detail {

template <class T> inline constexpr bool is_whole_number = false;
template <class Mesh, class Tensor>
inline constexpr bool is_whole_number<symbol<Mesh, Tensor>> = is_integer(Tensor::type) && Tensor::rank == 0;

template <class Branch> using branch_result = std::remove_cvref_t<decltype(std::declval<const Branch&>()())>;

/// The first mistake among what branches return, or void.
template <class... Results> struct first_failure_in { using type = void; };
template <class First, class... Rest> struct first_failure_in<First, Rest...> {
  using here = typename failure_in<First>::type;
  using type = std::conditional_t<std::is_void_v<here>, typename first_failure_in<Rest...>::type, here>;
};

/// Branches are regions one after the other, of which one runs: it writes over what there was before. All of them read
/// `which`, so that they, and their gradients, cannot disagree.
template <class Result> class branch_list {
 public:
  constexpr branch_list(builder& b, int which, source_line where) : b_(b), which_(which), where_(where) {
    b_.at(where);
    for_each_leaf(result_, [&]<class Leaf>(Leaf& one) {
      one.owner = &b_;
      one.id = emit::constant(b_, Leaf::type, Leaf::shape, 0);
    });
  }

  template <class Branch> constexpr void add(const Branch& branch, int number) {
    b_.at(where_);
    emit::region_begin(b_, region_attributes{.iterations = 1, .kind = region_kind::branch}, which_, number);
    for_each_leaf(result_, [&](auto& one) { one.id = emit::region_parameter(b_, one.id); });
    const Result made = operands_of(b_, branch(), where_);
    b_.at(where_);
    for_each_pair(result_, made,
                  [&](auto& one, const auto& value) { one.id = emit::region_yield(b_, one.id, value.id); });
    emit::region_end(b_);
    for_each_leaf(result_, [&](auto& one) { one.id = emit::region_result(b_, one.id); });
  }
  [[nodiscard]] constexpr const Result& result() const { return result_; }

 private:
  builder& b_;
  int which_;
  source_line where_;
  Result result_{};
};

/// @param number of the first branch
/// @param step to the number of the next one
template <class First, class... Rest>
constexpr auto branches(builder& b, int which, int number, int step, source_line where, const First& first,
                        const Rest&... rest) {
  if constexpr (!requires { first(); } || (!requires { rest(); } || ...)) {
    return failed<why::branch_takes_arguments<>>(where);
  } else {
    using result = branch_result<First>;
    using failure = typename first_failure_in<result, branch_result<Rest>...>::type;
    if constexpr (!std::is_void_v<failure>) {
      mistake_place place;
      bool is_found = false;
      const auto look = [&](const auto& branch) {
        if constexpr (!std::is_void_v<typename failure_in<decltype(branch())>::type>) {
          if (!is_found) place = failure_place(branch());
          is_found = true;
        }
      };
      look(first);
      (look(rest), ...);
      return failure(place);
    } else if constexpr (!LoopValue<result> || (!LoopValue<branch_result<Rest>> || ...)) {
      return failed<why::branch_gives_no_tensor<>>(where);
    } else if constexpr ((!std::is_same_v<result, branch_result<Rest>> || ...)) {
      return failed<why::branches_differ<result, branch_result<Rest>...>>(where);
    } else {
      branch_list<result> all(b, which, where);
      all.add(first, number);
      ((number += step, all.add(rest, number)), ...);
      return all.result();
    }
  }
}

}  // namespace detail

/// What `then()` returns if a `boolean<>` is true, and what `otherwise()` returns if it is not: tensors, parameter
/// trees, or results(...) of these, of the same type. Both functions are traced, and use whatever they capture; only
/// one of them runs, on all devices the same, however they communicate. `select` computes both and chooses element by
/// element.
///
/// Where a branch communicates and the predicate comes from floats, devices agree on it: it is true if it is on one of
/// them. Memory, bytes and operations are those of the larger branch.
///
///     const auto [w, skipped] = ep::cond(ep::sum(ep::abs(g)) < 1e30,
///                                        [&] { return ep::results(w - 0.1 * g, zero); },
///                                        [&] { return ep::results(w, one); });
///
/// Errors: `predicate_is_no_truth_value`, `branch_takes_arguments`, `branch_gives_no_tensor`, `branches_differ`, and
/// whatever the body of a branch does wrong.
template <class Predicate, class Then, class Otherwise>
constexpr auto cond(const Predicate& predicate, const Then& then, const Otherwise& otherwise,
                    source_line where = source_line::current()) {
  if constexpr (Failed<Predicate>) {
    return predicate;
  } else if constexpr (!detail::is_truth_value<Predicate>) {
    return failed<why::predicate_is_no_truth_value<Predicate>>(where);
  } else {
    builder& b = *predicate.owner;
    b.at(where);
    return detail::branches(b, detail::operand_of(b, predicate, where), 1, -1, where, then, otherwise);
  }
}

/// Operands for the branches, as other libraries take them: a mistake.
template <class Predicate, class Then, class Otherwise, class Operand, class... More>
  requires(!std::is_same_v<Operand, source_line>)
constexpr auto cond(const Predicate& predicate, const Then& /*then*/, const Otherwise& /*otherwise*/,
                    const Operand& /*operand*/, const More&... /*more*/) {
  if constexpr (Failed<Predicate>) {
    return predicate;
  } else if constexpr (!detail::is_truth_value<Predicate>) {
    return failed<why::predicate_is_no_truth_value<Predicate>>(source_line{});
  } else {
    return failed<why::branch_takes_arguments<>>(predicate.seen);
  }
}

/// What function number `index` returns, an `i32<>` or another integer, counted from 0; a number below is taken for the
/// first, one beyond for the last. As with `cond`, only this function runs.
///
///     ep::switch_case(token, [&] { return x; }, [&] { return 2.0 * x; }, [&] { return x * x; })  // x = 3: 3, 6, 9
///
/// Errors: `index_is_no_whole_number`, and those of `cond`.
template <class Index, class First, class... Rest>
constexpr auto switch_case(Index index, const First& first, const Rest&... rest) {
  if constexpr (Failed<Index>) {
    return index;
  } else if constexpr (!detail::is_whole_number<Index>) {
    if constexpr (Symbol<Index>) {
      return failed<why::index_is_no_whole_number<typename Index::tensor>>(index.seen);
    } else {
      return failed<why::index_is_no_whole_number<>>(source_line{});
    }
  } else {
    builder& b = *index.owner;
    const source_line where = index.seen;
    b.at(where);
    const int least = emit::constant_like(b, index.id, 0);
    const int most = emit::constant_like(b, index.id, sizeof...(Rest));
    const dtype type = Index::type;
    const int above = b.append(ops::maximum, type, extents{}, detail::operand_of(b, index, where), least);
    return detail::branches(b, b.append(ops::minimum, type, extents{}, above, most), 0, 1, where, first, rest...);
  }
}

}  // namespace espalier
