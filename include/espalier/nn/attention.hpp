// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/nn/constant_math.hpp>
#include <espalier/ops/ops.hpp>

namespace espalier {

namespace emit {

/// Scores [..., queries, keys] where each query sees the keys up to its own place; the last query and the last key
/// stand at the same place. Hidden scores become so low that their exponential is 0.
constexpr int hide_future(builder& b, int scores) {
  const extents shape = b[scores].shape;
  extents square;
  square.append(shape[shape.rank - 2]);
  square.append(shape[shape.rank - 1]);
  int query = iota(b, dtype::i32, square, 0);
  // The keys of an earlier part of the text come before all queries.
  if (square[0] != square[1]) {
    query = add(b, query, constant(b, dtype::i32, square, static_cast<double>(square[1] - square[0])));
  }
  const int seen = compare(b, ops::less_equal, iota(b, dtype::i32, square, 1), query);
  // Finite, so that a difference of two hidden scores is no NaN.
  return select(b, broadcast_to(b, seen, shape), scores,
                constant_like(b, scores, detail::hidden_score(b[scores].type)));
}

}  // namespace emit

/// Building blocks of models. Each call is one line of the user's: `explain` shows it as that line.
namespace nn {

/// How well each query fits each key, divided by sqrt(head_dim): softmax's argument.
/// query [batch, queries, heads, head_dim], key [batch, keys, heads, head_dim] -> [batch, heads, queries, keys].
/// Errors: `wrong_rank`, `operand_is_not_floating`, and those of `einsum`.
template <Traced Query, Traced Key>
constexpr auto attention_scores(const Query& query, const Key& key, source_line where = source_line::current()) {
  if constexpr (Failed<Query> || Failed<Key>) {
    return detail::first_failure(query, key);
  } else if constexpr (Query::rank != 4) {
    return failed<why::wrong_rank<typename Query::tensor>>(where, "attention_scores");
  } else if constexpr (!is_floating(Query::type)) {
    return failed<why::operand_is_not_floating<typename Query::tensor>>(where, "attention_scores");
  } else {
    const pinned_line line(*query.owner, where);
    // The query is smaller than the scores: scaling it is cheaper.
    const double scale = 1 / detail::square_root(Query::extent(-1));
    builder& b = *query.owner;
    const Query scaled(b, emit::convert(b, emit::scale(b, emit::widen(b, query.id), scale), Query::type));
    return einsum<"bqhd,bkhd->bhqk">(scaled, key, where);
  }
}

/// Scores [..., queries, keys] with every key behind the query's own place hidden.
/// Errors: `wrong_rank`, `operand_is_not_floating`.
template <Traced Scores> constexpr auto hide_future(const Scores& scores, source_line where = source_line::current()) {
  if constexpr (Failed<Scores>) {
    return scores;
  } else if constexpr (Scores::rank < 2) {
    return failed<why::wrong_rank<typename Scores::tensor>>(where, "hide_future");
  } else if constexpr (!is_floating(Scores::type)) {
    return failed<why::operand_is_not_floating<typename Scores::tensor>>(where, "hide_future");
  } else {
    const pinned_line line(*scores.owner, where);
    return detail::symbol_like<Scores, typename Scores::tensor>(scores, emit::hide_future(*scores.owner, scores.id));
  }
}

/// The values that the weights choose: weights [batch, heads, queries, keys], value [batch, keys, heads, head_dim] ->
/// [batch, queries, heads, head_dim]. Errors: those of `einsum`.
template <Traced Weights, Traced Value>
constexpr auto attention_mix(const Weights& weights, const Value& value, source_line where = source_line::current()) {
  return einsum<"bhqk,bkhd->bqhd">(weights, value, where);
}

/// Causal multi-head attention (Vaswani et al., arXiv 1706.03762): softmax(query key^T / sqrt(head_dim)) value, where
/// no query sees a later key. All three are [batch, sequence, heads, head_dim], and so is the result; batch and heads
/// may be sharded without communication. `attention_scores`, `hide_future`, `softmax` and `attention_mix` are its
/// parts, for annotations in between. Errors: `wrong_rank`, `operand_is_not_floating`, and those of `einsum`.
template <Traced Query, Traced Key, Traced Value>
constexpr auto causal_attention(const Query& query, const Key& key, const Value& value,
                                source_line where = source_line::current()) {
  if constexpr (Failed<Query> || Failed<Key> || Failed<Value>) {
    return detail::first_failure(query, key, value);
  } else {
    const pinned_line line(*query.owner, where);
    const auto scores = hide_future(attention_scores(query, key, where), where);
    return attention_mix(softmax<-1>(scores, where), value, where);
  }
}

}  // namespace nn

}  // namespace espalier
