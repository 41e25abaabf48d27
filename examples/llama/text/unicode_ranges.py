#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Writes unicode_ranges.hpp, the letters and numbers of Python's Unicode database: unicode_ranges.py >unicode_ranges.hpp"""
import sys
import unicodedata


def ranges(first_letter):
    found = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != first_letter:
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, what, first_letter):
    print(f"/// {what}\ninline constexpr code_range {name}[] = {{")
    line = "   "
    for low, high in ranges(first_letter):
        item = f" {{0x{low:x}, 0x{high:x}}},"
        if len(line) + len(item) > 118:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")


print(f"""// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// Made by unicode_ranges.py from Unicode {unicodedata.unidata_version}.
#pragma once

#include <cstdint>

namespace llama {{

/// Code points from `low` to `high`.
struct code_range {{
  std::uint32_t low;
  std::uint32_t high;
}};

// clang-format off""")
table("letters", "General category L.", "L")
table("numbers", "General category N.", "N")
print("// clang-format on\n\n}  // namespace llama")
