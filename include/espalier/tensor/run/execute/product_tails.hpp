// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/place_in.hpp>
#include <espalier/tensor/run/execute/causal.hpp>
#include <espalier/tensor/run/execute/chain_steps.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <cstdint>
#include <vector>

// A fused chain after a product that it reads (a bias, an activation, what goes past the product, a norm of its rows)
// does not wait for the whole product: it follows each part as soon as that is complete, while the first-level cache
// has it. Here is found out which chains can, and whether they may where values lie now. The chain runs in
// execute/chain.hpp, the product calls it in kernels/gemm.hpp.

namespace espalier::detail {

/// How a chain can follow a product.
struct tail_fit {
  bool fits = false;
  /// Nothing in it depends on where rows end: it follows a product of any long rows.
  bool is_flat = false;
  bool takes_whole_rows = false;
};

/// Looks at the chain of launch `u`, which comes next after the product `product`.
class tail_finder {
 public:
  /// @pre launch `u` is fused
  tail_finder(const program_tables& t, const causal_finder& causal, int u, int product)
      : t_(t), chain_(t.chains[u]), product_(product), is_possible_(causal.side(u) == 0 && !chain_.is_cut()) {
    for (int s = chain_.first_step; s < chain_.first_step + chain_.step_count; ++s) {
      is_possible_ = is_possible_ && t.steps[s].columns == 0 && causal.mask(s) == mask_part::none;
      look_at(t.steps[s]);
    }
  }

  [[nodiscard]] tail_fit fit() const {
    const std::int64_t elements = chain_.rows * chain_.columns;
    const bool is_its_size = elements == t_.code[product_].shape.elements();
    // Over memory that no cache holds it passes faster in long runs than in parts of rows.
    const bool is_small = elements * passed_ < least_passed_to_stream(chain_);
    const bool is_near = takes_whole_rows_ || passed_ <= 2 * size_of(t_.code[product_].type);
    return {is_possible_ && reads_product_ && is_its_size && is_small && is_near, is_flat_, takes_whole_rows_};
  }

 private:
  void look_at(const fused_step& step) {
    const instruction& i = t_.code[step.instruction];
    const bool knows_place = i.op->positional || i.op->facts.values == pattern::index;
    if (knows_place || !step.result_wide || i.op->fuse == fusion::reduction) is_flat_ = false;
    if (knows_place || !step.result_wide) takes_whole_rows_ = true;
    for (int k = 0; k < step.operand_count; ++k) {
      const fused_source& from = step.operand[k];
      if (from.kind == source_kind::shifted) is_possible_ = false;
      if (from.kind == source_kind::constant) continue;
      const bool is_dense = step.wide[k] && (from.kind != source_kind::memory || is_whole(from.rows));
      is_flat_ = is_flat_ && is_dense;
      if (from.kind != source_kind::memory) continue;
      if (is_dense && place_in(seen_, from.value) < 0) {
        seen_.push_back(from.value);
        passed_ += size_of(step.operand_type[k]);
      }
      if (t_.root[from.value] != t_.root[product_]) continue;
      reads_product_ = true;
      is_possible_ = is_possible_ && is_dense;
    }
    if (step.accumulates || step.result.kind != source_kind::memory) return;
    if (step.result_wide) {
      seen_.push_back(step.instruction);
      passed_ += size_of(step.type);
    }
    is_flat_ = is_flat_ && is_whole(step.result.rows);
  }
  /// Whether the rows of a tensor are the chain's.
  [[nodiscard]] bool is_whole(const row_map& map) const {
    if (chain_.rows == 1) return true;
    return map.terms == 1 && map.divide[0] == 1 && map.modulo[0] == chain_.rows && map.stride[0] == chain_.columns;
  }

  const program_tables& t_;
  const fused_chain& chain_;
  int product_;
  bool is_possible_;
  bool is_flat_ = true;
  bool takes_whole_rows_ = false;
  bool reads_product_ = false;
  std::vector<int> seen_;    // values with an element for each of the chain's
  std::int64_t passed_ = 0;  // the bytes of their elements
};

/// Whether a chain may follow the parts of product `product` where values lie now: the memory plan may have given it
/// the place of what the product still reads. `address(value)` is where a value lies. @pre `fit_of` says that it can
template <class Address>
[[nodiscard]] bool may_follow(const program_tables& t, int u, int product, const Address& address) {
  struct range {
    const char* first;
    const char* last;
  };
  const auto place = [&](int value) {
    const auto* const first = static_cast<const char*>(address(value));
    return range{first, first + bytes_of(t.code[value])};
  };
  const auto overlap = [](const range& a, const range& b) { return a.first < b.last && b.first < a.last; };
  const range made = place(product);
  const auto is_same = [&](const range& other) { return other.first == made.first && other.last == made.last; };
  const fused_chain& c = t.chains[u];
  for (int s = c.first_step; s < c.first_step + c.step_count; ++s) {
    const fused_step& step = t.steps[s];
    for (int k = 0; k < step.operand_count; ++k) {
      if (step.operand[k].kind != source_kind::memory) continue;
      const range read = place(step.operand[k].value);
      if (overlap(read, made) && !is_same(read)) return false;
    }
    if (step.result.kind != source_kind::memory) continue;
    const range written = place(step.result.value);
    if (overlap(written, made) && !is_same(written)) return false;
    for (int k = 0; k < t.code[product].operand_count; ++k) {
      const range factor = place(t.code[product].operand[k]);
      // What is added to a product is no factor once it lies where the product does.
      if (overlap(written, factor) && !is_same(factor)) return false;
    }
  }
  return true;
}

}  // namespace espalier::detail
