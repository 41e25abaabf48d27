// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace espalier {

/// Memory aligned to cache lines (and to whole vectors), zeroed, shared by its copies.
class shared_buffer {
 public:
  shared_buffer() = default;
  explicit shared_buffer(std::int64_t bytes) : bytes_(bytes) {
    constexpr std::align_val_t alignment{64};
    const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
    void* const memory = ::operator new(size, alignment);
    std::memset(memory, 0, size);
    memory_ = std::shared_ptr<void>(memory, [](void* p) { ::operator delete (p, std::align_val_t{64}); });
  }
  [[nodiscard]] void* data() const { return memory_.get(); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> memory_;
  std::int64_t bytes_ = 0;
};

}  // namespace espalier
