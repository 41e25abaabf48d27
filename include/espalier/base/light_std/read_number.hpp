// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <charconv>
#include <system_error>
#include <version>

#if !defined(__cpp_lib_to_chars)
#include <cctype>
#include <locale>
#include <sstream>
#include <string>
#endif

namespace espalier::detail {

/// std::from_chars of a double, which libc++ has not: there a stream reads the longest beginning that can be a number.
inline std::from_chars_result read_number(const char* first, const char* last, double& value) {
#if defined(__cpp_lib_to_chars)
  return std::from_chars(first, last, value);
#else
  // Digits with a sign, a point and an exponent: a stream would also take hexadecimal ones.
  const char* end = first;
  const auto digits = [&] {
    const char* const begin = end;
    while (end != last && std::isdigit(static_cast<unsigned char>(*end)) != 0) ++end;
    return end != begin;
  };
  if (end != last && *end == '-') ++end;
  bool any = digits();
  if (end != last && *end == '.') {
    ++end;
    any = digits() || any;
  }
  if (!any) return {first, std::errc::invalid_argument};
  if (end != last && (*end == 'e' || *end == 'E')) {
    const char* const mantissa = end++;
    if (end != last && (*end == '-' || *end == '+')) ++end;
    if (!digits()) end = mantissa;
  }
  std::istringstream text(std::string(first, end));
  text.imbue(std::locale::classic());
  double read = 0;
  if (!(text >> read)) return {end, std::errc::result_out_of_range};
  value = read;
  return {end, std::errc{}};
#endif
}

}  // namespace espalier::detail
