// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/model/layer_trace.hpp>
#include <espalier/pipeline/stages/model/work.hpp>
#include <espalier/tensor/core/partition/memory.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

/// The places of the arguments and results of a layer's programs in the memory that the engine gives.
namespace espalier::pipeline::detail {

/// One of the parts of a layer as a compiled program; `tables` is null where the part has nothing to do.
struct compiled_part {
  graph_view code;
  program_tables (*tables)() = nullptr;
  /// W: the gradients that its results are added to follow its arguments.
  bool adds = false;
  /// The work of each device.
  work_facts work;
};

/// Bytes of a device's buffer for what crosses the border of a part.
[[nodiscard]] inline std::int64_t local_bytes(const mesh_shape& mesh, graph_view code, int id) {
  const espalier::instruction& i = code[id];
  if (i.annotation < 0) return bytes_of(i);
  return local_shape(mesh, i.shape, code.annotations[i.annotation].placement).elements() * size_of(i.type);
}

/// Returns the work of a part on a single device; gradients that it adds to are both read and written.
[[nodiscard]] constexpr work_facts work_alone(graph_view code, bool adds) {
  work_facts work = work_of(code);
  for (int id = 0; adds && id < code.size; ++id)
    if (hands_out(code, id, true))
      work.bytes += 2.0 * static_cast<double>(code[id].shape.elements() * size_of(code[id].type));
  return work;
}

/// A layer for one number of rows: F, B and W.
struct compiled_batch {
  int batch = 0;
  compiled_part of[3];

  [[nodiscard]] const compiled_part& operator[](part which) const { return of[static_cast<std::size_t>(which)]; }
};

/// Memory of a call that arguments and results lie in.
enum class room : std::uint8_t {
  parameters,
  inputs,
  data,
  output,
  output_gradient,
  kept,
  kept_through,
  kept_between,
  input_gradients,
  gradients,
};

/// A place in the memory of a call: `index` of several pieces, and bytes from where it begins.
struct place {
  room in = room::output;
  int index = 0;
  std::int64_t offset = 0;
};

/// The numbers of a layer's arguments and results, see `traced_layer`, and where each of them is.
struct layer_border {
  std::vector<place> arguments;
  std::vector<place> results;
};

/// The places of the arguments and results of one part, in the order of the program.
struct part_places {
  std::vector<place> arguments;
  std::vector<place> results;
};
struct batch_places {
  part_places of[3];
  kept_facts kept;

  [[nodiscard]] const part_places& operator[](part which) const { return of[static_cast<std::size_t>(which)]; }
};

[[nodiscard]] inline int border_number(const espalier::instruction& i) {
  return attributes_of<border_attributes>(i).number;
}
[[nodiscard]] inline bool has_argument(const compiled_part& part, int number) {
  for (int id = 0; id < part.code.size; ++id) {
    if (structure_of(part.code[id]) == structure::argument && border_number(part.code[id]) == number) return true;
  }
  return false;
}
/// The last part that has this argument; F if none does.
[[nodiscard]] inline part last_reader(const compiled_batch& batch, int number) {
  for (const part which : {part::weight_gradient, part::input_gradient})
    if (has_argument(batch[which], number)) return which;
  return part::forward;
}

/// Gives what crosses from one part to another its place in the blocks of what is kept.
[[nodiscard]] inline batch_places places_of(const mesh_shape& mesh, const compiled_batch& batch,
                                            const layer_border& border) {
  batch_places found;
  const int arguments = static_cast<int>(border.arguments.size());
  const int results = static_cast<int>(border.results.size());
  std::vector<place> kept;  // by result number - `results`
  const auto keep = [&](room in, std::int64_t& size, int number, std::int64_t bytes) {
    kept.resize(std::max(kept.size(), static_cast<std::size_t>(number - results) + 1));
    kept[static_cast<std::size_t>(number - results)] = {in, 0, size};
    size += aligned(bytes);
  };
  for (const part which : {part::forward, part::input_gradient}) {
    const graph_view code = batch[which].code;
    for (int id = 0; id < code.size; ++id) {
      if (structure_of(code[id]) != structure::result || border_number(code[id]) < results) continue;
      const int number = border_number(code[id]);
      const std::int64_t bytes = local_bytes(mesh, code, id);
      if (which == part::input_gradient) {
        keep(room::kept_between, found.kept.kept_between_bytes, number, bytes);
      } else if (has_argument(batch[part::weight_gradient], arguments + number)) {
        keep(room::kept_through, found.kept.kept_through_bytes, number, bytes);
      } else {
        keep(room::kept, found.kept.kept_bytes, number, bytes);
      }
    }
  }
  const auto place_of_result = [&](int number) {
    return number < results ? border.results[static_cast<std::size_t>(number)]
                            : kept[static_cast<std::size_t>(number - results)];
  };
  for (const part which : {part::forward, part::input_gradient, part::weight_gradient}) {
    const compiled_part& one = batch[which];
    part_places& places = found.of[static_cast<std::size_t>(which)];
    for (int id = 0; id < one.code.size; ++id) {
      if (structure_of(one.code[id]) != structure::argument) continue;
      const int number = border_number(one.code[id]);
      places.arguments.push_back(number < arguments ? border.arguments[static_cast<std::size_t>(number)]
                                                    : place_of_result(number - arguments));
    }
    for (int id = 0; id < one.code.size; ++id) {
      if (!hands_out(one.code, id, one.adds)) continue;
      (one.adds ? places.arguments : places.results).push_back(place_of_result(border_number(one.code[id])));
    }
  }
  return found;
}

}  // namespace espalier::pipeline::detail
