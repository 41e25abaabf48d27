// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/device_sets.hpp>
#include <espalier/pipeline/instruction.hpp>

#include <limits>
#include <string>
#include <vector>

namespace espalier::pipeline {

/// The options of a planner, besides the model and the machines.
struct planner_options {
  int global_batch = 1;  ///< samples of a step
  /// Samples below which a device is not faster: fewer take as long. 0: the profile's batch, for which its times are.
  int least_share = 0;
  double bytes_per_parameter = 4;         ///< as the profile counts them
  double state_bytes_per_parameter = 16;  ///< parameter, gradient and Adam's two moments in single precision
  bool recompute = true;                  ///< stages may keep their input alone and run their forward again
  bool overlap_all_reduce = true;         ///< a layer's gradients are reduced while the layers before it still compute
  bool all_schedules = true;              ///< the best partitions are tried with every schedule, not with 1F1B alone
  int most_stages = 0;                    ///< 0: as many as there are layers and devices
  int alternatives = 8;                   ///< plans to name besides the best
};

/// A run of layers, and the devices that compute it.
struct plan_stage {
  int first = 0;
  int last = 0;              ///< one after the last layer
  std::vector<int> devices;  ///< each micro-batch is split over them; stages with the same devices are their chunks
  placement_policy policy = placement_policy::gaps_first;
  bool recomputed = false;
  int in_flight = 1;           ///< the most micro-batches that are forward but not yet backward
  int share = 1;               ///< samples of a micro-batch on the device that has most of them
  double forward_seconds = 0;  ///< of a micro-batch
  double backward_seconds = 0;
  double transfer_seconds = 0;    ///< of a micro-batch's output to the next stage
  double all_reduce_seconds = 0;  ///< of its gradients
  double exposed_seconds = 0;     ///< of these, the seconds that remain after its last backward
  double state_bytes = 0;         ///< of each device: parameters, gradients, optimizer
};

/// The parts of a step's time: the work of the busiest stage, and the time that each cause adds to it.
struct plan_times {
  double step = std::numeric_limits<double>::infinity();
  double work = 0;        ///< of the busiest stage, forward again included
  double bubble = 0;      ///< it waits: pipeline fill and drain, uneven stages, too few micro-batches in flight
  double transfer = 0;    ///< added by transfers
  double all_reduce = 0;  ///< added by all-reduces
};

/// A plan for a training step, with what it is predicted to cost. Nothing but layers, devices and order: any runtime
/// can execute it.
struct plan {
  std::string schedule_name;
  int micro_batches = 1;
  std::vector<plan_stage> stages;
  schedule order;                    ///< ranks are groups of devices, in the order of their first stages
  std::vector<double> memory_bytes;  ///< by rank: the most that each of its devices holds
  plan_times times;
  double speed_up = 0;  ///< over one device that has the memory for the whole model
};

/// A plan that was not chosen.
struct alternative {
  std::string name;
  bool fits = true;
  plan candidate;      ///< without a meaning where nothing of the kind fits
  std::string reason;  ///< why it lost: a sentence
};

/// The result of a planner.
struct planning {
  plan best;
  std::vector<alternative> others;  ///< best first, those that do not fit at the end
  long long partitions = 0;         ///< that were looked at
  long long evaluated = 0;          ///< of them, those whose step was computed exactly
  double seconds = 0;               ///< that planning took
};

}  // namespace espalier::pipeline
