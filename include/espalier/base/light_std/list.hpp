// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

namespace espalier::detail {

/// A growable array for constant evaluation. `std::vector` would serve, but each of its operations passes through a
/// dozen library calls, and clang counts every one against its 2^20 steps.
/// Elements are value-initialised in blocks, so T must be default-constructible.
template <class T> class list {
 public:
  constexpr list() = default;
  constexpr explicit list(int size, const T& value = T{}) {
    reserve(size);
    for (int i = 0; i < size; ++i) data_[i] = value;
    size_ = size;
  }
  /// A copy of `count` elements, with room for `capacity`.
  constexpr list(const T* from, int count, int capacity) {
    reserve(capacity);
    for (int i = 0; i < count; ++i) data_[i] = from[i];
    size_ = count;
  }
  constexpr list(const list& other) {
    reserve(other.size_);
    for (int i = 0; i < other.size_; ++i) data_[i] = other.data_[i];
    size_ = other.size_;
  }
  constexpr list(list&& other) noexcept : data_(other.data_), size_(other.size_), capacity_(other.capacity_) {
    other.data_ = nullptr;
    other.size_ = other.capacity_ = 0;
  }
  constexpr list& operator=(const list& other) {
    if (this != &other) {
      list copy(other);
      swap(copy);
    }
    return *this;
  }
  constexpr list& operator=(list&& other) noexcept {
    swap(other);
    return *this;
  }
  constexpr ~list() { delete[] data_; }

  [[nodiscard]] constexpr int size() const { return size_; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  [[nodiscard]] constexpr T& operator[](int i) { return data_[i]; }
  [[nodiscard]] constexpr const T& operator[](int i) const { return data_[i]; }
  [[nodiscard]] constexpr T* data() { return data_; }
  [[nodiscard]] constexpr const T* data() const { return data_; }
  [[nodiscard]] constexpr T& back() { return data_[size_ - 1]; }
  [[nodiscard]] constexpr const T& back() const { return data_[size_ - 1]; }
  [[nodiscard]] constexpr T* begin() { return data_; }
  [[nodiscard]] constexpr T* end() { return data_ + size_; }
  [[nodiscard]] constexpr const T* begin() const { return data_; }
  [[nodiscard]] constexpr const T* end() const { return data_ + size_; }

  constexpr int push_back(const T& value) {
    if (size_ == capacity_) reserve(capacity_ == 0 ? 16 : 2 * capacity_);
    data_[size_] = value;
    return size_++;
  }
  constexpr void pop_back() { --size_; }
  constexpr void clear() { size_ = 0; }
  constexpr void resize(int size, const T& value = T{}) {
    reserve(size);
    for (int i = size_; i < size; ++i) data_[i] = value;
    size_ = size;
  }
  constexpr void reserve(int capacity) {
    if (capacity <= capacity_) return;
    T* grown = new T[static_cast<std::size_t>(capacity)]();
    for (int i = 0; i < size_; ++i) grown[i] = data_[i];
    delete[] data_;
    data_ = grown;
    capacity_ = capacity;
  }
  constexpr void swap(list& other) noexcept {
    T* const data = data_;
    const int size = size_;
    const int capacity = capacity_;
    data_ = other.data_;
    size_ = other.size_;
    capacity_ = other.capacity_;
    other.data_ = data;
    other.size_ = size;
    other.capacity_ = capacity;
  }

 private:
  T* data_ = nullptr;
  int size_ = 0;
  int capacity_ = 0;
};

}  // namespace espalier::detail
