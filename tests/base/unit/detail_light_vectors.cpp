// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/owned.hpp>
#include <espalier/base/light_std/plain_vector.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <utility>
#include <vector>

using espalier::detail::function_ref;
using espalier::detail::object_vector;
using espalier::detail::owned;
using espalier::detail::plain_vector;

namespace {

struct marked {
  int value = -1;  // not the zero that memory may hold
  std::int64_t other = 7;
  friend bool operator==(const marked&, const marked&) = default;
};

/// Owns its value, and counts those that are alive.
struct living {
  explicit living(int of = -1) : value(new int(of)) { ++alive; }
  living(const living& other) : living(*other.value) {}
  living(living&& other) noexcept : value(std::move(other.value)) { ++alive; }
  living& operator=(living other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
  ~living() { --alive; }
  friend bool operator==(const living& a, const living& b) { return *a.value == *b.value; }

  std::unique_ptr<int> value;
  static inline int alive = 0;
};

template <class Ours, class T> bool same(const Ours& ours, const std::vector<T>& theirs) {
  if (ours.size() != theirs.size() || ours.empty() != theirs.empty()) return false;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    if (!(ours[i] == theirs[i])) return false;
  }
  return theirs.empty() || (ours.front() == theirs.front() && ours.back() == theirs.back());
}

/// Random steps that all vectors have, and std::vector's beside them.
template <class Vector> struct walk;
template <template <class> class Vector, class T> struct walk<Vector<T>> {
  explicit walk(unsigned seed) : random(seed) {}

  std::size_t below(std::size_t most) { return static_cast<std::size_t>(random() % most); }
  int number() { return static_cast<int>(random()); }
  void step(const T& some) {
    switch (below(8)) {
      case 0:
        ours.resize(theirs.size() / 2);
        theirs.resize(theirs.size() / 2);
        break;
      case 1:
        ours.resize(theirs.size() + 3);
        theirs.resize(theirs.size() + 3);
        break;
      case 2: {  // an element of its own, which moves meanwhile
        if (theirs.empty()) break;
        const std::size_t i = below(theirs.size());
        ours.push_back(ours[i]);
        theirs.push_back(T(theirs[i]));
        break;
      }
      case 3: {
        const Vector<T> copy = ours;
        ours.clear();
        REQUIRE(ours.empty());
        REQUIRE(same(copy, theirs));
        ours = copy;
        break;
      }
      case 4: {
        Vector<T> moved = std::move(ours);
        REQUIRE(same(moved, theirs));
        ours = std::move(moved);
        break;
      }
      case 5: ours.reserve(below(80)); break;
      default:
        ours.push_back(some);
        theirs.push_back(some);
        break;
    }
  }

  std::mt19937 random;
  Vector<T> ours;
  std::vector<T> theirs;
};

}  // namespace

TEST_CASE("plain_vector does as std::vector, in any order") {
  walk<plain_vector<marked>> both(5);
  plain_vector<marked>& ours = both.ours;
  std::vector<marked>& theirs = both.theirs;
  const auto some = [&] { return marked{both.number(), both.number()}; };
  for (int step = 0; step < 20000; ++step) {
    switch (both.below(4)) {
      case 0: {
        const std::size_t count = both.below(40);
        const marked one = some();
        ours.assign(count, one);
        theirs.assign(count, one);
        break;
      }
      case 1: {
        if (theirs.empty()) break;
        const std::size_t i = both.below(theirs.size());
        const std::size_t count = both.below(40);
        const marked own = theirs[i];
        ours.assign(count, ours[i]);
        theirs.assign(count, own);
        break;
      }
      case 2: {
        if (theirs.empty()) break;
        const std::size_t i = both.below(theirs.size());
        const std::size_t count = both.below(80);
        const marked own = theirs[i];
        ours.resize(count, ours[i]);
        theirs.resize(count, own);
        break;
      }
      default: both.step(some()); break;
    }
    REQUIRE(same(ours, theirs));
  }
  std::vector<marked> walked;
  for (const marked& one : std::as_const(ours)) walked.push_back(one);
  CHECK(walked == theirs);
  CHECK(same(plain_vector<marked>(3), std::vector<marked>(3)));
}

TEST_CASE("plain_vector gives up what was moved from it, and grows by an element of its own") {
  for (std::size_t size = 1; size < 70; ++size) {
    plain_vector<marked> some(size, {5, 6});
    plain_vector<marked> moved = std::move(some);
    CHECK(some.empty());  // NOLINT(bugprone-use-after-move): it says so
    CHECK(some.begin() == some.end());
    some.push_back({1, 2});
    CHECK(some.size() == 1);
    for (std::size_t n = 0; n < 2 * size; ++n) moved.push_back(moved[0]);  // it moves meanwhile, once at least
    CHECK(same(moved, std::vector<marked>(3 * size, {5, 6})));
  }
}

TEST_CASE("plain_vector assigned to itself stays, and one too long for memory keeps what it has") {
  plain_vector<marked> some(5, {3, 4});
  const plain_vector<marked>& itself = some;
  some = itself;
  CHECK(same(some, std::vector<marked>(5, {3, 4})));
  CHECK_THROWS_AS(some.reserve(static_cast<std::size_t>(-1) / sizeof(marked)), std::bad_alloc);
  CHECK(same(some, std::vector<marked>(5, {3, 4})));
}

TEST_CASE("function_ref calls what it refers to, with references and results") {
  int calls = 0;
  const auto add = [&](int& to, int by) {
    ++calls;
    return to += by;
  };
  const function_ref<int(int&, int)> call = add;
  const function_ref<int(int&, int)> copy = call;
  int sum = 1;
  CHECK(call(sum, 2) == 3);
  CHECK(copy(sum, 4) == 7);
  CHECK(sum == 7);
  CHECK(calls == 2);
}

TEST_CASE("object_vector does as std::vector, in any order, and keeps nothing alive") {
  {
    walk<object_vector<living>> both(6);
    for (int step = 0; step < 20000; ++step) {
      both.step(living(both.number()));
      REQUIRE(same(both.ours, both.theirs));
      REQUIRE(living::alive == 2 * static_cast<int>(both.theirs.size()));
    }
    CHECK(same(object_vector<living>(3), std::vector<living>(3)));
  }
  CHECK(living::alive == 0);
}

TEST_CASE("owned deletes what it owns, once") {
  {
    owned<living> one(new living(3));
    owned<living> other = std::move(one);
    CHECK(one == nullptr);  // NOLINT: after the move
    CHECK(*other->value == 3);
    other = owned<living>(new living(4));
    CHECK(living::alive == 1);
    owned<living>& itself = other;
    other = std::move(itself);
    CHECK(*(*other).value == 4);
    other = {};
    CHECK(living::alive == 0);
    CHECK(other.get() == nullptr);
    one = owned<living>(new living(5));
  }
  CHECK(living::alive == 0);
}
