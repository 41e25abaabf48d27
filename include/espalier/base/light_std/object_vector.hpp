// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace espalier::detail {

/// `std::vector` for elements that own something, at run time; for others there is `plain_vector`. It has what the
/// library needs of it. `std::vector` costs 10 ms of g++ for each type of its elements, and 30 at -O1; this nothing,
/// and 10 at -O1. Indices are checked with `_GLIBCXX_ASSERTIONS`, as the library's unit tests are built.
template <class T> class object_vector {
 public:
  object_vector() = default;
  explicit object_vector(std::size_t count) : object_vector() { resize(count); }
  object_vector(const object_vector& other) : object_vector() {
    reserve(other.size_);
    for (; size_ < other.size_; ++size_) ::new (static_cast<void*>(memory_ + size_)) T(other.memory_[size_]);
  }
  object_vector(object_vector&& other) noexcept : object_vector() { swap(other); }
  object_vector& operator=(object_vector other) noexcept {
    swap(other);
    return *this;
  }
  ~object_vector() {
    clear();
    ::operator delete(memory_);
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* data() { return memory_; }
  [[nodiscard]] const T* data() const { return memory_; }
  [[nodiscard]] T* begin() { return memory_; }
  [[nodiscard]] T* end() { return memory_ + size_; }
  [[nodiscard]] const T* begin() const { return memory_; }
  [[nodiscard]] const T* end() const { return memory_ + size_; }
  [[nodiscard]] T& operator[](std::size_t i) { return memory_[checked(i)]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return memory_[checked(i)]; }
  [[nodiscard]] T& front() { return (*this)[0]; }
  [[nodiscard]] const T& front() const { return (*this)[0]; }
  [[nodiscard]] T& back() { return (*this)[size_ - 1]; }
  [[nodiscard]] const T& back() const { return (*this)[size_ - 1]; }

  void reserve(std::size_t count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__, "elements lie in what operator new gives");
    static_assert(noexcept(T(static_cast<T&&>(*static_cast<T*>(nullptr)))), "elements are moved when memory grows");
    if (count <= capacity_) return;
    const std::size_t capacity = count < 2 * capacity_ ? 2 * capacity_ : count;
    if (capacity > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_alloc();
    T* const grown = static_cast<T*>(::operator new(capacity * sizeof(T)));
    for (std::size_t i = 0; i < size_; ++i) {
      ::new (static_cast<void*>(grown + i)) T(static_cast<T&&>(memory_[i]));
      memory_[i].~T();
    }
    ::operator delete(memory_);
    memory_ = grown;
    capacity_ = capacity;
  }
  /// By value: it may be one of those that move.
  void push_back(T value) {
    reserve(size_ + 1);
    ::new (static_cast<void*>(memory_ + size_)) T(static_cast<T&&>(value));
    ++size_;
  }
  void resize(std::size_t count) {
    reserve(count);
    for (; size_ < count; ++size_) ::new (static_cast<void*>(memory_ + size_)) T();
    shrink(count);
  }
  void clear() { shrink(0); }

 private:
  void shrink(std::size_t count) {
    while (size_ > count) memory_[--size_].~T();
  }
  void swap(object_vector& other) noexcept {
    T* const memory = memory_;
    const std::size_t size = size_;
    const std::size_t capacity = capacity_;
    memory_ = other.memory_;
    size_ = other.size_;
    capacity_ = other.capacity_;
    other.memory_ = memory;
    other.size_ = size;
    other.capacity_ = capacity;
  }
  [[nodiscard]] std::size_t checked(std::size_t i) const {
#if defined(_GLIBCXX_ASSERTIONS)
    if (i >= size_) std::abort();
#endif
    return i;
  }

  T* memory_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace espalier::detail
