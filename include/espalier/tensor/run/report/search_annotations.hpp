// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/table.hpp>
#include <espalier/tensor/core/graph/named_leaves.hpp>
#include <espalier/tensor/core/sharding/print.hpp>
#include <espalier/tensor/run/report/predict_run.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier {

/// What `search_annotations` may use.
struct annotation_search_settings {
  /// The machine for which times are predicted.
  plan_rates machine{};
  /// The bytes of memory that a device has.
  std::int64_t memory = std::numeric_limits<std::int64_t>::max();
  /// The layouts that are tried in all. A program of 700 instructions is tried in a millisecond or two where the passes
  /// are optimised.
  int most_tried = 5000;
  /// So many of the best layouts are refined in each round.
  int beam = 2;
  /// Searches from random layouts after the first, which begins without any.
  int restarts = 2;
  std::uint64_t seed = 1;
};

/// An annotation that a search has found.
struct found_annotation {
  /// The arguments that get it, or the line of a `shard` that leaves all dimensions open:
  /// "parameters.blocks.up.weight", "argument 1", "model.hpp:143". Numbers at the end of a name that differ from layer
  /// to layer are "*".
  std::string where;
  /// "f32[4, 192, 768@model]"
  std::string layout;
};

/// The result of a search.
struct found_annotations {
  std::vector<found_annotation> annotations;
  /// What a run takes with them, and without any.
  predicted_run found;
  predicted_run without;
  /// The memory of `found` is within the limit.
  bool fits = false;
  /// The layouts that were tried.
  int tried = 0;

  /// Writes a table of the annotations, and one of what a run takes with them and without.
  void print(std::ostream& out) const {
    report::table table({{"annotation of"}, {"layout"}});
    for (const found_annotation& one : annotations) table.add({one.where, one.layout});
    if (!annotations.empty()) {
      table.print(out);
      out << '\n';
    }
    report::table runs({{"annotations"}, {"sent"}, {"collectives"}, {"memory"}, {"sending"}, {"computing"}, {"time"}});
    const auto add = [&](const char* name, const predicted_run& run) {
      if (run.is_faulty) return;
      runs.add({name, report::format_bytes(run.bytes), report::format_count(run.collectives),
                report::format_bytes(run.memory), report::format_duration(run.sending_seconds),
                report::format_duration(run.computing_seconds), report::format_duration(run.seconds())});
    };
    add("none", without);
    add("found", found);
    runs.print(out);
  }
};

namespace detail {

/// All layouts of a tensor on a mesh in which every axis splits one dimension or none, axes that split the same
/// dimension in the mesh's order, and each device gets a part.
[[nodiscard]] inline std::vector<sharding> layouts_to_try(const mesh_shape& mesh, const extents& shape) {
  std::vector<sharding> found{sharding::whole(shape.rank)};
  // Each dimension appends one more axis to each layout that was there before it, so that each list is made once.
  for (int d = 0; d < shape.rank; ++d) {
    for (std::size_t n = 0; n < found.size(); ++n) {
      for (int axis = 0; axis < mesh.rank; ++axis) {
        const axis_list before = found[n].dim[d];
        const bool is_in_order = before.empty() || before[before.size() - 1] < axis;
        if (mesh.size[axis] == 1 || has_axis(found[n].tiled(), axis) || !is_in_order) continue;
        sharding next = found[n];
        next.dim[d] = before.with(axis);
        if (shape.size[d] >= mesh.parts(next.dim[d])) found.push_back(next);
      }
    }
  }
  return found;
}

/// Instructions of a traced program that share one annotation, and the layouts that are tried for them. Choice 0 is no
/// annotation.
struct annotated_group {
  std::string name;
  dtype type = dtype::f32;
  extents shape;
  std::vector<int> members;
  std::vector<sharding> layouts;
  std::int64_t bytes = 0;
  /// Completion gives it the layout of another group for the most part, as to an optimizer's moments that of a
  /// parameter: it is tried last.
  bool is_follower = false;
};

/// "layer_*" of "layer_12": the name that leaves of all layers share.
[[nodiscard]] inline std::string without_number(const std::string& name) {
  std::size_t end = name.size();
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') --end;
  return end == name.size() || end == 0 ? name : name.substr(0, end) + "*";
}

/// The groups of a program's arguments and of the lines with open annotations.
class annotation_groups {
 public:
  annotation_groups(const mesh_shape& mesh, graph_view traced) : mesh_(mesh), traced_(traced) {
    for (int id = 0; id < traced.size; ++id) {
      if (structure_of(traced[id]) == structure::argument) arguments_.push_back(id);
    }
  }

  /// The next argument is a tensor, or a tree with these leaves.
  template <class Argument> void add(const Argument& specification) {
    const int number = arguments_seen_++;
    if constexpr (ParameterTree<Argument>) {
      for_each_named_leaf(specification, [&](const auto&, const leaf_path& path) { add_leaf(number, path); });
    } else {
      add_member("argument " + std::to_string(number), true);
    }
  }
  /// Arguments of which all together have less than this part of the bytes are left to completion, unless they are
  /// arguments of their own.
  static constexpr std::int64_t least_part = 1000;

  [[nodiscard]] std::vector<annotated_group> finish() {
    add_open_lines();
    std::int64_t all = 0;
    for (const annotated_group& one : groups_) all += one.bytes;
    std::vector<annotated_group> result;
    for (std::size_t n = 0; n < groups_.size(); ++n) {
      annotated_group& one = groups_[n];
      if (!is_always_tried_[n] && one.bytes < all / least_part) continue;
      one.layouts = layouts_to_try(mesh_, one.shape);
      if (one.layouts.size() > 1) result.push_back(std::move(one));
    }
    return result;
  }

 private:
  void add_leaf(int number, const leaf_path& path) {
    // Members of the tree itself that are trees alike, as an optimizer's moments, have leaves of the same names; the
    // first of these trees has a choice of its own, and all others share one.
    std::vector<std::string> names;
    for (const leaf_path* at = &path; at != nullptr && *at->name != '\0'; at = at->parent)
      names.insert(names.begin(), without_number(at->name));
    std::string rest;
    for (std::size_t n = 1; n < names.size(); ++n) rest += (n > 1 ? "." : "") + names[n];
    std::string first = names.front();
    bool follows = false;
    if (!rest.empty()) {
      std::vector<std::string>& owners = owners_[{number, rest}];
      if (std::find(owners.begin(), owners.end(), first) == owners.end()) owners.push_back(first);
      follows = first != owners.front();
      if (follows) first = owners[1];
    }
    add_member(rest.empty() ? first : first + "." + rest, false, follows);
  }
  void add_member(const std::string& name, bool always, bool follows = false) {
    const int id = arguments_[static_cast<std::size_t>(leaf_++)];
    if (traced_[id].annotation >= 0) return;  // the user has decided
    add_to(name, id, always, follows);
  }
  void add_to(const std::string& name, int id, bool always, bool follows = false) {
    const instruction& i = traced_[id];
    annotated_group* group = nullptr;
    for (annotated_group& one : groups_) {
      if (one.name == name && one.type == i.type && one.shape == i.shape) group = &one;
    }
    if (group == nullptr) {
      group = &groups_.emplace_back();
      is_always_tried_.push_back(always);
      group->name = name;
      group->type = i.type;
      group->shape = i.shape;
      group->is_follower = follows;
    }
    group->members.push_back(id);
    group->bytes += i.shape.elements() * size_of(i.type);
  }
  /// Lines with `shard` of which all dimensions are open: the values for which the user asks. Those that
  /// differentiation made of them are on the same lines.
  void add_open_lines() {
    for (int id = 0; id < traced_.size; ++id) {
      const instruction& i = traced_[id];
      if (requests_of(i) != layout_request::annotation || i.annotation < 0) continue;
      const sharding& placed = traced_.annotations[i.annotation].placement;
      const bool is_open = placed.tiled() == 0 && placed.replicated == 0 && placed.unreduced == 0 &&
                           (placed.open & ~sharding::decided_early) == sharding::all_open(placed.rank).open;
      if (!is_open) continue;
      std::string file = i.where.file;
      file.erase(0, file.find_last_of('/') + 1);
      add_to(file + ":" + std::to_string(i.where.line), id, true);
    }
  }

  mesh_shape mesh_;
  graph_view traced_;
  std::vector<int> arguments_;
  int arguments_seen_ = 0;
  int leaf_ = 0;
  std::vector<annotated_group> groups_;
  std::vector<bool> is_always_tried_;
  std::map<std::pair<int, std::string>, std::vector<std::string>> owners_;
};

/// The search itself: a beam that adds the annotation that helps most, then descents along single groups.
class annotation_search {
 public:
  annotation_search(const mesh_shape& mesh, graph_view traced, std::vector<annotated_group> groups,
                    const annotation_search_settings& settings)
      : mesh_(mesh), traced_(traced), passes_(mesh), groups_(std::move(groups)), settings_(settings) {
    random_ = settings.seed * 0x9e3779b97f4a7c15U + 1;
  }

  [[nodiscard]] found_annotations run() {
    const choices none(groups_.size(), 0);
    found_annotations result;
    result.without = price(none);
    choices best = pruned(descend(widened(none)));
    for (int n = 0; n < settings_.restarts && has_budget(); ++n) {
      const choices other = pruned(descend(random_choices()));
      if (is_worth_it(other, best)) best = other;
    }
    result.found = price(best);
    result.fits = !result.found.is_faulty && result.found.memory <= settings_.memory;
    result.tried = tried_;
    for (std::size_t n = 0; n < groups_.size(); ++n) {
      if (best[n] == 0) continue;
      const annotated_group& group = groups_[n];
      result.annotations.push_back(
          {group.name, to_string(mesh_, axis_parts::whole(mesh_), group.type, group.shape, layout_of(n, best[n]))});
    }
    return result;
  }

 private:
  /// For each group 0, or one more than the number of its layout.
  using choices = std::vector<int>;
  /// Programs are compared by these, in this order: bytes of memory beyond the limit, time, bytes sent, memory, and the
  /// number of annotations.
  using rank = std::tuple<double, double, std::int64_t, std::int64_t, int>;

  /// The part of its time that a program must save to be worth another annotation.
  static constexpr double least_gain = 0.001;

  [[nodiscard]] const sharding& layout_of(std::size_t group, int choice) const {
    return groups_[group].layouts[static_cast<std::size_t>(choice) - 1];
  }
  [[nodiscard]] bool has_budget() const { return tried_ < settings_.most_tried; }

  [[nodiscard]] graph annotated(const choices& chosen) const {
    graph result = copy_of(traced_);
    for (std::size_t n = 0; n < groups_.size(); ++n) {
      if (chosen[n] == 0) continue;
      for (const int id : groups_[n].members) {
        result.code[id].annotation = result.annotations.push_back({groups_[n].shape, layout_of(n, chosen[n])});
      }
    }
    return result;
  }
  [[nodiscard]] const predicted_run& price(const choices& chosen) {
    const auto known = known_.find(chosen);
    if (known != known_.end()) return known->second;
    ++tried_;
    return known_.emplace(chosen, passes_.predict(annotated(chosen), settings_.machine)).first->second;
  }
  [[nodiscard]] rank rank_of(const choices& chosen) {
    const predicted_run& run = price(chosen);
    const auto annotated = static_cast<int>(std::count_if(chosen.begin(), chosen.end(), [](int c) { return c != 0; }));
    if (run.is_faulty) {
      constexpr double infinity = std::numeric_limits<double>::infinity();
      return {infinity, infinity, 0, 0, annotated};
    }
    const double beyond =
        run.memory <= settings_.memory ? 0 : static_cast<double>(run.memory) - static_cast<double>(settings_.memory);
    // In whole picoseconds: compilers round a sum of times differently, and would then choose differently.
    return {beyond, std::round(run.seconds() * 1e12), run.bytes, run.memory, annotated};
  }
  [[nodiscard]] bool is_better(const choices& one, const choices& other) { return rank_of(one) < rank_of(other); }

  /// Adds one annotation after the other to the best few programs, as long as one of the last two helped.
  [[nodiscard]] choices widened(const choices& from) {
    std::vector<choices> front{from};
    choices best = from;
    for (int idle = 0; idle < 2 && has_budget();) {
      std::vector<std::pair<rank, choices>> next;
      for (const choices& one : front) {
        for (std::size_t group = 0; group < groups_.size(); ++group) {
          if (one[group] != 0 || groups_[group].is_follower) continue;
          choices with = one;
          for (std::size_t n = 0; n < groups_[group].layouts.size() && has_budget(); ++n) {
            with[group] = static_cast<int>(n) + 1;
            next.emplace_back(rank_of(with), with);
          }
        }
      }
      std::sort(next.begin(), next.end());
      front.clear();
      // Programs that take the same are the same program for the most part, and one of them is enough.
      const rank* last = nullptr;
      for (const auto& [ranked, one] : next) {
        if (static_cast<int>(front.size()) == settings_.beam) break;
        if (last != nullptr && *last == ranked) continue;
        last = &ranked;
        front.push_back(one);
      }
      if (front.empty()) break;
      const bool helps = is_better(front.front(), best);
      idle = helps ? 0 : idle + 1;
      if (helps) best = front.front();
    }
    return best;
  }
  /// Changes one group after the other to what is best for it, until nothing changes.
  [[nodiscard]] choices descend(choices at) {
    for (bool changed = true; changed && has_budget();) {
      changed = false;
      for (const std::size_t group : shuffled()) {
        choices best = at;
        for (int n = 0; n <= static_cast<int>(groups_[group].layouts.size()) && has_budget(); ++n) {
          choices with = at;
          with[group] = n;
          if (is_better(with, best)) best = with;
        }
        changed = changed || best != at;
        at = best;
      }
    }
    return at;
  }
  /// Whether a program takes plainly less than another one: each annotation is a line that someone reads.
  [[nodiscard]] bool is_worth_it(const choices& one, const choices& instead_of) {
    const rank better = rank_of(one);
    const rank worse = rank_of(instead_of);
    if (std::get<0>(better) != std::get<0>(worse)) return better < worse;
    return std::get<1>(better) < (1 - least_gain) * std::get<1>(worse);
  }
  /// Without the annotations that gain next to nothing.
  [[nodiscard]] choices pruned(choices at) {
    for (std::size_t n = at.size(); n-- > 0;) {
      choices without = at;
      without[n] = 0;
      if (at[n] != 0 && !is_worth_it(at, without)) at = without;
    }
    return at;
  }

  /// Splitmix64 (Steele et al. 2014).
  [[nodiscard]] std::size_t draw(std::size_t count) {
    std::uint64_t z = random_ += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27U) * 0x94d049bb133111ebU;
    return static_cast<std::size_t>((z ^ z >> 31U) % count);
  }
  [[nodiscard]] std::vector<std::size_t> shuffled() {
    std::vector<std::size_t> order(groups_.size());
    for (std::size_t n = 0; n < order.size(); ++n) order[n] = n;
    for (std::size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[draw(n)]);
    return order;
  }
  /// Every third group has an annotation, on average.
  [[nodiscard]] choices random_choices() {
    choices result(groups_.size(), 0);
    for (std::size_t n = 0; n < groups_.size(); ++n) {
      if (draw(3) == 0) result[n] = static_cast<int>(draw(groups_[n].layouts.size())) + 1;
    }
    return result;
  }

  mesh_shape mesh_;
  graph_view traced_;
  passes_at_run_time passes_;
  std::vector<annotated_group> groups_;
  annotation_search_settings settings_;
  std::map<choices, predicted_run> known_;
  int tried_ = 0;
  std::uint64_t random_ = 0;
};

}  // namespace detail

/// Looks for the annotations with which a program takes the least time on its mesh, within the memory that a device
/// has:
///
///     using step = ep::program<mesh, train_step, ep::donated<state<ep::spec>>, tokens, tokens>;
///     const ep::found_annotations found = ep::search_annotations<step>({.memory = 16_GiB});
///     found.print(std::cout);
///
/// It tries layouts of arguments that have none (`sharded<...>`); the leaves of trees by their names, where names of
/// layers that differ in a number share a choice, and so do an optimizer's moments of a parameter. It also tries
/// layouts of the values that the function marks by an annotation that leaves all dimensions open: `shard<open,
/// open>(h)`. Annotations that say more stay as they are. Every layout is tried by the passes themselves, so that
/// bytes, collectives and memory of the result are those of the program that is annotated so; the times are those of
/// `plan_text`. The search is a heuristic, and the same whenever it runs with the same settings.
template <class Program>
[[nodiscard]] found_annotations search_annotations(const annotation_search_settings& settings = {}) {
  using parts = detail::parts_of_program<Program>;
  const traced made = parts::trace_now();
  detail::annotation_groups groups(parts::mesh::value, made.program);
  parts::for_each_argument([&](const auto& specification) { groups.add(specification); });
  return detail::annotation_search(parts::mesh::value, made.program, groups.finish(), settings).run();
}

}  // namespace espalier
