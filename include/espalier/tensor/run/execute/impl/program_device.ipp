// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The definitions of a program's device: the compiled half of program_device.hpp.
#include <espalier/base/light_std/owned.hpp>
#include <espalier/tensor/run/execute/item_executor.hpp>
#include <espalier/tensor/run/execute/program_device.hpp>

namespace espalier::detail {

template <class Executor> class executing_device final : public program_device {
 public:
  executing_device(const program_tables& tables, int device, comm::any_communicator& communicator)
      : executor_(tables, device, communicator) {}

  void set_argument(int index, void* data) override { executor_.set_argument(index, data); }
  void set_result(int index, void* data) override { executor_.set_result(index, data); }
  void run() override { executor_.run(); }

  [[nodiscard]] static owned<program_device> make(const program_tables& tables, int device,
                                                  comm::any_communicator& communicator) {
    return owned<program_device>(new executing_device(tables, device, communicator));
  }

 private:
  Executor executor_;
};

#if defined(ESPALIER_COMPILED)
owned<program_device> make_device(const program_tables& tables, int device, comm::any_communicator& communicator) {
  return executing_device<item_executor<comm::any_communicator>>::make(tables, device, communicator);
}
#else
template <class Program> [[nodiscard]] device_maker device_maker_of() {
  return &executing_device<executor_of<Program, comm::any_communicator>>::make;
}
#endif

}  // namespace espalier::detail
