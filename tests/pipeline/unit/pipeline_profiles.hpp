// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The published profiles of tests/data/profiles, and models made up at random.

#include <espalier/pipeline/profile.hpp>
#include <espalier/pipeline/read_profile.hpp>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace profile_data {

using espalier::pipeline::profile;

inline std::filesystem::path folder() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "data" / "profiles";
}

inline profile read(const std::string& name, double batch) {
  return espalier::pipeline::read_profile((folder() / (name + ".txt")).string(), batch);
}

/// "hpgo/vgg19" ..., all that there are.
inline std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder()))
    if (entry.path().extension() == ".txt" && entry.path().stem() != "LICENSE")
      all.push_back((entry.path().parent_path().filename() / entry.path().stem()).string());
  std::sort(all.begin(), all.end());
  return all;
}

/// The devices from `first` to before `end`.
inline std::vector<int> devices(int first, int end) {
  std::vector<int> all(static_cast<std::size_t>(end - first));
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// Layers of all kinds: quick ones with many parameters, slow ones with few, outputs of any size.
inline profile random_profile(std::mt19937& random, int layers) {
  std::uniform_real_distribution<double> unit(0, 1);
  profile model{"random", 2, {}};
  for (int k = 0; k < layers; ++k) {
    const double forward = 1e-3 * (0.2 + unit(random));
    const double parameters = unit(random) < 0.3 ? 0 : 4e6 * unit(random);
    const double weights = parameters > 0 ? forward * (0.5 + unit(random)) : 0;
    model.layers.push_back({"layer " + std::to_string(k), forward, forward * (0.5 + unit(random)), weights,
                            1e6 * (0.1 + unit(random)), parameters, k + 1 < layers ? 1e6 * unit(random) : 0});
  }
  return model;
}

}  // namespace profile_data
