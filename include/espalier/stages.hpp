// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// The headers for models that run as a pipeline of stages: layers, measurements, the choice of a plan, and the engine.
/// Plans alone are in `espalier/pipeline.hpp`.
#include <espalier/pipeline/stages/engine/checkpoint.hpp>
#include <espalier/pipeline/stages/engine/engine.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/measure/estimate.hpp>
#include <espalier/pipeline/stages/measure/measure.hpp>
#include <espalier/pipeline/stages/measure/measured.hpp>
#include <espalier/pipeline/stages/measure/probed_cluster.hpp>
#include <espalier/pipeline/stages/messages/transport_in_process.hpp>
#include <espalier/pipeline/stages/model/model.hpp>
#include <espalier/pipeline/stages/model/named.hpp>
#include <espalier/pipeline/stages/model/program_layer.hpp>
#include <espalier/pipeline/stages/plan/check_plan.hpp>
#include <espalier/pipeline/stages/plan/choose.hpp>
#include <espalier/pipeline/stages/plan/choose_meshes.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/predict.hpp>
#include <espalier/pipeline/stages/plan/stage_bytes.hpp>
#if defined(ESPALIER_USE_MPI)
#include <espalier/pipeline/stages/messages/transport_mpi.hpp>
#endif
