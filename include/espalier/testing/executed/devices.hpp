// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/testing/executed/elements.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>

/// The surroundings of a simulated device: memory with margins, and no communicator of its own.
namespace espalier::test {

/// Stands where an executor has its communicator: collectives are carried out for all devices at once.
struct no_communicator {
  void prepare(const comm::transfer_group&) {}
  void set_context(const comm::context*) {}
  template <class... Any> void exchange(const Any&...) { refuse(); }
  template <class... Any> void reduce_exchange(const Any&...) { refuse(); }
  template <class... Any> void all_reduce(const Any&...) { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("a device communicates by itself"); }
};

/// Memory with a margin on both sides, all of it poisoned.
class guarded_buffer {
 public:
  explicit guarded_buffer(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), memory_(new char[bytes_ + 2 * margin]) {
    std::memset(memory_.get(), poison, bytes_ + 2 * margin);
  }
  [[nodiscard]] char* data() const { return memory_.get() + margin; }
  [[nodiscard]] bool is_intact() const {
    const auto clean = [](char c) { return c == static_cast<char>(poison); };
    return std::all_of(memory_.get(), data(), clean) && std::all_of(data() + bytes_, data() + bytes_ + margin, clean);
  }

 private:
  static constexpr std::size_t margin = 64;
  std::size_t bytes_;
  std::unique_ptr<char[]> memory_;
};

}  // namespace espalier::test
