// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a program's device is made of: the compiled half of program_device.hpp.
#include <espalier/execute/device.hpp>
#include <espalier/execute/program_device.hpp>

#include <memory>

namespace espalier::detail {

class executing_device final : public program_device {
 public:
  executing_device(const program_tables& tables, int device, comm::any_communicator& communicator)
      : executor_(tables, device, communicator) {}

  void set_argument(int index, void* data) override { executor_.set_argument(index, data); }
  void set_result(int index, void* data) override { executor_.set_result(index, data); }
  void run() override { executor_.run(); }

 private:
  device_executor<comm::any_communicator> executor_;
};

ESPALIER_INLINE std::unique_ptr<program_device> make_device(const program_tables& tables, int device,
                                                            comm::any_communicator& communicator) {
  // Not `make_unique`: every type of pointer costs 200 instantiations.
  return std::unique_ptr<program_device>(new executing_device(tables, device, communicator));
}

}  // namespace espalier::detail
