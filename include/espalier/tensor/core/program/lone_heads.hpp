// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/builder.hpp>
#include <espalier/tensor/core/partition/row_product.hpp>

#include <cstdint>

namespace espalier::detail {

/// Tells attention whose heads all have the same keys, such as that of matrices [queries, keys], from layers of
/// weights, and marks its products (`einsum_attributes::of_lone_head`): they may be row products, as those of heads
/// with keys of their own are without a mark (partition/row_product.hpp).
///
/// A product of rows with one matrix for all of them is the first product of attention, if
///   - something is reduced along the keys of its scores (a softmax; not so in two layers of weights),
///   - a product reads what follows from the scores and keeps their rows, and
///   - this one reads another matrix than the first, or nothing sums over rows (the gradient of a loss, which follows
///     from logits row by row, multiplies by the weights again, and sums over rows for these).
/// Attention that is differentiated is marked before its gradient is made, which inherits the marks. What is to be
/// computed again rather than kept (`checkpoint`) is marked without a product that reads the scores, too: the logits of
/// a loss.
class lone_head_search {
 public:
  /// @param begin, end the instructions that are looked at
  /// @param for_memory whether memory matters more than time
  constexpr lone_head_search(builder& b, int begin, int end, bool for_memory)
      : b_(b), begin_(begin), end_(end), for_memory_(for_memory) {}

  constexpr void run() {
    for (int id = begin_; id < end_; ++id) {
      if (is_first_product(id) && !was_seen(id)) look_at_scores_of(id);
    }
  }

 private:
  struct seen_space {
    extents shape;
    int region = -1;
  };

  [[nodiscard]] constexpr row_product role_of(int id, int scores) const {
    const instruction& i = b_[id];
    einsum_attributes terms = attributes_of<einsum_attributes>(i);
    terms.of_lone_head = true;
    return row_product_of(terms, b_[i.operand[0]].shape, b_[i.operand[1]].shape, i.shape, scores);
  }
  /// A product that may make scores, if it is of a lone head.
  [[nodiscard]] constexpr bool is_first_product(int id) const {
    const instruction& i = b_[id];
    if (!i.op->facts.contracts || !is_floating(i.type) || !has_many_scores(i.shape)) return false;
    const std::int64_t read = b_[i.operand[0]].shape.elements() + b_[i.operand[1]].shape.elements();
    if ((for_memory_ ? least_share_of_scores : least_share_of_lone_head) * read > i.shape.elements()) return false;
    if (attributes_of<einsum_attributes>(i).of_lone_head) return false;
    const row_product p = role_of(id, 2);
    return p.role == row_role::makes && !p.has_own_y;
  }
  [[nodiscard]] constexpr bool was_seen(int id) const {
    for (const seen_space& one : seen_) {
      if (one.shape == b_[id].shape && one.region == b_[id].region) return true;
    }
    return false;
  }
  /// What a value is made of without anything else: a weight that was converted, transposed or collected is the same.
  [[nodiscard]] constexpr int source_of(int id) const {
    while (b_[id].operand_count == 1 && b_[id].region == b_[b_[id].operand[0]].region) id = b_[id].operand[0];
    return id;
  }

  constexpr void look_at_scores_of(int first) {
    const extents space = b_[first].shape;
    const int region = b_[first].region;
    seen_.push_back({space, region});
    list<bool> follows(end_ - first, false);
    list<int> products;
    list<int> keys;
    bool is_reduced = false;
    bool is_kept = false;
    bool has_values = false;
    bool is_summed = false;
    for (int id = first; id < end_; ++id) {
      const instruction& i = b_[id];
      if (i.region != region) continue;
      if (i.shape == space && is_first_product(id)) {
        products.push_back(id);
        keys.push_back(source_of(i.operand[role_of(id, 2).y]));
        follows[id - first] = true;
        continue;
      }
      for (int k = 0; k < i.operand_count; ++k) {
        const int o = b_.operand_at(i, k);
        if (o < first || !follows[o - first]) continue;
        if (!i.op->facts.contracts) {
          is_reduced = is_reduced || reduces_keys(i, space);
          follows[id - first] = passes_rows(i);
          break;
        }
        if (!(b_[o].shape == space)) continue;
        const row_product p = role_of(id, k);
        if (p.role == row_role::none || p.has_own_y) continue;
        products.push_back(id);
        is_summed = is_summed || p.role == row_role::sums;
        if (p.role != row_role::keeps) continue;
        is_kept = true;
        has_values = has_values || !contains(keys, source_of(i.operand[1 - k]));
      }
    }
    if (!is_reduced || (!for_memory_ && (!is_kept || (is_summed && !has_values)))) return;
    for (const int id : products) {
      einsum_attributes terms = attributes_of<einsum_attributes>(b_[id]);
      terms.of_lone_head = true;
      set_attributes(b_[id], terms);
    }
  }
  [[nodiscard]] constexpr bool reduces_keys(const instruction& i, const extents& space) const {
    return i.op->fuse == fusion::reduction && b_[i.operand[0]].shape == space &&
           attributes_of<reduction_attributes>(i).dims == std::int64_t{1} << (space.rank - 1);
  }
  [[nodiscard]] static constexpr bool passes_rows(const instruction& i) {
    return i.op->fuse == fusion::elementwise || i.op->fuse == fusion::broadcast || i.op->fuse == fusion::reduction ||
           (i.operand_count == 1 && structure_of(i) == structure::none);
  }
  [[nodiscard]] static constexpr bool contains(const list<int>& all, int one) {
    for (const int other : all) {
      if (other == one) return true;
    }
    return false;
  }

  builder& b_;
  int begin_;
  int end_;
  bool for_memory_;
  list<seen_space> seen_;
};

constexpr void mark_lone_heads(builder& b, int begin, int end, bool for_memory = false) {
  lone_head_search(b, begin, end, for_memory).run();
}

}  // namespace espalier::detail
