// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/json.hpp>
#include <espalier/io.hpp>

#include <charconv>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>

namespace gpt {

/// The note about the steps done, which `--resume` goes on from, and the tensor in which the optimizer counts them.
inline constexpr const char* step_note = "gpt.step";
inline constexpr const char* step_tensor = "step";

/// How many steps of a training of `steps` a checkpoint is the result of.
///
/// Errors: `checkpoint_error` if it does not say so in a whole number, if its optimizer counts otherwise, or if these
/// are more steps than the training has.
[[nodiscard]] inline std::int64_t steps_done(const espalier::io::safetensors_reader& file, std::int64_t steps) {
  using espalier::io::checkpoint_error;
  const auto note = file.metadata().find(step_note);
  if (note == file.metadata().end()) {
    throw checkpoint_error(file.path(), std::string("no ") + step_note + " beside the tensors",
                           "the number of steps done", "resume from a file that --checkpoint wrote");
  }
  const std::string& text = note->second;
  const std::string found = std::string(step_note) + " is " + espalier::detail::json_string(text);
  std::int64_t done = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), done);
  if (error != std::errc() || end != text.data() + text.size() || done < 0) {
    throw checkpoint_error(file.path(), found, "the number of steps done, from 0 on",
                           "the file is damaged or was edited: use another copy");
  }
  // Single precision counts to 2^24 and stays there.
  constexpr std::int64_t countable = std::int64_t{1} << 24;
  const auto* const counter = file.find(step_tensor);
  if (counter != nullptr && counter->type == espalier::dtype::f32 && counter->shape.empty()) {
    float counted = 0;
    file.read(step_tensor, &counted);
    const bool agree =
        done < countable ? counted == static_cast<float>(done) : counted == static_cast<float>(countable);
    if (!agree) {
      std::ostringstream number;
      number << std::setprecision(9) << counted;
      throw checkpoint_error(file.path(), found + ", but the optimizer has counted " + number.str(), "the same number",
                             "the file is damaged or was edited: use another copy");
    }
  }
  if (done > steps) {
    throw checkpoint_error(file.path(), "the state after step " + std::to_string(done),
                           "one of a training of " + std::to_string(steps) + " steps",
                           "give the length of that training: --steps " + std::to_string(done) + " or more");
  }
  return done;
}

}  // namespace gpt
