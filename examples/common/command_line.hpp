// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/output.hpp>
#include <espalier/comm/launch.hpp>

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

/// Command lines of the examples, by CLI11. Under mpirun every rank has the same one, and the first speaks for all.
namespace command_line {

/// Options as `--steps N [2400]`: what a value is, and what it is without the option.
class look : public CLI::Formatter {
 public:
  look() { column_width(26); }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string& otherwise = option->get_default_str();
    return ' ' + option->get_type_name() + (otherwise.empty() ? "" : " [" + otherwise + ']');
  }

  /// Wraps the description into lines that fit beside the column of options.
  std::string make_option_desc(const CLI::Option* option) const override {
    constexpr std::size_t width = 92;
    std::string out;
    std::string line;
    std::istringstream words(option->get_description());
    for (std::string word; words >> word;) {
      if (!line.empty() && line.size() + 1 + word.size() > width) {
        out += line + '\n';
        line.clear();
      }
      line += (line.empty() ? "" : " ") + word;
    }
    return out + line;
  }
};

/// The name of a program, what it does, and the text after its options.
class application : public CLI::App {
 public:
  application(const std::string& name, const std::string& what, const std::string& behind = {}) : App(what, name) {
    formatter(std::make_shared<look>());
    footer(behind);
    // The caller of a script may override the options that the script gives by default.
    option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }

  /// An option with a value, which help calls `value`; what the variable has is the default.
  template <class T>
  CLI::Option* value(const std::string& option, T& variable, const std::string& value, const std::string& what) {
    return add_option(option, variable, what)->type_name(value)->capture_default_str();
  }
};

/// A whole number from `least` to `most`.
[[nodiscard]] inline CLI::Validator whole(std::int64_t least,
                                          std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  const auto check = [=](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most) return {};
    return '"' + text + "\" is no whole number " +
           (most == std::numeric_limits<std::int64_t>::max()
                ? "of at least " + std::to_string(least)
                : "from " + std::to_string(least) + " to " + std::to_string(most));
  };
  return {check, ""};
}

/// Whether a text is a finite number, and which.
[[nodiscard]] inline std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}
/// A number above 0.
[[nodiscard]] inline CLI::Validator positive() {
  const auto check = [](const std::string& text) -> std::string {
    return number_in(text).value_or(0) > 0 ? "" : '"' + text + "\" is no positive number";
  };
  return {check, ""};
}
/// A number of at least 0, and at most `most`.
[[nodiscard]] inline CLI::Validator not_negative(double most = std::numeric_limits<double>::infinity()) {
  const auto check = [=](const std::string& text) -> std::string {
    const double value = number_in(text).value_or(-1);
    if (value >= 0 && value <= most) return {};
    return '"' + text + "\" is no number " +
           (std::isfinite(most) ? "from 0 to " + std::to_string(static_cast<std::int64_t>(most)) : "of at least 0");
  };
  return {check, ""};
}

/// Reads the command line; `check`, called then, may throw `CLI::ValidationError` about values that do not go together.
/// A value is what the program is to end with at once: 0 after --help, 2 after a mistake, which it has named.
template <class Check>
[[nodiscard]] std::optional<int> parse(CLI::App& application, int argc, char** argv, const Check& check) {
  try {
    application.parse(argc, argv);
    check();
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    if (espalier::comm::launcher_rank() == 0) std::cout << application.help() << std::flush;
    return 0;
  } catch (const CLI::ParseError& mistake) {
    const std::string& name = application.get_name();
    if (espalier::comm::launcher_rank() == 0)
      std::cerr << name << ": " << mistake.what() << "; " << name << " --help lists the options\n";
    return 2;
  }
}
[[nodiscard]] inline std::optional<int> parse(CLI::App& application, int argc, char** argv) {
  return parse(application, argc, argv, [] {});
}

/// The code that a main returns: `code`, or 1 and a message if it is 0 and what was printed cannot be written.
[[nodiscard]] inline int ended(const char* program, int code) {
  const std::string failure = espalier::detail::unwritten_output();
  if (code != 0 || failure.empty()) return code;
  std::cerr << program << ": " << failure << '\n';
  return 1;
}

}  // namespace command_line
