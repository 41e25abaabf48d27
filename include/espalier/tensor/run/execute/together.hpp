// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/tensor/run/execute/world.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier {

/// An error of one rank, thrown on all ranks.
struct error_on_all_ranks : std::runtime_error, known_to_all_ranks {
  using std::runtime_error::runtime_error;
};

namespace detail {

/// Each process's number, on every process; the only one if all devices are in this process. Collective.
[[nodiscard]] std::vector<std::int64_t> values_of_all_processes(world& where, std::int64_t mine);

}  // namespace detail

/// Runs `f()` on every process. If it throws on some, it throws on all: no rank waits for one that gave up. Collective.
///
/// Errors: within one process, what `f` threw; under MPI `error_on_all_ranks` with the text of the lowest rank's.
void together(world& where, detail::function_ref<void()> f);

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/together.ipp>
#endif
