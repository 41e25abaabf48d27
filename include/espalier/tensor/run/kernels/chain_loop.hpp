// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/kernel_set.hpp>
#include <espalier/tensor/run/kernels/math.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// Whether the compiled part may have kernel sets for more than the program's own flags allow.
#if defined(ESPALIER_COMPILED) && defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX512F__)
#define ESPALIER_HAS_LOOPS_OF_SETS 1
#if defined(__clang__)  // which knows no such preference of a function
#define ESPALIER_AVX512_TARGET "avx2,fma,bmi,bmi2,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
#else
#define ESPALIER_AVX512_TARGET "avx2,fma,bmi,bmi2,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,prefer-vector-width=512"
#endif
#else
#define ESPALIER_HAS_LOOPS_OF_SETS 0
#endif

// A whole chain of elementwise steps as one loop: what steps hand to each other stays in registers. Step by step, a
// chain of many cheap steps stores and loads more than it computes, and it asks for memory in bursts, between which
// the memory waits.

namespace espalier::kernels {

/// The places that a step of such a loop reads an operand from.
enum class loop_source : std::uint8_t {
  step,      ///< what an earlier step has computed
  elements,  ///< memory, an element for each iteration
  value      ///< memory, one element for all iterations
};

/// A step of a chain that is one loop: everything static about it.
struct loop_step {
  const op_info* op = nullptr;
  dtype type = dtype::f32;
  int operand_count = 0;
  dtype operand_type[3]{};
  loop_source from[3]{};
  /// The number of the step that computes operand k.
  int made_by[3]{};
  bool is_stored = false;
};

/// The part [first, last) of the elements of a chain.
struct loop_call {
  /// Four addresses for each step, of its three operands and its result; null where there is none in memory.
  void* const* at = nullptr;
  std::int64_t first = 0;
  std::int64_t last = 0;
};
using loop_function = void (*)(const loop_call&);

}  // namespace espalier::kernels

namespace espalier::detail {

/// Whether `op` computes every element by a function of the operands' elements there (`elementwise_block`).
template <const op_info* Op>
concept ElementwiseFunction = requires {
  typename kernels::block_kernel<Op>::function;
};

/// The operand of a step that an earlier one computes.
struct made_before {};
template <kernels::loop_step Step, int K>
using loop_reader = std::conditional_t<
    (K >= Step.operand_count || Step.from[K] == kernels::loop_source::step), made_before,
    std::conditional_t<Step.from[K] == kernels::loop_source::elements, run_reader<storage_t<Step.operand_type[K]>>,
                       value_reader<storage_t<Step.operand_type[K]>>>>;

template <kernels::loop_step Step, int K> [[nodiscard]] ESPALIER_ALWAYS_INLINE auto reader_at(void* const* at) {
  using reader = loop_reader<Step, K>;
  if constexpr (std::is_same_v<reader, made_before>) {
    return reader{};
  } else if constexpr (Step.from[K] == kernels::loop_source::elements) {
    return reader{static_cast<const storage_t<Step.operand_type[K]>*>(at[K])};
  } else {
    return reader{load_element(static_cast<const storage_t<Step.operand_type[K]>*>(at[K]))};
  }
}

/// A step with what it reads and writes. Number N is part of the type, since equal steps are bases of one class.
template <int N, kernels::loop_step Step> struct placed_loop_step {
  using result = storage_t<Step.type>;
  using computed = computed_t<result>;
  loop_reader<Step, 0> a;
  loop_reader<Step, 1> b;
  loop_reader<Step, 2> c;
  result* to;

  explicit placed_loop_step(void* const* at)
      : a(reader_at<Step, 0>(at + 4 * N)),
        b(reader_at<Step, 1>(at + 4 * N)),
        c(reader_at<Step, 2>(at + 4 * N)),
        to(static_cast<result*>(at[4 * N + 3])) {}

  template <int K, class Reader>
  [[nodiscard]] ESPALIER_ALWAYS_INLINE static computed operand(const Reader& from, const computed* made,
                                                               std::int64_t i) {
    if constexpr (std::is_same_v<Reader, made_before>) {
      constexpr int maker = Step.made_by[K];  // clang 19 crashes where it is to make code of the template argument
      return made[maker];
    } else {
      return from[i];
    }
  }
  ESPALIER_ALWAYS_INLINE void compute(computed* made, std::int64_t i, float_bits<computed> nothing) const {
    using function = typename kernels::block_kernel<Step.op>::function;
    computed value{};
    if constexpr (Step.operand_count == 1) {
      value = function::apply(operand<0>(a, made, i));
    } else if constexpr (Step.operand_count == 2) {
      value = function::apply(operand<0>(a, made, i), operand<1>(b, made, i));
    } else {
      value = function::apply(operand<0>(a, made, i), operand<1>(b, made, i), operand<2>(c, made, i));
    }
    made[N] = rounded(value, nothing);
  }
  /// As if it had been stored: to the type of the result, and, in g++'s eyes, to a value of which it does not know
  /// that it is a product. It would contract that with a sum that another step makes of it, and round once where
  /// steps that stand in different chains round twice.
  [[nodiscard]] ESPALIER_ALWAYS_INLINE static computed rounded(computed value, float_bits<computed> nothing) {
    if constexpr (!std::is_same_v<result, computed>) {
      return element_cast<computed>(element_cast<result>(value));
    } else {
#if defined(__GNUC__) && !defined(__clang__)
      return from_bits<computed>(to_bits(value) ^ nothing);
#else
      static_cast<void>(nothing);
      return value;
#endif
    }
  }
  ESPALIER_ALWAYS_INLINE void store(const computed* made, std::int64_t i) const {
    if constexpr (Step.is_stored) to[i] = element_cast<result>(made[N]);
  }
};

template <class Numbers, kernels::loop_step... Steps> struct placed_loop;
template <std::size_t... N, kernels::loop_step... Steps>
struct placed_loop<std::index_sequence<N...>, Steps...> : placed_loop_step<static_cast<int>(N), Steps>... {
  explicit placed_loop(void* const* at) : placed_loop_step<static_cast<int>(N), Steps>(at)... {}

  /// Everything is read before anything is written: results may be where operands were.
  template <class T> ESPALIER_ALWAYS_INLINE void element(std::int64_t i, float_bits<T> nothing) const {
    T made[sizeof...(Steps)];
    (placed_loop_step<static_cast<int>(N), Steps>::compute(&made[0], i, nothing), ...);
    (placed_loop_step<static_cast<int>(N), Steps>::store(&made[0], i), ...);
  }
};

/// The loop of a chain. All its types are computed in the same one, and each element is what the steps one by one would
/// make it, to the last bit.
template <class T, kernels::loop_step... Steps> struct chain_loop {
  /// The function for the processor this runs on. A loop of its own is in no kernel set: where these are chosen at run
  /// time, and the program's flags allow less, it is compiled for each of their instruction sets.
  [[nodiscard]] static kernels::loop_function for_processor() {
#if ESPALIER_HAS_LOOPS_OF_SETS
    switch (kernels::processor_kernels().level) {
      case kernels::set_level::avx512: return &run_avx512;
      case kernels::set_level::avx2: return &run_avx2;
      case kernels::set_level::base: break;
    }
#endif
    return &run_base;
  }

 private:
  static void run_base(const kernels::loop_call& call) { run(call); }
#if ESPALIER_HAS_LOOPS_OF_SETS
  [[gnu::target("avx2,fma,bmi,bmi2")]] static void run_avx2(const kernels::loop_call& call) { run(call); }
  [[gnu::target(ESPALIER_AVX512_TARGET)]] static void run_avx512(const kernels::loop_call& call) { run(call); }
#endif

  ESPALIER_ALWAYS_INLINE static void run(const kernels::loop_call& call) {
    const placed_loop<std::make_index_sequence<sizeof...(Steps)>, Steps...> placed(call.at);
    float_bits<T> nothing = 0;
#if defined(__GNUC__)
    asm("" : "+r"(nothing));
#endif
    const std::int64_t first = call.first;
    vector_loop(call.last - first,
                [=](std::int64_t i) ESPALIER_ALWAYS_INLINE_BODY { placed.template element<T>(first + i, nothing); });
  }
};

}  // namespace espalier::detail
