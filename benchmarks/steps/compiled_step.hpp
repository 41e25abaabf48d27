// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "gpt_step.hpp"
#include "models.hpp"
#include "timed_device.hpp"
#include "torch_values.hpp"

#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace espalier::benchmarks {

template <class Config, class Array> void fill_as_torch(Array& array, const nn::leaf_path& path) {
  const torch_parameter from = torch_parameter_of<Config>(path);
  const auto whole = static_cast<std::uint64_t>(Array::tensor::shape.elements());
  const std::uint64_t per_layer = from.is_of_layer ? whole / Config::layers : whole;
  array.for_each([&](float& element, std::int64_t flat) {
    const auto i = static_cast<std::uint64_t>(flat);
    element = from.value(i / per_layer, i % per_layer);
  });
}

template <class Program, class Config> class compiled_step final : public gpt_step {
 public:
  explicit compiled_step(world& where)
      : world_(where), run_(where), state_(run_.template argument<0>()), rate_(run_.template argument<3>()) {
    nn::for_each_named_leaf(state_.parameters, [&](auto& array, const nn::leaf_path& path) {
      parameters_ += std::remove_cvref_t<decltype(array)>::tensor::shape.elements();
      if (path.is("token") || path.is("position")) {
        looked_up_ += std::remove_cvref_t<decltype(array)>::tensor::shape.elements();
      }
      fill_as_torch<Config>(array, path);
    });
    rate_.for_each([](float& element, std::int64_t) { element = 1e-3F; });
    for (int n = 0; n < batches; ++n) {
      const auto token = [n](std::int64_t flat, std::int64_t shift) {
        return drawn_token(n, flat / Config::context, flat % Config::context + shift, Config::context,
                           Config::vocabulary);
      };
      tokens_.push_back(run_.template argument<1>());
      targets_.push_back(run_.template argument<2>());
      tokens_.back().for_each([&](std::int32_t& element, std::int64_t i) { element = token(i, 0); });
      targets_.back().for_each([&](std::int32_t& element, std::int64_t i) { element = token(i, 1); });
    }
  }

  [[nodiscard]] step_facts facts() const override {
    step_facts f;
    f.tokens = std::int64_t{Config::batch} * Config::context;
    f.parameters = parameters_;
    const auto flops = [&](std::int64_t parameters) {
      return 6.0 * static_cast<double>(parameters) * static_cast<double>(f.tokens) +
             6.0 * Config::layers * Config::batch * Config::context * Config::context * Config::width;
    };
    f.flops = flops(parameters_);
    f.multiplied_flops = flops(parameters_ - looked_up_);
    f.argument_bytes = Program::argument_bytes();
    f.result_bytes = Program::result_bytes();
    f.arena_bytes = Program::arena_bytes();
    f.peak_bytes = Program::peak_bytes_per_device();
    f.traced_instructions = Program::traced.size;
    f.instructions = Program::code.size;
    return f;
  }
  [[nodiscard]] program_tables tables() const override { return tables_of<Program>(); }

  void run(int number) override {
    const auto n = static_cast<std::size_t>(number % batches);
    last_loss_ = &run_(state_, tokens_[n], targets_[n], rate_).template get<1>();
  }
  [[nodiscard]] double loss() override { return gather(world_, *last_loss_).front(); }

  [[nodiscard]] step_seconds profile(int count) override {
    using device = timed_device<detail::executor_of<Program, comm::any_communicator>>;
    static constexpr int first_leaf[]{Program::template first_leaf<0>(), Program::template first_leaf<1>(),
                                      Program::template first_leaf<2>(), Program::template first_leaf<3>(),
                                      Program::template first_leaf<4>()};
    typename runner_type::result_type results;  // outlive the runner
    detail::program_runner timed(
        world_, tables_of<Program>(),
        {&Program::mesh::value, &Program::parts, &first_leaf[0], Program::arity, &device::make, nullptr});
    detail::visit_arrays(results, detail::result_lister{timed});
    timed.start();
    for (int s = 0; s <= count; ++s) {
      if (s == 1) device::total = {};  // the first step finds the caches of another runner
      const auto n = static_cast<std::size_t>(s % batches);
      timed.forget_arguments();
      detail::visit_arrays(state_, detail::argument_lister{timed});
      timed.add_argument(tokens_[n]);
      timed.add_argument(targets_[n]);
      timed.add_argument(rate_);
      timed.call(source_line{});
    }
    return device::total;
  }

 private:
  using runner_type = runner<Program>;

  world& world_;
  runner_type run_;
  typename runner_type::template argument_type<0> state_;
  typename runner_type::template argument_type<3> rate_;
  std::vector<typename runner_type::template argument_type<1>> tokens_;
  std::vector<typename runner_type::template argument_type<2>> targets_;
  const sharded_array<f32<>>* last_loss_ = nullptr;
  std::int64_t parameters_ = 0;
  std::int64_t looked_up_ = 0;
};

}  // namespace espalier::benchmarks
