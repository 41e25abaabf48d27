// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Layers in plain C++ for tests of the engine, with derivatives written by hand, and the same model as one loop over a
/// whole batch, which shares no code with them.
namespace hand_written {

namespace pl = espalier::pipeline;

inline constexpr int features = 4;  // of every activation
inline constexpr int data_features = 5;
inline constexpr double rate = 0.05;
inline constexpr double momentum = 0.9;

/// First values: of both, the layers and the loop.
inline double first_value(int layer, int index) { return 0.6 * std::sin(1.7 * layer + 0.9 * index + 0.3); }

/// An action that a test wants inside a layer; called before each part.
using hook = std::function<void(int layer, pl::part kind)>;

inline const double* numbers(const std::byte* memory) { return reinterpret_cast<const double*>(memory); }
inline double* numbers(std::byte* memory) { return reinterpret_cast<double*>(memory); }

/// Momentum, first values and the hook: what all of them have in common.
class common : public pl::layer {
 public:
  common(int index, const pl::layer_facts& facts, const hook& call) : index_(index), facts_(&facts), call_(&call) {}
  void prepare(int) override {}
  void initialise(std::byte* parameters, std::byte* state) override {
    for (int i = 0; i < count(); ++i) {
      numbers(parameters)[i] = first_value(index_, i);
      numbers(state)[i] = 0;
    }
  }
  void step(std::byte* parameters, const std::byte* gradients, std::byte* state, std::int64_t) override {
    for (int i = 0; i < count(); ++i) {
      numbers(state)[i] = momentum * numbers(state)[i] + numbers(gradients)[i];
      numbers(parameters)[i] -= rate * numbers(state)[i];
    }
  }

 protected:
  void enter(pl::part kind) const {
    if (*call_) (*call_)(index_, kind);
  }

 private:
  [[nodiscard]] int count() const { return static_cast<int>(facts_->parameter_bytes) / 8; }
  int index_;
  const pl::layer_facts* facts_;
  const hook* call_;
};

/// y = tanh(x W + b). Needs y for B and x for W; B hands the gradient of x W + b to W.
class dense : public common {
 public:
  dense(int index, const pl::layer_facts& facts, const hook& call, int width)
      : common(index, facts, call), width_(width) {}
  void forward(const pl::layer_memory& memory) override {
    enter(pl::part::forward);
    const double* const x = input(memory);
    const double* const w = numbers(memory.parameters[0]);
    const double* const b = w + width_ * features;
    for (int r = 0; r < memory.batch; ++r)
      for (int j = 0; j < features; ++j) {
        double z = b[j];
        for (int i = 0; i < width_; ++i) z += x[r * width_ + i] * w[i * features + j];
        numbers(memory.output)[r * features + j] = std::tanh(z);
      }
  }
  void input_gradient(const pl::layer_memory& memory) override {
    enter(pl::part::input_gradient);
    const double* const w = numbers(memory.parameters[0]);
    double* const dz = numbers(memory.kept_between);
    for (int k = 0; k < memory.batch * features; ++k) {
      const double y = numbers(memory.output)[k];
      dz[k] = numbers(memory.output_gradient)[k] * (1 - y * y);
    }
    if (memory.input_gradients.empty()) return;
    double* const dx = numbers(memory.input_gradients[0]);
    for (int r = 0; r < memory.batch; ++r)
      for (int i = 0; i < width_; ++i) {
        double sum = 0;
        for (int j = 0; j < features; ++j) sum += dz[r * features + j] * w[i * features + j];
        dx[r * width_ + i] = sum;
      }
  }
  void weight_gradient(const pl::layer_memory& memory) override {
    enter(pl::part::weight_gradient);
    const double* const x = input(memory);
    const double* const dz = numbers(memory.kept_between);
    double* const dw = numbers(memory.gradients[0]);
    double* const db = dw + width_ * features;
    for (int r = 0; r < memory.batch; ++r)
      for (int j = 0; j < features; ++j) {
        for (int i = 0; i < width_; ++i) dw[i * features + j] += x[r * width_ + i] * dz[r * features + j];
        db[j] += dz[r * features + j];
      }
  }

 private:
  static const double* input(const pl::layer_memory& memory) {
    return numbers(memory.inputs.empty() ? memory.data[0] : memory.inputs[0]);
  }
  int width_;
};

/// y = (x * x) W. F keeps the squares until W, which needs the gradient of y, too; B needs x.
class square : public common {
 public:
  using common::common;
  void forward(const pl::layer_memory& memory) override {
    enter(pl::part::forward);
    const double* const x = numbers(memory.inputs[0]);
    const double* const w = numbers(memory.parameters[0]);
    double* const squares = numbers(memory.kept_through);
    for (int k = 0; k < memory.batch * features; ++k) squares[k] = x[k] * x[k];
    for (int r = 0; r < memory.batch; ++r)
      for (int j = 0; j < features; ++j) {
        double y = 0;
        for (int i = 0; i < features; ++i) y += squares[r * features + i] * w[i * features + j];
        numbers(memory.output)[r * features + j] = y;
      }
  }
  void input_gradient(const pl::layer_memory& memory) override {
    enter(pl::part::input_gradient);
    const double* const x = numbers(memory.inputs[0]);
    const double* const w = numbers(memory.parameters[0]);
    const double* const dy = numbers(memory.output_gradient);
    double* const dx = numbers(memory.input_gradients[0]);
    for (int r = 0; r < memory.batch; ++r)
      for (int i = 0; i < features; ++i) {
        double sum = 0;
        for (int j = 0; j < features; ++j) sum += dy[r * features + j] * w[i * features + j];
        dx[r * features + i] = 2 * x[r * features + i] * sum;
      }
  }
  void weight_gradient(const pl::layer_memory& memory) override {
    enter(pl::part::weight_gradient);
    const double* const squares = numbers(memory.kept_through);
    const double* const dy = numbers(memory.output_gradient);
    for (int r = 0; r < memory.batch; ++r)
      for (int i = 0; i < features; ++i)
        for (int j = 0; j < features; ++j)
          numbers(memory.gradients[0])[i * features + j] += squares[r * features + i] * dy[r * features + j];
  }
};

/// y = a * b, of two earlier layers.
class product : public common {
 public:
  using common::common;
  void forward(const pl::layer_memory& memory) override {
    enter(pl::part::forward);
    for (int k = 0; k < memory.batch * features; ++k)
      numbers(memory.output)[k] = numbers(memory.inputs[0])[k] * numbers(memory.inputs[1])[k];
  }
  void input_gradient(const pl::layer_memory& memory) override {
    enter(pl::part::input_gradient);
    for (int k = 0; k < memory.batch * features; ++k) {
      const double dy = numbers(memory.output_gradient)[k];
      numbers(memory.input_gradients[0])[k] = dy * numbers(memory.inputs[1])[k];
      numbers(memory.input_gradients[1])[k] = dy * numbers(memory.inputs[0])[k];
    }
  }
  void weight_gradient(const pl::layer_memory&) override {}
};

/// Half the squared distance to the targets, summed over rows. F keeps the difference for B.
class distance : public common {
 public:
  using common::common;
  void forward(const pl::layer_memory& memory) override {
    enter(pl::part::forward);
    double sum = 0;
    for (int k = 0; k < memory.batch * features; ++k) {
      const double d = numbers(memory.inputs[0])[k] - numbers(memory.data[0])[k];
      numbers(memory.kept)[k] = d;
      sum += d * d / 2;
    }
    *numbers(memory.output) = sum;
  }
  void input_gradient(const pl::layer_memory& memory) override {
    enter(pl::part::input_gradient);
    for (int k = 0; k < memory.batch * features; ++k)
      numbers(memory.input_gradients[0])[k] = *numbers(memory.output_gradient) * numbers(memory.kept)[k];
  }
  void weight_gradient(const pl::layer_memory&) override {}
};

/// Ten layers: 0 dense of data; 1 dense; 2 square; 3 dense with the weights of 1; 4 product of 3 and 0; 5 square; 6
/// dense with the weights of 1; 7 product of 6 and 2; 8 dense; 9 distance of 8 to targets.
class model : public pl::layer_model {
 public:
  static constexpr int count = 10;

  explicit model(int most_rows = 12, hook call = {}) : call_(std::move(call)) {
    for (int l = 0; l < count; ++l) facts_.push_back(describe(l, most_rows));
  }
  [[nodiscard]] int layers() const override { return count; }
  using pl::layer_model::facts;
  [[nodiscard]] const pl::layer_facts& facts(int index, int) const override {
    return facts_[static_cast<std::size_t>(index)];
  }
  /// Changes a layer's facts, for tests of what is refused.
  [[nodiscard]] pl::layer_facts& change(int index) { return facts_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::unique_ptr<pl::layer> make(int index, int, pl::replica_link&) const override {
    switch (index) {
      case 0: return std::make_unique<dense>(index, facts(index), call_, data_features);
      case 2:
      case 5: return std::make_unique<square>(index, facts(index), call_);
      case 4:
      case 7: return std::make_unique<product>(index, facts(index), call_);
      case 9: return std::make_unique<distance>(index, facts(index), call_);
      default: return std::make_unique<dense>(index, facts(index), call_, features);
    }
  }

 private:
  static pl::layer_facts describe(int l, int most_rows) {
    using pl::part;
    const pl::row_facts row{espalier::dtype::f64, {features}};
    pl::layer_facts facts;
    facts.name = std::string(l == 9             ? "distance"
                             : l == 4 || l == 7 ? "product"
                             : l == 2 || l == 5 ? "square"
                                                : "dense");
    facts.output = row;
    pl::kept_facts of_row;
    const std::int64_t bytes = row.bytes();
    if (facts.name == "dense") {
      if (l == 0) facts.data = {{"x", {espalier::dtype::f64, {data_features}}}};
      if (l > 0) facts.inputs = {{l - 1, part::weight_gradient, true}};
      facts.output_needed = part::input_gradient;
      of_row.kept_between_bytes = bytes;
      facts.parameters_of = {l == 3 || l == 6 ? 1 : l};
    } else if (facts.name == "square") {
      facts.inputs = {{l - 1, part::input_gradient, true}};
      facts.output_gradient_needed = part::weight_gradient;
      of_row.kept_through_bytes = bytes;
      facts.parameters_of = {l};
    } else if (facts.name == "product") {
      facts.inputs = {{l - 1, part::input_gradient, true}, {l == 4 ? 0 : 2, part::input_gradient, true}};
    } else {
      facts.inputs = {{l - 1, part::forward, true}};
      facts.data = {{"target", row}};
      facts.output.shape = {};
      of_row.kept_bytes = bytes;
    }
    if (!facts.parameters_of.empty() && facts.parameters_of.front() == l) add_parameters(facts, l);
    for (int rows = 1; rows <= most_rows; ++rows) {
      facts.batches.push_back(rows);
      facts.kept.push_back(
          {of_row.kept_bytes * rows, of_row.kept_through_bytes * rows, of_row.kept_between_bytes * rows});
    }
    return facts;
  }
  static void add_parameters(pl::layer_facts& facts, int l) {
    const int width = l == 0 ? data_features : features;
    const std::string name = "layer" + std::to_string(l);
    facts.parameters = {{name + ".w", espalier::dtype::f64, {width, features}, 0}};
    facts.parameter_bytes = std::int64_t{8} * width * features;
    if (facts.name == "dense") {
      facts.parameters.push_back({name + ".b", espalier::dtype::f64, {features}, facts.parameter_bytes});
      facts.parameter_bytes += std::int64_t{8} * features;
    }
    facts.state_bytes = facts.parameter_bytes;
    facts.state = {{name + ".velocity", espalier::dtype::f64, {facts.state_bytes / 8}, 0}};
  }

  std::vector<pl::layer_facts> facts_;
  hook call_;
};

/// Rows of data that no two samples share.
struct batch {
  std::vector<double> x, target;
  explicit batch(int samples) {
    for (int k = 0; k < samples * data_features; ++k) x.push_back(std::sin(0.37 * k + 1));
    for (int k = 0; k < samples * features; ++k) target.push_back(0.8 * std::cos(0.53 * k));
  }
  [[nodiscard]] std::vector<const void*> pointers() const { return {x.data(), target.data()}; }
};

}  // namespace hand_written
