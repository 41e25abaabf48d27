// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The compiled part of the library (the target espalier::compiled): all that is no template, once instead of in every
// program. Compiled with ESPALIER_COMPILED, as whatever is linked with it.
#if !defined(ESPALIER_COMPILED)
#error "compile this with ESPALIER_COMPILED: the target espalier::compiled does"
#endif

#include <espalier/base/impl/table.ipp>
#include <espalier/tensor/core/graph/impl/named_leaves.ipp>
#include <espalier/tensor/core/sharding/impl/print.ipp>
#include <espalier/tensor/run/execute/impl/array.ipp>
#include <espalier/tensor/run/execute/impl/checks.ipp>
#include <espalier/tensor/run/execute/impl/copy.ipp>
#include <espalier/tensor/run/execute/impl/finite_check.ipp>
#include <espalier/tensor/run/execute/impl/gather.ipp>
#include <espalier/tensor/run/execute/impl/guard.ipp>
#include <espalier/tensor/run/execute/impl/message_tables.ipp>
#include <espalier/tensor/run/execute/impl/print.ipp>
#include <espalier/tensor/run/execute/impl/program_device.ipp>
#include <espalier/tensor/run/execute/impl/program_runner.ipp>
#include <espalier/tensor/run/execute/impl/reduce_terms.ipp>
#include <espalier/tensor/run/execute/impl/replicas.ipp>
#include <espalier/tensor/run/execute/impl/reshard.ipp>
#include <espalier/tensor/run/execute/impl/together.ipp>
#include <espalier/tensor/run/execute/impl/world.ipp>
#include <espalier/tensor/run/io/impl/checkpoint.ipp>
#include <espalier/tensor/run/io/impl/data_error.ipp>
#include <espalier/tensor/run/io/impl/dataset.ipp>
#include <espalier/tensor/run/io/impl/error.ipp>
#include <espalier/tensor/run/io/impl/file.ipp>
#include <espalier/tensor/run/io/impl/mapped_file.ipp>
#include <espalier/tensor/run/io/impl/row_file.ipp>
#include <espalier/tensor/run/io/impl/safetensors.ipp>
#include <espalier/tensor/run/kernels/impl/look.ipp>
#include <espalier/tensor/run/kernels/impl/processor.ipp>
#include <espalier/tensor/run/report/impl/explain.ipp>
#include <espalier/tensor/run/report/impl/plan_file.ipp>
#include <espalier/tensor/run/report/impl/progress.ipp>
