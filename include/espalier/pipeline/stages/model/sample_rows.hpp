// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/model/layer_layouts.hpp>
#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>
#include <espalier/tensor/core/program/passes.hpp>
#include <espalier/tensor/core/program/verify.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier::why {

template <class... Details> struct samples_are_mixed {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "pipeline: one sample of this layer's output depends on the other samples of its micro-batch, so that "
        "losses change with the number of micro-batches. Compute statistics along other dimensions than that "
        "of samples (nn::layer_norm, nn::rms_norm), or ask for those of each micro-batch: "
        "named<..., statistics_per_micro_batch>.");
  };
};
template <class... Details> struct loss_is_no_sum {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "pipeline: the loss is no sum over samples: micro-batches are added up, so that it changes with their "
        "number. Return the sum of what each sample loses, or ask for the loss of each micro-batch: "
        "named<..., statistics_per_micro_batch>.");
  };
};

}  // namespace espalier::why

/// Whether the samples of a micro-batch stay apart in a layer: what it makes of one does not depend on the others.
/// Otherwise what a pipeline learns would depend on how many micro-batches a step is cut into.
namespace espalier::pipeline::detail {

/// How a value depends on the samples of a micro-batch.
enum class sample_use : std::uint8_t {
  none,   ///< not at all: parameters
  apart,  ///< each of its parts on one sample
  sum,    ///< it is a sum of terms that each depend on one sample
  mixed,  ///< in another way
};

struct sample_state {
  sample_use use = sample_use::none;
  /// The dimension in which samples are apart (`sample_use::apart`): its element i belongs to sample i / minor %
  /// samples.
  int dim = 0;
  std::int64_t minor = 1;
  /// The instruction that brought the samples together, if they are not apart.
  int origin = -1;

  [[nodiscard]] friend constexpr bool operator==(const sample_state&, const sample_state&) = default;
};

/// Follows samples through one instruction, by its factors: `states` has those of its operands.
class sample_step {
 public:
  template <class Table>
  constexpr sample_step(graph_view g, int id, std::int64_t samples, const Table& states)
      : g_(g), head_(head_of(g, id)), id_(id), samples_(samples) {
    const espalier::instruction& op = g[head_];
    rule_ = op.op->factors(g.view(head_));
    for (int k = 0; k < op.operand_count; ++k) read(k, states.at(g.operand_at(op, k)));
  }

  [[nodiscard]] constexpr sample_state result() const {
    if (carrier_ < 0 || state_.use == sample_use::mixed) return state_;
    if (state_.use == sample_use::sum) return mixed();  // samples and a sum of them
    const factor_list* dims = rule_.dims_of_result(id_ - head_);
    for (int d = 0; d < g_[id_].shape.rank; ++d) {
      std::int64_t minor = minor_;
      for (int i = dims[d].size(); i-- > 0;) {
        if (dims[d][i] == carrier_) return {sample_use::apart, d, minor, -1};
        minor *= rule_.size[dims[d][i]];
      }
    }
    const bool is_sum = rule_.kind[carrier_] == factor_kind::reduce && rule_.combine == reduction::sum &&
                        g_[head_].op->linear != linearity::none && is_alone_;
    return {is_sum ? sample_use::sum : sample_use::mixed, 0, 1, head_};
  }

 private:
  [[nodiscard]] static constexpr int head_of(graph_view g, int id) {
    while (is_further_result(g[id])) --id;
    return id;
  }
  [[nodiscard]] constexpr sample_state mixed() const {
    return {sample_use::mixed, 0, 1, state_.origin >= 0 ? state_.origin : head_};
  }

  constexpr void read(int k, const sample_state& of) {
    if (of.use == sample_use::none || state_.use == sample_use::mixed) return;
    if (of.use == sample_use::mixed) {
      state_ = of;
    } else if (of.use == sample_use::sum) {
      read_sum(k, of);
    } else {
      read_apart(k, of);
    }
  }
  constexpr void read_sum(int k, const sample_state& of) {
    const linearity linear = g_[head_].op->linear;
    const bool stays = linear == linearity::joint || (linear == linearity::first && k == 0) ||
                       (linear == linearity::each && state_.use == sample_use::none) || only_converts();
    state_ = stays ? of : sample_state{sample_use::mixed, 0, 1, of.origin};
  }
  [[nodiscard]] constexpr bool only_converts() const {
    const espalier::instruction& op = g_[head_];
    return op.operand_count == 1 && op.op->fuse == fusion::elementwise && op.type != g_.operand(head_, 0).type &&
           is_floating(op.type) && is_floating(g_.operand(head_, 0).type);
  }

  constexpr void read_apart(int k, const sample_state& of) {
    const factor_list factors = rule_.dims_of(k)[of.dim];
    std::int64_t minor = 1;
    for (int i = factors.size(); i-- > 0;) {
      const int factor = factors[i];
      const std::int64_t reach = minor * rule_.size[factor];
      if (of.minor >= minor && of.minor % minor == 0 && of.minor * samples_ <= reach) {
        carry(k, of.dim, factor, of.minor / minor);
        return;
      }
      minor = reach;
    }
    state_ = mixed();
  }
  constexpr void carry(int k, int dim, int factor, std::int64_t minor) {
    const bool other = carrier_ >= 0 && (carrier_ != factor || minor_ != minor);
    if (other || rule_.kind[factor] == factor_kind::blocked || reads_other_places(k, dim)) {
      state_ = mixed();
      return;
    }
    // A product of two values of one sample is a term of that sample; what is linear in both together is, too.
    if (carrier_ >= 0 && g_[head_].op->linear == linearity::none) is_alone_ = false;
    carrier_ = factor;
    minor_ = minor;
  }
  [[nodiscard]] constexpr bool reads_other_places(int k, int dim) const {
    const op_info& op = *g_[head_].op;
    window of_dimension[max_rank];
    std::uint32_t dims = op.windows == nullptr ? 0 : op.windows(g_.view(head_), k, &of_dimension[0]);
    if (op.carries_along != nullptr) dims |= op.carries_along(g_.view(head_));
    return (dims >> static_cast<unsigned>(dim) & 1U) != 0;
  }

  graph_view g_;
  int head_;
  int id_;
  std::int64_t samples_;
  factor_rule rule_{};
  sample_state state_{};
  int carrier_ = -1;
  std::int64_t minor_ = 1;
  bool is_alone_ = true;
};

/// The states of all instructions.
template <int Size> struct sample_table {
  int use[Size + 1]{};
  int dim[Size + 1]{};
  std::int64_t minor[Size + 1]{};
  int origin[Size + 1]{};
  bool is_final = false;

  [[nodiscard]] constexpr sample_state at(int id) const {
    return {static_cast<sample_use>(use[id]), dim[id], minor[id], origin[id]};
  }
  constexpr void set(int id, const sample_state& state) {
    use[id] = static_cast<int>(state.use);
    dim[id] = state.dim;
    minor[id] = state.minor;
    origin[id] = state.origin;
  }
};

/// The sample states of all instructions of a layer's forward graph. It passes over the graph until nothing changes,
/// since a carry depends on the end of its loop.
template <class Source, int Parameters, std::int64_t Samples, int Round = 0> struct sample_states {
  static constexpr graph_view code() { return frozen<Source>::value; }
  using table = sample_table<frozen<Source>::size>;
  [[nodiscard]] static constexpr auto before() {
    if constexpr (Round == 0) {
      return table{};
    } else {
      return sample_states<Source, Parameters, Samples, Round - 1>::value;
    }
  }
  static constexpr table value = [] {
    table t = before();
    const graph_view g = code();
    t.is_final = true;
    for (int id = 0; id < g.size; ++id) {
      sample_state found;
      if (structure_of(g[id]) == structure::argument) {
        if (attributes_of<border_attributes>(g[id]).number > Parameters && g[id].shape.rank > 0)
          found.use = sample_use::apart;
      } else {
        found = sample_step(g, id, Samples, t).result();
      }
      // A carry begins as its start, and becomes what is passed on.
      if (structure_of(g[id]) == structure::region_parameter && t.at(id).use > found.use) found = t.at(id);
      if (structure_of(g[id]) == structure::region_yield) {
        const int carry = g[id].operand[0];
        if (found.use > t.at(carry).use) {
          t.set(carry, found);
          t.is_final = false;
        }
      }
      t.set(id, found);
    }
    return t;
  }();
  static constexpr int most_rounds = 8;
  [[nodiscard]] static constexpr auto last() {
    if constexpr (value.is_final || Round == most_rounds) {
      return std::type_identity<sample_states>{};
    } else {
      return sample_states<Source, Parameters, Samples, Round + 1>::last();
    }
  }
};

/// Result 0 of a layer's forward graph, and the instruction to name if its samples are mixed, or -1.
template <class Traced, std::int64_t Samples, bool IsLoss> struct sample_findings {
  using source = typename Traced::forward;
  using states = typename decltype(sample_states<source, Traced::parameters, Samples>::last())::type;
  /// One comparison at a time: g++ 12 with optimisation makes one of neighbouring members of two, and gets it wrong in
  /// a constant.
  [[nodiscard]] static constexpr bool is_right(const sample_state& state) {
    if (IsLoss) return state.use != sample_use::mixed;
    if (state.use == sample_use::none) return true;
    if (state.use != sample_use::apart) return false;
    if (state.dim != 0) return false;
    return state.minor == 1;
  }
  static constexpr int at = [] {
    const graph_view g = states::code();
    for (int id = 0; id < g.size; ++id) {
      if (structure_of(g[id]) != structure::result || attributes_of<border_attributes>(g[id]).number != 0) continue;
      const sample_state state = states::value.at(g[id].operand[0]);
      if (is_right(state)) return -1;
      return state.origin >= 0 ? state.origin : g[id].operand[0];
    }
    return -1;
  }();
  static constexpr auto find() {
    if constexpr (at < 0) {
      return espalier::detail::nothing_to_report{};
    } else {
      using op = espalier::detail::op_of_instruction<frozen<source>::value, at>;
      using where = espalier::detail::place_of_instruction<frozen<source>::value, at>;
      if constexpr (IsLoss) {
        return espalier::detail::report<why::loss_is_no_sum<op>, where>{};
      } else {
        return espalier::detail::report<why::samples_are_mixed<op>, where>{};
      }
    }
  }
  using finding = decltype(find());
};

}  // namespace espalier::pipeline::detail
