// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The compiled part of the library (the target espalier::compiled): all that is no template, once instead of in every
// program. Compiled with ESPALIER_COMPILED, as whatever is linked with it.
#if !defined(ESPALIER_COMPILED)
#error "compile this with ESPALIER_COMPILED: the target espalier::compiled does"
#endif

#include <espalier/comm/reducer_compiled.hpp>
#include <espalier/execute/array_compiled.hpp>
#include <espalier/execute/checks_compiled.hpp>
#include <espalier/execute/copy_compiled.hpp>
#include <espalier/execute/finite_check_compiled.hpp>
#include <espalier/execute/gather_compiled.hpp>
#include <espalier/execute/guard_compiled.hpp>
#include <espalier/execute/message_tables_compiled.hpp>
#include <espalier/execute/pending_compiled.hpp>
#include <espalier/execute/print_compiled.hpp>
#include <espalier/execute/program_device_compiled.hpp>
#include <espalier/execute/program_runner_compiled.hpp>
#include <espalier/execute/replicas_compiled.hpp>
#include <espalier/execute/reshard_compiled.hpp>
#include <espalier/execute/world_compiled.hpp>
#include <espalier/kernels/look_compiled.hpp>
