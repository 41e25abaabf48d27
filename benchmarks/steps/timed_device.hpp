// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../machine.hpp"
#include "gpt_step.hpp"

#include <espalier/tensor/run/execute/item_executor.hpp>
#include <espalier/tensor/run/execute/program_device.hpp>

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
      // One step may execute several launches: a product and a chain that follows its parts, or products and chains
      // that take turns for a few rows.
      const int products = products_in(step.launch, last);
      if (products > 1) total.rows += taken;
      if (products == 1) total.products += taken;
    }
  }

  [[nodiscard]] static detail::owned<detail::program_device> make(const program_tables& tables, int device,
                                                                  comm::any_communicator& communicator) {
    return detail::owned<detail::program_device>(new timed_device(tables, device, communicator));
  }

 private:
  [[nodiscard]] bool is_product(int id) const {
    const std::string_view name = tables_.code[id].op->name;
    return name == "einsum" || name == "add_einsum";
  }
  [[nodiscard]] int first_of(int launch) const { return tables_.order[tables_.launches[launch].first]; }
  [[nodiscard]] int products_in(int first, int last) const {
    int count = 0;
    for (int launch = first; launch < last; ++launch)
      count += !tables_.launches[launch].fused && is_product(first_of(launch)) ? 1 : 0;
    return count;
  }

  const program_tables& tables_;
  Executor executor_;
};

}  // namespace espalier::benchmarks
