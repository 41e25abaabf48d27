// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/owned.hpp>
#include <espalier/comm/any_communicator.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

namespace espalier::detail {

/// A device that executes one program: what a runner knows of it.
class program_device {
 public:
  program_device() = default;
  program_device(const program_device&) = delete;
  program_device& operator=(const program_device&) = delete;
  virtual ~program_device() = default;

  virtual void set_argument(int index, void* data) = 0;
  virtual void set_result(int index, void* data) = 0;
  virtual void run() = 0;
};

/// Makes device `device` of the mesh, with all the memory that the program needs. `tables` and `communicator` outlive
/// it.
using device_maker = owned<program_device> (*)(const program_tables& tables, int device,
                                               comm::any_communicator& communicator);

#if defined(ESPALIER_COMPILED)
/// Makes a device for any program.
[[nodiscard]] owned<program_device> make_device(const program_tables& tables, int device,
                                                comm::any_communicator& communicator);
template <class Program> [[nodiscard]] device_maker device_maker_of() { return &make_device; }
#endif

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/program_device.ipp>
#endif
