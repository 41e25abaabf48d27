// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reducer.hpp>
#include <espalier/comm/run/combine.hpp>
#include <espalier/comm/schedule/call.hpp>
#include <espalier/testing/pieces.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

// Random collectives, and what their definitions say of the results.
namespace espalier::test {

/// Elements of a type, how they are combined, and the same by definition, one at a time.
struct element_kind {
  const char* name = "";
  comm::combiner by;
  int library_type = 0;  ///< number of the type, for tests that know the library's names
  void (*make)(int rank, std::int64_t index, std::byte* to) = nullptr;
  void (*join)(std::byte* left, const std::byte* right) = nullptr;  ///< left = left op right
};

namespace elements {

/// Sums and products of few of these are exact in every type.
inline std::int64_t plain_value(int rank, std::int64_t i) { return (i * 7 + rank * 5 + 3) % 11 - 4; }

template <class T> void make_value(int rank, std::int64_t i, std::byte* to) {
  T value{};
  if constexpr (std::is_same_v<T, bool>) {
    value = plain_value(rank, i) > 2;
  } else {
    value = static_cast<T>(static_cast<computed_t<T>>(plain_value(rank, i)));
  }
  std::memcpy(to, &value, sizeof(T));
}

template <reduction Kind, class T> void join_values(std::byte* left, const std::byte* right) {
  T a{};
  T b{};
  std::memcpy(&a, left, sizeof(T));
  std::memcpy(&b, right, sizeof(T));
  const auto x = static_cast<double>(a);
  const auto y = static_cast<double>(b);
  double z = 0;
  switch (Kind) {
    case reduction::sum: z = x + y; break;
    case reduction::prod: z = x * y; break;
    case reduction::max: z = std::max(x, y); break;
    case reduction::min: z = std::min(x, y); break;
  }
  if constexpr (std::is_same_v<T, bool>) {
    a = z != 0;
  } else {
    a = static_cast<T>(static_cast<computed_t<T>>(z));
  }
  std::memcpy(left, &a, sizeof(T));
}

template <reduction Kind, class T> element_kind kind_of(const char* name, dtype type) {
  return {name, comm::combiner_of(comm::reducer_of(type, Kind)), static_cast<int>(type), &make_value<T>,
          &join_values<Kind, T>};
}

/// (a b; 0 1) modulo 2^32 and how many were multiplied: associative, and not commutative.
struct matrix {
  std::uint32_t a;
  std::uint32_t b;
  std::uint32_t factors;
};
inline matrix product(const matrix& x, const matrix& y) { return {x.a * y.a, x.a * y.b + x.b, x.factors + y.factors}; }
inline void make_matrix(int rank, std::int64_t i, std::byte* to) {
  const matrix m{static_cast<std::uint32_t>(i * 2 + rank * 6 + 3), static_cast<std::uint32_t>(i * 5 + rank * 11 + 1),
                 1};
  std::memcpy(to, &m, sizeof m);
}
inline void join_matrices(std::byte* left, const std::byte* right) {
  matrix x{};
  matrix y{};
  std::memcpy(&x, left, sizeof x);
  std::memcpy(&y, right, sizeof y);
  x = product(x, y);
  std::memcpy(left, &x, sizeof x);
}
/// A combiner that takes all the liberties it is given: what arrived is destroyed.
inline void combine_matrices(const void*, void* target, const void* own, void* incoming, std::int64_t count,
                             bool left) {
  auto* const to = static_cast<matrix*>(target);
  const auto* const mine = static_cast<const matrix*>(own);
  auto* const came = static_cast<matrix*>(incoming);
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = left ? product(came[i], mine[i]) : product(mine[i], came[i]);
    came[i] = {0xdeadU, 0xbeefU, 0xffffU};
  }
}

}  // namespace elements

inline std::vector<element_kind> element_kinds() {
  using elements::kind_of;
  const element_kind matrices{"matrices",
                              {&elements::combine_matrices, nullptr, sizeof(elements::matrix)},
                              -1,
                              &elements::make_matrix,
                              &elements::join_matrices};
  return {kind_of<reduction::sum, float>("f32 sum", dtype::f32),
          kind_of<reduction::max, double>("f64 max", dtype::f64),
          kind_of<reduction::sum, std::int32_t>("i32 sum", dtype::i32),
          kind_of<reduction::prod, double>("f64 prod", dtype::f64),
          kind_of<reduction::sum, bfloat16>("bf16 sum", dtype::bf16),
          kind_of<reduction::max, bool>("bool or", dtype::boolean),
          kind_of<reduction::min, float>("f32 min", dtype::f32),
          kind_of<reduction::max, std::uint32_t>("u32 max", dtype::u32),
          kind_of<reduction::sum, std::int64_t>("i64 sum", dtype::i64),
          kind_of<reduction::sum, std::int8_t>("i8 sum", dtype::i8),
          kind_of<reduction::sum, float16>("f16 sum", dtype::f16),
          matrices};
}

/// `longest`: elements, all ranks together.
inline comm::collective_call random_call(std::mt19937& random, int ranks, std::int64_t longest) {
  using comm::collective;
  static constexpr collective all[]{collective::broadcast,      collective::reduce,    collective::all_reduce,
                                    collective::all_gather,     collective::gather,    collective::scatter,
                                    collective::reduce_scatter, collective::all_to_all};
  static constexpr std::int64_t sizes[]{0, 1, 2, 5, 7, 13, 14, 15, 64, 333, 1025, 4096, 20000, 70001};
  const collective what = all[random() % 8];
  const std::int64_t blocks = what == collective::all_to_all ? ranks * ranks : comm::has_blocks(what) ? ranks : 1;
  const auto size = [&] { return std::min(sizes[random() % std::size(sizes)], longest / blocks); };
  comm::collective_call call =
      comm::uniform_call(what, ranks, size(), static_cast<int>(random() % static_cast<unsigned>(ranks)));
  if (call.counts.size() > 1 && random() % 2 == 0) {
    for (std::int64_t& count : call.counts) count = size();
  }
  call.in_place = random() % 3 == 0;
  call.ordered = random() % 4 == 0;
  // In place, two ranks exchange equally much.
  for (int a = 0; what == collective::all_to_all && call.in_place && a < ranks; ++a) {
    for (int b = 0; b < a; ++b) {
      call.counts[static_cast<std::size_t>(a * ranks + b)] = call.counts[static_cast<std::size_t>(b * ranks + a)];
    }
  }
  return call;
}

inline std::string text_of(const comm::collective_call& call, const element_kind& kind) {
  std::string text = std::string(name_of(call.kind)) + " of " + kind.name + ", root " + std::to_string(call.root) +
                     (call.in_place ? ", in place" : "") + (call.ordered ? ", ordered" : "") + ", counts";
  for (const std::int64_t count : call.counts) text += ' ' + std::to_string(count);
  return text;
}

/// One rank's buffers of a call, with a margin around them that nobody may touch. `memory` may be given: it must hold
/// `needed` bytes.
class call_buffers {
 public:
  static constexpr std::int64_t margin = 64;

  static std::int64_t needed(std::int64_t elements, const element_kind& kind) {
    return elements * kind.by.element_bytes + 2 * margin;
  }
  static std::int64_t needed_for_input(const comm::collective_call& call, const element_kind& kind, int rank) {
    return needed(comm::call_layout(call).input_elements(rank), kind);
  }
  static std::int64_t needed_for_output(const comm::collective_call& call, const element_kind& kind, int rank) {
    return needed(comm::call_layout(call).output_elements(rank), kind);
  }

  call_buffers(comm::collective_call call, const element_kind& kind, int rank, std::byte* in = nullptr,
               std::byte* out = nullptr)
      : call_(std::move(call)), kind_(kind), rank_(rank) {
    const comm::call_layout layout(call_);
    input_ = begin(in, needed(layout.input_elements(rank), kind), own_input_);
    output_ = begin(out, needed(layout.output_elements(rank), kind), own_output_);
    for (const comm::piece& p : comm::pieces_held(call_, layout, rank)) {
      std::byte* const to = p.at.where == comm::place::input ? input_ : output_;
      for (std::int64_t i = 0; i < p.count; ++i) kind.make(rank, p.element + i, at(to, p.at.offset + i));
    }
    given_.assign(input_ - margin, input_ - margin + needed(layout.input_elements(rank), kind));
  }

  [[nodiscard]] const comm::collective_call& call() const { return call_; }
  [[nodiscard]] const element_kind& kind() const { return kind_; }
  [[nodiscard]] const void* input() const { return input_; }
  [[nodiscard]] void* output() const { return output_; }

  /// The mistake in the result of this rank; empty if there is none.
  [[nodiscard]] std::string fault() const {
    const comm::call_layout layout(call_);
    if (std::memcmp(given_.data(), input_ - margin, given_.size()) != 0) return "the input was overwritten";
    for (std::int64_t k = 0; k < margin; ++k) {
      const std::int64_t end = layout.output_elements(rank_) * kind_.by.element_bytes;
      if (output_[-1 - k] != filler || output_[end + k] != filler) return "something was written beside the output";
    }
    std::vector<std::byte> right(static_cast<std::size_t>(kind_.by.element_bytes));
    std::vector<std::byte> other = right;
    for (const comm::piece& p : comm::pieces_wanted(call_, layout, rank_)) {
      for (std::int64_t i = 0; i < p.count; ++i) {
        kind_.make(p.contributor == comm::piece::everyone ? 0 : p.contributor, p.element + i, right.data());
        for (int r = 1; p.contributor == comm::piece::everyone && r < call_.ranks; ++r) {
          kind_.make(r, p.element + i, other.data());
          kind_.join(right.data(), other.data());
        }
        if (std::memcmp(right.data(), at(output_, p.at.offset + i), right.size()) != 0) {
          return "element " + std::to_string(p.element + i) + ", at " + std::to_string(p.at.offset + i) +
                 " of the output, is wrong";
        }
      }
    }
    return "";
  }

 private:
  static constexpr std::byte filler{0x5a};

  std::byte* begin(std::byte* given, std::int64_t bytes, std::vector<std::byte>& own) const {
    if (given == nullptr) {
      own.resize(static_cast<std::size_t>(bytes));
      given = own.data();
    }
    std::fill_n(given, bytes, filler);
    return given + margin;
  }
  [[nodiscard]] std::byte* at(std::byte* buffer, std::int64_t element) const {
    return buffer + element * kind_.by.element_bytes;
  }

  comm::collective_call call_;
  element_kind kind_;
  int rank_;
  std::vector<std::byte> own_input_;
  std::vector<std::byte> own_output_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::vector<std::byte> given_;
};

inline long fuzz_cases(long usual) {
  const char* text = std::getenv("ESPALIER_FUZZ_CASES");
  return text != nullptr ? std::atol(text) : usual;
}
inline std::mt19937 fuzz_random() {
  const char* text = std::getenv("ESPALIER_FUZZ_SEED");
  return std::mt19937(text != nullptr ? static_cast<unsigned>(std::atol(text)) : 1U);
}

}  // namespace espalier::test
