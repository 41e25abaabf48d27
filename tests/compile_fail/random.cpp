// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// Mistakes with random numbers. `key` is a random key, `x` are numbers.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct function {
  constexpr auto operator()(auto key, auto x) const {
#if defined(CASE_key)
    return ep::normal<ep::f32<8>>(x);  // key
#elif defined(CASE_split)
    return ep::uniform<ep::f32<8>>(ep::split_key<3>(key));  // split
#elif defined(CASE_words)
    return ep::random_bits<ep::f32<8>>(key);  // words
#elif defined(CASE_number)
    return ep::uniform<ep::f32<8>>(ep::fold_in(key, x));  // number
#elif defined(CASE_type)
    return ep::uniform<ep::i32<8>>(key);  // type
#elif defined(CASE_range)
    return ep::uniform<ep::f32<8>>(key, 1, 0);  // range
#elif defined(CASE_rate)
    return ep::dropout(key, x, 50);  // rate
#else
    return ep::results(ep::normal<ep::f32<8>>(key), ep::uniform<ep::f32<8>>(ep::fold_in(key, 3), 0, 1),
                       ep::random_bits<ep::u32<8>>(key), ep::dropout(key, x, 0.5));
#endif
  }
};

// clang-format off
// first(CASE_key): a random key is two words, a u32<2>
// expect(CASE_key): not_a_random_key<espalier::f32<2> ?>
// user_line(CASE_key): step::flops
// kind(CASE_key): a random key of another type
// first(CASE_split): a random key is two words, a u32<2>
// expect(CASE_split): not_a_random_key<espalier::u32<3, 2> ?>
// user_line(CASE_split): step::flops
// kind(CASE_split): several random keys for one
// first(CASE_words): random_bits: the elements are words, u32 or i32
// expect(CASE_words): random_bits_are_words<espalier::f32<8> ?>
// user_line(CASE_words): step::flops
// kind(CASE_words): random words of another type
// first(CASE_number): fold_in: the number must be an integer
// expect(CASE_number): not_one_integer<espalier::f32<2> ?>
// user_line(CASE_number): step::flops
// kind(CASE_number): `fold_in`: several numbers
// first(CASE_type): this op needs a floating-point tensor
// expect(CASE_type): operand_is_not_floating<espalier::i32<8> ?>
// user_line(CASE_type): step::flops
// kind(CASE_type): random numbers of an integer type
// first(CASE_range): uniform: the lower bound must be less than the upper one
// expect(CASE_range): range_is_empty<.*line<24>
// user_line(CASE_range): step::flops
// kind(CASE_range): `uniform`: an empty range
// first(CASE_rate): bernoulli, dropout: a probability is a number from 0 to 1
// expect(CASE_rate): not_a_probability<.*line<26>
// user_line(CASE_rate): step::flops
// kind(CASE_rate): `dropout`: no probability
// clang-format on
using step = ep::program<mesh, function, ep::u32<2>, ep::f32<2>>;
constexpr auto work = step::flops();
