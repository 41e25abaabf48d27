// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random_graph.hpp>
#include <support/graph_text.hpp>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

/// Random programs as files, tests/data/programs/*.txt: the text of the graph on its mesh, after a line that says what
/// its arguments are. The fuzz writes the program that fails; kept, it is run again by every test run, whatever
/// becomes of the generator.
///
///     // seed=41349121 numbers=smooth floats=f64
///     mesh x=2, y=2
///     %0 = argument<number=0> : f64[4, 3]
namespace espalier::test {

struct kept_program {
  std::uint32_t seed = 0;
  numbers kind = numbers::smooth;
  dtype float_type = dtype::f64;
  parsed_graph program;
};

[[nodiscard]] inline std::string kept_text(std::uint32_t seed, const program_options& options, graph_view g) {
  std::ostringstream out;
  out << "// seed=" << seed << " numbers=" << (options.kind == numbers::smooth ? "smooth" : "whole")
      << " floats=" << name_of(options.float_type) << '\n'
      << text_of_graph(options.mesh, axis_parts::whole(options.mesh), g);
  return out.str();
}

/// Writes a program to a file of its own in the folder ESPALIER_FUZZ_KEEP, or in the current one, and returns its path.
[[nodiscard]] inline std::string keep_program(std::uint32_t seed, const program_options& options, graph_view g) {
  const char* const folder = std::getenv("ESPALIER_FUZZ_KEEP");
  const std::string path = std::string(folder == nullptr ? "." : folder) + "/program_" + std::to_string(seed) + ".txt";
  std::ofstream(path) << kept_text(seed, options, g);
  return path;
}

[[nodiscard]] inline kept_program read_kept_program(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  const auto word_after = [&](const std::string& key) {
    const std::size_t at = text.find(key);
    if (at == std::string::npos) throw std::invalid_argument(path + ": the first lines do not say " + key);
    const std::size_t start = at + key.size();
    return text.substr(start, text.find_first_of(" \n", start) - start);
  };
  kept_program kept;
  kept.seed = static_cast<std::uint32_t>(std::stoul(word_after("seed=")));
  kept.kind = word_after("numbers=") == "smooth" ? numbers::smooth : numbers::whole;
  const std::string floats = word_after("floats=");
  for (int t = 0; t < dtype_count; ++t) {
    if (floats == name_of(static_cast<dtype>(t))) kept.float_type = static_cast<dtype>(t);
  }
  kept.program = parsed(text);
  return kept;
}

}  // namespace espalier::test
