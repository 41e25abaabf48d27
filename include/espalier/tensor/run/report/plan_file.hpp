// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// Plans as files: what `plan_text` wrote is read, and the differences of two plans are sentences.

namespace espalier {

/// Raised where a text is no plan, or two plans are of different programs; its message is a sentence that names the
/// file.
class plan_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// Raised by `check_plan` where a program has another plan than the file.
class plan_changed : public plan_error {
 public:
  using plan_error::plan_error;
};

/// A collective of a plan, in the words of the file; a field that it does not have is empty.
struct plan_entry {
  /// `all_reduce`, and `data*model`. One that travels in the messages of another has the kind and axes of that one.
  std::string kind;
  std::string axes;
  bool travels = false;
  std::int64_t times = 0;
  /// The bytes that a device sends, once.
  std::int64_t bytes = 0;
  /// `f32[64@data, 256]`
  std::string layout;
  /// `block.hpp:12, called from model.hpp:31`
  std::string line;
  /// The annotation that led to the layout: `mlp.cpp:17 f32[64@data, 1024@model]`
  std::string cause;
};

/// A plan that was read.
struct plan_document {
  /// Where it comes from, for messages.
  std::string file;
  std::string program;
  std::string mesh;
  std::int64_t annotated = 0;
  std::int64_t values = 0;
  /// Bytes of a device.
  std::int64_t peak = 0;
  std::int64_t arguments = 0;
  std::int64_t results = 0;
  std::int64_t between = 0;
  /// Bytes that a device sends in a run, and the collectives that it takes part in.
  std::int64_t sent = 0;
  std::int64_t collectives = 0;
  /// The predicted times, `83.886 us`, and the machine that they are predicted for.
  std::string sending;
  std::string computing;
  std::string machine;
  std::vector<plan_entry> entries;
};

/// The differences between two plans, each a sentence.
struct plan_differences {
  /// "the all-gather over x at main.cpp:41 grew from 512 to 2,048 B"; empty if nothing but lines of source differs.
  std::vector<std::string> changes;
  /// The number of collectives that differ in nothing but lines of source.
  int moved = 0;
};

/// Reads a plan, as `plan_text` returns or `write_plan` writes it.
/// @param file its name, for messages
/// Errors: `plan_error` if it is no plan, has a version that is not known, or a line that no plan has.
[[nodiscard]] plan_document parse_plan(std::string_view text, const std::string& file);

/// Reads the plan in a file. Errors: as of `parse_plan`, and if the file cannot be read.
[[nodiscard]] plan_document read_plan(const std::string& file);

/// Returns the differences of two plans of one program. Collectives are found again by their kind, axes, lines and
/// layouts, so that a plan whose source has moved by some lines has no changes.
/// Errors: `plan_error` if the plans are of programs with different names.
[[nodiscard]] plan_differences compare_plans(const plan_document& before, const plan_document& after);

namespace detail {
void write_plan_file(const std::string& file, std::string_view text);
void check_plan_file(const std::string& file, std::string_view text);
}  // namespace detail

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/report/impl/plan_file.ipp>
#endif
