// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/base/table.hpp>

#include <catch2/catch.hpp>

#include <limits>
#include <sstream>

using namespace espalier::report;

TEST_CASE("numbers read as a person writes them", "[report]") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(-1234567) == "-1,234,567");
  CHECK(format_count(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");

  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.00 KiB");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(12 * 1024 * 1024) == "12.0 MiB");
  CHECK(format_bytes(1024 * 1024 - 1) == "1.00 MiB");
  CHECK(format_bytes(1000 * 1024) == "1000 KiB");
  CHECK(format_bytes(-2048) == "-2.00 KiB");
  CHECK(format_bytes(std::numeric_limits<std::int64_t>::max()) == "8.00 EiB");

  CHECK(format_scaled(0.25) == "0.25");
  CHECK(format_scaled(9.999) == "10.0");
  CHECK(format_scaled(1500, "tokens/s") == "1.50 ktokens/s");
  CHECK(format_scaled(12.34e9, "FLOP/s") == "12.3 GFLOP/s");
  CHECK(format_scaled(999.7e6, "B/s") == "1.00 GB/s");
  CHECK(format_scaled(std::numeric_limits<double>::infinity(), "B/s") == "inf B/s");

  CHECK(format_percent(0.123) == "12.3 %");
  CHECK(format_percent(1, 0) == "100 %");
  CHECK(format_fixed(3.14159, 3) == "3.142");
}

TEST_CASE("durations read as a person says them", "[report]") {
  CHECK(format_duration(0) == "0 s");
  CHECK(format_duration(3.5e-8) == "35.0 ns");
  CHECK(format_duration(350e-6) == "350 us");
  CHECK(format_duration(999.7e-6) == "1.00 ms");
  CHECK(format_duration(0.0125) == "12.5 ms");
  CHECK(format_duration(4.2) == "4.20 s");
  CHECK(format_duration(59.94) == "59.9 s");
  CHECK(format_duration(59.96) == "1 min");
  CHECK(format_duration(72) == "1 min 12 s");
  CHECK(format_duration(119.6) == "2 min");
  CHECK(format_duration(3599.4) == "59 min 59 s");
  CHECK(format_duration(3599.6) == "1 h");
  CHECK(format_duration(7500) == "2 h 5 min");
  CHECK(format_duration(86399) == "1 d");
  CHECK(format_duration(3 * 86400 + 4 * 3600) == "3 d 4 h");
  CHECK(format_duration(-72) == "-1 min 12 s");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(format_duration(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(format_duration(1e300).find("years") != std::string::npos);
}

TEST_CASE("a table aligns numbers right and text left", "[report]") {
  table t({{"op"}, {"count"}, {"time", "ms"}, {"bytes"}, {"note", "", align::right}});
  t.row("all_gather", 1234, 0.5, format_bytes(1536), "a");
  t.row(std::string("einsum"), 7, 12.25, "-", "bcd");
  std::ostringstream out;
  out << t;
  CHECK(out.str() ==
        "op          count  time [ms]     bytes  note\n"
        "----------  -----  ---------  --------  ----\n"
        "all_gather  1,234       0.50  1.50 KiB     a\n"
        "einsum          7      12.25         -   bcd\n");
  CHECK(t.rows() == 2);
  CHECK_THROWS_WITH(t.row("too", "few"), Catch::Contains("2 cells") && Catch::Contains("5 columns"));
}

TEST_CASE("a table's edges", "[report]") {
  table t({{"name"}, {"value"}});
  std::ostringstream empty;
  t.print(empty);
  CHECK(empty.str() == "name  value\n----  -----\n");
  t.row("4 heads", "mixed").row("x", true);  // one cell that is no number makes a text column
  std::ostringstream out;
  t.print(out, "  ");
  CHECK(out.str() ==
        "  name     value\n"
        "  -------  -----\n"
        "  4 heads  mixed\n"
        "  x        yes\n");
}
