// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/testing/random/dice.hpp>
#include <espalier/testing/regret/layouts.hpp>
#include <espalier/testing/regret/price.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// The best layouts of a program, found without completion and without the passes' choices among layouts.
///
/// Every value of the program, and a copy of every argument, is given a layout of its own by a `shard`, which the user
/// fixes; sums may also stay partial (`unreduced`). An operator between fixed layouts costs the same whatever the
/// layouts elsewhere are, so the price of the program is a sum of prices of single operators, and the least sum over
/// all layouts is found by dynamic programming over the graph (variable elimination: Bertele and Brioschi, 1972).
/// Prices of whole programs are lower where collectives share messages or readers share a change of layout; a descent
/// on these prices therefore follows. `exhaustive_search` tries every combination, `descent` starts anywhere.
namespace espalier::test {

/// The layouts among which a value's is chosen.
[[nodiscard]] inline std::vector<sharding> layouts_of(const mesh_shape& mesh, int rank, bool may_be_partial) {
  return may_be_partial ? all_layouts_and_partials(mesh, rank) : all_layouts(mesh, rank);
}

/// The price of one operator between given layouts, for all layouts of its operands and its result.
class operator_prices {
 public:
  /// @param id an operator of the graph; its operands become arguments
  /// @param may_be_partial whether each value of the graph may be a partial
  operator_prices(const mesh_shape& mesh, graph_view g, int id, const std::vector<bool>& may_be_partial) : mesh_(mesh) {
    detail::copy_tables(code_, g);
    instruction step = g[id];
    step.annotation = -1;
    step.region = -1;
    // `match` asks for the layout of its second operand, which is given here.
    if (requests_of(step) == layout_request::as_operand) step = builder::make(ops::shard, step.type, step.shape, 0);
    std::vector<int> operands;
    std::vector<int> values;
    const auto append = [&](const instruction& i, std::size_t column) {
      columns_.push_back(column);
      return code_.code.push_back(i);
    };
    const auto add_column = [&](int value) {
      layouts_.push_back(layouts_of(mesh, g[value].shape.rank, may_be_partial[static_cast<std::size_t>(value)]));
      return layouts_.size() - 1;
    };
    for (int k = 0; k < step.operand_count; ++k) {
      const int operand = g.operand_at(g[id], k);
      const auto at = static_cast<std::size_t>(std::find(operands.begin(), operands.end(), operand) - operands.begin());
      if (at == operands.size()) {
        operands.push_back(operand);
        const instruction& from = g[operand];
        const std::size_t column = add_column(operand);
        values.push_back(append(with_attributes(builder::make(ops::argument, from.type, from.shape),
                                                border_attributes{static_cast<int>(at)}),
                                column));
        // A partial that the operator cannot keep is a mistake where an annotation asks for it.
        if (may_be_partial[static_cast<std::size_t>(operand)])
          values.back() = append(builder::make(ops::shard, from.type, from.shape, values.back()), column);
      }
      step.operand_at(k, code_.further.data()) = values[at];
    }
    const std::size_t column = add_column(id);
    int value = operator_at_ = append(step, column);
    value = append(builder::make(ops::shard, step.type, step.shape, value), column);
    append(with_attributes(builder::make(ops::result, step.type, step.shape, value), border_attributes{0}), column);
    rules_ = rules_of_graph(code_);
    of_.resize(rules_.size());
    std::size_t count = 1;
    for (const auto& of_one : layouts_) count *= of_one.size();
    prices_.resize(count);
  }

  /// @param layouts the number of the layout of each different operand, and of the result
  [[nodiscard]] const run_price& of(const std::vector<int>& layouts) {
    const std::size_t at = position(layouts);
    if (prices_[at].starts >= 0) return prices_[at];
    for (std::size_t n = 0; n < of_.size(); ++n)
      of_[n] = layouts_[columns_[n]][static_cast<std::size_t>(layouts[columns_[n]])];
    // The annotation after it asks for the terms.
    if (requests_of(code_.code[operator_at_]) == layout_request::none)
      of_[static_cast<std::size_t>(operator_at_)].unreduced = 0;
    prices_[at] = price_of_layouts(mesh_, code_, rules_.data(), of_.data());
    return prices_[at];
  }

  /// Prices as numbers, less that of nothing. Only layouts of operands that fit together are priced; with all others
  /// operands change to such layouts first.
  /// @param changes for each different operand, the price of each change of layout, by the layout before and after
  [[nodiscard]] const std::vector<double>& estimates(price_measure by,
                                                     const std::vector<std::vector<double>>& changes) {
    if (!estimates_.empty()) return estimates_;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    estimates_.assign(prices_.size(), infinity);
    std::vector<int> at(layouts_.size(), 0);
    for (std::size_t entry = 0; entry < prices_.size(); ++entry) {
      if (fits(at)) estimates_[entry] = weighed(of(at), by) - weighed({}, by);
      for (std::size_t k = at.size(); k-- > 0;) {
        if (++at[k] < static_cast<int>(layouts_[k].size())) break;
        at[k] = 0;
      }
    }
    std::size_t inner = layouts_.back().size();
    for (std::size_t k = layouts_.size() - 1; k-- > 0;) {
      const std::size_t size = layouts_[k].size();
      std::vector<double> changed(estimates_.size(), infinity);
      for (std::size_t outer = 0; outer < estimates_.size(); outer += size * inner) {
        for (std::size_t before = 0; before < size; ++before) {
          for (std::size_t after = 0; after < size; ++after) {
            const double change = changes[k][before * size + after];
            if (change == infinity) continue;
            double* const to = &changed[outer + before * inner];
            const double* const from = &estimates_[outer + after * inner];
            for (std::size_t n = 0; n < inner; ++n) to[n] = std::min(to[n], change + from[n]);
          }
        }
      }
      estimates_ = std::move(changed);
      inner *= size;
    }
    return estimates_;
  }
  [[nodiscard]] std::size_t position(const std::vector<int>& layouts) const {
    std::size_t at = 0;
    for (std::size_t k = 0; k < layouts_.size(); ++k)
      at = at * layouts_[k].size() + static_cast<std::size_t>(layouts[k]);
    return at;
  }

 private:
  struct unknown_price : run_price {
    unknown_price() { starts = -1; }
    unknown_price& operator=(const run_price& price) {
      run_price::operator=(price);
      return *this;
    }
  };

  /// Whether the operator can work on its operands as they are: dimensions that are one factor are split alike.
  [[nodiscard]] bool fits(const std::vector<int>& layouts) const {
    const instruction& i = code_.code[operator_at_];
    const factor_rule& rule = rules_[static_cast<std::size_t>(operator_at_)];
    for (int f = 0; f < rule.count; ++f) {
      bool is_first = true;
      axis_list axes;
      for (int k = 0; k < i.operand_count; ++k) {
        const int operand = i.operand_at(k, code_.further.data());
        const std::size_t column = columns_[static_cast<std::size_t>(operand)];
        const sharding& layout = layouts_[column][static_cast<std::size_t>(layouts[column])];
        for (int d = 0; d < layout.rank; ++d) {
          const factor_list factors = rule.dims_of(k)[d];
          if (factors.size() != 1 || factors[0] != f) continue;
          if (!is_first && !(layout.dim[d] == axes)) return false;
          axes = layout.dim[d];
          is_first = false;
        }
      }
    }
    return true;
  }

  mesh_shape mesh_;
  graph code_;
  std::vector<factor_rule> rules_;
  /// The layouts of each different operand and of the result, and which of these each instruction has.
  std::vector<std::vector<sharding>> layouts_;
  std::vector<std::size_t> columns_;
  int operator_at_ = 0;
  std::vector<sharding> of_;
  std::vector<unknown_price> prices_;
  std::vector<double> estimates_;
};

/// Prices of operators that are alike, kept from one program to the next.
class price_memory {
 public:
  explicit price_memory(const mesh_shape& mesh) : mesh_(mesh) {}

  [[nodiscard]] const mesh_shape& mesh() const { return mesh_; }
  [[nodiscard]] operator_prices& of(graph_view g, int id, const std::vector<bool>& may_be_partial) {
    auto& kept = known_[key_of(g, id, may_be_partial)];
    if (kept == nullptr) kept = std::make_unique<operator_prices>(mesh_, g, id, may_be_partial);
    return *kept;
  }

 private:
  [[nodiscard]] static std::string key_of(graph_view g, int id, const std::vector<bool>& may_be_partial) {
    const instruction& i = g[id];
    std::string key;
    const auto put = [&key](const auto& value) {
      char bytes[sizeof value];
      std::memcpy(&bytes[0], &value, sizeof value);
      key.append(&bytes[0], sizeof value);
    };
    const auto put_tensor = [&](int value) {
      const instruction& one = g[value];
      put(may_be_partial[static_cast<std::size_t>(value)]);
      put(one.type);
      put(one.shape.rank);
      for (int d = 0; d < one.shape.rank; ++d) put(one.shape[d]);
    };
    put(i.op);
    for (const std::int64_t attribute : i.attribute) put(attribute);
    put(i.scalar);
    put_tensor(id);
    for (int k = 0; k < i.operand_count; ++k) {
      int first = k;
      for (int other = k; other-- > 0;) {
        if (g.operand_at(i, other) == g.operand_at(i, k)) first = other;
      }
      put(first);
      put_tensor(g.operand_at(i, k));
    }
    if (i.op->windows != nullptr) {
      for (int n = 0; n < g.window_count; ++n) {
        const placed_window& w = g.windows[n];
        for (const std::int64_t number : {std::int64_t{w.dim}, std::int64_t{w.size}, std::int64_t{w.stride},
                                          std::int64_t{w.low}, std::int64_t{w.dilation}, std::int64_t{w.base_dilation},
                                          std::int64_t{w.extent}, std::int64_t{w.wraps ? 1 : 0}})
          put(number);
      }
    }
    return key;
  }

  mesh_shape mesh_;
  std::map<std::string, std::unique_ptr<operator_prices>> known_;
};

/// Layouts of all values of a program.
struct layout_choice {
  /// For each instruction, the layout of its value; for an argument, that of the copy that operators read.
  std::vector<sharding> of;
  run_price price;
  /// The least over all layouts; otherwise no more than the least that was found.
  bool is_exact = false;
};

/// The choice among all layouts of a program.
class layout_oracle {
 public:
  /// @param g a program after `passes_on_tensors`
  layout_oracle(price_memory& memory, graph_view g, price_measure by)
      : memory_(memory), mesh_(memory.mesh()), g_(g), by_(by) {
    for (int id = 0; id < g.size; ++id) {
      may_be_partial_.push_back(may_be_partial(id));
      add_variable(id);
    }
    make_forced();
  }

  /// Returns the number of combinations of layouts.
  [[nodiscard]] double combinations() const {
    double count = 1;
    for (const int n : free_) count *= static_cast<double>(size_of_variable(n));
    return count;
  }

  /// The best layouts: the least sum of operators' prices and a descent from there or, where a table of that search
  /// would have more than `most_entries`, the best of descents from `starts` random layouts. It is exact if each
  /// operator has at most `most_priced` prices; of operators with more, those whose operands do not fit together are
  /// estimated.
  [[nodiscard]] layout_choice best(std::size_t most_entries, int starts, dice& random) {
    std::vector<int> choice = fixed_choice();
    if (!eliminate(most_entries, choice)) return descent(starts, random);
    descend(choice);
    layout_choice made = chosen(choice);
    made.is_exact = !estimates_;
    return made;
  }

  /// The best layouts of all, each combination priced as a whole program.
  [[nodiscard]] layout_choice exhaustive_search() {
    std::vector<int> choice = fixed_choice();
    std::vector<int> least = choice;
    double least_price = std::numeric_limits<double>::infinity();
    while (true) {
      const double price = weighed(price_of(choice), by_);
      if (price < least_price) {
        least_price = price;
        least = choice;
      }
      std::size_t n = 0;
      for (; n < free_.size(); ++n) {
        int& at = choice[index(free_[n])];
        if (++at < static_cast<int>(size_of_variable(free_[n]))) break;
        at = 0;
      }
      if (n == free_.size()) break;
    }
    layout_choice made = chosen(least);
    made.is_exact = true;
    return made;
  }

  /// The best of coordinate descents from random layouts: a value's layout changes at a time, as long as that makes
  /// the program cheaper.
  [[nodiscard]] layout_choice descent(int starts, dice& random) {
    std::vector<int> least;
    double least_price = std::numeric_limits<double>::infinity();
    for (int start = 0; start < starts; ++start) {
      std::vector<int> choice = fixed_choice();
      for (const int n : free_) choice[index(n)] = random.integer(0, whole_layouts(n) - 1);
      const double price = descend(choice);
      if (price >= least_price) continue;
      least_price = price;
      least = choice;
    }
    return chosen(least);
  }

  /// The program with the layouts of a choice as annotations, as a user would write it: `shard` after each operator,
  /// `reshard` where that changes the layout of a value that has one.
  [[nodiscard]] graph annotated(const layout_choice& choice) const {
    graph program = forced_.code;
    for (int at = 0; at < program.code.size(); ++at) {
      instruction& i = program.code[at];
      if (requests_of(i) != layout_request::annotation) continue;
      const instruction& operand = program.code[i.operand[0]];
      const sharding& layout = choice.of[index(forced_.from[index(at)].variable)];
      program.annotations.push_back({i.shape, layout});
      i.annotation = program.annotations.size() - 1;
      if (operand.annotation >= 0) i.op = &ops::reshard;
    }
    return program;
  }

  /// Prices of an operator up to which all are computed.
  static constexpr double most_priced = 20'000;

 private:
  struct variable {
    std::vector<sharding> layouts;
    /// Where its number in a choice is: values of a loop that are one buffer have one layout.
    int stands_for = 0;
    bool is_free = true;
    int fixed = 0;
  };
  /// Prices for all layouts of some variables, the last of which changes fastest.
  struct factor {
    std::vector<int> variables;
    std::vector<double> price;
  };
  /// Where the layout of an instruction of a forced program comes from: a variable, or the argument as it is given.
  struct origin {
    int variable = -1;
    int given = -1;
    /// An operator, whose terms the annotation after it asks for.
    bool computes = false;
  };
  /// The program with annotations that force its layouts.
  struct forced_program {
    graph code;
    std::vector<factor_rule> rules;
    std::vector<origin> from;
    std::vector<sharding> of;
  };

  [[nodiscard]] static std::size_t index(int n) { return static_cast<std::size_t>(n); }
  [[nodiscard]] const variable& variable_of(int id) const {
    return variables_[index(variables_[index(id)].stands_for)];
  }
  [[nodiscard]] std::size_t size_of_variable(int n) const { return variables_[index(n)].layouts.size(); }

  /// Whether a value is a sum over something that may be split, or a linear function of such a sum.
  [[nodiscard]] bool may_be_partial(int id) const {
    const instruction& i = g_[id];
    const bool is_fixed =
        requests_of(i) == layout_request::as_operand ||
        (requests_of(i) != layout_request::none && !attributes_of<annotation_attributes>(i).of_gradient);
    if (structure_of(i) != structure::none || is_fixed) return false;
    // A result is whole: so is the value that it is made of.
    for (int reader = id + 1; reader < g_.size; ++reader) {
      if (structure_of(g_[reader]) == structure::result && g_[reader].operand[0] == id) return false;
    }
    if (i.op->linear != linearity::none) {
      for (int k = 0; k < i.operand_count; ++k) {
        if (may_be_partial_[index(g_.operand_at(i, k))]) return true;
      }
    }
    const factor_rule rule = i.op->factors(g_.view(id));
    if (!i.op->facts.adds_up || rule.combine != reduction::sum) return false;
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) return true;
    }
    return false;
  }

  /// Returns the number of a variable's layouts that are no partials; they come first, and any of them fit together.
  [[nodiscard]] int whole_layouts(int n) const {
    const std::vector<sharding>& all = variables_[index(n)].layouts;
    const auto is_whole = [](const sharding& one) { return one.unreduced == 0; };
    return static_cast<int>(std::count_if(all.begin(), all.end(), is_whole));
  }

  void add_variable(int id) {
    const instruction& i = g_[id];
    variable one;
    one.layouts = layouts_of(mesh_, i.shape.rank, may_be_partial_.back());
    one.stands_for = id;
    const auto fix = [&](const sharding& layout) {
      one.is_free = false;
      one.fixed = index_of(one.layouts, layout);
    };
    const structure part = structure_of(i);
    if (part == structure::result || part == structure::region_yield || part == structure::region_result) {
      one.stands_for = variables_[index(i.operand[0])].stands_for;
      one.is_free = false;
    } else if (requests_of(i) == layout_request::as_operand) {
      fix(given_layout(i.operand[1]));
    } else if (requests_of(i) != layout_request::none && !attributes_of<annotation_attributes>(i).of_gradient) {
      fix(given_layout(id));
    } else if (one.layouts.size() == 1) {
      one.is_free = false;
    }
    if (one.is_free) free_.push_back(id);
    variables_.push_back(std::move(one));
  }
  [[nodiscard]] sharding given_layout(int id) const {
    const instruction& i = g_[id];
    return i.annotation >= 0 ? g_.annotations[i.annotation].placement : sharding::whole(i.shape.rank);
  }
  [[nodiscard]] std::vector<int> fixed_choice() const {
    std::vector<int> choice;
    for (const variable& one : variables_) choice.push_back(one.fixed);
    return choice;
  }

  /// Makes the program with an annotation after each argument and each value.
  void make_forced() {
    forced_program& made = forced_;
    detail::copy_tables(made.code, g_);
    // The instruction itself, and what its readers read.
    std::vector<int> raw;
    std::vector<int> value;
    const auto append = [&](const instruction& i, origin from) {
      made.from.push_back(from);
      return made.code.code.push_back(i);
    };
    for (int id = 0; id < g_.size; ++id) {
      instruction i = g_[id];
      const structure part = structure_of(i);
      for (int k = 0; k < i.operand_count; ++k) {
        int& operand = i.operand_at(k, made.code.further.data());
        operand = (structure_of(g_[operand]) == structure::none && part != structure::region_result) ||
                          structure_of(g_[operand]) == structure::argument
                      ? value[index(operand)]
                      : raw[index(operand)];
      }
      if (part == structure::region_begin) {
        // It is its own loop's name only for others.
        i.region = i.region < 0 ? -1 : raw[index(i.region)];
      } else if (i.region >= 0) {
        i.region = raw[index(i.region)];
      }
      const bool is_argument = part == structure::argument;
      const bool is_annotated = requests_of(i) != layout_request::none;
      const bool computes = part == structure::none && !is_annotated;
      const int at =
          append(i, is_argument ? origin{-1, id, false} : origin{variables_[index(id)].stands_for, -1, computes});
      raw.push_back(at);
      value.push_back(at);
      if (!is_argument && !computes) continue;
      instruction annotation = builder::make(ops::shard, i.type, i.shape, at);
      annotation.region = i.region;
      value.back() = append(annotation, {id, -1, false});
    }
    made.rules = rules_of_graph(made.code);
    made.of.resize(made.rules.size());
  }
  [[nodiscard]] sharding layout_at(origin from, const std::vector<int>& choice) const {
    if (from.given >= 0) return given_layout(from.given);
    return variables_[index(from.variable)].layouts[index(choice[index(from.variable)])];
  }
  /// The price of the program with these layouts, each forced by an annotation.
  [[nodiscard]] run_price price_of(const std::vector<int>& choice) {
    for (std::size_t at = 0; at < forced_.from.size(); ++at) {
      forced_.of[at] = layout_at(forced_.from[at], choice);
      if (forced_.from[at].computes) forced_.of[at].unreduced = 0;
    }
    return price_of_layouts(mesh_, forced_.code, forced_.rules.data(), forced_.of.data());
  }

  [[nodiscard]] layout_choice chosen(const std::vector<int>& choice) {
    layout_choice made;
    for (const variable& one : variables_)
      made.of.push_back(variables_[index(one.stands_for)].layouts[index(choice[index(one.stands_for)])]);
    made.price = price_of(choice);
    return made;
  }

  /// Changes one layout at a time while that makes the program cheaper; returns its price.
  double descend(std::vector<int>& choice) {
    double price = weighed(price_of(choice), by_);
    std::size_t unchanged = 0;
    for (std::size_t n = 0; unchanged < free_.size(); n = (n + 1) % free_.size()) {
      int& at = choice[index(free_[n])];
      const int before = at;
      int least = before;
      for (int other = 0; other < static_cast<int>(size_of_variable(free_[n])); ++other) {
        if (other == before) continue;
        at = other;
        const double changed = weighed(price_of(choice), by_);
        if (changed >= price) continue;
        price = changed;
        least = other;
      }
      at = least;
      unchanged = least == before ? unchanged + 1 : 1;
    }
    return price;
  }

  /// The prices of instruction `id` for all layouts of the free variables that it has.
  /// @pre its table is not larger than is wanted
  [[nodiscard]] factor factor_of(int id) {
    const instruction& i = g_[id];
    const structure part = structure_of(i);
    const bool is_argument = part == structure::argument;
    // Variables in the order of the operator's table; -1 is the argument as it is given.
    std::vector<int> columns;
    for (const int operand : operands_of(id))
      columns.push_back(operand < 0 ? -1 : variables_[index(operand)].stands_for);
    columns.push_back(variables_[index(id)].stands_for);
    const int operand = columns.size() == 2 ? operands_of(id)[0] : -1;
    const bool copies = is_argument || part == structure::region_parameter || part == structure::region_yield;
    operator_prices& prices =
        copies ? copies_of(i, operand >= 0 && may_be_partial_[index(operand)]) : memory_.of(g_, id, may_be_partial_);
    const auto is_free = [&](int n) { return n >= 0 && variables_[index(n)].is_free; };
    factor made;
    std::size_t count = 1;
    std::vector<int> at;
    for (const int n : columns) {
      at.push_back(n < 0 ? index_of(all_layouts(mesh_, i.shape.rank), given_layout(id)) : variables_[index(n)].fixed);
      // A value may be carried and passed on in one layout: then it is one column of the factor.
      if (!is_free(n) || std::find(made.variables.begin(), made.variables.end(), n) != made.variables.end()) continue;
      made.variables.push_back(n);
      count *= size_of_variable(n);
    }
    const std::int64_t times = part == structure::region_parameter ? 1 : detail::repetitions(g_, id);
    const bool estimates = !copies && entries_of(id) > most_priced;
    estimates_ = estimates_ || estimates;
    const std::vector<double>* const table = estimates ? &prices.estimates(by_, changes_of(id)) : nullptr;
    made.price.reserve(count);
    std::vector<int> layout(made.variables.size(), 0);
    for (std::size_t entry = 0; entry < count; ++entry) {
      for (std::size_t k = 0; k < columns.size(); ++k) {
        if (!is_free(columns[k])) continue;
        const auto n = std::find(made.variables.begin(), made.variables.end(), columns[k]) - made.variables.begin();
        at[k] = layout[static_cast<std::size_t>(n)];
      }
      const double price = estimates ? (*table)[prices.position(at)] : weighed(prices.of(at), by_) - weighed({}, by_);
      made.price.push_back(price * static_cast<double>(times));
      for (std::size_t k = layout.size(); k-- > 0;) {
        if (++layout[k] < static_cast<int>(size_of_variable(made.variables[k]))) break;
        layout[k] = 0;
      }
    }
    return made;
  }
  /// The prices of all changes of layout of each different operand, to layouts that are no partials.
  [[nodiscard]] std::vector<std::vector<double>> changes_of(int id) {
    std::vector<std::vector<double>> changes;
    for (const int operand : operands_of(id)) {
      const bool may_be_partial = may_be_partial_[index(operand)];
      operator_prices& copies = copies_of(g_[operand], may_be_partial);
      const auto size = static_cast<int>(layouts_of(mesh_, g_[operand].shape.rank, may_be_partial).size());
      const auto whole = static_cast<int>(all_layouts(mesh_, g_[operand].shape.rank).size());
      changes.emplace_back();
      for (int before = 0; before < size; ++before) {
        for (int after = 0; after < size; ++after) {
          const double price = before == after  ? 0
                               : after >= whole ? std::numeric_limits<double>::infinity()
                                                : weighed(copies.of({before, after}), by_) - weighed({}, by_);
          changes.back().push_back(price);
        }
      }
    }
    return changes;
  }
  /// The different values that an instruction reads; -1 is an argument as it is given.
  [[nodiscard]] std::vector<int> operands_of(int id) const {
    const instruction& i = g_[id];
    const structure part = structure_of(i);
    if (part == structure::argument) return {-1};
    if (part == structure::region_yield) return {i.operand[1]};
    std::vector<int> operands;
    const int count = requests_of(i) == layout_request::as_operand ? 1 : i.operand_count;
    for (int k = 0; k < count; ++k) {
      const int operand = g_.operand_at(i, k);
      if (std::find(operands.begin(), operands.end(), operand) == operands.end()) operands.push_back(operand);
    }
    return operands;
  }
  [[nodiscard]] bool has_factor(int id) const {
    const structure part = structure_of(g_[id]);
    return part == structure::none || part == structure::argument || part == structure::region_parameter ||
           part == structure::region_yield;
  }
  /// Returns the number of prices of instruction `id`.
  [[nodiscard]] double entries_of(int id) const {
    double count = static_cast<double>(variable_of(id).is_free ? variable_of(id).layouts.size() : 1);
    for (const int operand : operands_of(id)) {
      if (operand >= 0 && variable_of(operand).is_free)
        count *= static_cast<double>(variable_of(operand).layouts.size());
    }
    return count;
  }
  /// The prices of a change of layout.
  [[nodiscard]] operator_prices& copies_of(const instruction& value, bool may_be_partial) {
    graph copy;
    copy.code.push_back(builder::make(ops::argument, value.type, value.shape));
    copy.code.push_back(builder::make(ops::shard, value.type, value.shape, 0));
    return memory_.of(copy, 1, {may_be_partial, false});
  }

  /// The sum of factors over all their variables but `last`, which comes last.
  [[nodiscard]] factor joined_factors(const std::vector<factor>& factors, int last) const {
    factor made;
    for (const factor& one : factors) {
      for (const int n : one.variables) {
        if (n != last && std::find(made.variables.begin(), made.variables.end(), n) == made.variables.end())
          made.variables.push_back(n);
      }
    }
    made.variables.push_back(last);
    std::size_t count = 1;
    for (const int n : made.variables) count *= size_of_variable(n);
    made.price.assign(count, 0);
    for (const factor& one : factors) {
      // The step in this factor's table for a step of each joined variable.
      std::vector<std::size_t> stride(made.variables.size(), 0);
      std::size_t step = 1;
      for (std::size_t k = one.variables.size(); k-- > 0;) {
        const auto at = std::find(made.variables.begin(), made.variables.end(), one.variables[k]);
        stride[static_cast<std::size_t>(at - made.variables.begin())] = step;
        step *= size_of_variable(one.variables[k]);
      }
      std::vector<std::size_t> at(made.variables.size(), 0);
      std::size_t from = 0;
      for (std::size_t entry = 0; entry < count; ++entry) {
        made.price[entry] += one.price[from];
        for (std::size_t k = at.size(); k-- > 0;) {
          from += stride[k];
          if (++at[k] < size_of_variable(made.variables[k])) break;
          from -= stride[k] * at[k];
          at[k] = 0;
        }
      }
    }
    return made;
  }

  /// Removes one variable after another, each with the least table, and then chooses them in the opposite order.
  bool eliminate(std::size_t most_entries, std::vector<int>& choice) {
    for (int id = 0; id < g_.size; ++id) {
      if (has_factor(id) && entries_of(id) > static_cast<double>(most_entries)) return false;
    }
    std::vector<factor> factors;
    for (int id = 0; id < g_.size; ++id) {
      if (has_factor(id)) factors.push_back(factor_of(id));
    }
    std::vector<int> left = free_;
    std::vector<factor> removed;
    while (!left.empty()) {
      std::size_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t k = 0; k < left.size(); ++k) {
        std::vector<int> around;
        double entries = 1;
        for (const factor& one : factors) {
          if (std::find(one.variables.begin(), one.variables.end(), left[k]) == one.variables.end()) continue;
          for (const int n : one.variables) {
            if (std::find(around.begin(), around.end(), n) != around.end()) continue;
            around.push_back(n);
            entries *= static_cast<double>(size_of_variable(n));
          }
        }
        if (entries < least) {
          least = entries;
          best = k;
        }
      }
      // Sums are cheaper than prices.
      if (least > 8 * static_cast<double>(most_entries)) return false;
      const int last = left[best];
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
      std::vector<factor> with;
      std::vector<factor> without;
      for (factor& one : factors) {
        const bool has = std::find(one.variables.begin(), one.variables.end(), last) != one.variables.end();
        (has ? with : without).push_back(std::move(one));
      }
      factor all = joined_factors(with, last);
      factor rest;
      rest.variables.assign(all.variables.begin(), all.variables.end() - 1);
      const std::size_t size = size_of_variable(last);
      for (std::size_t at = 0; at < all.price.size(); at += size) {
        rest.price.push_back(*std::min_element(all.price.begin() + static_cast<std::ptrdiff_t>(at),
                                               all.price.begin() + static_cast<std::ptrdiff_t>(at + size)));
      }
      without.push_back(std::move(rest));
      factors = std::move(without);
      removed.push_back(std::move(all));
    }
    for (std::size_t n = removed.size(); n-- > 0;) {
      const factor& one = removed[n];
      std::size_t at = 0;
      for (std::size_t k = 0; k + 1 < one.variables.size(); ++k) {
        at = at * size_of_variable(one.variables[k]) +
             static_cast<std::size_t>(choice[static_cast<std::size_t>(one.variables[k])]);
      }
      const int last = one.variables.back();
      at *= size_of_variable(last);
      const auto from = one.price.begin() + static_cast<std::ptrdiff_t>(at);
      choice[static_cast<std::size_t>(last)] =
          static_cast<int>(std::min_element(from, from + static_cast<std::ptrdiff_t>(size_of_variable(last))) - from);
    }
    return true;
  }

  price_memory& memory_;
  mesh_shape mesh_;
  graph_view g_;
  price_measure by_;
  /// A variable for each instruction, and the numbers of those that are to be chosen.
  std::vector<variable> variables_;
  std::vector<int> free_;
  /// Whether each value may be a partial.
  std::vector<bool> may_be_partial_;
  /// Some prices were estimated.
  bool estimates_ = false;
  forced_program forced_;
};

}  // namespace espalier::test
