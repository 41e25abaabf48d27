// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/execute/item_executor.hpp>
#include <espalier/testing/executed/elements.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// Kernels that are each op's `evaluate`.
namespace espalier::test {

/// Every launch, and every step of a fused chain, by its op's `evaluate`.
class evaluated_kernels {
 public:
  explicit evaluated_kernels(const program_tables& t) : t_(&t) {}

  void run(int launch, const kernels::kernel_call& call) const {
    const int id = t_->order[t_->launches[launch].first];
    const instruction& self = t_->code[id];
    if (call.item >= 0) return run_item(id, call);
    std::vector<std::vector<double>> operands(static_cast<std::size_t>(self.operand_count));
    evaluation e;
    e.self = &self;
    e.boxes = call.boxes;
    e.windows = call.windows;
    for (int k = 0; k < self.operand_count; ++k) {
      const instruction& operand = t_->code.operand(id, k);
      std::vector<double>& read = operands[static_cast<std::size_t>(k)];
      read = load_all(operand.type, call.operand_at(k), operand.shape.elements());
      e.operand[k] = read.data();
      e.operand_shape[k] = &operand.shape;
      e.operand_type[k] = operand.type;
    }
    std::vector<double> result(static_cast<std::size_t>(self.shape.elements()));
    e.result = result.data();
    std::vector<std::vector<double>> further;
    std::vector<double*> addresses;
    for (int k = 1; k <= further_results(t_->code.code, t_->code.size, id); ++k) {
      further.emplace_back(static_cast<std::size_t>(t_->code[id + k].shape.elements()));
      addresses.push_back(further.back().data());
    }
    e.further_result = addresses.data();
    self.op->evaluate(e);
    for (std::int64_t n = 0; n < self.shape.elements(); ++n) {
      save(self.type, call.result, n, result[static_cast<std::size_t>(n)]);
    }
    if (call.tail != nullptr) follow(self, *call.tail);
    for (std::size_t k = 0; k < further.size(); ++k) {
      const kernels::further_result& to = call.further_results[k];
      for (std::size_t n = 0; n < further[k].size(); ++n) {
        save(to.type, to.data, static_cast<std::int64_t>(n), further[k][n]);
      }
    }
  }

  /// A step of a fused chain on a block of rows.
  class block_function {
   public:
    block_function() = default;
    block_function(const instruction& self, const fused_step& step) : self_(&self), step_(&step) {}

    void operator()(const kernels::block_call& call) const {
      if (self_->op->fuse == fusion::source) {
        count(call);
      } else if (self_->op->fuse == fusion::reduction) {
        reduce(call);
      } else {
        map(call);
      }
    }

   private:
    [[nodiscard]] double element(const kernels::block_call& call, int k, std::int64_t row, std::int64_t column) const {
      const kernels::stream& from = call.operand[k];
      return load(step_->operand_type[k], from.data, row * from.row + (step_->wide[k] ? column : 0));
    }

    void map(const kernels::block_call& call) const {
      const std::int64_t columns = step_->result_wide ? call.columns : 1;
      instruction self = *self_;
      self.shape = extents{1, {columns}};
      std::vector<double> operands[3];
      std::vector<double> result(static_cast<std::size_t>(columns));
      evaluation e;
      e.self = &self;
      e.result = result.data();
      for (std::int64_t r = 0; r < call.rows; ++r) {
        for (int k = 0; k < step_->operand_count; ++k) {
          operands[k].resize(result.size());
          for (std::int64_t c = 0; c < columns; ++c) operands[k][static_cast<std::size_t>(c)] = element(call, k, r, c);
          e.operand[k] = operands[k].data();
          e.operand_shape[k] = &self.shape;
          e.operand_type[k] = step_->operand_type[k];
        }
        self_->op->evaluate(e);
        for (std::int64_t c = 0; c < columns; ++c) {
          save(step_->type, call.result.data, r * call.result.row + c, result[static_cast<std::size_t>(c)]);
        }
      }
    }

    void reduce(const kernels::block_call& call) const {
      const reduction kind = attributes_of<fused_reduction_attributes>(*step_).kind;
      for (std::int64_t r = 0; r < call.rows; ++r) {
        if (step_->accumulates) {
          // Sums of bf16, say, are kept in f32 until all rows are in.
          const dtype held = facts_of(step_->type).accumulate;
          for (std::int64_t c = 0; c < call.columns; ++c) {
            save(held, call.result.data, c, load(held, call.result.data, c) + element(call, 0, r, c));
          }
          continue;
        }
        double total = detail::identity_of(kind);
        for (std::int64_t c = 0; c < call.columns; ++c) total = detail::combine(kind, total, element(call, 0, r, c));
        save(step_->type, call.result.data, r * call.result.row, total);
      }
    }

    /// An index along the columns, or one that belongs to the row.
    void count(const kernels::block_call& call) const {
      const std::int64_t columns = step_->result_wide ? call.columns : 1;
      const auto index = attributes_of<fused_index_attributes>(*step_);
      const int dim = attributes_of<index_attributes>(*self_).dim;
      const std::int64_t start = call.boxes->result.dim[dim].start;
      for (std::int64_t r = 0; r < call.rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const std::int64_t at =
              index.along_columns ? call.first_column + c : (call.first_row + r) / index.repeat % index.size;
          save(step_->type, call.result.data, r * call.result.row + c, static_cast<double>(start + at));
        }
      }
    }

    const instruction* self_ = nullptr;
    const fused_step* step_ = nullptr;
  };
  [[nodiscard]] block_function block(int step) const {
    return {t_->code[t_->steps[step].instruction], t_->steps[step]};
  }
  [[nodiscard]] static kernels::loop_function loop(int /*launch*/) { return nullptr; }

 private:
  /// Has what follows a product follow its parts, in an order, and cut, as no kernel would.
  static void follow(const instruction& product, kernels::product_tail& tail) {
    const std::int64_t elements = product.shape.elements();
    const std::int64_t columns = tail.columns > 0 ? tail.columns : product.shape[product.shape.rank - 1];
    if (!is_long_row(columns) || elements % columns != 0) return;
    tail.is_taken = true;
    tail.columns = columns;
    constexpr std::int64_t width = 48;
    const std::int64_t step = tail.takes_whole_rows ? columns : width;
    for (std::int64_t column = (columns - 1) / step * step; column >= 0; column -= step) {
      const std::int64_t last = elements / columns - 1;
      for (std::int64_t row = last / 5 * 5; row >= 0; row -= 5)
        tail.run(tail, row, row + 5 <= last ? 5 : last + 1 - row, column,
                 column + step <= columns ? step : columns - column);
    }
  }

  /// One of an einsum's batched products.
  void run_item(int id, const kernels::kernel_call& call) const {
    const kernels::kernel_key key = detail::key_of(t_->code, id);
    const kernels::gemm_plan p =
        detail::plan_for(detail::contraction_for(key), key.operand_type[0], key.operand_type[1], key.type);
    const detail::loop_axis at = detail::locate(p.loops, p.loop_count, call.item);
    const int left = p.swapped ? 1 : 0;
    for (std::int64_t m = 0; m < p.m; ++m) {
      for (std::int64_t n = 0; n < p.n; ++n) {
        if (call.lower_triangle && n / kernels::triangle_grain > m / kernels::triangle_grain) continue;
        double sum = 0;
        for (std::int64_t s = 0; s < p.sum_iterations; ++s) {
          const detail::loop_axis term = detail::locate(p.sum_loops, p.sum_loop_count, s);
          for (std::int64_t k = 0; k < p.k; ++k) {
            sum +=
                load(key.operand_type[left], call.operand[left], at.a + term.a + m * p.a_row + k * p.a_column) *
                load(key.operand_type[1 - left], call.operand[1 - left], at.b + term.b + k * p.b_row + n * p.b_column);
          }
        }
        save(key.type, call.result, at.c + m * p.c_row + n * p.c_column, sum);
      }
    }
  }

  const program_tables* t_;
};

}  // namespace espalier::test
