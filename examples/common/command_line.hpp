// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/launch.hpp>

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <optional>
#include <string>

/// Command lines of the examples, by CLI11. Under mpirun every rank has the same one, and the first speaks for all.
namespace command_line {

/// An application with the examples' look: options of one line, defaults in brackets.
class application : public CLI::App {
 public:
  application(const std::string& what, const std::string& name, const std::string& behind = {}) : App(what, name) {
    const auto look = std::make_shared<CLI::Formatter>();
    look->column_width(30);
    look->label("TEXT", "");
    formatter(look);
    footer(behind);
  }
};

/// Reads the command line. A value is what the program is to end with at once: 0 after --help, 2 after a mistake, which
/// it has named.
[[nodiscard]] inline std::optional<int> parse(CLI::App& application, int argc, char** argv) {
  try {
    application.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    if (espalier::comm::launcher_rank() == 0) std::cout << application.help() << std::flush;
    return 0;
  } catch (const CLI::ParseError& mistake) {
    if (espalier::comm::launcher_rank() == 0) {
      std::cerr << application.get_name() << ": " << mistake.what() << "; " << application.get_name()
                << " --help lists the options\n";
    }
    return 2;
  }
}

}  // namespace command_line
