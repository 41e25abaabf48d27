// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <support/tag_by_file.hpp>

int main(int argc, char** argv) {
  Catch::Session session;
  if (const int code = session.applyCommandLine(argc, argv); code != 0) return code;
  espalier::test::tag_by_file(session);
  return session.run();
}
