// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/mapping.hpp>
#include <espalier/tensor/core/ops/bitwise.hpp>
#include <espalier/tensor/core/ops/error_function.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/reasons/random.hpp>
#include <espalier/tensor/core/ops/reduce.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <type_traits>

// Random numbers as a function of a key and of an element's place in its whole tensor: the same bits on every mesh, in
// every layout, on any number of threads, recomputed or in a loop.

namespace espalier {

/// The rounds of Philox4x32: 7 are the fewest that pass all batteries of TestU01 (table 2 of the paper). Its 10 are a
/// margin that costs a third of the speed; with 10, all cores of a machine no longer make words as fast as memory takes
/// them.
inline constexpr int philox_rounds = 7;

/// Four random words from a counter of four words and a key of two: Philox4x32 (Salmon, Moraes, Dror and Shaw,
/// "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
template <int Rounds = philox_rounds>
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                            std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < Rounds; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(odd >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(odd),
               static_cast<std::uint32_t>(even >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(even)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

namespace detail {

/// The purpose of the words of a key: with another purpose they are other words.
enum class random_purpose : std::uint8_t {
  bits,
  /// The less significant half of numbers that one word is too short for.
  low_bits,
  /// Key and number to another key.
  fold,
  /// A key to several.
  split,
};

struct random_attributes {
  random_purpose purpose = random_purpose::bits;
  /// The first so many dimensions of the result are also the first of the operands: each element of them is a key, with
  /// a tensor of words for which it is the only one.
  int keys = 0;
};

/// Operand 0 is the key, operand 1, where there is one, a number.
[[nodiscard]] constexpr factor_rule random_bits_factors(op_view v) {
  factor_rule rule;
  const extents& to = v.self().shape;
  const int keys = attributes_of<random_attributes>(v).keys;
  for (int d = 0; d < to.rank; ++d) rule.result[d] = factor_list(rule.add(to[d]));
  for (int d = 0; d < keys; ++d) rule.operand[0][d] = rule.operand[1][d] = rule.result[d];
  rule.operand[0][keys] = factor_list(rule.add(2, factor_kind::blocked));
  return rule;
}
/// Lanes whose keys differ have words of their own; the number is then one of each.
constexpr mapped_value map_random_bits(map_context& c);

constexpr void evaluate_random_bits(const evaluation& e) {
  const extents& to = e.self->shape;
  const auto word = [](double number) { return static_cast<std::uint32_t>(word_of_value(dtype::u32, number)); };
  const auto [kind, keys] = attributes_of<random_attributes>(*e.self);
  const auto purpose = static_cast<std::uint32_t>(kind);
  const std::int64_t of_key = to.product(keys, to.rank);
  for (std::int64_t i = 0; i < to.elements(); ++i) {
    const double* const mine = e.operand[0] + 2 * (i / of_key);
    const std::array<std::uint32_t, 2> key{word(mine[0]), word(mine[1])};
    const std::uint32_t number = e.self->operand_count > 1 ? word(e.operand[1][i / of_key]) : 0;
    std::int64_t rest = i;
    std::int64_t at = 0;
    for (int d = to.rank - 1; d >= keys; --d) {
      at += (e.boxes->result.dim[d].start + rest % to[d]) * stride_of(e.boxes->whole, d);
      rest /= to[d];
    }
    const auto block = static_cast<std::uint64_t>(at) / 4;
    const auto four =
        philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), number, purpose}, key);
    e.result[i] = value_of_word(e.self->type, four[static_cast<std::size_t>(at % 4)]);
  }
}

}  // namespace detail

namespace ops {
/// Element i of the whole tensor, counted in row-major order, is word i % 4 of Philox4x32 with the operand as key and
/// the counter (i / 4 modulo 2^32, i / 2^34, number, purpose): see `random_bits_factors` for the operands. With many
/// keys, that is the tensor of each of them.
inline constexpr op_info random_bits{.name = "random_bits",
                                     .spread = propagation::elementwise,
                                     .facts = {.attributes = "purpose:bits|low_bits|fold|split keys:count"},
                                     .factors = detail::random_bits_factors,
                                     .gradient = detail::no_gradient,
                                     .evaluate = detail::evaluate_random_bits,
                                     .flops = detail::one_flop_per_element,
                                     .positional = true,
                                     .map = detail::map_random_bits};
}  // namespace ops

namespace emit {
/// Appends random bits of type u32, or the same bits as i32. `number`, if it is not negative, is the instruction of a
/// scalar u32.
constexpr int random_bits(builder& b, dtype type, const extents& shape, int key,
                          detail::random_purpose purpose = detail::random_purpose::bits, int number = -1) {
  return b.append(
      with_attributes(builder::make(ops::random_bits, type, shape, key, number), detail::random_attributes{purpose}));
}
}  // namespace emit

constexpr mapped_value detail::map_random_bits(map_context& c) {
  instruction made = c.op().self();
  auto words = attributes_of<random_attributes>(made);
  ++words.keys;
  set_attributes(made, words);
  for (int k = 0; k < made.operand_count; ++k) made.operand[k] = c.operand(k, 0);
  made.shape = with_dimension(made.shape, 0, c.lanes());
  return {c.emit().append(made), 0};
}

namespace emit {

/// Bits moved to the right by `amount`, with their sign or without.
constexpr int shifted_right(builder& b, int bits, int amount, bool keep_sign) {
  const int by = constant_like(b, bits, amount);
  return b.append(keep_sign ? ops::shift_right_arithmetic : ops::shift_right_logical, b[bits].type, b[bits].shape, bits,
                  by);
}

/// Multiples of 2^-d in [0, 1), all equally likely, where d is the number of digits of the type's mantissa: bf16 8,
/// f16 11, f32 24, f64 53.
constexpr int uniform(builder& b, dtype type, const extents& shape, int key) {
  const int digits = facts_of(type).format == number_format::brain ? 8
                     : size_of(type) == 8                          ? 53
                     : size_of(type) == 4                          ? 24
                                                                   : 11;
  const int bits = random_bits(b, dtype::i32, shape, key);
  if (type == dtype::f64) {
    const int high = convert(b, shifted_right(b, bits, 5, false), type);
    const int words = random_bits(b, dtype::i32, shape, key, detail::random_purpose::low_bits);
    const int low = convert(b, shifted_right(b, words, 6, false), type);
    const int upper = scale(b, high, 0x1p-27);
    return add(b, upper, scale(b, low, 0x1p-53));
  }
  const int whole = convert(b, shifted_right(b, bits, 32 - digits, false), type);
  double unit = 1;
  for (int k = 0; k < digits; ++k) unit /= 2;
  return scale(b, whole, unit);
}

/// The midpoints of 2^-23 (f64: 2^-52) wide intervals in (0, 1), or with both signs in (-1, 1), all equally likely:
/// never 0, 1 or -1.
constexpr int midpoints(builder& b, dtype type, const extents& shape, int key, bool both_signs) {
  const int bits = random_bits(b, dtype::i32, shape, key);
  if (type == dtype::f64) {
    const int high = scale(b, convert(b, shifted_right(b, bits, both_signs ? 5 : 6, both_signs), type), 0x1p-26);
    const int words = random_bits(b, dtype::i32, shape, key, detail::random_purpose::low_bits);
    const int low = scale(b, convert(b, shifted_right(b, words, 6, false), type), 0x1p-52);
    const int middle = add(b, low, constant_like(b, low, 0x1p-53));
    return add(b, high, middle);
  }
  const int whole = convert(b, shifted_right(b, bits, both_signs ? 8 : 9, both_signs), type);
  const int at = scale(b, whole, 0x1p-23);
  return add(b, at, constant_like(b, at, 0x1p-24));
}

/// Normally distributed numbers: the inverse of their distribution function at midpoints of equal probability.
constexpr int normal(builder& b, dtype type, const extents& shape, int key) {
  const dtype wide = facts_of(type).accumulate;
  const int at = midpoints(b, wide, shape, key, true);
  const int quantile = b.append(ops::erf_inv, wide, shape, at);
  return convert(b, scale(b, quantile, 1.4142135623730950488), type);
}

/// Numbers with the distribution function exp(-exp(-x)).
constexpr int gumbel(builder& b, dtype type, const extents& shape, int key) {
  const int at = midpoints(b, type, shape, key, false);
  const int exponential = negate(b, b.append(ops::log, type, shape, at));
  return negate(b, b.append(ops::log, type, shape, exponential));
}

/// True where the word is less than `probability` 2^32, rounded.
constexpr int bernoulli(builder& b, const extents& shape, int key, double probability) {
  const double words = probability * 0x1p32;
  const auto below = static_cast<std::int64_t>(words);
  const std::int64_t threshold = words - static_cast<double>(below) < 0.5 ? below : below + 1;
  if (threshold >= std::int64_t{1} << 32) return constant(b, dtype::boolean, shape, 1);
  const int bits = random_bits(b, dtype::u32, shape, key);
  return compare(b, ops::less, bits, constant_like(b, bits, static_cast<double>(threshold)));
}
}  // namespace emit

namespace detail {

template <class Key> inline constexpr bool is_random_key = Key::type == dtype::u32&& Key::shape == u32<2>::shape;

/// Checks the key and emits: `emit(builder, key)` returns the instruction of a tensor of `Type`, which also follows
/// from `others`.
template <TensorType Type, Traced Key, class Emit, class... Others>
constexpr auto random_tensor(const char* op, const Key& key, source_line where, const Emit& emit,
                             const Others&... others) {
  if constexpr (Failed<Key>) {
    return key;
  } else if constexpr (!is_random_key<Key>) {
    return failed<why::not_a_random_key<typename Key::tensor>>(where, op);
  } else {
    const pinned_line line(*key.owner, where);
    return symbol_like<Key, Type>(key, emit(*key.owner, key.id), others...);
  }
}
template <TensorType Type, Traced Key, class Emit>
constexpr auto random_floats(const char* op, const Key& key, source_line where, const Emit& emit) {
  if constexpr (!Failed<Key> && !is_floating(Type::type)) {
    return failed<why::operand_is_not_floating<Type>>(where, op);
  } else {
    return random_tensor<Type>(op, key, where, emit);
  }
}

/// A probability that is a number; of one that is none, a mistake is noted.
constexpr double probability_of(builder& b, double p, source_line where) {
  if (p >= 0 && p <= 1) return p;
  b.note(failed<why::not_a_probability<>>(where));
  return 0;
}

/// The greatest number of a type that is less than `bound`.
[[nodiscard]] constexpr double last_below(dtype type, double bound) {
  const double nearest = stored_as(type, bound);
  if (nearest < bound) return nearest;
  const std::uint64_t word = word_of_value(type, nearest);
  if (nearest == 0) return -value_of_word(type, 1);
  return value_of_word(type, nearest > 0 ? word - 1 : word + 1);
}

}  // namespace detail

/// A random key: two words from a seed, on the mesh of `like`. A key may as well be an argument of type u32<2>, which
/// a new run can bring another value of.
template <Traced Like>
constexpr auto random_key(const Like& like, std::uint64_t seed, source_line where = source_line::current()) {
  if constexpr (Failed<Like>) {
    return like;
  } else {
    builder& b = *like.owner;
    const pinned_line line(b, where);
    const extents shape = u32<2>::shape;
    const int low = emit::constant(b, dtype::u32, shape, static_cast<double>(seed & 0xffffffffU));
    const int high = emit::constant(b, dtype::u32, shape, static_cast<double>(seed >> 32U));
    const int index = emit::iota(b, dtype::i32, shape, 0);
    const int first = emit::compare(b, ops::equal, index, emit::constant_like(b, index, 0));
    return detail::symbol_like<Like, u32<2>>(like, emit::select(b, first, low, high));
  }
}

/// Another key, from a key and a number: of a layer, a step, an example. Keys of different numbers are independent of
/// each other and of `key`. `number` is an integer, or a tensor i32<> or u32<>.
/// Errors: `not_a_random_key`, `not_one_integer`.
template <Traced Key, std::integral Number>
constexpr auto fold_in(const Key& key, Number number, source_line where = source_line::current()) {
  return detail::random_tensor<u32<2>>("fold_in", key, where, [&](builder& b, int id) {
    const int one = emit::constant(b, dtype::u32, extents{}, static_cast<double>(static_cast<std::uint32_t>(number)));
    return emit::random_bits(b, dtype::u32, u32<2>::shape, id, detail::random_purpose::fold, one);
  });
}
template <Traced Key, Traced Number>
constexpr auto fold_in(const Key& key, const Number& number, source_line where = source_line::current()) {
  if constexpr (Failed<Key> || Failed<Number>) {
    return detail::first_failure(key, number);
  } else if constexpr (Number::rank != 0 || (Number::type != dtype::i32 && Number::type != dtype::u32)) {
    return failed<why::not_one_integer<typename Number::tensor>>(where);
  } else {
    return detail::random_tensor<u32<2>>("fold_in", key, where, [&](builder& b, int id) {
      const int one = emit::bit_cast(b, detail::operand_of(b, number, where), dtype::u32);
      return emit::random_bits(b, dtype::u32, u32<2>::shape, id, detail::random_purpose::fold, one);
    });
  }
}

/// Count keys from one, as the rows of a u32<Count, 2>: to scan over, or to take apart with `slice`.
/// Errors: `not_a_random_key`.
template <int Count, Traced Key> constexpr auto split_key(const Key& key, source_line where = source_line::current()) {
  static_assert(Count >= 1, "split_key: at least one key");
  return detail::random_tensor<u32<Count, 2>>("split_key", key, where, [](builder& b, int id) {
    return emit::random_bits(b, dtype::u32, u32<Count, 2>::shape, id, detail::random_purpose::split);
  });
}

/// Random words, all equally likely: a tensor of `Type`, u32 or i32. An element depends only on the key and on the
/// element's place in the whole tensor.
/// Errors: `not_a_random_key`, `random_bits_are_words`.
template <TensorType Type, Traced Key>
constexpr auto random_bits(const Key& key, source_line where = source_line::current()) {
  if constexpr (!Failed<Key> && Type::type != dtype::u32 && Type::type != dtype::i32) {
    return failed<why::random_bits_are_words<Type>>(where);
  } else {
    return detail::random_tensor<Type>("random_bits", key, where, [](builder& b, int id) {
      return emit::random_bits(b, Type::type, Type::shape, id);
    });
  }
}

/// Numbers in [0, 1): the multiples of 2^-24 (f64 2^-53, f16 2^-11, bf16 2^-8), all equally likely, and exact.
/// Errors: `not_a_random_key`, `operand_is_not_floating`.
template <TensorType Type, Traced Key>
constexpr auto uniform(const Key& key, source_line where = source_line::current()) {
  return detail::random_floats<Type>("uniform", key, where,
                                     [](builder& b, int id) { return emit::uniform(b, Type::type, Type::shape, id); });
}
/// low + (high - low) u in [low, high), with u as above, rounded where the type has fewer digits.
/// Errors: `not_a_random_key`, `operand_is_not_floating`, `range_is_empty` unless low < high.
template <TensorType Type, Traced Key>
constexpr auto uniform(const Key& key, double low, double high, source_line where = source_line::current()) {
  return detail::random_floats<Type>("uniform", key, where, [&](builder& b, int id) {
    const int unit = emit::uniform(b, Type::type, Type::shape, id);
    if (!(low < high)) {
      b.note(failed<why::range_is_empty<>>(where));
      return unit;
    }
    const int wide = emit::scale(b, unit, high - low);
    const int moved = emit::add(b, wide, emit::constant_like(b, wide, low));
    // Rounding reaches `high`, where low is not 0.
    const int last = emit::constant_like(b, moved, detail::last_below(Type::type, high));
    return b.append(ops::minimum, Type::type, Type::shape, moved, last);
  });
}

/// Normally distributed numbers of mean 0 and variance 1: sqrt(2) erf_inv(x), where x are the odd multiples of 2^-24
/// in (-1, 1) (f64: of 2^-53), all equally likely. The largest is 5.42 (f64: 8.29). bf16 and f16 are rounded from f32.
/// Errors: `not_a_random_key`, `operand_is_not_floating`.
template <TensorType Type, Traced Key>
constexpr auto normal(const Key& key, source_line where = source_line::current()) {
  return detail::random_floats<Type>("normal", key, where,
                                     [](builder& b, int id) { return emit::normal(b, Type::type, Type::shape, id); });
}

/// Truth values, each true with probability `p`: where the word of `random_bits` is less than p 2^32, rounded. Of
/// another element type than `boolean`, ones and zeros. Errors: `not_a_random_key`, `not_a_probability`.
template <TensorType Type, Traced Key>
constexpr auto bernoulli(const Key& key, double p, source_line where = source_line::current()) {
  return detail::random_tensor<Type>("bernoulli", key, where, [&](builder& b, int id) {
    const int hit = emit::bernoulli(b, Type::shape, id, detail::probability_of(b, p, where));
    return emit::convert(b, hit, Type::type);
  });
}
/// Takes the probabilities from a tensor of floats, which broadcasts to `Type`'s shape: true where `uniform` of the
/// same type is less than p. Errors: `not_a_random_key`, `operand_is_not_floating`, `shape_mismatch`.
template <TensorType Type, Traced Key, Traced Probability>
constexpr auto bernoulli(const Key& key, const Probability& p, source_line where = source_line::current()) {
  if constexpr (Failed<Key> || Failed<Probability>) {
    return detail::first_failure(key, p);
  } else if constexpr (!is_floating(Probability::type)) {
    return failed<why::operand_is_not_floating<typename Probability::tensor>>(where, "bernoulli");
  } else if constexpr (!(detail::broadcast_shape(Probability::shape, Type::shape) == Type::shape)) {
    return failed<why::shape_mismatch<typename Probability::tensor, Type>>(where, "bernoulli");
  } else {
    return detail::random_tensor<Type>(
        "bernoulli", key, where,
        [&](builder& b, int id) {
          const int unit = emit::uniform(b, Probability::type, Type::shape, id);
          const int below =
              emit::broadcast_to(b, detail::operand_on<detail::operands_mesh<Key, Probability>>(b, p), Type::shape);
          return emit::convert(b, emit::compare(b, ops::less, unit, below), Type::type);
        },
        p);
  }
}

/// An index of dimension Dim for all others together, drawn with probabilities that are the softmax of `logits` along
/// it: where logits plus Gumbel-distributed numbers are largest. An i32 without that dimension. No gradient flows back.
/// Errors: `no_such_dimension`, `not_a_random_key`, `operand_is_not_floating`.
template <int Dim = -1, Traced Key, Traced Logits>
constexpr auto categorical(const Key& key, const Logits& logits, source_line where = source_line::current()) {
  if constexpr (Failed<Key> || Failed<Logits>) {
    return detail::first_failure(key, logits);
  } else if constexpr (constexpr int along = detail::dimension(Dim, Logits::rank); along < 0) {
    return failed<why::no_such_dimension<typename Logits::tensor, why::dim<Dim>>>(where, "categorical");
  } else if constexpr (!is_floating(Logits::type)) {
    return failed<why::operand_is_not_floating<typename Logits::tensor>>(where, "categorical");
  } else {
    constexpr std::int64_t dims = std::int64_t{1} << along;
    constexpr extents shape = detail::reduced_shape(Logits::shape, dims, false);
    return detail::random_tensor<tensor_for<dtype::i32, shape>>(
        "categorical", key, where,
        [&](builder& b, int id) {
          constexpr dtype type = facts_of(Logits::type).accumulate;
          const int from = emit::convert(b, detail::operand_on<detail::operands_mesh<Key, Logits>>(b, logits), type);
          const int noise = emit::gumbel(b, type, Logits::shape, id);
          const int sum = emit::add(b, from, noise);
          const int most = emit::broadcast_along(b, emit::reduce(b, reduction::max, sum, dims), Logits::shape, dims);
          // The first of the largest. (Of a NaN nothing is less: it gives index 0.)
          const int beaten = emit::compare(b, ops::less, sum, most);
          const int index = emit::iota(b, dtype::i32, Logits::shape, along);
          const int none = emit::constant_like(b, index, static_cast<double>(Logits::shape[along]));
          return emit::reduce(b, reduction::min, emit::select(b, beaten, none, index), dims);
        },
        logits);
  }
}

/// x with each element set to 0 with probability `rate`, and divided by 1 - rate otherwise: the mean stays. The
/// gradient passes where x did, scaled alike.
/// Errors: `not_a_random_key`, `operand_is_not_floating`, `not_a_probability`.
template <Traced Key, Traced X>
constexpr auto dropout(const Key& key, const X& x, double rate, source_line where = source_line::current()) {
  if constexpr (Failed<Key> || Failed<X>) {
    return detail::first_failure(key, x);
  } else if constexpr (!is_floating(X::type)) {
    return failed<why::operand_is_not_floating<typename X::tensor>>(where, "dropout");
  } else {
    return detail::random_tensor<typename X::tensor>(
        "dropout", key, where,
        [&](builder& b, int id) {
          const int from = detail::operand_on<detail::operands_mesh<Key, X>>(b, x);
          const double kept = 1 - detail::probability_of(b, rate, where);
          if (kept == 1) return from;
          const int mask = emit::bernoulli(b, X::shape, id, kept);
          const int scaled = emit::scale(b, emit::widen(b, from), kept > 0 ? 1 / kept : 0);
          return emit::convert(b, emit::keep_where(b, mask, scaled), X::type);
        },
        x);
  }
}

}  // namespace espalier
