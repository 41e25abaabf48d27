// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/mpi/mpi_compat.hpp>
#include <espalier/comm/reducer.hpp>
#include <espalier/comm/run/combine.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace espalier::comm {

/// An element of a collective: how it is combined here, and the MPI library's type and operation for it, so that its
/// own collective can be asked too.
struct element {
  combiner by;
  MPI_Datatype type = detail::no_type();  ///< none: the library's own collectives are no candidates
  MPI_Op operation = detail::no_operation();
  bool commutes = true;  ///< whether ranks may be combined in any order
};

/// Elements of `bytes` bytes that are moved as they are.
[[nodiscard]] inline element bytes_of_size(std::int64_t bytes) {
  element made;
  made.by = moves_only(bytes);
  if (bytes == 1) made.type = detail::bytes_type();
  return made;
}

/// Errors: std::invalid_argument for sums and products of bool.
[[nodiscard]] inline element element_of(const reducer& by) {
  if (!is_reducible(by.type, by.kind))
    throw std::invalid_argument("bool values have no sum and no product: use max or min");
  element made;
  made.by = combiner_of(by);
  made.type = detail::library_type(by.type);
  made.operation = detail::library_operation(by.type, by.kind);
  return made;
}
[[nodiscard]] inline element element_of(dtype type, reduction kind) { return element_of(reducer_of(type, kind)); }

namespace detail {

/// Returns the class of one of the MPI library's own types; any other type is unnamed.
[[nodiscard]] inline element_class class_of(MPI_Datatype type) {
  struct named {
    MPI_Datatype type;
    element_class is;
  };
  const auto known = {named{MPI_FLOAT, element_class::floating},
                      named{MPI_DOUBLE, element_class::floating},
                      named{MPI_LONG_DOUBLE, element_class::floating},
                      named{MPI_INT, element_class::integer},
                      named{MPI_LONG, element_class::integer},
                      named{MPI_LONG_LONG, element_class::integer},
                      named{MPI_SHORT, element_class::integer},
                      named{MPI_SIGNED_CHAR, element_class::integer},
                      named{MPI_INT8_T, element_class::integer},
                      named{MPI_INT16_T, element_class::integer},
                      named{MPI_INT32_T, element_class::integer},
                      named{MPI_INT64_T, element_class::integer},
                      named{MPI_UNSIGNED, element_class::natural},
                      named{MPI_UNSIGNED_LONG, element_class::natural},
                      named{MPI_UNSIGNED_LONG_LONG, element_class::natural},
                      named{MPI_UNSIGNED_SHORT, element_class::natural},
                      named{MPI_UNSIGNED_CHAR, element_class::natural},
                      named{MPI_UINT8_T, element_class::natural},
                      named{MPI_UINT16_T, element_class::natural},
                      named{MPI_UINT32_T, element_class::natural},
                      named{MPI_UINT64_T, element_class::natural},
                      named{MPI_C_BOOL, element_class::boolean},
                      named{MPI_CXX_BOOL, element_class::boolean},
                      named{MPI_C_FLOAT_COMPLEX, element_class::complex},
                      named{MPI_C_DOUBLE_COMPLEX, element_class::complex},
                      named{MPI_CXX_FLOAT_COMPLEX, element_class::complex},
                      named{MPI_CXX_DOUBLE_COMPLEX, element_class::complex},
                      named{MPI_FLOAT_INT, element_class::pair_of_float},
                      named{MPI_DOUBLE_INT, element_class::pair_of_double},
                      named{MPI_LONG_DOUBLE_INT, element_class::pair_of_long_double},
                      named{MPI_2INT, element_class::pair_of_int},
                      named{MPI_LONG_INT, element_class::pair_of_long},
                      named{MPI_SHORT_INT, element_class::pair_of_short}};
  for (const named& n : known) {
    if (n.type == type) return n.is;
  }
  return element_class::unnamed;
}
[[nodiscard]] inline element_operation operation_of(MPI_Op operation) {
  struct named {
    MPI_Op operation;
    element_operation is;
  };
  for (const named& n :
       {named{MPI_SUM, element_operation::sum}, named{MPI_PROD, element_operation::prod},
        named{MPI_MAX, element_operation::max}, named{MPI_MIN, element_operation::min},
        named{MPI_LAND, element_operation::logical_and}, named{MPI_LOR, element_operation::logical_or},
        named{MPI_LXOR, element_operation::logical_xor}, named{MPI_BAND, element_operation::bit_and},
        named{MPI_BOR, element_operation::bit_or}, named{MPI_BXOR, element_operation::bit_xor},
        named{MPI_MAXLOC, element_operation::max_place}, named{MPI_MINLOC, element_operation::min_place}}) {
    if (n.operation == operation) return n.is;
  }
  return element_operation::unnamed;
}

/// Whether elements of `type` combined by `kind` are what `by` describes: the library has several names for one type
/// (int, long, and integers by their size).
[[nodiscard]] constexpr bool is_same_reduction(const combiner& by, dtype type, reduction kind) {
  return is_reducible(type, kind) && by.type == class_of(type) && by.element_bytes == size_of(type) &&
         by.operation == operation_of(type, kind);
}
/// The kernel that does what the library's operation does to elements of its type; none for others.
[[nodiscard]] inline host::fold_function fold_of(const combiner& by) {
  for (const dtype_facts& row : dtype_table) {
    for (const reduction kind : {reduction::sum, reduction::max, reduction::min, reduction::prod})
      if (is_same_reduction(by, row.type, kind)) return reducer_of(row.type, kind).fold;
  }
  return nullptr;
}

}  // namespace detail

/// Any type and operation of MPI's, also the user's own. Elements move with the gaps they have (those of MPI's pairs).
/// Errors: std::invalid_argument where the MPI library does not know the operation for the type (with the error handler
/// of MPI_COMM_WORLD set to return; by default the library itself ends the program here).
/// @pre an element lies within its extent, whose lower bound is 0
class mpi_element {
 public:
  mpi_element(MPI_Datatype type, MPI_Op operation) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(type, &lower, &extent);
    int commutes = 1;
    if (operation != detail::no_operation()) MPI_Op_commutative(operation, &commutes);
    // Checked before any data is sent. No element is touched, and a function of the user's is not called.
    if (detail::is_predefined(operation)) {
      char nothing[2]{};
      if (MPI_Reduce_local(&nothing[0], &nothing[1], 0, type, operation) != MPI_SUCCESS) {
        throw std::invalid_argument("the MPI library does not know this operation for elements of this type (" +
                                    std::to_string(extent) + " bytes each)");
      }
    }
    element_.by = {&combine, this, extent, detail::class_of(type), detail::operation_of(operation)};
    element_.by.fold = detail::fold_of(element_.by);
    element_.type = type;
    element_.operation = operation;
    element_.commutes = commutes != 0;
  }
  mpi_element(const mpi_element&) = delete;
  mpi_element& operator=(const mpi_element&) = delete;

  [[nodiscard]] const element& get() const { return element_; }

 private:
  static void combine(const void* state, void* target, const void* own, void* incoming, std::int64_t count, bool left) {
    const element& e = static_cast<const mpi_element*>(state)->element_;
    const auto bytes = static_cast<std::size_t>(count * e.by.element_bytes);
    const int n = static_cast<int>(count);
    if (left) {
      // The library computes inout = in op inout.
      if (target != own) std::memmove(target, own, bytes);
      MPI_Reduce_local(incoming, target, n, e.type, e.operation);
    } else {
      MPI_Reduce_local(own, incoming, n, e.type, e.operation);
      std::memcpy(target, incoming, bytes);
    }
  }

  element element_;
};

}  // namespace espalier::comm
