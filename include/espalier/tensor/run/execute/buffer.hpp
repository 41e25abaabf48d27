// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
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
    block_ = std::make_shared<block>(size);
    if (size >= detail::huge_page) detail::ask_for_huge_pages(block_->memory, size);
    std::memset(block_->memory, 0, size);
    ++allocations();
  }
  [[nodiscard]] void* data() const { return block_ == nullptr ? nullptr : block_->memory; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// Whether there are copies of this.
  [[nodiscard]] bool is_shared() const { return block_.use_count() > 1; }
  /// How many copies there are, this one included, without those that runners keep for themselves.
  [[nodiscard]] int users() const {
    return block_ == nullptr ? 0 : static_cast<int>(block_.use_count()) - block_->kept.load(std::memory_order_relaxed);
  }
  /// One copy more (or fewer, for -1) is one that a runner keeps for itself.
  void keep(int count) const {
    if (block_ != nullptr) block_->kept.fetch_add(count, std::memory_order_relaxed);
  }
  /// The number of buffers allocated in this process so far, for tests of what allocates.
  [[nodiscard]] static std::atomic<std::int64_t>& allocations() {
    static std::atomic<std::int64_t> count{0};
    return count;
  }

 private:
  struct block {
    explicit block(std::size_t size)
        : alignment{size < detail::huge_page ? 64 : detail::huge_page}, memory(::operator new(size, alignment)) {}
    block(const block&) = delete;
    block& operator=(const block&) = delete;
    ~block() { ::operator delete(memory, alignment); }

    std::align_val_t alignment;
    void* memory;
    std::atomic<int> kept{0};
  };

  std::shared_ptr<block> block_;
  std::int64_t bytes_ = 0;
};

}  // namespace espalier
