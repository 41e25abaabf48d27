// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace espalier::pipeline::detail {

/// Memory at a multiple of 64 bytes, all zero.
class aligned_memory {
 public:
  static constexpr std::int64_t alignment = 64;

  aligned_memory() = default;
  explicit aligned_memory(std::int64_t bytes) {
    if (bytes <= 0) return;
    const auto count = static_cast<std::size_t>(rounded(bytes));
    memory_.reset(static_cast<std::byte*>(::operator new (count, std::align_val_t{alignment})));
    std::fill_n(memory_.get(), count, std::byte{0});
  }
  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  [[nodiscard]] static std::int64_t rounded(std::int64_t bytes) { return (bytes + alignment - 1) & -alignment; }

 private:
  struct release {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{alignment}); }
  };
  std::unique_ptr<std::byte, release> memory_;
};

/// Blocks of a few sizes, shared by reference counts. How many of each size there must be is found by a dry run
/// of the step, in which blocks have no memory; from then on nothing is allocated.
class block_pool {
 public:
  static constexpr int none = -1;

  /// A size of blocks; 0 bytes: blocks that do not exist.
  [[nodiscard]] int size_class(std::int64_t bytes) {
    const std::int64_t rounded = aligned_memory::rounded(bytes);
    for (std::size_t c = 0; c < classes_.size(); ++c)
      if (classes_[c].bytes == rounded) return static_cast<int>(c);
    classes_.push_back({rounded, {}});
    return static_cast<int>(classes_.size()) - 1;
  }

  /// A block that the caller holds; `none` where its size is 0, or, after the dry run, none is free.
  [[nodiscard]] int take(int size) {
    block_class& kind = classes_[static_cast<std::size_t>(size)];
    if (kind.bytes == 0) return none;
    if (kind.free.empty()) {
      if (frozen_) return none;
      kind.free.push_back(static_cast<int>(blocks_.size()));
      blocks_.push_back({size, 0, nullptr});
    }
    const int taken = kind.free.back();
    kind.free.pop_back();
    blocks_[static_cast<std::size_t>(taken)].holders = 1;
    return taken;
  }
  [[nodiscard]] bool is_empty_class(int size) const { return classes_[static_cast<std::size_t>(size)].bytes == 0; }
  void hold(int block) {
    if (block != none) ++blocks_[static_cast<std::size_t>(block)].holders;
  }
  /// Gives up one hold; sets it to `none`.
  void drop(int& block) {
    if (block == none) return;
    pool_block& one = blocks_[static_cast<std::size_t>(block)];
    if (--one.holders == 0) classes_[static_cast<std::size_t>(one.size)].free.push_back(block);
    block = none;
  }
  [[nodiscard]] std::byte* memory(int block) const {
    return block == none ? nullptr : blocks_[static_cast<std::size_t>(block)].memory;
  }

  /// The end of the dry run: all blocks are free again, and get their memory.
  void freeze() {
    for (block_class& kind : classes_) kind.free.clear();
    reserved_ = 0;
    for (const pool_block& one : blocks_) reserved_ += classes_[static_cast<std::size_t>(one.size)].bytes;
    arena_ = aligned_memory(reserved_);
    std::byte* next = arena_.data();
    for (std::size_t k = 0; k < blocks_.size(); ++k) {
      pool_block& one = blocks_[k];
      one.memory = next;
      one.holders = 0;
      next += classes_[static_cast<std::size_t>(one.size)].bytes;
      classes_[static_cast<std::size_t>(one.size)].free.push_back(static_cast<int>(k));
    }
    for (block_class& kind : classes_) kind.free.reserve(blocks_.size());
    frozen_ = true;
  }
  [[nodiscard]] std::int64_t reserved_bytes() const { return reserved_; }

 private:
  struct block_class {
    std::int64_t bytes = 0;
    std::vector<int> free;
  };
  struct pool_block {
    int size = 0;
    int holders = 0;
    std::byte* memory = nullptr;
  };
  std::vector<block_class> classes_;
  std::vector<pool_block> blocks_;
  aligned_memory arena_;
  std::int64_t reserved_ = 0;
  bool frozen_ = false;
};

}  // namespace espalier::pipeline::detail
