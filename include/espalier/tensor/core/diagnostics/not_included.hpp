// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Names that `espalier/espalier.hpp` leaves out because few programs use it and all would wait for it. A program that
/// calls one of these functions without its header is told which to include.
///
/// These names are found through a using-directive: `espalier::save_checkpoint` means the function itself as soon as
/// its header is included, and where both are in sight (`using namespace espalier`) it takes its arguments as they are,
/// which is better than the conversions that these ask for.
namespace espalier::not_included {

/// Stands for an argument of any type.
struct any_argument {
  template <class T> constexpr any_argument(const T& /*value*/) {}  // NOLINT: implicit on purpose
};

/// The result of a call without the header: nothing that is done with it adds an error to the one that counts.
struct no_value {
  template <class... Arguments> const no_value& operator()(const Arguments&... /*at*/) const { return *this; }
  template <class T> operator T&() const;  // NOLINT: implicit on purpose
  template <class Index> const no_value& operator[](const Index& /*at*/) const { return *this; }
  template <class T> const no_value& operator=(const T& /*value*/) const { return *this; }  // NOLINT: of what is none
  no_value() = default;
  no_value(const no_value&) = default;
  no_value& operator=(const no_value&) = default;
  ~no_value() = default;
  // The questions that arrays, readers of files and maps are asked most.
  template <class... Arguments> no_value shape(const Arguments&... /*dimension*/) const { return {}; }
  template <class... Arguments> no_value read(const Arguments&... /*tensor*/) const { return {}; }
  template <class... Arguments> no_value find(const Arguments&... /*name*/) const { return {}; }
  template <class... Arguments> no_value at(const Arguments&... /*place*/) const { return {}; }
  [[nodiscard]] no_value size() const { return {}; }
  [[nodiscard]] no_value data() const { return {}; }
  [[nodiscard]] no_value metadata() const { return {}; }
  [[nodiscard]] const no_value* begin() const { return this; }
  [[nodiscard]] const no_value* end() const { return this; }
};
template <class Stream> Stream& operator<<(Stream& out, const no_value& /*value*/) { return out; }
template <class T> const no_value& operator+=(const no_value& to, const T& /*value*/) { return to; }
template <class T> const no_value& operator-=(const no_value& to, const T& /*value*/) { return to; }
template <class T> const no_value& operator*=(const no_value& to, const T& /*value*/) { return to; }
template <class T> const no_value& operator/=(const no_value& to, const T& /*value*/) { return to; }

template <class... Call> inline constexpr bool header_is_included = false;

template <class Call = void>
no_value save_checkpoint(any_argument /*world*/, any_argument /*tree*/, any_argument /*path*/,
                         any_argument /*metadata*/ = 0) {
  static_assert(header_is_included<Call>,
                "save_checkpoint: espalier.hpp does not bring it. Add #include <espalier/io.hpp>.");
  return {};
}
template <class Call = void>
no_value load_checkpoint(any_argument /*world*/, any_argument /*tree*/, any_argument /*path*/,
                         any_argument /*option*/ = 0, any_argument /*option*/ = 0) {
  static_assert(header_is_included<Call>,
                "load_checkpoint: espalier.hpp does not bring it. Add #include <espalier/io.hpp>.");
  return {};
}
template <class Call = void> no_value scatter(any_argument /*values*/, any_argument /*into*/) {
  static_assert(header_is_included<Call>,
                "scatter: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>.");
  return {};
}
template <class Call = void> no_value gather_xtensor(any_argument /*world*/, any_argument /*array*/) {
  static_assert(header_is_included<Call>,
                "gather_xtensor: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>.");
  return {};
}
template <class Call = void> no_value shard_view(any_argument /*array*/, any_argument /*local*/) {
  static_assert(header_is_included<Call>,
                "shard_view: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>.");
  return {};
}

}  // namespace espalier::not_included

namespace espalier {
namespace io {
// Code that catches or makes one without including its header gets one error, which says that the type is incomplete.
class checkpoint_error;
class safetensors_reader;
}  // namespace io
using namespace not_included;  // NOLINT: see above
}  // namespace espalier
