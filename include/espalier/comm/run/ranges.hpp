// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/run/collectives.hpp>

#include <boost/mpi/communicator.hpp>
#include <boost/mpi/datatype.hpp>
#include <boost/mpi/operations.hpp>

#include <cstdint>
#include <iterator>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

// Collectives over ranges of C++ objects, as Boost.MPI has them: elements are what `boost::mpi::is_mpi_datatype` knows,
// the program's own classes included, operations are function objects (`std::plus<>`, `boost::mpi::maximum<double>`, a
// lambda without captures). Ranges are contiguous: std::span, std::vector, std::array, xtensor's containers.

namespace espalier::comm {

namespace detail {

template <std::ranges::contiguous_range R>
using object_in = std::remove_cv_t<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// The type of object that both ranges hold.
template <class Input, class Output> struct object_in_both {
  using type = object_in<Output>;
  static_assert(std::is_same_v<object_in<Input>, type>, "input and output hold objects of different types.");
};

/// `std::plus<>` and the like are Boost.MPI's operations as `std::plus<T>`.
template <class Operation, class T> struct operation_on { using type = Operation; };
template <template <class> class Operation, class T> struct operation_on<Operation<void>, T> {
  using type = Operation<T>;
};

/// A type of MPI's with the size of `T`, so that arrays of it are arrays of `T`.
template <class T> [[nodiscard]] MPI_Datatype datatype_for() {
  static_assert(boost::mpi::is_mpi_datatype<T>::value,
                "collectives move objects that MPI can describe: numbers, and classes with a member template "
                "serialize(archive, version) for which boost::mpi::is_mpi_datatype is specialised as true.");
  const T value{};
  MPI_Datatype type = boost::mpi::get_mpi_datatype<T>(value);
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(type, &lower, &extent);
  if (extent == static_cast<MPI_Aint>(sizeof(T)) && lower == 0) return type;
  MPI_Datatype padded = type;
  MPI_Type_create_resized(type, 0, static_cast<MPI_Aint>(sizeof(T)), &padded);
  MPI_Type_commit(&padded);
  return padded;
}

template <class T, class Operation>
void combine_objects(const void*, void* target, const void* own, void* incoming, std::int64_t count, bool left) {
  const auto* const first = static_cast<const T*>(left ? incoming : own);
  const auto* const second = static_cast<const T*>(left ? own : incoming);
  auto* const out = static_cast<T*>(target);
  const Operation operation{};
  for (std::int64_t n = 0; n < count; ++n) out[n] = static_cast<T>(operation(first[n], second[n]));
}
template <class T, class Operation>
void combine_for_library(void* in, void* in_and_out, int* count, MPI_Datatype* /*type*/) {  // NOLINT: MPI's signature
  combine_objects<T, Operation>(nullptr, in_and_out, in, in_and_out, *count, false);
}

/// The library's type that is as `T` is: `long` and `long long` are both i64.
template <class T> struct like { using type = void; };
template <class T>
  requires(std::is_arithmetic_v<T> && (sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8))
struct like<T> {
  template <class One, class Four, class Eight>
  using sized = std::conditional_t<sizeof(T) == 1, One, std::conditional_t<sizeof(T) == 4, Four, Eight>>;
  using integer = std::conditional_t<std::is_signed_v<T>, sized<std::int8_t, std::int32_t, std::int64_t>,
                                     sized<std::uint8_t, std::uint32_t, std::uint64_t>>;
  using candidate = std::conditional_t<std::is_floating_point_v<T>, sized<void, float, double>,
                                       std::conditional_t<std::is_same_v<T, bool>, bool, integer>>;
  // There is no u64.
  using type = std::conditional_t<std::is_same_v<candidate, std::uint64_t>, void, candidate>;
};

/// The kernel that does to numbers what `by` says; none for what the library has no type or operation for.
template <class T> [[nodiscard]] host::fold_function fold_for(const combiner& by) {
  using number = typename like<T>::type;
  host::fold_function found = nullptr;
  if constexpr (!std::is_void_v<number>) {
    const auto look = [&]<reduction Kind>() {
      if (is_same_reduction(by, dtype_of<number>, Kind)) found = reducer_of<number, Kind>().fold;
    };
    look.template operator()<reduction::sum>();
    look.template operator()<reduction::max>();
    look.template operator()<reduction::min>();
    look.template operator()<reduction::prod>();
  }
  return found;
}

template <class T, class Operation> [[nodiscard]] element make_element() {
  using operation = typename operation_on<Operation, T>::type;
  static_assert(std::is_empty_v<operation> && std::default_initializable<operation>,
                "every rank makes the operation anew: it must be a function object without members, or a lambda "
                "without captures.");
  static_assert(std::is_trivially_copyable_v<T>, "elements are moved as bytes: their type must be trivially copyable.");
  element made;
  made.by = {&combine_objects<T, operation>, nullptr, static_cast<std::int64_t>(sizeof(T))};
  made.type = datatype_for<T>();
  made.by.type = class_of(made.type);
  if constexpr (boost::mpi::is_mpi_op<operation, T>::value) {
    made.operation = boost::mpi::is_mpi_op<operation, T>::op();
    made.by.operation = operation_of(made.operation);
    made.by.fold = fold_for<T>(made.by);
  } else {
    made.commutes = boost::mpi::is_commutative<operation, T>::value;
    MPI_Op_create(&combine_for_library<T, operation>, made.commutes ? 1 : 0, &made.operation);
  }
  return made;
}

/// Sizes that do not fit are noticed before anything is sent.
inline void require_sizes(const char* what, const char* sentence, std::int64_t input, std::int64_t output, bool fits) {
  if (fits) return;
  throw std::invalid_argument(std::string(what) + ": " + std::to_string(input) + " elements go in and " +
                              std::to_string(output) + " come out, but " + sentence);
}

}  // namespace detail

/// Returns the element of a collective that moves and combines objects of T: the MPI library knows it too, so its own
/// collectives are tried as well. Made once; MPI must have begun. An operation that MPI does not have keeps the order
/// of ranks unless `boost::mpi::is_commutative` says that it need not.
template <class T, class Operation> [[nodiscard]] const element& element_for() {
  static const element made = detail::make_element<T, Operation>();
  return made;
}
/// Returns the element of objects that are not combined.
template <class T> [[nodiscard]] const element& element_for() {
  static const element made = [] {
    element moved = bytes_of_size(static_cast<std::int64_t>(sizeof(T)));
    static_assert(std::is_trivially_copyable_v<T>,
                  "elements are moved as bytes: their type must be trivially copyable.");
    moved.type = detail::datatype_for<T>();
    moved.by.type = detail::class_of(moved.type);
    return moved;
  }();
  return made;
}

/// `output[i]` on every rank = the ranks' `input[i]`, combined; the same range twice: in place.
/// Errors of all: std::invalid_argument, with both sizes, before any communication; then those of `collectives`.
template <std::ranges::contiguous_range Input, std::ranges::contiguous_range Output, class Operation>
void all_reduce(collectives& all, Input&& input, Output&& output, Operation /*operation*/) {
  const std::span from(input);
  const std::span to(output);
  using object = typename detail::object_in_both<Input, Output>::type;
  detail::require_sizes("all_reduce", "they must be as many", std::ssize(from), std::ssize(to),
                        std::ssize(from) == std::ssize(to));
  all.all_reduce(from.data(), to.data(), std::ssize(from), element_for<object, Operation>());
}
template <std::ranges::contiguous_range Range, class Operation>
void all_reduce(collectives& all, Range&& in_place, Operation operation) {
  all_reduce(all, in_place, in_place, operation);
}
/// One value of every rank, combined.
template <class T, class Operation>
  requires(!std::ranges::range<T>)
[[nodiscard]] T all_reduce(collectives& all, T value, Operation operation) {
  all_reduce(all, std::span<T>(&value, 1), operation);
  return value;
}

/// The root's elements on all ranks.
template <std::ranges::contiguous_range Range> void broadcast(collectives& all, Range&& values, int root) {
  const std::span to(values);
  all.broadcast(to.data(), std::ssize(to), element_for<detail::object_in<Range>>(), root);
}

/// Works as `all_reduce`, but only the root's output is written.
template <std::ranges::contiguous_range Input, std::ranges::contiguous_range Output, class Operation>
void reduce(collectives& all, Input&& input, Output&& output, Operation /*operation*/, int root) {
  const std::span from(input);
  const std::span to(output);
  using object = typename detail::object_in_both<Input, Output>::type;
  detail::require_sizes("reduce", "the root's must be as many", std::ssize(from), std::ssize(to),
                        std::ssize(from) == std::ssize(to) || all.rank() != root);
  all.reduce(from.data(), to.data(), std::ssize(from), element_for<object, Operation>(), root);
}

/// Collects the elements of all ranks, in the order of ranks, on all.
template <std::ranges::contiguous_range Input, std::ranges::contiguous_range Output>
void all_gather(collectives& all, Input&& input, Output&& output) {
  const std::span from(input);
  const std::span to(output);
  using object = typename detail::object_in_both<Input, Output>::type;
  detail::require_sizes("all_gather", "the output needs as many for each rank", std::ssize(from), std::ssize(to),
                        std::ssize(from) * all.size() == std::ssize(to));
  all.all_gather(from.data(), to.data(), std::ssize(from), element_for<object>());
}

/// Part `rank` of what all inputs are, combined: `output.size()` elements for each rank go in.
template <std::ranges::contiguous_range Input, std::ranges::contiguous_range Output, class Operation>
void reduce_scatter(collectives& all, Input&& input, Output&& output, Operation /*operation*/) {
  const std::span from(input);
  const std::span to(output);
  using object = typename detail::object_in_both<Input, Output>::type;
  detail::require_sizes("reduce_scatter", "the input needs as many for each rank", std::ssize(from), std::ssize(to),
                        std::ssize(from) == std::ssize(to) * all.size());
  all.reduce_scatter(from.data(), to.data(), std::ssize(to), element_for<object, Operation>());
}

/// Collects the elements of all ranks, in the order of ranks, on the root, whose output alone is written.
template <std::ranges::contiguous_range Input, std::ranges::contiguous_range Output>
void gather(collectives& all, Input&& input, Output&& output, int root) {
  const std::span from(input);
  const std::span to(output);
  using object = typename detail::object_in_both<Input, Output>::type;
  detail::require_sizes("gather", "the root's output needs as many for each rank", std::ssize(from), std::ssize(to),
                        std::ssize(from) * all.size() == std::ssize(to) || all.rank() != root);
  all.gather(from.data(), to.data(), std::ssize(from), element_for<object>(), root);
}

/// Part `rank` of the root's input on every rank; the others' inputs are not read.
template <std::ranges::contiguous_range Input, std::ranges::contiguous_range Output>
void scatter(collectives& all, Input&& input, Output&& output, int root) {
  const std::span from(input);
  const std::span to(output);
  using object = typename detail::object_in_both<Input, Output>::type;
  detail::require_sizes("scatter", "the root's input needs as many for each rank", std::ssize(from), std::ssize(to),
                        std::ssize(from) == std::ssize(to) * all.size() || all.rank() != root);
  all.scatter(from.data(), to.data(), std::ssize(to), element_for<object>(), root);
}

/// Part r of a rank's input becomes part `rank` of rank r's output.
template <std::ranges::contiguous_range Input, std::ranges::contiguous_range Output>
void all_to_all(collectives& all, Input&& input, Output&& output) {
  const std::span from(input);
  const std::span to(output);
  using object = typename detail::object_in_both<Input, Output>::type;
  detail::require_sizes("all_to_all", "both need as many for each of the ranks", std::ssize(from), std::ssize(to),
                        std::ssize(from) == std::ssize(to) && std::ssize(from) % all.size() == 0);
  all.all_to_all(from.data(), to.data(), std::ssize(from) / all.size(), element_for<object>());
}

}  // namespace espalier::comm
