// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How arrays are printed: the compiled half of print.hpp.
#include <espalier/tensor/run/execute/print.hpp>

#include <cstdint>
#include <cstdio>
#include <string>

namespace espalier::detail {

template <class T> [[nodiscard]] T loaded(const void* element) { return *static_cast<const T*>(element); }

// Not by `with_storage`, whose ten instances every program would compile.
ESPALIER_INLINE std::string element_text(dtype type, const void* element) {
  double real = 0;
  std::int64_t whole = 0;
  bool is_whole = true;
  switch (type) {
    case dtype::boolean: whole = loaded<bool>(element) ? 1 : 0; break;
    case dtype::i8: whole = int{loaded<std::int8_t>(element)}; break;
    case dtype::u8: whole = loaded<std::uint8_t>(element); break;
    case dtype::i32: whole = loaded<std::int32_t>(element); break;
    case dtype::u32: whole = loaded<std::uint32_t>(element); break;
    case dtype::i64: whole = loaded<std::int64_t>(element); break;
    case dtype::f64:
      real = loaded<double>(element);
      is_whole = false;
      break;
    case dtype::bf16:
      real = static_cast<double>(static_cast<float>(loaded<bfloat16>(element)));
      is_whole = false;
      break;
    case dtype::f16:
      real = static_cast<double>(static_cast<float>(loaded<float16>(element)));
      is_whole = false;
      break;
    case dtype::f32:
      real = static_cast<double>(loaded<float>(element));
      is_whole = false;
      break;
  }
  if (is_whole) return std::to_string(whole);
  char text[40];
  std::snprintf(&text[0], sizeof(text), "%.9g", real);
  return &text[0];
}

#if defined(ESPALIER_COMPILED)
template std::string array_text(const any_array& array);
#endif

}  // namespace espalier::detail
