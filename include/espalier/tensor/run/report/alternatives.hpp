// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/table.hpp>
#include <espalier/tensor/core/graph/builder.hpp>
#include <espalier/tensor/core/ops/shard.hpp>
#include <espalier/tensor/core/partition/partition.hpp>
#include <espalier/tensor/core/partition/run_price.hpp>
#include <espalier/tensor/core/program/annotated_values.hpp>
#include <espalier/tensor/core/program/complete.hpp>
#include <espalier/tensor/core/program/pass_list.hpp>
#include <espalier/tensor/core/program/refine_layouts.hpp>
#include <espalier/tensor/run/report/explain.hpp>
#include <espalier/tensor/run/report/peak_bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

// All of it is inline, also where the compiled part is linked: that would have the passes as code for every program.

namespace espalier {

/// Asks `explain` for the layouts that were not chosen: `explain<step>(std::cout, ep::with_alternatives)`.
struct alternatives_asked {};
inline constexpr alternatives_asked with_alternatives{};

namespace detail {

/// The layouts that are tried for a value: all of them if there are no more than this, and the passes read no more than
/// so many instructions for them; else those that move one axis.
inline constexpr int most_layouts_tried = 32;
inline constexpr int most_instructions_of_value = 4000;
/// The instructions that the passes may read for one report, all programs that are tried together: about a second where
/// they are optimised.
inline constexpr long most_instructions_tried = 40'000;

/// A traced program, and what the passes make of it with other layouts.
class layout_alternatives {
 public:
  layout_alternatives(const mesh_shape& mesh, graph_view traced, long most_instructions)
      : mesh_(mesh), traced_(traced), left_(most_instructions) {
    of_ = list<sharding>(traced.size);
    now_ = price_of(traced, &of_);
  }

  struct outcome {
    run_price price;
    /// Bytes that a device needs; only where they were asked for.
    std::int64_t peak = 0;
  };
  struct alternative {
    bool is_found = false;
    /// Some layouts were not tried, because the report would take too long.
    bool is_complete = true;
    run_price price;
    int value = -1;
    sharding placement;
  };

  [[nodiscard]] const run_price& now() const { return now_; }
  /// Whether one more program may be tried.
  [[nodiscard]] bool has_time() const { return left_ >= traced_.size; }

  /// The cheapest of the programs in which the value of a collective has another layout.
  /// @param origin the instruction of the traced program that the collective was made for
  [[nodiscard]] alternative next_best(int origin) {
    alternative best;
    for (const int value : values_of(origin)) {
      for (const sharding& placement : layouts_of(value)) {
        if (!has_time()) {
          best.is_complete = false;
          return best;
        }
        const run_price price = price_of(with_layout(value, placement), nullptr);
        if (is_worse_balanced(price) || (best.is_found && !best.price.is_dearer_than(price))) continue;
        best.is_found = true;
        best.price = price;
        best.value = value;
        best.placement = placement;
      }
    }
    return best;
  }

  /// The program without the annotations of the line that instruction `annotated` is on, those that differentiation
  /// made of them included.
  [[nodiscard]] outcome without(int annotated) {
    graph changed = copy_of(traced_);
    const source_line& line = traced_[annotated].where;
    for (int id = 0; id < traced_.size; ++id) {
      if (!is_annotation(traced_[id]) || !is_on(traced_[id], line)) continue;
      instruction& i = changed.code[id];
      if (requests_of(i) == layout_request::change) i.op = &ops::shard;
      i.annotation = changed.annotations.push_back({i.shape, sharding::all_open(i.shape.rank)});
    }
    outcome result;
    result.price = price_of(changed, nullptr, &result.peak);
    return result;
  }

  /// Whether an instruction is an annotation in the function. Those of arguments say where data is.
  [[nodiscard]] static bool is_annotation(const instruction& i) {
    return requests_of(i) == layout_request::annotation || requests_of(i) == layout_request::change;
  }
  [[nodiscard]] static bool is_on(const instruction& i, const source_line& line) {
    return i.where.line == line.line && same_text(i.where.file, line.file);
  }
  [[nodiscard]] bool is_worse_balanced(const run_price& price) const {
    return price.is_faulty || static_cast<double>(price.work) > 1.1 * static_cast<double>(now_.work);
  }

 private:
  /// The price of a program that the passes complete and partition.
  /// @param layouts where the layouts of its values go, or null
  /// @param peak where the bytes that a device needs go, or null
  [[nodiscard]] run_price price_of(graph_view g, list<sharding>* layouts, std::int64_t* peak = nullptr) {
    left_ -= g.size;
    run_price faulty;
    faulty.is_faulty = true;
    if (find_conflict(g).first >= 0) return faulty;
    std::vector<factor_rule> rules;
    rules.reserve(static_cast<std::size_t>(g.size));
    for (int id = 0; id < g.size; ++id) rules.push_back(g[id].op->factors(g.view(id)));
    list<sharding> of(g.size);
    std::vector<int> cause(static_cast<std::size_t>(g.size), -1);
    lay_out(mesh_, g, rules.data(), of.data(), cause.data());
    if (layouts != nullptr) *layouts = of;
    const partitioned made = partition(mesh_, g, rules.data(), of.data());
    if (made.fault != partition_fault::nothing) return faulty;
    const graph code = run_passes(passes_on_buffers, mesh_, made.program);
    if (peak != nullptr) *peak = peak_bytes_of(mesh_, code);
    return price_of_run(mesh_, code, false);
  }

  /// The values whose layouts a collective may depend on: the one that it was made for, or, if that is a mark or an
  /// op, those that it reads, too.
  [[nodiscard]] std::vector<int> values_of(int origin) const {
    std::vector<int> values;
    if (origin < 0) return values;
    const instruction& i = traced_[origin];
    if (can_be_laid_out(origin)) values.push_back(origin);
    if (requests_of(i) != layout_request::none) return values;
    for (int k = 0; k < i.operand_count && k < 3; ++k) {
      const int operand = traced_.operand_at(i, k);
      bool is_new = can_be_laid_out(operand) && !is_annotation(traced_[operand]);
      for (const int other : values) is_new = is_new && other != operand;
      if (is_new) values.push_back(operand);
    }
    return values;
  }
  [[nodiscard]] bool can_be_laid_out(int id) const {
    const instruction& i = traced_[id];
    return structure_of(i) == structure::none && !i.op->facts.looks && !is_further_result(i) &&
           !(id + 1 < traced_.size && is_further_result(traced_[id + 1]));
  }

  /// Returns the layouts that a value may have instead of its own, each axis at any dimension or at none.
  [[nodiscard]] std::vector<sharding> layouts_of(int value) const {
    const int rank = traced_[value].shape.rank;
    std::vector<sharding> layouts;
    const int most = smaller_of(most_layouts_tried, most_instructions_of_value / larger_of(traced_.size, 1));
    int all = 1;
    for (int a = 0; a < mesh_.rank && all <= most; ++a) all *= rank + 1;
    const sharding& now = of_[value];
    int place[max_axes]{};
    for (int a = 0; a < mesh_.rank; ++a) place[a] = place_in(now, rank, a);
    const auto add = [&](const int* at) {
      sharding one;
      one.rank = now.rank;
      for (int a = 0; a < mesh_.rank; ++a) {
        if (at[a] < rank) one.dim[at[a]] = one.dim[at[a]].with(a);
      }
      bool same = now.unreduced == 0;
      for (int d = 0; d < rank; ++d) same = same && one.dim[d].mask() == now.dim[d].mask();
      if (!same) layouts.push_back(one);
    };
    if (all <= most) {
      int at[max_axes]{};
      while (true) {
        add(&at[0]);
        int a = 0;
        for (; a < mesh_.rank; ++a) {
          if (++at[a] <= rank) break;
          at[a] = 0;
        }
        if (a == mesh_.rank) break;
      }
    } else {
      for (int a = 0; a < mesh_.rank; ++a) {
        const int before = place[a];
        for (place[a] = 0; place[a] <= rank; ++place[a]) {
          if (place[a] != before) add(&place[0]);
        }
        place[a] = before;
      }
    }
    return layouts;
  }
  /// The dimension that an axis splits, or the rank if it splits none.
  [[nodiscard]] static int place_in(const sharding& s, int rank, int axis) {
    for (int d = 0; d < rank; ++d) {
      if (has_axis(s.dim[d].mask(), axis)) return d;
    }
    return rank;
  }

  /// The program with an annotation of `value`, or with another one in place of its own.
  [[nodiscard]] graph with_layout(int value, const sharding& placement) const {
    if (requests_of(traced_[value]) != layout_request::none) {
      graph changed = copy_of(traced_);
      instruction& i = changed.code[value];
      i.annotation = changed.annotations.push_back({i.shape, placement});
      if (requests_of(i) == layout_request::as_operand) {
        i.op = &ops::shard;
        i.operand_count = 1;
      }
      return changed;
    }
    graph changed;
    copy_tables(changed, traced_);
    changed.code.reserve(traced_.size + 1);
    const auto shifted = [&](int id, int reader) {
      return id > value || (id == value && reader > value) ? id + 1 : id;
    };
    for (int id = 0; id < traced_.size; ++id) {
      instruction i = traced_[id];
      for (int k = 0; k < i.operand_count; ++k)
        i.operand_at(k, changed.further.data()) = shifted(i.operand_at(k, changed.further.data()), id);
      if (i.region > value) ++i.region;
      changed.code.push_back(i);
      if (id != value) continue;
      instruction annotation = builder::make(ops::shard, i.type, i.shape, value);
      annotation.region = i.region;
      annotation.where = i.where;
      annotation.annotation = changed.annotations.push_back({i.shape, placement});
      changed.code.push_back(annotation);
    }
    return changed;
  }

  const mesh_shape& mesh_;
  graph_view traced_;
  long left_;
  list<sharding> of_;
  run_price now_;
};

class alternatives_report {
 public:
  alternatives_report(const program_facts& facts, graph_view traced, long most_instructions)
      : facts_(facts), traced_(traced), tried_(facts.device_mesh, traced, most_instructions), words_(facts) {}

  void write(std::ostream& out) {
    std::string lines = annotation_lines();
    write_collectives(out);
    out << lines;
  }

 private:
  [[nodiscard]] static std::string bytes_text(std::int64_t bytes) { return espalier::report::format_bytes(bytes); }

  /// `without mlp.cpp:41: 19.0 MiB sent instead of 425 MiB` of each line with annotations that cost more than twice.
  [[nodiscard]] std::string annotation_lines() {
    std::string text;
    int skipped = 0;
    for (int id = 0; id < traced_.size; ++id) {
      const instruction& i = traced_[id];
      if (!layout_alternatives::is_annotation(i) || i.where.line == 0 || is_repeated(id)) continue;
      if (!tried_.has_time()) {
        ++skipped;
        continue;
      }
      const layout_alternatives::outcome other = tried_.without(id);
      if (tried_.is_worse_balanced(other.price) || 2 * other.price.bytes >= tried_.now().bytes) continue;
      append_text(text, {"without ", line_text(i.where), ": ", bytes_text(other.price.bytes), " sent instead of ",
                         bytes_text(tried_.now().bytes)});
      if (other.peak > facts_.peak_bytes)
        append_text(text, {", and ", bytes_text(other.peak), " of memory instead of ", bytes_text(facts_.peak_bytes)});
      text += '\n';
    }
    if (skipped > 0)
      append_text(text, {skipped, skipped == 1 ? " line" : " lines", " with annotations not looked at\n"});
    return text;
  }
  [[nodiscard]] bool is_repeated(int id) const {
    for (int before = 0; before < id; ++before) {
      if (layout_alternatives::is_annotation(traced_[before]) &&
          layout_alternatives::is_on(traced_[before], traced_[id].where))
        return true;
    }
    return false;
  }

  void write_collectives(std::ostream& out) {
    std::vector<espalier::report::column> columns;
    static constexpr const char* names[]{"line", "op", "result", "next best", "sends in all"};
    for (const char* const name : names) {
      espalier::report::column& one = columns.emplace_back();
      one.name = name;
      one.alignment = espalier::report::align::left;
    }
    columns.back().alignment = espalier::report::align::right;
    espalier::report::table table(std::move(columns));
    const std::vector<int> order = by_bytes();
    std::vector<layout_alternatives::alternative> found(static_cast<std::size_t>(facts_.code.size));
    std::vector<int> same(static_cast<std::size_t>(facts_.code.size), -1);
    std::vector<int> first_of(static_cast<std::size_t>(traced_.size), -1);
    for (const int id : order) {
      const int origin = facts_.code[id].origin;
      if (origin >= 0 && first_of[static_cast<std::size_t>(origin)] >= 0) {
        same[static_cast<std::size_t>(id)] = first_of[static_cast<std::size_t>(origin)];
        continue;
      }
      found[static_cast<std::size_t>(id)] = tried_.next_best(origin);
      if (origin >= 0) first_of[static_cast<std::size_t>(origin)] = id;
    }
    bool any = false;
    for (int id = 0; id < facts_.code.size; ++id) {
      const instruction& i = facts_.code[id];
      if (!communicates(i)) continue;
      any = true;
      const int at = same[static_cast<std::size_t>(id)] >= 0 ? same[static_cast<std::size_t>(id)] : id;
      const layout_alternatives::alternative& best = found[static_cast<std::size_t>(at)];
      const layout& placed = facts_.code.annotations[i.annotation];
      table.add({words_.line_of(i), words_.op_text(id), layout_text(i.type, placed.shape, placed.placement),
                 text_of(best), best.is_found ? bytes_text(best.price.bytes) : std::string("-")});
    }
    if (!any) return;
    out << '\n';
    table.print(out);
    out << joined({"the program as it is: ", bytes_text(tried_.now().bytes), "\n"});
  }
  [[nodiscard]] std::string text_of(const layout_alternatives::alternative& best) const {
    if (!best.is_found) return best.is_complete ? "none with as little work" : "not looked at";
    const instruction& i = traced_[best.value];
    return joined({layout_text(i.type, i.shape, best.placement), best.is_complete ? "" : ", not all looked at"});
  }
  /// The collectives, those that send most first.
  [[nodiscard]] std::vector<int> by_bytes() const {
    std::vector<int> order;
    for (int id = 0; id < facts_.code.size; ++id) {
      if (!communicates(facts_.code[id])) continue;
      order.push_back(id);
      const auto sent = [&](std::size_t n) { return repetitions(facts_.code, order[n]) * facts_.sent[order[n]]; };
      for (std::size_t n = order.size() - 1; n > 0 && sent(n) > sent(n - 1); --n) std::swap(order[n], order[n - 1]);
    }
    return order;
  }
  [[nodiscard]] std::string layout_text(dtype type, const extents& shape, const sharding& placement) const {
    return to_string(facts_.mesh, facts_.parts, type, shape, placement);
  }

  const program_facts& facts_;
  graph_view traced_;
  layout_alternatives tried_;
  explanation words_;
};

/// Writes, below the table of `explain`, what other layouts would cost.
/// @param traced the traced program with the rules of its ops, which `facts.traced` is without
/// @param most_instructions the instructions that the passes may read, all programs that are tried together
inline void write_alternatives(std::ostream& out, const program_facts& facts, graph_view traced,
                               long most_instructions) {
  alternatives_report(facts, traced, most_instructions).write(out);
}

}  // namespace detail

/// Writes the collectives of a program as `explain` does, and then of each what the program would send with the next
/// best layout in its place, and each line with annotations without which the program would send less than half.
/// The passes run again for each of them, with the layout of the collective's value given, or without the annotations
/// of the line. Layouts with which a device has more work by a tenth are not counted: a program without any annotation
/// sends nothing. A large program has too many of them; of the collectives that send least the report then says that
/// they were not looked at. A program that calls this has the passes as code, and takes seconds longer to compile.
template <class Program> void explain(std::ostream& out, alternatives_asked /*asked*/) {
  explain<Program>(out, collectives_only);
  if constexpr (Program::is_sound)
    detail::write_alternatives(out, detail::facts_of_program<Program>(), Program::traced,
                               detail::most_instructions_tried);
}
/// The same of a program that `compile` returned: `explain(std::cout, step, with_alternatives)`.
template <class Program> void explain(std::ostream& out, const Program& /*program*/, alternatives_asked asked) {
  explain<Program>(out, asked);
}

}  // namespace espalier
