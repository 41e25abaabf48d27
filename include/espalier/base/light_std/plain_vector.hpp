// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

namespace espalier::detail {

/// The memory of a `plain_vector`, whatever its elements are: what grows and copies is compiled once for all types.
class plain_memory {
 protected:
  plain_memory() = default;
  plain_memory(plain_memory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  plain_memory& operator=(plain_memory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~plain_memory() { ::operator delete(memory_); }

  void reserve_elements(std::size_t count, std::size_t element_bytes) {
    ::operator delete(grown(count, element_bytes));
  }
  /// Makes them `count`: new ones are copies of `*value`, which may be one of those that move.
  void resize_elements(std::size_t count, const void* value, std::size_t element_bytes) {
    void* const before = grown(count, element_bytes);
    if (count > size_) {
      char* const first = static_cast<char*>(memory_) + size_ * element_bytes;
      const std::size_t bytes = (count - size_) * element_bytes;
      std::memmove(first, value, element_bytes);
      for (std::size_t done = element_bytes; done < bytes;) {
        const std::size_t next = done < bytes - done ? done : bytes - done;
        std::memcpy(first + done, first, next);
        done += next;
      }
    }
    ::operator delete(before);
    size_ = count;
  }
  void copy_elements(const plain_memory& other, std::size_t element_bytes) {
    size_ = 0;
    reserve_elements(other.size_, element_bytes);
    if (other.size_ != 0) std::memcpy(memory_, other.memory_, other.size_ * element_bytes);
    size_ = other.size_;
  }

 private:
  /// Room for `count`: the memory that they were in until now, to be released, or null.
  [[nodiscard]] void* grown(std::size_t count, std::size_t element_bytes) {
    if (count <= capacity_) return nullptr;
    const std::size_t doubled = size_ == 0 ? 0 : 2 * capacity_;
    const std::size_t capacity = count < doubled ? doubled : count;
    if (capacity > static_cast<std::size_t>(-1) / 2 / element_bytes) throw std::bad_alloc();
    void* const larger = ::operator new(capacity* element_bytes);
    if (size_ != 0) std::memcpy(larger, memory_, size_ * element_bytes);
    capacity_ = capacity;
    return std::exchange(memory_, larger);
  }

 protected:
  void* memory_ = nullptr;
  std::size_t size_ = 0;      // elements
  std::size_t capacity_ = 0;  // elements
};

/// `std::vector` for elements that are copied byte by byte, at run time. Where the library keeps such, it keeps them
/// here: `std::vector` costs every program that includes it 6 ms of g++ for each type and 10 to 15 more for each
/// operation that grows or copies, checked, and thrice that at -O1; this costs none and 2 to 5. (`list` is for constant
/// evaluation.)
/// Indices are checked with `_GLIBCXX_ASSERTIONS`, as the library's unit tests are built.
template <class T> class plain_vector : plain_memory {
 public:
  using value_type = T;

  plain_vector() = default;
  explicit plain_vector(std::size_t count, const T& value = T{}) { assign(count, value); }
  plain_vector(std::initializer_list<T> elements) {
    for (const T& one : elements) push_back(one);
  }
  plain_vector(const plain_vector& other) : plain_memory() { copy_elements(other, sizeof(T)); }
  plain_vector(plain_vector&&) noexcept = default;
  plain_vector& operator=(const plain_vector& other) {
    if (this != &other) copy_elements(other, sizeof(T));
    return *this;
  }
  plain_vector& operator=(plain_vector&&) noexcept = default;
  ~plain_vector() = default;

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* data() {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "elements are copied byte by byte, into what operator new gives");
    return static_cast<T*>(memory_);
  }
  [[nodiscard]] const T* data() const { return static_cast<const T*>(memory_); }
  [[nodiscard]] T* begin() { return data(); }
  [[nodiscard]] T* end() { return data() + size_; }
  [[nodiscard]] const T* begin() const { return data(); }
  [[nodiscard]] const T* end() const { return data() + size_; }
  [[nodiscard]] T& operator[](std::size_t i) { return data()[checked(i)]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return data()[checked(i)]; }
  [[nodiscard]] T& front() { return (*this)[0]; }
  [[nodiscard]] const T& front() const { return (*this)[0]; }
  [[nodiscard]] T& back() { return (*this)[size_ - 1]; }
  [[nodiscard]] const T& back() const { return (*this)[size_ - 1]; }

  void reserve(std::size_t count) { reserve_elements(count, sizeof(T)); }
  void push_back(const T& value) {
    if (size_ == capacity_) {
      resize_elements(size_ + 1, &value, sizeof(T));
    } else {
      data()[size_++] = value;
    }
  }
  void clear() { size_ = 0; }
  /// Elements beyond those that it has are `value`.
  void resize(std::size_t count, const T& value = T{}) { resize_elements(count, &value, sizeof(T)); }
  void assign(std::size_t count, const T& value) {
    size_ = 0;  // its memory stays, and `value` with it
    resize(count, value);
  }

  [[nodiscard]] bool operator==(const plain_vector& other) const {
    if (size_ != other.size_) return false;
    for (std::size_t i = 0; i < size_; ++i) {
      if (!(data()[i] == other.data()[i])) return false;
    }
    return true;
  }

 private:
  [[nodiscard]] std::size_t checked([[maybe_unused]] std::size_t i) const {
#if defined(_GLIBCXX_ASSERTIONS)
    if (i >= size_) std::abort();
#endif
    return i;
  }
};

}  // namespace espalier::detail
