// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/base/output.hpp>
#include <espalier/tensor/run/report/plan_file.hpp>

#include <exception>
#include <iostream>
#include <string>
#include <string_view>

// Says in words what changed from one plan of a program to another. It is installed as espalier-plan; docs/explain.md
// says how plans are written.

namespace {

constexpr const char* usage =
    "Usage: espalier-plan diff BEFORE AFTER\n"
    "Says what changed from the plan in one file to the plan in the other, a line for each change. A file is one that\n"
    "ep::write_plan<step>(FILE) wrote, or the text of ep::plan_text<step>().\n"
    "Exit status: 0 if nothing but lines of source differs, 1 if something does, 2 if a file is no plan or that of\n"
    "another program.\n";

int compare(const std::string& before, const std::string& after) {
  const espalier::plan_document a = espalier::read_plan(before);
  const espalier::plan_document b = espalier::read_plan(after);
  const espalier::plan_differences found = espalier::compare_plans(a, b);
  for (const std::string& change : found.changes) std::cout << change << '\n';
  if (found.moved > 0) {
    std::cout << found.moved << (found.moved == 1 ? " collective is" : " collectives are")
              << " the same on another line\n";
  } else if (found.changes.empty()) {
    std::cout << "no change\n";
  }
  return found.changes.empty() ? 0 : 1;
}

int run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "--help" || command == "-h") {
    std::cout << usage;
    return 0;
  }
  if (command != "diff" || argc != 4) {
    if (argc == 1) {
      std::cerr << "espalier-plan: a command is missing; espalier-plan --help lists it\n";
    } else if (command != "diff") {
      std::cerr << "espalier-plan: there is no command \"" << command << "\"; espalier-plan --help lists it\n";
    } else {
      std::cerr << "espalier-plan: diff takes two files, not " << argc - 2 << "; espalier-plan --help says which\n";
    }
    return 2;
  }
  return compare(argv[2], argv[3]);
}

}  // namespace

int main(int argc, char** argv) {
  int code = 2;
  try {
    code = run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "espalier-plan: " << error.what() << '\n';
    return 2;
  }
  const std::string failure = espalier::detail::unwritten_output();
  if (failure.empty()) return code;
  std::cerr << "espalier-plan: " << failure << '\n';
  return 2;
}
