// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace espalier {

namespace detail {

inline constexpr std::size_t huge_page = std::size_t{1} << 21U;

/// Whole pages of 2 MiB where the system has them: a program passes over much memory, and each page of 4 KiB costs a
/// look-up, for which no prefetcher fetches ahead, and another one when a rank reads what its neighbour has computed.
/// Where the system declines, nothing changes.
inline void ask_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  madvise(memory, size / huge_page * huge_page, MADV_HUGEPAGE);
#endif
}

}  // namespace detail

/// Memory aligned to cache lines (and to whole vectors), zeroed, shared by its copies.
class shared_buffer {
 public:
  shared_buffer() = default;
  explicit shared_buffer(std::int64_t bytes) : bytes_(bytes) {
    const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
    const std::align_val_t alignment{size < detail::huge_page ? 64 : detail::huge_page};
    void* const memory = ::operator new(size, alignment);
    memory_ = std::shared_ptr<void>(memory, [alignment](void* p) { ::operator delete(p, alignment); });
    if (size >= detail::huge_page) detail::ask_for_huge_pages(memory, size);
    std::memset(memory, 0, size);
  }
  [[nodiscard]] void* data() const { return memory_.get(); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// Whether there are copies of this.
  [[nodiscard]] bool is_shared() const { return memory_.use_count() > 1; }

 private:
  std::shared_ptr<void> memory_;
  std::int64_t bytes_ = 0;
};

}  // namespace espalier
