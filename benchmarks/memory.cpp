// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The memory of a training step: what the compiler computed, what is really touched, what an independent walk over the
// order of execution finds alive, and what the operating system sees.

#include "machine.hpp"
#include "steps/gpt_step.hpp"

#include <espalier/tensor/run/execute/steps.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <vector>

namespace {

/// Every block of cache-line alignment that the program asks for: the arena is one of them.
struct aligned_block {
  void* data = nullptr;
  std::size_t bytes = 0;
};
constexpr int most_blocks = 4096;
aligned_block blocks[most_blocks];
int block_count = 0;

}  // namespace

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, static_cast<std::size_t>(alignment), bytes) != 0) throw std::bad_alloc();
  if (block_count < most_blocks) blocks[block_count++] = {memory, bytes};
  return memory;
}
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

using namespace espalier;
using namespace espalier::benchmarks;
using detail::device_step;
using detail::step_kind;

/// A line of /proc/self/status, in bytes.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return 0;
}

/// Follows the executor's walk over the steps, loops included, and notes every time it touches a buffer of the arena.
/// A buffer is alive from the moment it is written to the last time that this content is touched.
class liveness {
 public:
  explicit liveness(const program_tables& t) : t_(t), steps_(t), touched_(static_cast<std::size_t>(t.code.size)) {
    left_.assign(static_cast<std::size_t>(t.code.size), 0);
    for (int n = 0; n < steps_.size();) {
      const int before = n;
      n = execute(n);
      // All instructions of one launch happen at one time.
      if (n <= before || n >= steps_.size() || steps_[n].launch != steps_[before].launch) ++time_;
    }
  }

  /// The largest sum of what is alive during one launch, in bytes without any alignment.
  [[nodiscard]] std::int64_t most_bytes() const {
    std::vector<std::int64_t> change(static_cast<std::size_t>(time_) + 1, 0);
    for (std::size_t root = 0; root < touched_.size(); ++root) {
      const std::int64_t bytes = bytes_of(t_.code[static_cast<int>(root)]);
      for (const life& one : touched_[root]) {
        change[static_cast<std::size_t>(one.first)] += bytes;
        change[static_cast<std::size_t>(one.last) + 1] -= bytes;
      }
    }
    std::int64_t live = 0;
    std::int64_t most = 0;
    for (const std::int64_t step : change) most = std::max(most, live += step);
    return most;
  }
  [[nodiscard]] int executed_launches() const { return time_; }

 private:
  struct life {
    int first = 0;
    int last = 0;
  };

  [[nodiscard]] int arena_root(int id) const {
    return id >= 0 && t_.where[id].space == memory_space::arena ? t_.root[id] : -1;
  }
  void touch(int id) {
    const int root = arena_root(id);
    if (root < 0) return;
    auto& lives = touched_[static_cast<std::size_t>(root)];
    if (lives.empty()) lives.push_back({time_, time_});
    lives.back().last = time_;
  }
  /// Writing a whole buffer ends the life of what was in it.
  void write(int id, bool reads_too = false) {
    const int root = arena_root(id);
    if (root < 0) return;
    auto& lives = touched_[static_cast<std::size_t>(root)];
    const bool is_whole = t_.where[id].region < 0 && bytes_of(t_.code[id]) == bytes_of(t_.code[root]);
    if (is_whole && !reads_too && !lives.empty() && lives.back().last < time_) lives.push_back({time_, time_});
    touch(id);
  }

  /// Notes what step `n` touches and returns the one to go on with.
  int execute(int n) {
    const device_step& s = steps_[n];
    switch (s.kind) {
      case step_kind::chain: touch_chain(t_.chains[s.launch]); break;
      case step_kind::kernel:
        for (int k = 0; k < t_.code[s.target].operand_count; ++k) touch(t_.code.operand_at(t_.code[s.target], k));
        write(s.target);
        break;
      case step_kind::copy:
      case step_kind::local_slice:
      case step_kind::move:
        touch(s.source);
        write(s.target);
        break;
      case step_kind::save: touch(s.source); break;
      case step_kind::copy_saved:
      case step_kind::clear: write(s.target); break;
      case step_kind::add:
      case step_kind::stack:
        touch(s.source);
        touch(s.target);
        break;
      case step_kind::region_begin:
        left_[static_cast<std::size_t>(s.region)] = attributes_of<region_attributes>(t_.code[s.region]).iterations;
        break;
      case step_kind::region_end:
        if (--left_[static_cast<std::size_t>(s.region)] > 0) return s.jump;
        break;
    }
    return n + 1;
  }

  void touch_chain(const fused_chain& chain) {
    for (int s = chain.first_step; s < chain.first_step + chain.step_count; ++s) {
      const fused_step& step = t_.steps[s];
      for (int k = 0; k < step.operand_count; ++k) {
        if (step.operand[k].kind == source_kind::memory) touch(step.operand[k].value);
      }
      if (step.accumulates) {
        write(step.instruction);
      } else if (step.result.kind == source_kind::memory) {
        write(step.result.value);
      }
    }
  }

  const program_tables& t_;
  detail::step_list steps_;
  std::vector<std::vector<life>> touched_;
  std::vector<std::int64_t> left_;
  int time_ = 0;
};

/// How far into the arena a step really writes: bytes that differ from what was put there before.
std::int64_t written_bytes(gpt_step& step, unsigned char* arena, std::int64_t bytes) {
  std::int64_t most = 0;
  for (const int filling : {0x5A, 0xA5}) {  // a step may write one of them, hardly both in the same place
    std::memset(arena, filling, static_cast<std::size_t>(bytes));
    step.run(0);
    std::int64_t end = bytes;
    while (end > most && arena[end - 1] == filling) --end;
    most = std::max(most, end);
  }
  return aligned(most);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "";
  const std::int64_t before = status_bytes("VmRSS");
  world here(large_gpt_mesh());
  const auto step = make_large_gpt(here);
  const step_facts facts = step->facts();
  const program_tables tables = step->tables();
  constexpr double megabyte = 1e6;
  if (row == "peak_memory_arena") {
    aligned_block* const end = blocks + block_count;
    const aligned_block* const arena = std::find_if(
        blocks, end, [&](const aligned_block& b) { return b.bytes == static_cast<std::size_t>(facts.arena_bytes); });
    if (arena == end) {
      std::fprintf(stderr, "no block of %lld bytes was allocated\n", static_cast<long long>(facts.arena_bytes));
      return EXIT_FAILURE;
    }
    const std::int64_t written = written_bytes(*step, static_cast<unsigned char*>(arena->data), facts.arena_bytes);
    report(row, "ours", static_cast<double>(written), "B");
    report(row, "program::arena_bytes()", static_cast<double>(facts.arena_bytes), "B");
  } else if (row == "peak_memory_vs_bound") {
    const liveness walk(tables);
    std::printf("%d units executed\n", walk.executed_launches());
    report(row, "ours", static_cast<double>(facts.arena_bytes), "B");
    report(row, "alive at once", static_cast<double>(walk.most_bytes()), "B");
  } else if (row == "peak_memory_process") {
    for (int s = 0; s < 3; ++s) step->run(s);
    const auto peak = static_cast<double>(facts.peak_bytes);
    const auto resident = static_cast<double>(status_bytes("VmHWM"));
    std::printf(
        "resident at most %.1f MB, %.1f MB when main began; peak_bytes_per_device %.1f MB: arguments %.1f, "
        "results %.1f, arena %.1f; kernels' scratch %.1f MB\n",
        resident / megabyte, static_cast<double>(before) / megabyte, peak / megabyte,
        static_cast<double>(facts.argument_bytes) / megabyte, static_cast<double>(facts.result_bytes) / megabyte,
        static_cast<double>(facts.arena_bytes) / megabyte, static_cast<double>(tables.kernel_scratch_bytes) / megabyte);
    report(row, "ours", (resident - peak) / megabyte, "MB");
  } else {
    std::fprintf(stderr, "usage: %s peak_memory_{arena,vs_bound,process}\n", argv[0]);
    return EXIT_FAILURE;
  }
}
