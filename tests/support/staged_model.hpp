// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/schedules/by_name.hpp>
#include <espalier/pipeline/stages/engine/engine.hpp>
#include <espalier/pipeline/stages/layers/tensor_shard.hpp>
#include <espalier/pipeline/stages/model/model.hpp>
#include <support/pipeline_model.hpp>

#include <boost/hana/define_struct.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

/// Layers that are compiled for several meshes: the stages of a plan choose among them.
namespace staged {

namespace ep = espalier;
namespace pl = espalier::pipeline;
using pipeline_model::context;
using pipeline_model::targets;
using pipeline_model::tokens;
using pipeline_model::wide;
using pipeline_model::width;
using pipeline_model::words;

struct data_axis : ep::axis<"data", 2> {};
struct model_axis : ep::axis<"model", 2> {};

/// The table is split by words, of which there are seven: unevenly.
struct embedding {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters,
                             (ep::leaf<Leaf, ep::sharded<ep::f64<words, width>, model_axis, ep::none>>, table));
  };
  constexpr auto operator()(const auto& p, const auto& given) const {
    return ep::shard<data_axis, ep::none, ep::none>(ep::gather<0>(p.table, given));
  }
};
/// Hands its features on as they are split.
struct widening : pipeline_model::widening {
  constexpr auto operator()(const auto& p, const auto& x) const {
    return ep::shard<data_axis, ep::none, model_axis>(pipeline_model::widening::operator()(p, x));
  }
};
struct narrowing : pipeline_model::narrowing {
  constexpr auto operator()(const auto& p, const auto& x, const auto& skipped) const {
    return ep::shard<data_axis, ep::none, ep::none>(pipeline_model::narrowing::operator()(p, x, skipped));
  }
};

/// Plain steps: AdamW's are the same for a gradient that is twice as large.
struct training {
  static constexpr ep::nn::sgd_settings optimizer{.momentum = 0.5};
  using meshes = pl::meshes<ep::mesh<>, ep::mesh<model_axis>, ep::mesh<data_axis>, ep::mesh<data_axis, model_axis>>;
};
using model = pl::model<pl::batches<1, 2>, training,                                //
                        pl::named<"embedding", embedding, pl::reads<tokens>>,       //
                        pl::named<"widening", widening>,                            //
                        pl::named<"narrowing", narrowing, pl::skips<"embedding">>,  //
                        pl::named<"head", pipeline_model::head, pl::tied<"embedding">, pl::reads<targets>>>;
inline constexpr int layer_count = 4;
inline constexpr int alone = model::mesh_number<ep::mesh<>>;
inline constexpr int on_model = model::mesh_number<ep::mesh<model_axis>>;
inline constexpr int on_data = model::mesh_number<ep::mesh<data_axis>>;
inline constexpr int on_both = model::mesh_number<ep::mesh<data_axis, model_axis>>;

inline constexpr int samples = 6;
inline constexpr int steps = 3;

/// So many replicas of a mesh.
struct group_on {
  int mesh;
  int replicas;
};

/// Stages, each group's ranks after those of the group before it.
inline pl::execution_plan planned(const char* schedule, const std::vector<int>& first_layers,
                                  const std::vector<group_on>& meshes, int rows, int micro_batches,
                                  std::vector<bool> recomputed = {}) {
  static constexpr int devices[]{1, 2, 2, 4};
  const int stages = static_cast<int>(first_layers.size());
  std::vector<pl::replica_group> groups;
  int rank = 0;
  for (const group_on& one : meshes) {
    pl::replica_group& group = groups.emplace_back();
    group.mesh = one.mesh;
    group.devices = devices[one.mesh];
    for (int k = 0; k < one.replicas * group.devices; ++k) group.ranks.push_back(rank++);
  }
  const int lists = static_cast<int>(groups.size());
  return pl::make_execution_plan(pl::make_schedule(schedule, lists, stages / lists, micro_batches,
                                                   pl::uniform_costs(stages), std::move(recomputed)),
                                 first_layers, layer_count, std::move(groups), rows);
}

/// Two stages on meshes of their own.
struct stage_meshes {
  const char* name;
  std::vector<group_on> groups;
};
inline const std::vector<stage_meshes> two_stages{
    {"1x2 then 2x1", {{on_model, 1}, {on_data, 1}}},
    {"2x1 then 1x2", {{on_data, 1}, {on_model, 1}}},
    {"2 then 1", {{on_model, 1}, {alone, 1}}},
    {"2 of data then 1", {{on_data, 1}, {alone, 1}}},
    {"1 then 2", {{alone, 1}, {on_model, 1}}},
    {"1 then 2 of data", {{alone, 1}, {on_data, 1}}},
    {"2x2 then 2", {{on_both, 1}, {on_model, 1}}},
    {"1 then 2x2", {{alone, 1}, {on_both, 1}}},
    {"2 replicas of 2 then 1 of 2x1", {{on_model, 2}, {on_data, 1}}},
    {"1 of 2 then 3 of 1", {{on_model, 1}, {alone, 3}}},
};

/// Elements of tensors by name.
using tensor_values = std::map<std::string, std::vector<double>>;

/// The layers, compiled once for all programs of tests (staged_model.cpp).
[[nodiscard]] const pl::layer_model& layers();

/// Puts this rank's parts of gradients and parameters into whole tensors.
inline void add_tensors(pl::engine& engine, tensor_values& whole) {
  const int mesh = engine.plan().mesh_of_rank(engine.rank());
  for (pl::detail::parameter_block& block : engine.store().blocks())
    for (const pl::tensor_facts& one : engine.store().facts(block.owner).parameters) {
      const std::vector<std::int64_t> shape = pl::detail::whole_shape(one);
      std::size_t count = 1;
      for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
      const auto shard =
          pl::detail::shard_of_tensor(engine.model().replica_mesh(mesh), one, engine.plan().device_of(engine.rank()));
      const auto add = [&](const std::string& name, const std::byte* memory) {
        std::vector<double>& values = whole[name];
        values.resize(count, std::nan(""));
        pl::detail::for_each_element(shard, shape, [&](std::int64_t element, std::int64_t here) {
          values[static_cast<std::size_t>(element)] = reinterpret_cast<const double*>(memory + one.offset)[here];
        });
      };
      add(one.name, block.parameters.data());
      add("gradient of " + one.name, block.users.front().gradients.data());
    }
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() && !a.empty() ? 0 : 1e300;
  for (std::size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
    const double difference = std::abs(a[k] - b[k]);
    most = std::isfinite(difference) ? std::max(most, difference) : 1e300;
  }
  return most;
}

inline double largest_difference(const tensor_values& a, const tensor_values& b) {
  double most = a.size() == b.size() && !a.empty() ? 0 : 1e300;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    most = other == b.end() ? 1e300 : std::max(most, largest_difference(values, other->second));
  }
  return most;
}

}  // namespace staged
