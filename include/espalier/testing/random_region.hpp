// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/manual/mapping.hpp>
#include <espalier/tensor/core/program/map_over.hpp>
#include <espalier/testing/naive/by_hand.hpp>
#include <espalier/testing/random_graph.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Random programs for one shard as regions by hand of programs for all devices.
namespace espalier::test {

/// A program for one shard within one for all: how its arguments are cut, and its results joined.
struct program_with_region {
  graph shard;
  graph whole;
  mesh_shape mesh;
  std::vector<sharding> in;
  std::vector<sharding> out;
  /// Whether the code around computes sines of arguments and results.
  bool has_code_around = false;
  /// If it is not 0, the region is the body of a loop of so many steps (`region_loop`).
  int steps = 0;
  detail::shard_fault fault = detail::shard_fault::nothing;
  /// The sum of all floats of the results, and its gradients by the float arguments, are the last results.
  bool has_gradient = false;
};
enum class region_gradient { none, around, inside };
/// Of a region in a loop: the part of a result's mean that is added to an argument, and the part of a step's result
/// that is added to the next one.
inline constexpr double part_of_mean = 0.25;
inline constexpr double part_of_result = 0.5;

/// Splits some dimensions of a shard over axes: over all of `always`, and over others now and then.
[[nodiscard]] inline sharding any_spec(dice& random, const extents& shape, axis_mask always, axis_mask others,
                                       double chance) {
  sharding made = sharding::whole(shape.rank);
  axis_list axes;
  for (int axis = 0; axis < max_axes; ++axis) {
    const bool wanted = has_axis(always, axis) || (has_axis(others, axis) && random.chance(chance));
    if (!wanted) continue;
    axes = random.chance(0.5) ? axes.with(axis) : axis_list(axis).followed_by(axes);
  }
  for (int n = 0; n < axes.size() && shape.rank > 0; ++n) {
    axis_list& dim = made.dim[random.integer(0, shape.rank - 1)];
    dim = dim.with(axes[n]);
  }
  return made;
}
[[nodiscard]] inline extents whole_shape(const mesh_shape& mesh, extents shape, const sharding& split) {
  for (int d = 0; d < shape.rank; ++d) shape[d] *= mesh.parts(split.dim[d]);
  return shape;
}

/// A program for one shard as types make it: what is the same on all devices becomes varying where it meets what is
/// not, so that its gradient is added up.
class typed_program {
 public:
  typed_program(const graph& from, axis_mask own, const std::vector<sharding>& in) : from_(from) {
    const int size = from.code.size();
    varies_.assign(static_cast<std::size_t>(size), 0);
    for (bool changed = true; changed;) {
      changed = false;
      std::size_t argument = 0;
      for (int id = 0; id < size; ++id) {
        const instruction& i = from.code[id];
        axis_mask now = varies(id);
        if (i.op == &ops::argument) now = in[argument++].tiled();
        if (i.op == &ops::region_begin || i.op == &ops::region_end) continue;
        axis_mask all = 0;
        for (int k = 0; k < i.operand_count; ++k) all |= varies(operand(i, k));
        now |= i.op == &ops::by_hand ? after(i, all) & own : all;
        if (i.op == &ops::region_yield) {
          axis_mask& carry = varies_[static_cast<std::size_t>(i.operand[0])];
          changed = changed || (carry | now) != carry;
          carry |= now;
        }
        changed = changed || now != varies(id);
        varies_[static_cast<std::size_t>(id)] = now;
      }
    }
  }

  /// The program in a builder. @post made[id] is what instruction `id` has become
  void append_to(builder& b, std::vector<int>& made) {
    detail::copy_tables(b.result(), from_);
    b.result().further.clear();
    made.assign(varies_.size(), -1);
    for (int id = 0; id < from_.code.size(); ++id) {
      const instruction& i = from_.code[id];
      if (i.op == &ops::result) continue;
      const auto place = [&](int old) { return old < 0 ? -1 : made[static_cast<std::size_t>(old)]; };
      std::vector<int> operands;
      for (int k = 0; k < i.operand_count; ++k) {
        const int from = operand(i, k);
        int value = place(from);
        axis_mask wanted = i.op == &ops::by_hand ? read(i) : varies(id);
        if (i.op == &ops::region_begin || i.op == &ops::region_end || (i.op == &ops::region_yield && k == 0))
          wanted = 0;
        // What a carry starts with is computed before its loop.
        b.region = place(i.op == &ops::region_parameter ? from_.code[i.region].region : i.region);
        const axis_mask more = wanted & ~varies(from);
        if (more != 0) value = emit::by_hand(b, value, {detail::by_hand_kind::vary, more});
        operands.push_back(value);
      }
      b.region = place(i.region);
      const bool is_collected = i.op == &ops::loop_stack || i.op == &ops::loop_sum;
      int& now = made[static_cast<std::size_t>(id)];
      now = b.append(i, operands.data(), static_cast<int>(operands.size()));
      if (is_collected) b[now].region = b[b[operands[0]].region].region;
    }
    b.region = -1;
  }
  [[nodiscard]] axis_mask varies(int id) const { return varies_[static_cast<std::size_t>(id)]; }

 private:
  [[nodiscard]] int operand(const instruction& i, int k) const { return i.operand_at(k, from_.further.data()); }
  [[nodiscard]] static axis_mask after(const instruction& i, axis_mask given) {
    using detail::by_hand_kind;
    const auto how = attributes_of<detail::by_hand_attributes>(i);
    switch (how.kind) {
      case by_hand_kind::sum:
      case by_hand_kind::max:
      case by_hand_kind::min:
      case by_hand_kind::gather:
      case by_hand_kind::broadcast: return given & ~how.axes;
      default: return given | how.axes;
    }
  }
  /// The axes along which what a collective reads has to vary, besides those along which it does.
  [[nodiscard]] static axis_mask read(const instruction& i) {
    const auto how = attributes_of<detail::by_hand_attributes>(i);
    return how.kind == detail::by_hand_kind::index ? 0 : how.axes;
  }

  const graph& from_;
  std::vector<axis_mask> varies_;
};

/// Lets a builder differentiate functions that have gradients of their own and were mapped before, as `vmap` does.
inline void differentiates_lanes(builder& b) {
  builder mapped;
  detail::mapping map(mapped, mapped.size(), 1);
  map.run();
  b.gradient_over_lanes = mapped.gradient_over_lanes;
}

/// The loop around a region. In the next step a float argument k is sin(argument k + m / 4), where m is the mean of
/// result k, or of the last one. Of results that are floats, half of the one before is added to each.
class region_loop {
 public:
  /// @param until whether it ends when a condition is false
  region_loop(builder& b, const program_with_region& of, int steps, bool until)
      : b_(b), of_(of), steps_(steps), until_(until) {}

  /// Begins the loop. @post floats among the arguments are its carries
  void begin(std::vector<int>& argument) {
    std::vector<int> zeros;
    for (const instruction& i : of_.shard.code) {
      if (i.op != &ops::result) continue;
      const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(i).number);
      zeros.resize(std::max(zeros.size(), number + 1));
      zeros[number] = emit::constant(b_, i.type, whole_shape(of_.mesh, i.shape, of_.out[number]), 0);
    }
    const int zero = emit::constant(b_, dtype::i32, extents{}, 0);
    region_attributes attributes{.iterations = steps_};
    if (until_) attributes.kind = region_kind::until_or_at_most;
    emit::region_begin(b_, attributes, until_ ? goes_on(zero) : -1);
    if (until_) counter_ = emit::region_parameter(b_, zero);
    for (int& one : argument) {
      carry_.push_back(is_floating(b_[one].type) ? emit::region_parameter(b_, one) : -1);
      if (carry_.back() >= 0) one = carry_.back();
    }
    for (const int one : zeros) sum_.push_back(emit::region_parameter(b_, one));
  }
  /// Ends the loop. @post the results are those of the loop
  void end(const std::vector<int>& argument, std::vector<int>& results) {
    std::vector<int> passed(argument.size(), -1);
    for (std::size_t k = 0; k < argument.size(); ++k) {
      if (carry_[k] < 0) continue;
      const int result = results[std::min(k, results.size() - 1)];
      const extents shape = b_[argument[k]].shape;
      const dtype type = b_[argument[k]].type;
      const std::int64_t count = b_[result].shape.elements();
      int sum = emit::convert(b_, result, type);
      sum = emit::reduce_sum(b_, sum, (std::int64_t{1} << b_[sum].shape.rank) - 1);
      const int mean = emit::scale(b_, sum, count > 0 ? part_of_mean / static_cast<double>(count) : 0);
      passed[k] = b_.append(ops::sin, type, shape, emit::add(b_, argument[k], emit::broadcast_to(b_, mean, shape)));
    }
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (!is_floating(b_[results[r]].type)) continue;
      results[r] = emit::add(b_, results[r], emit::scale(b_, sum_[r], part_of_result));
    }
    int next = -1;
    if (until_) next = emit::add(b_, counter_, emit::constant(b_, dtype::i32, extents{}, 1));
    const int again = until_ ? goes_on(next) : -1;
    if (until_) next = emit::region_yield(b_, counter_, next);
    for (std::size_t k = 0; k < argument.size(); ++k) {
      if (carry_[k] >= 0) emit::region_yield(b_, carry_[k], passed[k]);
    }
    for (std::size_t r = 0; r < results.size(); ++r) results[r] = emit::region_yield(b_, sum_[r], results[r]);
    emit::region_end(b_, again);
    if (until_) emit::region_result(b_, next);
    for (int& one : results) one = emit::region_result(b_, one);
  }

 private:
  int goes_on(int counter) {
    return emit::compare(b_, ops::less, counter, emit::constant(b_, dtype::i32, extents{}, steps_));
  }

  builder& b_;
  const program_with_region& of_;
  int steps_;
  bool until_;
  int counter_ = -1;
  std::vector<int> carry_;
  std::vector<int> sum_;
};

/// The region of a program for one shard, which was drawn for the axes `own`, and perhaps code around it.
/// @param steps of a loop around the region, or 0
[[nodiscard]] inline program_with_region in_region(graph shard, const mesh_shape& mesh, axis_mask own, dice& random,
                                                   region_gradient gradient, int steps = 0) {
  program_with_region made;
  made.steps = steps;
  made.shard = std::move(shard);
  made.mesh = mesh;
  made.has_code_around =
      gradient == region_gradient::around || (gradient == region_gradient::none && random.chance(0.5));
  builder b;
  std::vector<int> by;        // arguments of all
  std::vector<int> argument;  // what the region gets
  for (int id = 0; id < made.shard.code.size(); ++id) {
    const instruction& i = made.shard.code[id];
    if (i.op != &ops::argument) continue;
    sharding split = any_spec(random, i.shape, 0, own, 0.6);
    // A leading dimension for each axis has to fit.
    if (i.shape.rank + count_of(split.tiled()) > max_rank) split = sharding::whole(i.shape.rank);
    made.in.push_back(split);
    by.push_back(emit::argument(b, i.type, whole_shape(mesh, i.shape, split), static_cast<int>(by.size())));
    const bool turns = made.has_code_around && is_floating(i.type);
    argument.push_back(turns ? b.append(ops::sin, i.type, b[by.back()].shape, by.back()) : by.back());
  }
  typed_program typed(made.shard, own, made.in);
  builder inside;
  differentiates_lanes(inside);
  std::vector<int> place;
  typed.append_to(inside, place);
  std::vector<int> values;  // of the region's results, by number
  std::vector<axis_mask> varies;
  for (int id = 0; id < made.shard.code.size(); ++id) {
    const instruction& i = made.shard.code[id];
    if (i.op != &ops::result) continue;
    const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(i).number);
    values.resize(std::max(values.size(), number + 1));
    made.out.resize(values.size());
    values[number] = place[static_cast<std::size_t>(i.operand[0])];
    varies.resize(values.size());
    varies[number] = typed.varies(i.operand[0]);
    made.out[number] = any_spec(random, i.shape, varies[number], own & ~varies[number], 0.3);
  }
  std::vector<sharding> specs = made.out;
  std::vector<int> inputs;
  for (int id = 0; id < inside.size(); ++id) {
    if (inside[id].op == &ops::argument) inputs.push_back(id);
  }
  const auto total = [](builder& to, int value) {
    return emit::reduce_sum(to, value, (std::int64_t{1} << to[value].shape.rank) - 1);
  };
  const auto floats_of = [](const builder& of, const std::vector<int>& from) {
    std::vector<int> floats;
    for (const int one : from) {
      if (is_floating(of[one].type)) floats.push_back(one);
    }
    return floats;
  };
  if (gradient == region_gradient::inside) {
    int loss = -1;
    for (std::size_t r = 0; r < made.out.size(); ++r) {
      if (!is_floating(inside[values[r]].type)) continue;
      int sum = total(inside, values[r]);
      // Shards that are joined count each, copies of what is the same on all devices once.
      for (int axis = 0; axis < mesh.rank; ++axis) {
        if (!has_axis(made.out[r].tiled(), axis)) continue;
        if (!has_axis(varies[r], axis)) sum = emit::by_hand(inside, sum, {detail::by_hand_kind::vary, bit_of(axis)});
        sum = emit::by_hand(inside, sum, {detail::by_hand_kind::sum, bit_of(axis)});
      }
      loss = loss < 0 ? sum : emit::add(inside, loss, sum);
    }
    const std::vector<int> wanted = floats_of(inside, inputs);
    std::vector<int> gradients(wanted.size(), -1);
    made.has_gradient = loss >= 0;
    if (loss >= 0) {
      differentiate(inside, loss, wanted.data(), static_cast<int>(wanted.size()), gradients.data());
      values.push_back(loss);
      specs.push_back(sharding::whole(0));
      for (const int one : gradients) values.push_back(one);
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        if (is_floating(inside[inputs[k]].type)) specs.push_back(made.in[k]);
      }
    }
  }
  region_loop loop(b, made, steps, steps > 0 && random.chance(0.5));
  if (steps > 0) loop.begin(argument);
  detail::shard_mapping mapping(made.mesh, own, inside, b);
  for (std::size_t k = 0; k < inputs.size(); ++k) mapping.enter(inputs[k], argument[k], made.in[k]);
  if (mapping.fault == detail::shard_fault::nothing) mapping.find_states();
  if (mapping.fault == detail::shard_fault::nothing) mapping.run();
  int loss = -1;
  int results = 0;
  std::vector<int> returned;
  for (std::size_t r = 0; r < values.size() && mapping.fault == detail::shard_fault::nothing; ++r)
    returned.push_back(mapping.leave(values[r], specs[r]));
  if (mapping.fault == detail::shard_fault::nothing && steps > 0) loop.end(argument, returned);
  for (int result : returned) {
    if (result < 0 || mapping.fault != detail::shard_fault::nothing) break;
    const bool is_float = is_floating(b[result].type);
    if (made.has_code_around && is_float) result = b.append(ops::sin, b[result].type, b[result].shape, result);
    emit::result(b, result, results++);
    if (gradient != region_gradient::around || !is_float) continue;
    const int sum = total(b, result);
    loss = loss < 0 ? sum : emit::add(b, loss, sum);
  }
  made.fault = mapping.fault;
  if (made.fault != detail::shard_fault::nothing) return made;
  if (loss >= 0) {
    made.has_gradient = true;
    const std::vector<int> wanted = floats_of(b, by);
    std::vector<int> gradients(wanted.size(), -1);
    differentiate(b, loss, wanted.data(), static_cast<int>(wanted.size()), gradients.data());
    emit::result(b, loss, results++);
    for (const int one : gradients) emit::result(b, one, results++);
  }
  made.whole = std::move(b.result());
  return made;
}

/// The shard of a device.
[[nodiscard]] inline tensor_value shard_of(const tensor_value& whole, const mesh_shape& mesh, const sharding& split,
                                           int device) {
  extents shape = whole.shape;
  std::int64_t first[max_rank]{};
  for (int d = 0; d < shape.rank; ++d) {
    for (int n = 0; n < split.dim[d].size(); ++n) {
      const int axis = split.dim[d][n];
      first[d] = first[d] * mesh.size[axis] + mesh.coordinate(device, axis);
    }
    shape[d] /= mesh.parts(split.dim[d]);
  }
  return naive::tensor_of(shape, [&](naive::place_in i) {
    for (int d = 0; d < shape.rank; ++d) i[d] += first[d] * shape[d];
    return naive::element(whole, i);
  });
}
[[nodiscard]] inline std::vector<tensor_value> sines(std::vector<tensor_value> of, const std::vector<dtype>& types) {
  for (std::size_t k = 0; k < of.size(); ++k) {
    if (!is_floating(types[k])) continue;
    for (double& one : of[k].data) one = std::sin(one);
  }
  return of;
}

/// What the program means: each device runs the program for one shard on its shards.
struct meaning_by_hand {
  std::vector<tensor_value> results;
  /// The sum of all floats of the results.
  double loss = 0;
  bool is_exact = true;
  /// Where devices differ in what is promised to be the same.
  std::string fault;
};
/// The results of one call of the region.
inline void run_region(const program_with_region& program, const std::vector<tensor_value>& arguments,
                       meaning_by_hand& made) {
  std::vector<std::vector<tensor_value>> shards;
  for (int device = 0; device < program.mesh.devices(); ++device) {
    std::vector<tensor_value> own;
    for (std::size_t k = 0; k < arguments.size(); ++k)
      own.push_back(shard_of(arguments[k], program.mesh, program.in[k], device));
    shards.push_back(std::move(own));
  }
  const results_by_hand ran = naive_by_hand(program.shard, program.mesh, shards);
  made.is_exact = made.is_exact && ran.is_exact;
  made.results.clear();
  for (std::size_t r = 0; r < program.out.size(); ++r) {
    tensor_value whole;
    whole.shape = whole_shape(program.mesh, ran.of_device[0][r].shape, program.out[r]);
    whole.data.assign(static_cast<std::size_t>(whole.shape.elements()), 0);
    std::vector<bool> seen(whole.data.size());
    for (int device = 0; device < program.mesh.devices(); ++device) {
      const tensor_value& part = ran.of_device[static_cast<std::size_t>(device)][r];
      tensor_value places = whole;
      for (std::size_t i = 0; i < places.data.size(); ++i) places.data[i] = static_cast<double>(i);
      const tensor_value to = shard_of(places, program.mesh, program.out[r], device);
      for (std::size_t i = 0; i < part.data.size(); ++i) {
        const auto at = static_cast<std::size_t>(to.data[i]);
        const double difference = std::abs(whole.data[at] - part.data[i]);
        if (seen[at] && difference > 1e-9 * (1 + std::abs(part.data[i])) && made.fault.empty())
          made.fault = "device " + std::to_string(device) + " has another result " + std::to_string(r) + " than others";
        whole.data[at] = part.data[i];
        seen[at] = true;
      }
    }
    made.results.push_back(std::move(whole));
  }
}
[[nodiscard]] inline meaning_by_hand meaning_of(const program_with_region& program,
                                                const std::vector<tensor_value>& given) {
  std::vector<dtype> types(program.in.size());
  std::vector<dtype> result_types(program.out.size());
  const graph& shard = program.shard;
  std::size_t count = 0;
  for (const instruction& i : shard.code) {
    if (i.op == &ops::argument) types[count++] = i.type;
    if (i.op == &ops::result)
      result_types[static_cast<std::size_t>(attributes_of<border_attributes>(i).number)] = i.type;
  }
  std::vector<tensor_value> arguments = program.has_code_around ? sines(given, types) : given;
  meaning_by_hand made;
  if (program.steps == 0) run_region(program, arguments, made);
  std::vector<tensor_value> before;
  for (int step = 0; step < program.steps; ++step) {
    run_region(program, arguments, made);
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      if (!is_floating(types[k])) continue;
      const std::vector<double>& result = made.results[std::min(k, made.results.size() - 1)].data;
      double sum = 0;
      for (const double one : result) sum += one;
      const double mean = result.empty() ? 0 : sum / static_cast<double>(result.size());
      for (double& one : arguments[k].data) one = std::sin(one + part_of_mean * mean);
    }
    for (std::size_t r = 0; r < made.results.size() && step > 0; ++r) {
      if (!is_floating(result_types[r])) continue;
      for (std::size_t i = 0; i < before[r].data.size(); ++i)
        made.results[r].data[i] += part_of_result * before[r].data[i];
    }
    before = made.results;
  }
  if (program.has_code_around) made.results = sines(std::move(made.results), result_types);
  for (std::size_t r = 0; r < made.results.size(); ++r) {
    if (!is_floating(result_types[r])) continue;
    for (const double one : made.results[r].data) made.loss += one;
  }
  return made;
}

}  // namespace espalier::test
