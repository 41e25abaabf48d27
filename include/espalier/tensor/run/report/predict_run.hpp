// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/partition/partition.hpp>
#include <espalier/tensor/core/partition/plan.hpp>
#include <espalier/tensor/core/partition/run_price.hpp>
#include <espalier/tensor/core/partition/scheduler.hpp>
#include <espalier/tensor/core/program/complete.hpp>
#include <espalier/tensor/core/program/cut_axes.hpp>
#include <espalier/tensor/core/program/pass_list.hpp>
#include <espalier/tensor/core/program/plan_text.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/recompute_rows.hpp>
#include <espalier/tensor/core/program/refine_layouts.hpp>
#include <espalier/tensor/core/program/repeat_widened.hpp>
#include <espalier/tensor/core/program/trace.hpp>
#include <espalier/tensor/run/report/peak_bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

// All of it is inline, also where the compiled part is linked: that would have the passes as code for every program.

namespace espalier {

/// What a run of a program takes on each device, as the passes predict it.
struct predicted_run {
  /// The bytes that the device that sends most sends, and the number of collectives that send them.
  std::int64_t bytes = 0;
  std::int64_t collectives = 0;
  /// Floating-point operations.
  std::int64_t operations = 0;
  /// Bytes of memory: arguments, results and everything in between, as `peak_bytes_per_device` counts them.
  std::int64_t memory = 0;
  /// The times that `plan_text` has for the same rates. No collective overlaps with work.
  double sending_seconds = 0;
  double computing_seconds = 0;
  /// The program's annotations contradict each other, or ask for a partial where there is none.
  bool is_faulty = false;

  [[nodiscard]] double seconds() const { return sending_seconds + computing_seconds; }
};

namespace detail {

/// A program that all passes have made at run time.
struct program_at_run_time {
  mesh_shape mesh;
  graph code;
  bool is_faulty = false;
};

/// The passes, as the compiler runs them (program/passes.hpp), over graphs that are made at run time.
class passes_at_run_time {
 public:
  explicit passes_at_run_time(const mesh_shape& mesh) : mesh_(mesh) {}

  /// @param traced a traced graph
  [[nodiscard]] program_at_run_time run(graph_view traced) const {
    const graph normal = passes_on_tensors[0].run(mesh_, traced);
    if (find_conflict(normal).first >= 0) return faulty();
    graph simple = normal;
    for (int n = 1; n < length_of(passes_on_tensors); ++n) simple = passes_on_tensors[n].run(mesh_, simple);
    axis_parts parts = axis_parts::whole(mesh_);
    program_at_run_time made = partitioned_on(simple, parts, true);
    if (parts.count > mesh_.rank) {
      const run_price price = price_of(made);
      if (made.is_faulty || price.bytes > 0) {
        program_at_run_time whole = partitioned_on(simple, parts, false);
        if (price.is_dearer_than(price_of(whole))) made = whole;
      }
    }
    if (made.is_faulty) return made;
    if (has_scores(made.code)) made.code = recompute_rows(made.code);
    if (widens(made.code)) made.code = repeat_widened(made.code, make_schedule(made.code));
    return made;
  }

  [[nodiscard]] predicted_run predict(graph_view traced, const plan_rates& rates) const {
    return predict(run(traced), rates);
  }
  [[nodiscard]] static predicted_run predict(const program_at_run_time& program, const plan_rates& rates) {
    predicted_run result;
    result.is_faulty = program.is_faulty;
    if (program.is_faulty) return result;
    const graph_view code = program.code;
    run_total starts(code);
    run_total bytes(code);
    run_total operations(code);
    for (int id = 0; id < code.size; ++id) {
      if (code[id].op->flops != nullptr) operations.add(id, code[id].op->flops(code.view(id)));
      if (!starts_collective(code[id])) continue;
      starts.add(id, 1);
      bytes.add(id, most_sent_in_messages(program.mesh, code, id));
    }
    result.collectives = starts.total();
    result.operations = operations.total();
    const std::int64_t sum = bytes.total();
    result.bytes = sum;
    if (!all_send_alike(program.mesh, code)) {
      result.bytes = 0;
      for (int device = 0; device < program.mesh.devices(); device += step_between_asked(program.mesh.devices()))
        result.bytes = larger_of(result.bytes, bytes_sent_by(program.mesh, code, device));
    }
    result.sending_seconds = 1e-9 * (static_cast<double>(result.collectives) * nanoseconds_of(rates, 0) +
                                     static_cast<double>(sum) * 1e9 / static_cast<double>(rates.bytes_per_second));
    result.computing_seconds =
        static_cast<double>(result.operations) / static_cast<double>(rates.operations_per_second);
    result.memory = peak_bytes_of(program.mesh, program.code);
    return result;
  }

 private:
  [[nodiscard]] program_at_run_time faulty() const {
    program_at_run_time result;
    result.mesh = mesh_;
    result.is_faulty = true;
    return result;
  }
  [[nodiscard]] static run_price price_of(const program_at_run_time& program) {
    return price_of_run(program.mesh, program.code, program.is_faulty);
  }

  /// Completes and partitions a graph.
  /// @param parts the sub-axes into which axes are cut, if they may be
  [[nodiscard]] program_at_run_time partitioned_on(const graph& whole, axis_parts& parts, bool may_cut) const {
    program_at_run_time made;
    made.mesh = mesh_;
    graph g = whole;
    std::vector<factor_rule> rules;
    list<sharding> of(g.code.size());
    std::vector<int> cause(static_cast<std::size_t>(g.code.size()), -1);
    for (int cuts = 0;; ++cuts) {
      const graph_view view = g;
      rules.clear();
      for (int id = 0; id < view.size; ++id) rules.push_back(view[id].op->factors(view.view(id)));
      lay_out(made.mesh, view, rules.data(), of.data(), cause.data());
      if (!may_cut || cuts == max_axes) break;
      const axis_parts wanted = refined_sub_axes(made.mesh, view, rules.data(), of.data(), parts);
      if (wanted.count == parts.count) break;
      parts = wanted;
      made.mesh = cut_mesh(mesh_, parts);
      g = on_sub_axes(whole, parts);
    }
    const partitioned split = partition(made.mesh, g, rules.data(), of.data());
    made.is_faulty = split.fault != partition_fault::nothing;
    if (!made.is_faulty) made.code = run_passes(passes_on_buffers, made.mesh, split.program);
    return made;
  }

  mesh_shape mesh_;
};

/// The types that a program is made of, without making it.
template <class Program> struct parts_of_program;
template <class Mesh, class Function, class... Arguments>
struct parts_of_program<program<Mesh, Function, Arguments...>> {
  using mesh = Mesh;
  /// Calls f(specification) with each argument's type, `donated` left out, as a value.
  template <class F> static void for_each_argument(const F& f) {
    (f(typename argument_traits<Arguments>::type{}), ...);
  }
  [[nodiscard]] static traced trace_now() {
    if constexpr (requires(const Function& function, const traced_t<Mesh, Arguments>&... given) {
                    function(given...);
                  }) {
      using returned = traced_result<Mesh, Function, Arguments...>;
      if constexpr (std::is_void_v<typename failure_in<returned>::type> && returns_tensors<returned>()) {
        return trace<Mesh, Function, Arguments...>();
      } else {
        return report<program<Mesh, Function, Arguments...>>();
      }
    } else {
      return report<program<Mesh, Function, Arguments...>>();
    }
  }

 private:
  /// A mistake: the program itself says which.
  template <class Program> [[nodiscard]] static traced report() {
    static_assert(Program::is_sound);
    return {};
  }
};

}  // namespace detail

/// What a run of a program takes, worked out at run time: `predict_run<step>({.bytes_per_second = 1'000'000'000})`. The
/// program is traced, and the passes run as code, so that a program that is only asked this compiles in a fraction of
/// the time; bytes, collectives, operations and memory are those that the compiled program answers.
/// @param rates the machine for which times are predicted
template <class Program> [[nodiscard]] predicted_run predict_run(const plan_rates& rates = {}) {
  using parts = detail::parts_of_program<Program>;
  const traced made = parts::trace_now();
  return detail::passes_at_run_time(parts::mesh::value).predict(made.program, rates);
}

}  // namespace espalier
