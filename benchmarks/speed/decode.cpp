// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The block of a language model like Llama as it generates: one token that sees a cache of 2048, which it extends.

#include "../../examples/llama/model.hpp"
#include "measured_row.hpp"

namespace espalier::benchmarks {

namespace {

struct settings {
  static constexpr int devices = 1;
  static constexpr int layers = 1;
  static constexpr int width = 1024;
  static constexpr int heads = 16;
  static constexpr int kv_heads = 4;
  static constexpr int head_dim = 64;
  static constexpr int hidden = 2816;
  static constexpr int context = 2048;
  static constexpr double epsilon = 1e-5;
};
constexpr int group = settings::heads / settings::kv_heads;

using kept = f32<settings::kv_heads, settings::context, settings::head_dim>;
using angles = f32<1, settings::head_dim>;
using gain = f32<settings::width>;
using query_weight = f32<settings::kv_heads, group, settings::head_dim, settings::width>;
using key_weight = f32<settings::kv_heads, settings::head_dim, settings::width>;
using output_weight = f32<settings::width, settings::kv_heads, group, settings::head_dim>;
using up_weight = f32<settings::hidden, settings::width>;
using down_weight = f32<settings::width, settings::hidden>;

template <class Gain, class Query, class Key, class Output, class Up, class Down> struct block_parameters {
  const Gain& attention_norm;
  const Query& query;
  const Key& key;
  const Key& value;
  const Output& output;
  const Gain& mlp_norm;
  const Up& gate;
  const Up& up;
  const Down& down;
};

/// Gives what the block makes of the token, and the cache with its keys and values at `position`.
struct block {
  constexpr auto operator()(const auto& keys, const auto& values, const auto& x, const auto& cosine, const auto& sine,
                            const auto& position, const auto& attention_norm, const auto& query, const auto& key,
                            const auto& value, const auto& output, const auto& mlp_norm, const auto& gate,
                            const auto& up, const auto& down) const {
    const block_parameters of_layer{attention_norm, query, key, value, output, mlp_norm, gate, up, down};
    using position_type = std::remove_cvref_t<decltype(position)>;
    using angles_type = std::remove_cvref_t<decltype(cosine)>;
    const typename llama::llama<settings>::template layer<position_type, angles_type> one{position, cosine, sine};
    const auto out = one(x, of_layer, keys, values);
    const auto fresh = out.template get<1>();
    return results(out.template get<0>(), dynamic_update_slice<1>(keys, fresh.template get<0>(), position),
                   dynamic_update_slice<1>(values, fresh.template get<1>(), position));
  }
};

/// What is read: all parameters, and the cache.
constexpr double bytes =
    4.0 * (2.0 * settings::kv_heads * settings::context * settings::head_dim +
           settings::width * (2.0 * settings::heads + 2.0 * settings::kv_heads) * settings::head_dim +
           3.0 * settings::width * settings::hidden);

}  // namespace

void measure_decode(speed_rows& rows) {
  inputs how;
  how.first_weight = 6;
  how.integer = settings::context - 1;  // the token takes the cache's last place, and sees all others
  rows.measure_on<llama::mesh<settings>, block, donated<kept>, donated<kept>, f32<1, settings::width>, angles, angles,
                  i32<>, gain, query_weight, key_weight, key_weight, output_weight, gain, up_weight, up_weight,
                  down_weight>("decode/llama_block", {.bytes = bytes, .only_reads = true}, how);
}

}  // namespace espalier::benchmarks
