// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/one_forward_one_backward.hpp>
#include <espalier/pipeline/plan.hpp>
#include <espalier/pipeline/profile.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Devices for one stage, with what follows from where they are: not from the layers.
struct stage_devices {
  placement chosen;
  int count = 0;
  seconds_for_bytes all_reduce;
  seconds_for_bytes transfer;  ///< from the stage before
};

/// The model, the machines and the question, with sums and tables that make each look-up cheap.
class planning_problem {
 public:
  planning_problem(profile model, cluster machines, planner_options asked)
      : model_(std::move(model)), machines_(std::move(machines)), asked_(asked), sums_(model_) {
    require_usable(model_);
    require_usable(machines_);
    if (asked_.global_batch < 1)
      throw std::invalid_argument("a global batch of " + std::to_string(asked_.global_batch) +
                                  " samples: give at least 1");
    if (asked_.least_share < 0 || asked_.most_stages < 0 || asked_.alternatives < 0)
      throw std::invalid_argument("least_share, most_stages and alternatives are 0 or more, not " +
                                  std::to_string(asked_.least_share) + ", " + std::to_string(asked_.most_stages) +
                                  " and " + std::to_string(asked_.alternatives));
    if (!(asked_.bytes_per_parameter > 0) || !(asked_.state_bytes_per_parameter >= 0))
      throw std::invalid_argument("bytes_per_parameter is " + std::to_string(asked_.bytes_per_parameter) +
                                  ", state_bytes_per_parameter " + std::to_string(asked_.state_bytes_per_parameter) +
                                  ": give a positive number, and one that is not negative");
    if (asked_.least_share == 0) asked_.least_share = static_cast<int>(std::ceil(model_.batch));
    state_scale_ = asked_.state_bytes_per_parameter / asked_.bytes_per_parameter;
  }

  [[nodiscard]] const profile& model() const { return model_; }
  [[nodiscard]] const cluster& machines() const { return machines_; }
  [[nodiscard]] const planner_options& asked() const { return asked_; }
  [[nodiscard]] const profile_sums& sums() const { return sums_; }
  [[nodiscard]] int layers() const { return model_.size(); }
  [[nodiscard]] int most_stages() const {
    const int most = std::min(layers(), machines_.devices());
    return asked_.most_stages > 0 ? std::min(most, asked_.most_stages) : most;
  }

  /// Numbers of micro-batches that divide the global batch, ascending. Without `small` ones, a micro-batch leaves no
  /// device less than it needs to be fast even if it computes all of it.
  [[nodiscard]] std::vector<int> micro_batch_counts(bool small) const {
    std::vector<int> counts;
    for (int count = 1; count <= asked_.global_batch; ++count)
      if (asked_.global_batch % count == 0 &&
          (small || count == 1 || asked_.global_batch / count >= asked_.least_share))
        counts.push_back(count);
    return counts;
  }

  /// Samples of a micro-batch on the device that has most of them.
  [[nodiscard]] int share(int micro_batches, int replicas) const {
    const int samples = asked_.global_batch / micro_batches;
    return (samples + replicas - 1) / replicas;
  }
  /// Returns the factor of the profile's seconds.
  [[nodiscard]] double time_scale(int micro_batches, int replicas) const {
    return std::max(share(micro_batches, replicas), asked_.least_share) / model_.batch;
  }
  /// Returns the factor of the profile's activation bytes on one device.
  [[nodiscard]] double share_scale(int micro_batches, int replicas) const {
    return share(micro_batches, replicas) / model_.batch;
  }
  /// The same for a whole micro-batch, as it crosses a cut.
  [[nodiscard]] double micro_batch_scale(int micro_batches) const {
    return static_cast<double>(asked_.global_batch) / micro_batches / model_.batch;
  }
  /// The seconds that the whole model needs for a micro-batch, divided over so many devices as evenly as can be.
  [[nodiscard]] double even_seconds(int first, int last, int micro_batches, int devices) const {
    return sums_.seconds(first, last) * micro_batch_scale(micro_batches) / devices;
  }
  /// Returns the seconds of the whole batch on one device.
  [[nodiscard]] double one_device_seconds() const {
    return sums_.seconds(0, layers()) * std::max(asked_.global_batch, asked_.least_share) / model_.batch;
  }

  [[nodiscard]] double state_bytes(int first, int last) const { return sums_.parameter(first, last) * state_scale_; }
  /// Returns the bytes that one device holds of a micro-batch from forward to backward: the stage's input and what its
  /// layers keep.
  [[nodiscard]] double activation_bytes(int first, int last, int micro_batches, int replicas) const {
    return (sums_.activation(first, last) + sums_.input(first)) * share_scale(micro_batches, replicas);
  }
  [[nodiscard]] double input_bytes(int first, int micro_batches, int replicas) const {
    return sums_.input(first) * share_scale(micro_batches, replicas);
  }
  /// Returns the bytes that a device needs if the stage has a single micro-batch in flight, the least possible,
  /// recomputed or not.
  [[nodiscard]] double least_bytes(int first, int last, int micro_batches, int replicas) const {
    return state_bytes(first, last) + activation_bytes(first, last, micro_batches, replicas);
  }

  [[nodiscard]] double all_reduce_seconds(int first, int last, const stage_devices& devices) const {
    const double bytes = sums_.parameter(first, last);
    return devices.count > 1 && bytes > 0 ? devices.all_reduce(bytes) : 0.0;
  }

  /// Returns the seconds of the all-reduce that remain after the last backward. Gradients are reduced as they come,
  /// from the last layer to the first: for every layer, its gradient and all before it go over the network after its
  /// backward.
  [[nodiscard]] double exposed_seconds(int first, int last, int micro_batches, const stage_devices& devices) const {
    const double whole = all_reduce_seconds(first, last, devices);
    if (whole <= 0 || !asked_.overlap_all_reduce) return whole;
    const double scale = time_scale(micro_batches, devices.count);
    double exposed = 0;
    for (int k = first; k < last; ++k)
      exposed = std::max(
          exposed, devices.all_reduce.per_byte * sums_.parameter(first, k + 1) - scale * sums_.backward(first, k));
    return devices.all_reduce.fixed + exposed;
  }
  /// No more than that, in constant time.
  [[nodiscard]] double least_exposed_seconds(int first, int last, int micro_batches,
                                             const stage_devices& devices) const {
    const double whole = all_reduce_seconds(first, last, devices);
    if (whole <= 0 || !asked_.overlap_all_reduce) return whole;
    const double hidden = time_scale(micro_batches, devices.count) * sums_.backward(first, last - 1);
    return std::max(devices.all_reduce.per_byte * sums_.parameter(first, first + 1), whole - hidden);
  }

 private:
  profile model_;
  cluster machines_;
  planner_options asked_;
  profile_sums sums_;
  double state_scale_ = 1;
};

}  // namespace espalier::pipeline::detail
