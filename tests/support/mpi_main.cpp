// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// Catch2's session on every rank. Each rank's report is held back; at the end rank 0 prints those of the ranks that
// failed, in rank order. A rank that cannot go on (exception, signal, deserted by the others) prints its own and ends
// the job, so a failure is never a hang without words.
#define CATCH_CONFIG_RUNNER
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <catch2/catch.hpp>

#include <boost/mpi/environment.hpp>
#include <mpi.h>
#include <support/tag_by_file.hpp>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <streambuf>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t report_capacity = std::size_t{1} << 20U;
constexpr std::size_t name_capacity = 256;
constexpr std::chrono::seconds patience{10};

// Read by a signal handler: plain memory of static size.
char report[report_capacity];
std::atomic<std::size_t> report_size{0};
char current_test[name_capacity] = "(no test yet)";
char rank_label[name_capacity] = "rank ?";
std::atomic<int> failures{0};
std::atomic<bool> has_spoken{false};
int rank = 0;
int size = 1;

void write_text(const char* text, std::size_t length) {
  while (length > 0) {
    const ssize_t written = ::write(STDERR_FILENO, text, length);
    if (written <= 0) return;
    text += written;
    length -= static_cast<std::size_t>(written);
  }
}

void write_text(const char* text) { write_text(text, std::strlen(text)); }

/// Says where this rank is, why it ends, and what it has to report. Async-signal-safe.
void write_last_words(const char* reason) {
  if (has_spoken.exchange(true)) return;
  write_text("--- ");
  write_text(rank_label);
  write_text(", in test \"");
  write_text(current_test);
  write_text("\": ");
  write_text(reason);
  write_text("\n");
  if (failures > 0) write_text(report, report_size);
}

void copy_text(char (&to)[name_capacity], const std::string& from) {
  const std::size_t length = std::min(from.size(), name_capacity - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

class report_buffer : public std::streambuf {
 protected:
  int_type overflow(int_type character) override {
    const char text = traits_type::to_char_type(character);
    xsputn(&text, 1);
    return character;
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    const std::size_t start = report_size;
    const std::size_t length = std::min(static_cast<std::size_t>(count), report_capacity - start);
    std::memcpy(report + start, text, length);
    report_size = start + length;
    return count;
  }
};

[[noreturn]] void end_job(const std::string& reason) {
  write_last_words(reason.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

extern "C" void on_signal(int number) {
  if (number == SIGALRM) {
    // Every rank's alarm rings at the same time: let all speak before the first to end takes the others with it.
    write_last_words("the test's time limit has passed, this is where the rank was");
    ::sleep(2);
    ::_exit(1);
  }
  switch (number) {
    case SIGTERM: write_last_words("ended by mpirun, another rank failed"); break;
    case SIGSEGV: write_last_words("segmentation fault"); break;
    case SIGABRT: write_last_words("abort()"); break;
    case SIGFPE: write_last_words("arithmetic error"); break;
    default: write_last_words("fatal signal"); break;
  }
  std::signal(number, SIG_DFL);
  std::raise(number);
}

[[noreturn]] void on_terminate() {
  std::string what = "uncaught exception";
  if (const auto error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) { what += std::string(": ") + exception.what(); } catch (...) {
      what += " of unknown type";
    }
  }
  failures += 1;
  end_job(what);
}

/// Lets all ranks meet after each pass through a test case, so that a rank that left it early is noticed there and not
/// in the middle of the next one.
class keep_together : public Catch::TestEventListenerBase {
 public:
  explicit keep_together(const Catch::ReporterConfig& config) : TestEventListenerBase(config) {
    MPI_Comm_dup(MPI_COMM_WORLD, &meeting_);
  }

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TestEventListenerBase::testCaseStarting(info);
    copy_text(current_test, info.name);
    pass_ = 0;
  }

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    const auto& result = stats.assertionResult;
    if (result.isOk()) return false;
    failures += 1;
    failed_in_pass_ = true;
    if (result.getResultType() == Catch::ResultWas::ThrewException) {
      const auto where = result.getSourceInfo();
      end_job("unexpected exception: " + result.getMessage() + "\n    " + where.file + ":" +
              std::to_string(where.line) + ": " + result.getExpressionInMacro());
    }
    return false;
  }

  // A rank that failed early has fewer passes: then this meets another's next pass, and the difference is seen.
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    TestEventListenerBase::testCaseEnded(stats);
    pass_ = -1;
    meet();
  }

  void sectionStarting(const Catch::SectionInfo& info) override {
    TestEventListenerBase::sectionStarting(info);
    depth_ += 1;
  }

  void sectionEnded(const Catch::SectionStats& stats) override {
    TestEventListenerBase::sectionEnded(stats);
    depth_ -= 1;
    if (depth_ == 0) {
      pass_ += 1;
      meet();
    }
  }

 private:
  void meet() {
    const std::uint64_t here = std::hash<std::string>{}(std::string(current_test) + "#" + std::to_string(pass_));
    std::vector<std::uint64_t> everywhere(static_cast<std::size_t>(size));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(&here, 1, MPI_UINT64_T, everywhere.data(), 1, MPI_UINT64_T, meeting_, &request);
    const auto start = std::chrono::steady_clock::now();
    for (int done = 0;;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) break;
      if (failed_in_pass_ && std::chrono::steady_clock::now() - start > patience) {
        end_job("failed, and the other ranks did not leave the test within 10 s (REQUIRE_ALL leaves on all ranks)");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    for (const auto there : everywhere) {
      if (there != here) end_job("the ranks are no longer in the same test (REQUIRE_ALL leaves on all ranks)");
    }
    failed_in_pass_ = false;
  }

  MPI_Comm meeting_ = MPI_COMM_NULL;
  int depth_ = 0;
  int pass_ = 0;
  bool failed_in_pass_ = false;
};
CATCH_REGISTER_LISTENER(keep_together)

/// Prints on rank 0, in rank order, the reports of the ranks whose exit code is not zero; else rank 0's summary.
void print_reports(int code) {
  const int mine = (code != 0 || rank == 0) ? static_cast<int>(report_size) : 0;
  std::vector<int> lengths(static_cast<std::size_t>(size));
  std::vector<int> codes(static_cast<std::size_t>(size));
  MPI_Gather(&mine, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Gather(&code, 1, MPI_INT, codes.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank != 0) {
    MPI_Send(report, mine, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    return;
  }
  const auto failed = std::count_if(codes.begin(), codes.end(), [](int other) { return other != 0; });
  for (int other = 0; other < size; ++other) {
    const auto index = static_cast<std::size_t>(other);
    std::string text(static_cast<std::size_t>(lengths[index]), ' ');
    if (other == 0) {
      text.assign(report, static_cast<std::size_t>(mine));
    } else {
      MPI_Recv(text.data(), lengths[index], MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (codes[index] != 0) std::cout << "=== rank " << other << " of " << size << " ===\n" << text;
    if (failed == 0 && other == 0) std::cout << "on each of " << size << " ranks: " << text;
  }
  if (failed > 0) std::cout << failed << " of " << size << " ranks failed\n";
  std::cout.flush();
}

}  // namespace

int main(int argc, char** argv) {
  const boost::mpi::environment environment(argc, argv, boost::mpi::threading::serialized);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  copy_text(rank_label, "rank " + std::to_string(rank) + " of " + std::to_string(size));
  std::set_terminate(on_terminate);
  for (const int number : {SIGTERM, SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS, SIGALRM}) std::signal(number, on_signal);
  // mpirun's own --timeout kills the ranks before they can say where they were.
  if (const char* limit = std::getenv("ESPALIER_TEST_TIMEOUT")) {
    ::alarm(static_cast<unsigned>(std::strtoul(limit, nullptr, 10)));
  }
  if (boost::mpi::environment::thread_level() < boost::mpi::threading::serialized) {
    end_job("MPI offers less than MPI_THREAD_SERIALIZED");
  }

  report_buffer held_back;
  std::streambuf* const console = std::cout.rdbuf(&held_back);
  int code = 0;
  {
    Catch::Session session;
    session.configData().useColour = Catch::UseColour::No;
    code = session.applyCommandLine(argc, argv);
    if (code == 0) {
      espalier::test::tag_by_file(session);
      code = session.run();
    }
  }
  std::cout.rdbuf(console);
  print_reports(code);
  int worst = 0;
  MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return worst;
}
