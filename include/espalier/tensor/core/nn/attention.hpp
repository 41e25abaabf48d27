// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/nn/constant_math.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

namespace espalier {

namespace emit {

/// Scores where `seen` holds, and elsewhere what no softmax gives a weight to.
constexpr int hide_unseen(builder& b, int scores, int seen) {
  return select(b, broadcast_to(b, seen, b[scores].shape), scores,
                constant_like(b, scores, detail::hidden_score(b[scores].type)));
}

/// Scores [..., queries, keys] where each query sees the keys up to its own place; the last query and the last key have
/// the same place. Hidden scores become so low that their exponential is 0.
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
  return hide_unseen(b, scores, compare(b, ops::less_equal, iota(b, dtype::i32, square, 1), query));
}

}  // namespace emit

/// Building blocks of models. Each call is one line of the user's: `explain` shows it as that line.
namespace nn {

/// The products of each query with each key, divided by sqrt(head_dim): softmax's argument.
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

/// Scores [..., queries, keys] with every key after the query's own place hidden: its weight is 0. A query that sees no
/// key at all weighs all keys alike: of f16[3, 2] the first row's softmax is {0.5, 0.5}.
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

/// Scores [..., queries, keys] with those hidden where `seen`, truth values that broadcast to the scores, is false.
/// Rows that see nothing as for `hide_future`. Errors: `condition_is_not_boolean`, `operand_is_not_floating`,
/// `shape_mismatch`.
template <Traced Scores, Traced Seen>
constexpr auto hide_unseen(const Scores& scores, const Seen& seen, source_line where = source_line::current()) {
  if constexpr (Failed<Scores> || Failed<Seen>) {
    return detail::first_failure(scores, seen);
  } else if constexpr (Seen::type != dtype::boolean) {
    return failed<why::condition_is_not_boolean<typename Seen::tensor>>(where, "hide_unseen");
  } else if constexpr (!is_floating(Scores::type)) {
    return failed<why::operand_is_not_floating<typename Scores::tensor>>(where, "hide_unseen");
  } else if constexpr (!(detail::broadcast_shape(Scores::shape, Seen::shape) == Scores::shape)) {
    return failed<why::shape_mismatch<typename Scores::tensor, typename Seen::tensor>>(where, "hide_unseen");
  } else {
    builder& b = *scores.owner;
    const pinned_line line(b, where);
    return detail::symbol_like<Scores, typename Scores::tensor>(
        scores,
        emit::hide_unseen(b, detail::operand_on<detail::operands_mesh<Scores, Seen>>(b, scores),
                          detail::operand_of(b, seen)),
        seen);
  }
}

/// The values that the weights choose: weights [batch, heads, queries, keys], value [batch, keys, heads, head_dim] ->
/// [batch, queries, heads, head_dim]. Errors: those of `einsum`.
template <Traced Weights, Traced Value>
constexpr auto attention_mix(const Weights& weights, const Value& value, source_line where = source_line::current()) {
  return einsum<"bhqk,bkhd->bqhd">(weights, value, where);
}

/// Makes `attention` hide keys after the query's own place.
struct causal {
  template <Traced Scores> constexpr auto operator()(const Scores& scores, source_line where) const {
    return hide_future(scores, where);
  }
};
/// Makes `attention` hide keys that only fill a batch up, for which `real` [batch, keys] is false.
template <Traced Real> struct padding {
  Real real;
  template <Traced Scores> constexpr auto operator()(const Scores& scores, source_line where) const {
    if constexpr (Failed<Scores> || Failed<Real>) {
      return detail::first_failure(scores, real);
    } else if constexpr (Real::rank != 2) {
      return failed<why::wrong_rank<typename Real::tensor>>(where, "padding");
    } else {
      return hide_unseen(scores, expand_dims<1>(expand_dims<1>(real, where), where), where);
    }
  }
};
template <class Real> padding(Real) -> padding<Real>;
/// Makes `attention` hide pairs of a query and a key where `seen` is false, which broadcasts to [batch, heads, queries,
/// keys].
template <Traced Seen> struct mask {
  Seen seen;
  template <Traced Scores> constexpr auto operator()(const Scores& scores, source_line where) const {
    return hide_unseen(scores, seen, where);
  }
};
template <class Seen> mask(Seen) -> mask<Seen>;

}  // namespace nn

namespace detail {

constexpr auto hidden_by(const auto& scores, source_line /*where*/) { return scores; }
template <class First, class... Rest>
constexpr auto hidden_by(const auto& scores, source_line where, const First& first, const Rest&... rest) {
  return hidden_by(first(scores, where), where, rest...);
}
template <class... Hides> struct attention_of {
  template <Traced Query, Traced Key, Traced Value>
  static constexpr auto run(const Query& query, const Key& key, const Value& value, source_line where,
                            const Hides&... hides) {
    if constexpr (Failed<Query> || Failed<Key> || Failed<Value>) {
      return first_failure(query, key, value);
    } else {
      const pinned_line line(*query.owner, where);
      const auto scores = hidden_by(nn::attention_scores(query, key, where), where, hides...);
      return nn::attention_mix(softmax<-1>(scores, where), value, where);
    }
  }
};
}  // namespace detail

namespace nn {

/// Multi-head attention (Vaswani et al., arXiv 1706.03762): softmax(query key^T / sqrt(head_dim)) value, where every
/// query sees every key. query [batch, queries, heads, head_dim], key and value [batch, keys, heads, head_dim] -> like
/// query; batch and heads may be sharded without communication. `attention_scores`, `hide_future`, `hide_unseen`,
/// `softmax` and `attention_mix` are its parts, for annotations in between. Of bf16 and f16, scores and weights are
/// rounded to the type: a score of size s moves its weight by up to s 2^-8 (f16: s 2^-11) of itself.
/// Errors: `wrong_rank`, `operand_is_not_floating`, and those of `einsum`.
template <Traced Query, Traced Key, Traced Value>
constexpr auto attention(const Query& query, const Key& key, const Value& value,
                         source_line where = source_line::current()) {
  return detail::attention_of<>::run(query, key, value, where);
}
/// The same where some keys are hidden: `nn::attention(q, k, v, nn::causal{})`, `nn::attention(q, k, v,
/// nn::padding{tokens != 0})`, `nn::attention(q, k, v, nn::mask{seen})`. Rows that see nothing as for `hide_future`.
template <Traced Query, Traced Key, Traced Value, class Hide>
  requires(!std::is_same_v<Hide, source_line>)
constexpr auto attention(const Query& query, const Key& key, const Value& value, const Hide& hide,
                         source_line where = source_line::current()) {
  return detail::attention_of<Hide>::run(query, key, value, where, hide);
}
/// The same with two reasons to hide: `nn::attention(q, k, v, nn::causal{}, nn::padding{tokens != 0})`.
template <Traced Query, Traced Key, Traced Value, class Hide, class And>
  requires(!std::is_same_v<And, source_line>)
constexpr auto attention(const Query& query, const Key& key, const Value& value, const Hide& hide, const And& also,
                         source_line where = source_line::current()) {
  return detail::attention_of<Hide, And>::run(query, key, value, where, hide, also);
}

/// `attention` where no query sees a later key. All three are [batch, sequence, heads, head_dim], and so is the result.
/// Errors: `wrong_rank`, `operand_is_not_floating`, and those of `einsum`.
template <Traced Query, Traced Key, Traced Value>
constexpr auto causal_attention(const Query& query, const Key& key, const Value& value,
                                source_line where = source_line::current()) {
  return attention(query, key, value, causal{}, where);
}

}  // namespace nn

}  // namespace espalier
