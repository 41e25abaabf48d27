// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/ops.hpp>
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
/// fixes. An operator between fixed layouts costs the same whatever the layouts elsewhere are, so the price of the
/// program is a sum of prices of single operators, and the least sum over all layouts is found by dynamic programming
/// over the graph (variable elimination: Bertele and Brioschi, 1972). `exhaustive_search` tries every combination.
namespace espalier::test {

/// The price of one operator between given layouts, for all layouts of its operands and its result.
class operator_prices {
 public:
  /// @param id an operator of the graph; its operands become arguments
  operator_prices(const mesh_shape& mesh, graph_view g, int id) : mesh_(mesh) {
    detail::copy_tables(code_, g);
    instruction step = g[id];
    step.annotation = -1;
    // `match` asks for the layout of its second operand, which is given here.
    if (requests_of(step) == layout_request::as_operand) step = builder::make(ops::shard, step.type, step.shape, 0);
    std::vector<int> operands;
    for (int k = 0; k < step.operand_count; ++k) {
      const int operand = g.operand_at(g[id], k);
      const auto at = std::find(operands.begin(), operands.end(), operand);
      const int number = static_cast<int>(at - operands.begin());
      step.operand_at(k, code_.further.data()) = number;
      if (at != operands.end()) continue;
      operands.push_back(operand);
      code_.code.push_back(
          with_attributes(builder::make(ops::argument, g[operand].type, g[operand].shape), border_attributes{number}));
      layouts_.push_back(all_layouts(mesh, g[operand].shape.rank));
    }
    code_.code.push_back(step);
    layouts_.push_back(all_layouts(mesh, step.shape.rank));
    code_.code.push_back(with_attributes(builder::make(ops::result, step.type, step.shape, code_.code.size() - 1),
                                         border_attributes{0}));
    rules_ = rules_of_graph(code_);
    of_.resize(rules_.size());
    std::size_t count = 1;
    for (const auto& of_one : layouts_) count *= of_one.size();
    prices_.resize(count);
  }

  /// @param layouts the number of the layout of each different operand, and of the result
  [[nodiscard]] const run_price& of(const std::vector<int>& layouts) {
    std::size_t at = 0;
    for (std::size_t k = 0; k < layouts_.size(); ++k)
      at = at * layouts_[k].size() + static_cast<std::size_t>(layouts[k]);
    if (prices_[at].starts >= 0) return prices_[at];
    for (std::size_t k = 0; k < layouts_.size(); ++k) of_[k] = layouts_[k][static_cast<std::size_t>(layouts[k])];
    of_.back() = of_[of_.size() - 2];
    prices_[at] = price_of_layouts(mesh_, code_, rules_.data(), of_.data());
    return prices_[at];
  }

 private:
  struct unknown_price : run_price {
    unknown_price() { starts = -1; }
    unknown_price& operator=(const run_price& price) {
      run_price::operator=(price);
      return *this;
    }
  };

  mesh_shape mesh_;
  graph code_;
  std::vector<factor_rule> rules_;
  std::vector<std::vector<sharding>> layouts_;
  std::vector<sharding> of_;
  std::vector<unknown_price> prices_;
};

/// Prices of operators that are alike, kept from one program to the next.
class price_memory {
 public:
  explicit price_memory(const mesh_shape& mesh) : mesh_(mesh) {}

  [[nodiscard]] const mesh_shape& mesh() const { return mesh_; }
  [[nodiscard]] operator_prices& of(graph_view g, int id) {
    auto& kept = known_[key_of(g, id)];
    if (kept == nullptr) kept = std::make_unique<operator_prices>(mesh_, g, id);
    return *kept;
  }

 private:
  [[nodiscard]] static std::string key_of(graph_view g, int id) {
    const instruction& i = g[id];
    std::string key;
    const auto put = [&key](const auto& value) {
      char bytes[sizeof value];
      std::memcpy(&bytes[0], &value, sizeof value);
      key.append(&bytes[0], sizeof value);
    };
    const auto put_tensor = [&](const instruction& one) {
      put(one.type);
      put(one.shape.rank);
      for (int d = 0; d < one.shape.rank; ++d) put(one.shape[d]);
    };
    put(i.op);
    for (const std::int64_t attribute : i.attribute) put(attribute);
    put(i.scalar);
    put_tensor(i);
    for (int k = 0; k < i.operand_count; ++k) {
      int first = k;
      for (int other = k; other-- > 0;) {
        if (g.operand_at(i, other) == g.operand_at(i, k)) first = other;
      }
      put(first);
      put_tensor(g[g.operand_at(i, k)]);
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
};

/// The choice among all layouts of a program.
class layout_oracle {
 public:
  /// @param g a program after `passes_on_tensors`, without loops
  layout_oracle(price_memory& memory, graph_view g) : memory_(memory), mesh_(memory.mesh()), g_(g) {
    for (int id = 0; id < g.size; ++id) add_variable(id);
    force();
  }

  /// Returns the number of combinations of layouts.
  [[nodiscard]] double combinations() const {
    double count = 1;
    for (const variable& one : variables_) {
      if (one.is_free) count *= static_cast<double>(one.layouts.size());
    }
    return count;
  }

  /// The best layouts if the prices of operators add up.
  /// @param most_entries gives up, with an empty choice, if a table of the search would have more entries
  [[nodiscard]] layout_choice least_sum(price_measure by, std::size_t most_entries = std::size_t{1} << 22U) {
    std::vector<int> choice(variables_.size(), 0);
    if (!eliminate(by, most_entries, choice)) return {};
    return chosen(choice);
  }

  /// The best layouts of all, each combination priced as a whole program.
  [[nodiscard]] layout_choice exhaustive_search(price_measure by) {
    std::vector<int> choice;
    for (const variable& one : variables_) choice.push_back(one.is_free ? 0 : one.fixed);
    std::vector<int> best = choice;
    double least = std::numeric_limits<double>::infinity();
    while (true) {
      const double price = weighed(price_of(choice), by);
      if (price < least) {
        least = price;
        best = choice;
      }
      std::size_t n = 0;
      for (; n < choice.size(); ++n) {
        if (!variables_[n].is_free) continue;
        if (++choice[n] < static_cast<int>(variables_[n].layouts.size())) break;
        choice[n] = 0;
      }
      if (n == choice.size()) return chosen(best);
    }
  }

  /// The price of the program with these layouts, each forced by an annotation.
  [[nodiscard]] run_price price_of(const std::vector<int>& choice) {
    for (std::size_t at = 0; at < forced_from_.size(); ++at) forced_of_[at] = layout_at(forced_from_[at], choice);
    return price_of_layouts(mesh_, forced_, forced_rules_.data(), forced_of_.data());
  }

 private:
  struct variable {
    std::vector<sharding> layouts;
    bool is_free = true;
    int fixed = 0;
  };
  /// Prices for all layouts of some variables, the last of which changes fastest.
  struct factor {
    std::vector<int> variables;
    std::vector<double> price;
  };
  /// Where the layout of an instruction of the forced program comes from: a variable, or the argument as it is given.
  struct origin {
    int variable = -1;
    int given = -1;
  };

  void add_variable(int id) {
    const instruction& i = g_[id];
    variable one;
    one.layouts = all_layouts(mesh_, i.shape.rank);
    const auto fix = [&](const sharding& layout) {
      one.is_free = false;
      one.fixed = index_of(one.layouts, layout);
    };
    if (structure_of(i) == structure::result) {
      one = variables_[static_cast<std::size_t>(i.operand[0])];
      one.is_free = false;  // it is that of its operand
    } else if (requests_of(i) == layout_request::as_operand) {
      fix(given_layout(i.operand[1]));
    } else if (requests_of(i) != layout_request::none && !attributes_of<annotation_attributes>(i).of_gradient) {
      fix(given_layout(id));
    } else if (one.layouts.size() == 1) {
      one.is_free = false;
    }
    variables_.push_back(std::move(one));
  }
  [[nodiscard]] sharding given_layout(int id) const {
    const instruction& i = g_[id];
    return i.annotation >= 0 ? g_.annotations[i.annotation].placement : sharding::whole(i.shape.rank);
  }

  /// Makes the program with an annotation after each value.
  void force() {
    detail::copy_tables(forced_, g_);
    std::vector<int> value(static_cast<std::size_t>(g_.size), -1);
    const auto append = [&](const instruction& i, origin from) {
      forced_from_.push_back(from);
      return forced_.code.push_back(i);
    };
    for (int id = 0; id < g_.size; ++id) {
      instruction i = g_[id];
      for (int k = 0; k < i.operand_count; ++k) {
        int& operand = i.operand_at(k, forced_.further.data());
        // What replaces an argument names the argument.
        operand = value[static_cast<std::size_t>(operand)];
      }
      const bool is_argument = structure_of(i) == structure::argument;
      const bool is_result = structure_of(i) == structure::result;
      const int made = append(i, is_argument ? origin{-1, id} : origin{is_result ? i.operand[0] : id, -1});
      if (is_result) {
        forced_from_.back() = forced_from_[static_cast<std::size_t>(i.operand[0])];
        continue;
      }
      value[static_cast<std::size_t>(id)] = made;
      if (requests_of(i) != layout_request::none) continue;
      value[static_cast<std::size_t>(id)] = append(builder::make(ops::shard, i.type, i.shape, made), {id, -1});
    }
    forced_rules_ = rules_of_graph(forced_);
    forced_of_.resize(forced_rules_.size());
  }
  [[nodiscard]] sharding layout_at(origin from, const std::vector<int>& choice) const {
    if (from.given >= 0) return given_layout(from.given);
    const auto n = static_cast<std::size_t>(from.variable);
    return variables_[n].layouts[static_cast<std::size_t>(choice[n])];
  }

  [[nodiscard]] layout_choice chosen(const std::vector<int>& choice) {
    layout_choice made;
    for (std::size_t n = 0; n < variables_.size(); ++n)
      made.of.push_back(variables_[n].layouts[static_cast<std::size_t>(choice[n])]);
    made.price = price_of(choice);
    return made;
  }

  /// The prices of instruction `id` for all layouts of the free variables that it has.
  [[nodiscard]] factor factor_of(int id, price_measure by) {
    const instruction& i = g_[id];
    // Numbers of the variables in the order of the operator's table; -1 is the argument as it is given.
    std::vector<int> columns;
    const bool is_argument = structure_of(i) == structure::argument;
    if (is_argument) columns.push_back(-1);
    const int operands = requests_of(i) == layout_request::as_operand ? 1 : i.operand_count;
    for (int k = 0; k < operands; ++k) {
      const int operand = g_.operand_at(i, k);
      if (std::find(columns.begin(), columns.end(), operand) == columns.end()) columns.push_back(operand);
    }
    columns.push_back(id);
    operator_prices& prices = is_argument ? copies_of(i) : memory_.of(g_, id);
    factor made;
    std::size_t count = 1;
    for (const int n : columns) {
      if (n < 0 || !variables_[static_cast<std::size_t>(n)].is_free) continue;
      made.variables.push_back(n);
      count *= variables_[static_cast<std::size_t>(n)].layouts.size();
    }
    std::vector<int> at;
    for (const int n : columns) {
      if (n < 0) {
        at.push_back(index_of(all_layouts(mesh_, i.shape.rank), given_layout(id)));
      } else {
        const variable& one = variables_[static_cast<std::size_t>(n)];
        at.push_back(one.is_free ? 0 : one.fixed);
      }
    }
    made.price.reserve(count);
    for (std::size_t entry = 0; entry < count; ++entry) {
      made.price.push_back(weighed(prices.of(at), by) - weighed({}, by));
      for (std::size_t k = columns.size(); k-- > 0;) {
        if (columns[k] < 0 || !variables_[static_cast<std::size_t>(columns[k])].is_free) continue;
        if (++at[k] < static_cast<int>(variables_[static_cast<std::size_t>(columns[k])].layouts.size())) break;
        at[k] = 0;
      }
    }
    return made;
  }
  /// The prices of a change of an argument's layout.
  [[nodiscard]] operator_prices& copies_of(const instruction& argument) {
    graph copy;
    copy.code.push_back(argument);
    copy.code.push_back(builder::make(ops::shard, argument.type, argument.shape, 0));
    return memory_.of(copy, 1);
  }

  [[nodiscard]] std::size_t size_of_variable(int n) const {
    return variables_[static_cast<std::size_t>(n)].layouts.size();
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
  bool eliminate(price_measure by, std::size_t most_entries, std::vector<int>& choice) {
    std::vector<factor> factors;
    std::vector<int> left;
    for (int id = 0; id < g_.size; ++id) {
      const auto n = static_cast<std::size_t>(id);
      if (structure_of(g_[id]) != structure::result) factors.push_back(factor_of(id, by));
      if (variables_[n].is_free) left.push_back(id);
      choice[n] = variables_[n].fixed;
    }
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
      if (least > static_cast<double>(most_entries)) return false;
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
  std::vector<variable> variables_;
  graph forced_;
  std::vector<factor_rule> forced_rules_;
  std::vector<origin> forced_from_;
  std::vector<sharding> forced_of_;
};

}  // namespace espalier::test
