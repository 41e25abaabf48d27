// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../machine.hpp"
#include "gpt_step.hpp"

#include <espalier/tensor/run/execute/item_executor.hpp>
#include <espalier/tensor/run/execute/program_device.hpp>

#include <memory>
#include <string_view>

namespace espalier::benchmarks {

/// A device that runs a program as a runner's does, with a clock around each step: it knows where the time goes.
template <class Executor> class timed_device final : public detail::program_device {
 public:
  /// The seconds of the calls since this was last cleared, of all devices of this type: a runner has no place for them.
  inline static step_seconds total{};

  timed_device(const program_tables& tables, int device, comm::any_communicator& communicator)
      : tables_(tables), executor_(tables, device, communicator) {}

  void set_argument(int index, void* data) override { executor_.set_argument(index, data); }
  void set_result(int index, void* data) override { executor_.set_result(index, data); }
  void run() override {
    executor_.start();
    while (const detail::device_step* const next = executor_.next()) {
      const detail::device_step step = *next;
      const double taken = seconds([&] { executor_.step(); });
      total.all += taken;
      const detail::device_step* const after = executor_.next();
      const int last = after != nullptr ? after->launch : tables_.launch_count;
      if (computes(step.launch + 1, last)) {
        // One step that executes several launches: products and chains of a few rows take turns.
        if (has_product(step.launch, last)) total.rows += taken;
      } else if (step.kind == detail::step_kind::kernel && is_product(step.target)) {
        total.products += taken;
      }
    }
  }

  [[nodiscard]] static std::unique_ptr<detail::program_device> make(const program_tables& tables, int device,
                                                                    comm::any_communicator& communicator) {
    return std::make_unique<timed_device>(tables, device, communicator);
  }

 private:
  [[nodiscard]] bool is_product(int id) const {
    const std::string_view name = tables_.code[id].op->name;
    return name == "einsum" || name == "add_einsum";
  }
  [[nodiscard]] int first_of(int launch) const { return tables_.order[tables_.launches[launch].first]; }
  [[nodiscard]] bool computes(int first, int last) const {
    for (int launch = first; launch < last; ++launch) {
      if (tables_.launches[launch].fused || detail::has_kernel(tables_.code[first_of(launch)])) return true;
    }
    return false;
  }
  [[nodiscard]] bool has_product(int first, int last) const {
    for (int launch = first; launch < last; ++launch) {
      if (!tables_.launches[launch].fused && is_product(first_of(launch))) return true;
    }
    return false;
  }

  const program_tables& tables_;
  Executor executor_;
};

}  // namespace espalier::benchmarks
