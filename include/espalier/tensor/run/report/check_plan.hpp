// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/plan_text.hpp>
#include <espalier/tensor/run/report/plan_file.hpp>

#include <string>

namespace espalier {

/// Compares the plan of a program with the one in a file; in a test, `ep::check_plan<step>("plans/train.plan")` fails
/// when the program sends, needs or computes something else than when the file was written.
/// @param file one that `write_plan` wrote, or the text that `plan_text` returns; lines of source may be others
/// Errors: `plan_changed`, whose message says in a line each what changed; `plan_error` if the file cannot be read, is
/// no plan, or is that of another program.
template <class Program, detail::fixed_string Name = "", plan_rates Rates = plan_rates{}>
void check_plan(const std::string& file) {
  detail::check_plan_file(file, plan_text<Program, Name, Rates>());
}
/// The same of a program that `compile` returned: `check_plan<"train">(file, step)`.
template <detail::fixed_string Name = "", plan_rates Rates = plan_rates{}, class Program>
void check_plan(const std::string& file, const Program& /*program*/) {
  check_plan<Program, Name, Rates>(file);
}

/// Writes the plan of a program into a file, as a raw string that C++ can include:
/// `constexpr std::string_view kept =`, a line with `#include "train.plan"`, and `;`.
/// Errors: `plan_error` if the file cannot be written.
template <class Program, detail::fixed_string Name = "", plan_rates Rates = plan_rates{}>
void write_plan(const std::string& file) {
  detail::write_plan_file(file, plan_text<Program, Name, Rates>());
}
/// The same of a program that `compile` returned: `write_plan<"train">(file, step)`.
template <detail::fixed_string Name = "", plan_rates Rates = plan_rates{}, class Program>
void write_plan(const std::string& file, const Program& /*program*/) {
  write_plan<Program, Name, Rates>(file);
}

}  // namespace espalier
