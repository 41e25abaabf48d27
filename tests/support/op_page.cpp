// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Facts for docs/ops.md, asked of the library itself: each function is called once for every element type, and what was
// traced tells which types it takes, how dimensions correspond, what it is made of, and where its gradient goes.
// support/op_page.py makes the page of them, and knows from the headers which functions have no call here.

#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/custom_gradient.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <boost/hana/define_struct.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ep = espalier;

namespace {

// ---------------------------------------------------------------------------------------------------------------------
// Rules: which dimensions of arguments and results are the same factor, through all instructions of a call.

/// A factor of the call as a whole, and what happens along it.
struct factor {
  int parent = -1;
  /// It is made of these, major to minor, where some instruction splits it.
  std::vector<int> parts;
  bool is_whole = false;
  bool has_window = false;
  std::set<std::string> combined;
};

class rules {
 public:
  explicit rules(const ep::builder& b) : dims_(static_cast<std::size_t>(b.size())) {
    for (int id = 0; id < b.size(); ++id) {
      for (int d = 0; d < b[id].shape.rank; ++d)
        dims_[index(id)].push_back(b[id].shape[d] == 1 ? std::vector<int>{} : std::vector<int>{make()});
    }
    for (int id = 0; id < b.size(); ++id) {
      if (b[id].op->factors != nullptr && !b[id].op->facts.is_further_result) apply(b, id);
    }
  }

  /// `ab`, `[a]b`, `(ab)c`, of an argument `a~b`; `()` of a scalar.
  [[nodiscard]] std::string dims(int id, bool is_read) {
    if (dims_[index(id)].empty()) return "()";
    std::string text;
    for (const std::vector<int>& one : dims_[index(id)]) {
      const std::vector<int> list = resolved(one);
      std::string letters;
      for (const int f : list) {
        const bool whole = factors_[index(f)].is_whole;
        letters += whole ? "[" : "";
        letters += letter(f);
        letters += whole ? "]" : "";
        letters += is_read && factors_[index(f)].has_window ? "~" : "";
      }
      text += list.empty() ? "1" : list.size() == 1 ? letters : "(" + letters + ")";
    }
    return text;
  }
  /// `sum over b; max over c`
  [[nodiscard]] std::string combined() {
    std::map<std::string, std::string> over;
    for (const auto& [f, name] : letters_) {
      for (const std::string& kind : factors_[index(f)].combined)
        over[kind] += (over[kind].empty() ? "" : ", ") + std::string(1, name);
    }
    std::string text;
    for (const auto& [kind, names] : over)
      text.append(text.empty() ? "" : "; ").append(kind).append(" over ").append(names);
    return text;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  int make() {
    factors_.emplace_back();
    return static_cast<int>(factors_.size()) - 1;
  }
  [[nodiscard]] int root(int f) const {
    while (factors_[index(f)].parent >= 0) f = factors_[index(f)].parent;
    return f;
  }
  [[nodiscard]] std::vector<int> resolved(const std::vector<int>& list) const {
    std::vector<int> result;
    for (int f : list) {
      f = root(f);
      if (factors_[index(f)].parts.empty()) {
        result.push_back(f);
      } else {
        const std::vector<int> parts = resolved(factors_[index(f)].parts);
        result.insert(result.end(), parts.begin(), parts.end());
      }
    }
    return result;
  }
  void add_facts(int to, const factor& from) {
    factor& f = factors_[index(to)];
    f.is_whole = f.is_whole || from.is_whole;
    f.has_window = f.has_window || from.has_window;
    f.combined.insert(from.combined.begin(), from.combined.end());
  }
  void unify(const std::vector<int>& left, const std::vector<int>& right) {
    const std::vector<int> a = resolved(left);
    const std::vector<int> b = resolved(right);
    if (a.size() == b.size()) {
      for (std::size_t n = 0; n < a.size(); ++n) {
        const int to = root(a[n]);
        const int from = root(b[n]);
        if (to == from) continue;
        factors_[index(from)].parent = to;
        add_facts(to, factors_[index(from)]);
      }
    } else if (a.size() == 1) {
      split(a[0], b);
    } else if (b.size() == 1) {
      split(b[0], a);
    }
  }
  void split(int one, const std::vector<int>& parts) {
    if (std::find(parts.begin(), parts.end(), one) != parts.end()) return;
    factors_[index(one)].parts = parts;
    for (const int part : parts) add_facts(part, factors_[index(one)]);
  }

  void apply(const ep::builder& b, int id) {
    const ep::instruction& self = b[id];
    const ep::factor_rule rule = self.op->factors(b.view(id));
    std::vector<int> made;
    for (int f = 0; f < rule.count; ++f) {
      made.push_back(make());
      factor& one = factors_.back();
      one.is_whole = rule.kind[f] == ep::factor_kind::blocked;
      if (rule.kind[f] == ep::factor_kind::reduce) one.combined.insert(ep::name_of(rule.combine));
    }
    const auto relate = [&](int value, const ep::factor_list* of_dims) {
      for (int d = 0; d < b[value].shape.rank; ++d) {
        std::vector<int> list;
        for (int n = 0; n < of_dims[d].size(); ++n) {
          if (rule.size[of_dims[d][n]] != 1) list.push_back(made[index(of_dims[d][n])]);
        }
        if (!list.empty() && !dims_[index(value)][index(d)].empty()) unify(dims_[index(value)][index(d)], list);
      }
    };
    const int further = ep::further_results(&b[0], b.size(), id);
    for (int n = 0; n <= further; ++n) relate(id + n, rule.dims_of_result(n));
    for (int k = 0; k < self.operand_count; ++k) {
      const int operand = b.operand_at(self, k);
      relate(operand, rule.dims_of(k));
      if (self.op->windows == nullptr) continue;
      ep::window windows[ep::max_rank]{};
      const std::uint32_t through = self.op->windows(b.view(id), k, &windows[0]);
      for (int d = 0; d < b[operand].shape.rank; ++d) {
        if ((through >> static_cast<unsigned>(d) & 1U) == 0) continue;
        for (const int f : resolved(dims_[index(operand)][index(d)])) factors_[index(f)].has_window = true;
      }
    }
  }

  [[nodiscard]] char letter(int f) {
    const auto found = letters_.find(f);
    if (found != letters_.end()) return found->second;
    const char next = static_cast<char>('a' + static_cast<int>(letters_.size()));
    letters_[f] = next;
    return next;
  }

  std::vector<factor> factors_;
  std::vector<std::vector<std::vector<int>>> dims_;
  std::map<int, char> letters_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Calls.

struct machine : ep::axis<"machine", 2> {};
using mesh = ep::mesh<machine>;

/// An argument of the element type that is tried, of one type whatever that is, and the type itself.
template <int... Extents> struct in {
  const char* name;
  template <ep::dtype Type> using tensor = typename ep::detail::dtype_row<Type>::template tensor<Extents...>;
};
template <class Tensor> struct fixed {
  const char* name;
  template <ep::dtype Type> using tensor = Tensor;
};
template <ep::dtype Type> struct element {
  static constexpr ep::dtype type = Type;
  template <int... Extents> using tensor = typename ep::detail::dtype_row<Type>::template tensor<Extents...>;
};

template <class T> inline constexpr bool is_array = false;
template <class T, std::size_t Size> inline constexpr bool is_array<std::array<T, Size>> = true;
template <class T> inline constexpr bool is_top = false;
template <class A, class B> inline constexpr bool is_top<ep::top_elements<A, B>> = true;

template <class T> inline constexpr bool is_value_and_gradient = false;
template <class A, class B> inline constexpr bool is_value_and_gradient<ep::value_and_gradient<A, B>> = true;

template <class T> struct mistake_in { using type = typename ep::detail::failure_in<T>::type; };
template <class A, class B> struct mistake_in<ep::top_elements<A, B>> { using type = typename mistake_in<A>::type; };
template <class A, class B> struct mistake_in<ep::value_and_gradient<A, B>> {
  using type = typename mistake_in<A>::type;
};
template <class T, std::size_t Size> struct mistake_in<std::array<T, Size>> : mistake_in<T> {};

template <class T> void list_results(const T& result, std::vector<int>& ids) {
  if constexpr (is_array<T>) {
    for (const auto& one : result) list_results(one, ids);
  } else if constexpr (is_top<T>) {
    ids.push_back(result.values.id);
    ids.push_back(result.indices.id);
  } else if constexpr (is_value_and_gradient<T>) {
    list_results(result.value, ids);
    list_results(result.gradient, ids);
  } else {
    ep::detail::for_each_leaf(result, [&](const auto& one) { ids.push_back(one.id); });
  }
}

/// `operand_is_boolean` of a mistake's type.
template <class Mistake> std::string reason_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("why::") + 5);
  return std::string(text.substr(0, text.find_first_of("<;]>")));
}

template <class... Texts> void row(const Texts&... texts) {
  std::string line;
  ((line += (line.empty() ? "" : "\t") + std::string(texts)), ...);
  std::cout << line << '\n';
}

std::string joined(const std::vector<std::string>& all, const char* between = ", ") {
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : between) + one;
  return text;
}

void add_once(std::vector<std::string>& list, const std::string& one) {
  if (std::find(list.begin(), list.end(), one) == list.end()) list.push_back(one);
}

/// True for instructions that are no work worth naming: inputs, and the same elements seen otherwise.
bool is_plain(const ep::instruction& i) {
  return i.op == &ep::ops::constant || i.op == &ep::ops::argument || i.op == &ep::ops::further_result;
}

struct op_row {
  const ep::op_info* op = nullptr;
  std::string rule;
};
std::map<std::string, op_row> op_rows;

/// Keeps the rule of the instruction that says most of its op.
void note_op(const ep::builder& b, int id) {
  const ep::instruction& i = b[id];
  op_row& known = op_rows[i.op->name];
  known.op = i.op;
  if (i.op->factors == nullptr || i.op->facts.is_further_result) return;
  // The instruction alone: its operands as arguments.
  ep::builder alone;
  ep::instruction made = i;
  std::vector<int> operands;
  for (int k = 0; k < i.operand_count; ++k) {
    const ep::instruction& from = b[b.operand_at(i, k)];
    operands.push_back(ep::emit::argument(alone, from.type, from.shape, k));
  }
  made.region = -1;
  alone.result().windows = b.result().windows;
  alone.result().annotations = b.result().annotations;
  const int self = alone.append(made, operands.data(), i.operand_count);
  rules of(alone);
  std::string text;
  for (int k = 0; k < i.operand_count; ++k) text += (k == 0 ? "" : ", ") + of.dims(k, true);
  text += (text.empty() ? "-> " : " -> ") + of.dims(self, false);
  const std::string over = of.combined();
  if (!over.empty()) text += "; " + over;
  if (text.size() > known.rule.size()) known.rule = text;
}

/// Names the operands on whose partial sums an op may work, so that they are carried out later.
const char* partial_of(const ep::op_info& op) {
  switch (op.linear) {
    case ep::linearity::first: return "of operand 0";
    case ep::linearity::joint: return "of all operands together";
    case ep::linearity::each: return "of one operand";
    default: return "";
  }
}
const char* kernel_of(const ep::op_info& op) {
  switch (op.fuse) {
    case ep::fusion::alone: return "its own";
    case ep::fusion::broadcast:
    case ep::fusion::source: return "none: made where it is read";
    default: return "part of a fused chain";
  }
}
const char* gradient_of_op(const ep::op_info& op) {
  if (op.gradient == nullptr) return "no rule";
  return op.gradient == ep::detail::no_gradient ? "nothing flows back" : "yes";
}

/// The arguments that something flows back to, and of what it is made.
template <class Results>
std::string gradient_of(ep::builder& b, const Results& results, const std::vector<int>& arguments,
                        const std::vector<std::string>& names) {
  ep::detail::list<ep::cotangent_of> seeds;
  for (const int id : results) {
    // Not 1, by which nothing would be multiplied.
    if (ep::is_floating(b[id].type)) seeds.push_back({id, ep::emit::constant_like(b, id, 0.5)});
  }
  ep::detail::list<int> wanted;
  std::vector<std::string> wanted_names;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    if (!ep::is_floating(b[arguments[k]].type)) continue;
    wanted.push_back(arguments[k]);
    wanted_names.push_back(names[k]);
  }
  if (seeds.size() == 0 || wanted.size() == 0) return "";
  ep::detail::list<int> gradients(wanted.size(), -1);
  const int end = b.size();
  const int missing = ep::pull_back(b, seeds, wanted.data(), wanted.size(), gradients.data());
  if (missing >= 0) return std::string("no rule: ") + b[missing].op->name;
  std::vector<std::string> reached;
  std::vector<int> open;
  std::set<int> seen;
  for (int k = 0; k < wanted.size(); ++k) {
    if (gradients[k] < 0) continue;
    reached.push_back("`" + wanted_names[static_cast<std::size_t>(k)] + "`");
    open.push_back(gradients[k]);
  }
  if (reached.empty()) return "";
  while (!open.empty()) {
    const int id = open.back();
    open.pop_back();
    if (id < end || !seen.insert(id).second) continue;
    for (int k = 0; k < b[id].operand_count; ++k) open.push_back(b.operand_at(b[id], k));
  }
  std::vector<std::string> made;
  for (const int id : seen) {
    if (!is_plain(b[id])) add_once(made, b[id].op->name);
  }
  for (int id = 0; id < b.size(); ++id) note_op(b, id);
  return "to " + joined(reached) + (made.empty() ? "" : ": " + joined(made));
}

template <ep::dtype Type, class F, class... Inputs>
using called = decltype(std::declval<const F&>()(
    element<Type>{}, std::declval<ep::symbol<mesh, typename Inputs::template tensor<Type>>>()...));

/// The arguments of a call in a graph under construction.
template <ep::dtype Type, class... Inputs>
using symbols_of = std::tuple<ep::symbol<mesh, typename Inputs::template tensor<Type>>...>;
template <class Symbols> std::vector<int> make_arguments(ep::builder& b, Symbols& symbols) {
  std::vector<int> arguments;
  const auto make = [&](auto& one) {
    one.owner = &b;
    one.id = ep::emit::argument(b, one.type, one.shape, static_cast<int>(arguments.size()));
    arguments.push_back(one.id);
  };
  std::apply([&](auto&... one) { (make(one), ...); }, symbols);
  return arguments;
}
template <ep::dtype Type, class F, class Symbols> auto result_of(const F& f, const Symbols& symbols) {
  return std::apply([&](const auto&... one) { return f(element<Type>{}, one...); }, symbols);
}

/// One call: `function` is what the headers name, `text` what a user writes.
template <ep::dtype Type, class F, class... Inputs>
void facts_of_call(const char* function, const char* text, const std::string& types, const std::string& refused,
                   const std::tuple<Inputs...>& inputs, const F& f) {
  ep::builder b;
  symbols_of<Type, Inputs...> symbols;
  const std::vector<int> arguments = make_arguments(b, symbols);
  const auto result = result_of<Type>(f, symbols);
  std::vector<int> results;
  list_results(result, results);

  const auto type_of = [&](int id) {
    return ep::to_string(mesh::value, b[id].type, b[id].shape, ep::sharding::whole(b[id].shape.rank));
  };
  rules of(b);
  std::string rule;
  std::string shapes;
  for (const int id : arguments) {
    rule += (rule.empty() ? "" : ", ") + of.dims(id, true);
    shapes += (shapes.empty() ? "" : ", ") + type_of(id);
  }
  rule += rule.empty() ? "-> " : " -> ";
  shapes += " -> ";
  for (std::size_t n = 0; n < results.size(); ++n) {
    rule += (n == 0 ? "" : ", ") + of.dims(results[n], false);
    shapes += (n == 0 ? "" : ", ") + type_of(results[n]);
  }
  const std::string over = of.combined();
  if (!over.empty()) rule += "; " + over;
  std::vector<std::string> made;
  bool takes_steps = false;
  for (int id = 0; id < b.size(); ++id) {
    // (A reshape does where parts are uneven only.)
    takes_steps = takes_steps || (b[id].op->lower != nullptr && !b[id].op->facts.shares_operand);
    note_op(b, id);
    if (!is_plain(b[id])) add_once(made, b[id].op->name);
  }
  const auto names = std::apply([](const auto&... one) { return std::vector<std::string>{one.name...}; }, inputs);
  if (takes_steps) rule += "; in steps";
  row("call", function, text, types, rule, shapes, joined(made), gradient_of(b, results, arguments, names), refused);
}

/// The element types in the order in which the page names them.
inline constexpr std::array types_in_order{ep::dtype::f32, ep::dtype::f64,    ep::dtype::bf16, ep::dtype::f16,
                                           ep::dtype::i8,  ep::dtype::i32,    ep::dtype::i64,  ep::dtype::u8,
                                           ep::dtype::u32, ep::dtype::boolean};
static_assert(types_in_order.size() == static_cast<std::size_t>(ep::dtype_count), "name every element type here");

/// Whether the call compiles for each of the types: a mistake is a type, and names its reason. `Notes`: it may be noted
/// in the graph instead, so that each call has to be made.
template <bool Notes, class F, class... Inputs> struct acceptance {
  template <std::size_t K>
  static constexpr bool taken =
      !ep::Failed<typename mistake_in<std::remove_cvref_t<called<types_in_order[K], F, Inputs...>>>::type>;

  template <std::size_t K>
  static void ask(const F& f, std::vector<std::string>& types, std::vector<std::string>& reasons) {
    if constexpr (taken<K> && !Notes) {
      types.emplace_back(ep::name_of(types_in_order[K]));
    } else if constexpr (taken<K>) {
      ep::builder b;
      symbols_of<types_in_order[K], Inputs...> symbols;
      make_arguments(b, symbols);
      static_cast<void>(result_of<types_in_order[K]>(f, symbols));
      if (b.mistake == nullptr) types.emplace_back(ep::name_of(types_in_order[K]));
    } else {
      add_once(reasons,
               reason_name<typename mistake_in<std::remove_cvref_t<called<types_in_order[K], F, Inputs...>>>::type>());
    }
  }
  template <std::size_t... K> static constexpr std::size_t first(std::index_sequence<K...>) {
    std::size_t result = sizeof...(K);
    ((result = result == sizeof...(K) && taken<K> ? K : result), ...);
    return result;
  }
};

/// The arguments of a call.
template <class... Inputs> struct with : std::tuple<Inputs...> { using std::tuple<Inputs...>::tuple; };
template <class... Inputs> with(Inputs...) -> with<Inputs...>;

template <bool Notes = false, class F, class... Inputs>
void call(const char* function, const char* text, const with<Inputs...>& inputs, const F& f) {
  using asked = acceptance<Notes, F, Inputs...>;
  using all = std::make_index_sequence<types_in_order.size()>;
  std::vector<std::string> types;
  std::vector<std::string> reasons;
  [&]<std::size_t... K>(std::index_sequence<K...>) { (asked::template ask<K>(f, types, reasons), ...); }
  (all{});
  constexpr std::size_t first = asked::first(all{});
  static_assert(first < types_in_order.size(), "no element type is taken: the call is wrong");
  facts_of_call<types_in_order[first]>(function, text, joined(types, " "), joined(reasons), inputs, f);
}

/// Calls a function whose tensors all have types of their own.
template <class F, class... Inputs>
void call_as_is(const char* function, const char* text, const char* types, const with<Inputs...>& inputs, const F& f) {
  facts_of_call<ep::dtype::f32>(function, text, types, "", inputs, f);
}

// The operands of the calls.
constexpr in<4, 6> a{"a"};
constexpr in<4, 6> b{"b"};
constexpr in<4, 6> x{"x"};
constexpr fixed<ep::boolean<4, 6>> condition{"condition"};
constexpr fixed<ep::u32<2>> key{"key"};
constexpr fixed<ep::i32<>> start{"start"};

void operators() {
  row("section", "Operators");
  call("operators", "a + b", with(a, b), [](auto, auto p, auto q) { return p + q; });
  call("operators", "a - b", with(a, b), [](auto, auto p, auto q) { return p - q; });
  call("operators", "a * b", with(a, b), [](auto, auto p, auto q) { return p * q; });
  call("operators", "a / b", with(a, b), [](auto, auto p, auto q) { return p / q; });
  call("operators", "-a", with(a), [](auto, auto p) { return -p; });
  call("operators", "a * 2", with(a), [](auto, auto p) { return p * 2; });
  call("operators", "a + row", with(a, in<6>{"row"}), [](auto, auto p, auto q) { return p + q; });
  call("operators", "a < b", with(a, b), [](auto, auto p, auto q) { return p < q; });
  call("operators", "a <= b", with(a, b), [](auto, auto p, auto q) { return p <= q; });
  call("operators", "a == b", with(a, b), [](auto, auto p, auto q) { return p == q; });
  call("operators", "a != b", with(a, b), [](auto, auto p, auto q) { return p != q; });
  call("operators", "a > b", with(a, b), [](auto, auto p, auto q) { return p > q; });
  call("operators", "a >= b", with(a, b), [](auto, auto p, auto q) { return p >= q; });
  call("operators", "a % b", with(a, b), [](auto, auto p, auto q) { return p % q; });
  call("operators", "a & b", with(a, b), [](auto, auto p, auto q) { return p & q; });
  call("operators", "a | b", with(a, b), [](auto, auto p, auto q) { return p | q; });
  call("operators", "a ^ b", with(a, b), [](auto, auto p, auto q) { return p ^ q; });
  call("operators", "~a", with(a), [](auto, auto p) { return ~p; });
  call("operators", "a << b", with(a, b), [](auto, auto p, auto q) { return p << q; });
  call("operators", "a >> b", with(a, b), [](auto, auto p, auto q) { return p >> q; });
  call("operators", "a && b", with(a, b), [](auto, auto p, auto q) { return p && q; });
  call("operators", "a || b", with(a, b), [](auto, auto p, auto q) { return p || q; });
  // Operands that are no truth values are refused by an assertion, not by a type that can be asked.
  call_as_is("operators", "!a", "bool", with(fixed<ep::boolean<4, 6>>{"a"}), [](auto, auto p) { return !p; });
}

void elementwise() {
  row("section", "Element by element");
  call("equal", "equal(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::equal(p, q); });
  call("not_equal", "not_equal(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::not_equal(p, q); });
  call("maximum", "maximum(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::maximum(p, q); });
  call("minimum", "minimum(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::minimum(p, q); });
  call("select", "select(condition, yes, no)", with(condition, in<4, 6>{"yes"}, in<4, 6>{"no"}),
       [](auto, auto c, auto p, auto q) { return ep::select(c, p, q); });
  call("exp", "exp(a)", with(a), [](auto, auto p) { return ep::exp(p); });
  call("log", "log(a)", with(a), [](auto, auto p) { return ep::log(p); });
  call("sqrt", "sqrt(a)", with(a), [](auto, auto p) { return ep::sqrt(p); });
  call("rsqrt", "rsqrt(a)", with(a), [](auto, auto p) { return ep::rsqrt(p); });
  call("tanh", "tanh(a)", with(a), [](auto, auto p) { return ep::tanh(p); });
  call("sigmoid", "sigmoid(a)", with(a), [](auto, auto p) { return ep::sigmoid(p); });
  call("relu", "relu(a)", with(a), [](auto, auto p) { return ep::relu(p); });
  call("silu", "silu(a)", with(a), [](auto, auto p) { return ep::silu(p); });
  call("gelu", "gelu(a)", with(a), [](auto, auto p) { return ep::gelu(p); });
  call("expm1", "expm1(a)", with(a), [](auto, auto p) { return ep::expm1(p); });
  call("log1p", "log1p(a)", with(a), [](auto, auto p) { return ep::log1p(p); });
  call("pow", "pow(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::pow(p, q); });
  call("erf", "erf(a)", with(a), [](auto, auto p) { return ep::erf(p); });
  call("erfc", "erfc(a)", with(a), [](auto, auto p) { return ep::erfc(p); });
  call("erf_inv", "erf_inv(a)", with(a), [](auto, auto p) { return ep::erf_inv(p); });
  call("sin", "sin(a)", with(a), [](auto, auto p) { return ep::sin(p); });
  call("cos", "cos(a)", with(a), [](auto, auto p) { return ep::cos(p); });
  call("tan", "tan(a)", with(a), [](auto, auto p) { return ep::tan(p); });
  call("atan2", "atan2(y, x)", with(in<4, 6>{"y"}, x), [](auto, auto p, auto q) { return ep::atan2(p, q); });
  call("abs", "abs(a)", with(a), [](auto, auto p) { return ep::abs(p); });
  call("sign", "sign(a)", with(a), [](auto, auto p) { return ep::sign(p); });
  call("is_finite", "is_finite(a)", with(a), [](auto, auto p) { return ep::is_finite(p); });
  call("clamp", "clamp(low, x, high)", with(in<4, 6>{"low"}, x, in<4, 6>{"high"}),
       [](auto, auto l, auto p, auto h) { return ep::clamp(l, p, h); });
  call("floor", "floor(a)", with(a), [](auto, auto p) { return ep::floor(p); });
  call("ceil", "ceil(a)", with(a), [](auto, auto p) { return ep::ceil(p); });
  call("trunc", "trunc(a)", with(a), [](auto, auto p) { return ep::trunc(p); });
  call("round", "round(a)", with(a), [](auto, auto p) { return ep::round(p); });
  call("remainder", "remainder(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::remainder(p, q); });
  call("total_less", "total_less(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::total_less(p, q); });
  call("total_less_equal", "total_less_equal(a, b)", with(a, b),
       [](auto, auto p, auto q) { return ep::total_less_equal(p, q); });
  call("total_equal", "total_equal(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::total_equal(p, q); });
  call("bitwise_and", "bitwise_and(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::bitwise_and(p, q); });
  call("bitwise_or", "bitwise_or(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::bitwise_or(p, q); });
  call("bitwise_xor", "bitwise_xor(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::bitwise_xor(p, q); });
  call("bitwise_not", "bitwise_not(a)", with(a), [](auto, auto p) { return ep::bitwise_not(p); });
  const in<4, 6> amount{"amount"};
  call("shift_left", "shift_left(a, amount)", with(a, amount),
       [](auto, auto p, auto q) { return ep::shift_left(p, q); });
  call("shift_right_logical", "shift_right_logical(a, amount)", with(a, amount),
       [](auto, auto p, auto q) { return ep::shift_right_logical(p, q); });
  call("shift_right_arithmetic", "shift_right_arithmetic(a, amount)", with(a, amount),
       [](auto, auto p, auto q) { return ep::shift_right_arithmetic(p, q); });
  call("bit_cast", "bit_cast<dtype::i32>(a)", with(a), [](auto, auto p) { return ep::bit_cast<ep::dtype::i32>(p); });
  call("convert", "convert<dtype::bf16>(a)", with(a), [](auto, auto p) { return ep::convert<ep::dtype::bf16>(p); });
  call("stop_gradient", "stop_gradient(a)", with(a), [](auto, auto p) { return ep::stop_gradient(p); });
  call("print", "print(a, \"a\")", with(a), [](auto, auto p) { return ep::print(p, "a"); });
  call("check_finite", "check_finite(a)", with(a), [](auto, auto p) { return ep::check_finite(p); });
}

constexpr std::array<std::array<float, 3>, 2> numbers{{{1, 2, 3}, {4, 5, 6}}};

void made_from_nothing() {
  row("section", "From nothing");
  call("constant", "constant<f32<4, 6>>(like, 1)", with(fixed<ep::f32<>>{"like"}),
       [](auto t, auto like) { return ep::constant<typename decltype(t)::template tensor<4, 6>>(like, 1); });
  call("constant", "constant<table>(like)", with(fixed<ep::f32<>>{"like"}),
       [](auto, auto like) { return ep::constant<numbers>(like); });
  call("iota", "iota<f32<4, 6>, 1>(like)", with(fixed<ep::f32<>>{"like"}),
       [](auto t, auto like) { return ep::iota<typename decltype(t)::template tensor<4, 6>, 1>(like); });
}

void products() {
  row("section", "Products");
  call("einsum", "einsum<\"ab,bc->ac\">(a, b)", with(a, in<6, 8>{"b"}),
       [](auto, auto p, auto q) { return ep::einsum<"ab,bc->ac">(p, q); });
  call("einsum", "einsum<\"ab->b\">(a)", with(a), [](auto, auto p) { return ep::einsum<"ab->b">(p); });
  call("einsum", "einsum<\"ab,bc,cd->ad\">(a, b, c)", with(a, in<6, 8>{"b"}, in<8, 10>{"c"}),
       [](auto, auto p, auto q, auto r) { return ep::einsum<"ab,bc,cd->ad">(p, q, r); });
  call("einsum", "einsum<\"ii->\">(a)", with(in<6, 6>{"a"}), [](auto, auto p) { return ep::einsum<"ii->">(p); });
  call("einsum", "einsum<\"...ij,...jk->...ik\">(a, b)", with(in<3, 4, 6>{"a"}, in<6, 8>{"b"}),
       [](auto, auto p, auto q) { return ep::einsum<"...ij,...jk->...ik">(p, q); });
  call("matmul", "matmul(a, b)", with(a, in<6, 8>{"b"}), [](auto, auto p, auto q) { return ep::matmul(p, q); });
  call("matmul", "matmul(a, b), of batches", with(in<10, 4, 6>{"a"}, in<10, 6, 8>{"b"}),
       [](auto, auto p, auto q) { return ep::matmul(p, q); });
  call("matmul", "matmul(a, v), of a vector", with(a, in<6>{"v"}),
       [](auto, auto p, auto q) { return ep::matmul(p, q); });
}

void dimensions() {
  row("section", "Dimensions, parts and places");
  call("squeeze", "squeeze<1>(a)", with(in<4, 1, 6>{"a"}), [](auto, auto p) { return ep::squeeze<1>(p); });
  call("expand_dims", "expand_dims<0>(a)", with(a), [](auto, auto p) { return ep::expand_dims<0>(p); });
  call("broadcast_to", "broadcast_to<8, 4, 6>(a)", with(a), [](auto, auto p) { return ep::broadcast_to<8, 4, 6>(p); });
  call("take", "take<0, -1>(a)", with(a), [](auto, auto p) { return ep::take<0, -1>(p); });
  call("take", "take<0>(table, indices)", with(in<10, 6>{"table"}, fixed<ep::i32<4, 8>>{"indices"}),
       [](auto, auto p, auto i) { return ep::take<0>(p, i); });
  call("tril", "tril(a)", with(a), [](auto, auto p) { return ep::tril(p); });
  call("triu", "triu(a)", with(a), [](auto, auto p) { return ep::triu(p); });
  call("transpose", "transpose<1, 0>(a)", with(a), [](auto, auto p) { return ep::transpose<1, 0>(p); });
  call("reshape", "reshape<4, 2, 3>(a)", with(a), [](auto, auto p) { return ep::reshape<4, 2, 3>(p); });
  call("slice", "slice<0, 1, 3>(a)", with(a), [](auto, auto p) { return ep::slice<0, 1, 3>(p); });
  call("pad", "pad<0, 1, 2>(a)", with(a), [](auto, auto p) { return ep::pad<0, 1, 2>(p); });
  call("shift", "shift<0, 1>(a)", with(a), [](auto, auto p) { return ep::shift<0, 1>(p); });
  call("roll", "roll<0, 1>(a)", with(a), [](auto, auto p) { return ep::roll<0, 1>(p); });
  call("reverse", "reverse<0>(a)", with(a), [](auto, auto p) { return ep::reverse<0>(p); });
  call("split", "split<1, 2>(a)", with(a), [](auto, auto p) { return ep::split<1, 2>(p); });
  call("concat", "concat<0>(a, b)", with(a, in<2, 6>{"b"}), [](auto, auto p, auto q) { return ep::concat<0>(p, q); });
  call("stack", "stack<0>(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::stack<0>(p, q); });
  call("dynamic_slice", "dynamic_slice<0, 2>(a, start)", with(a, start),
       [](auto, auto p, auto s) { return ep::dynamic_slice<0, 2>(p, s); });
  call("dynamic_update_slice", "dynamic_update_slice<0>(a, update, start)", with(a, in<2, 6>{"update"}, start),
       [](auto, auto p, auto u, auto s) { return ep::dynamic_update_slice<0>(p, u, s); });
  call("dynamic_update_slice", "dynamic_update_slice<0, 1>(a, update, start, second)",
       with(a, in<2, 3>{"update"}, start, fixed<ep::i32<>>{"second"}),
       [](auto, auto p, auto u, auto s, auto t) { return ep::dynamic_update_slice<0, 1>(p, u, s, t); });
  call("gather", "gather<0>(table, indices)", with(in<10, 6>{"table"}, fixed<ep::i32<4, 8>>{"indices"}),
       [](auto, auto p, auto i) { return ep::gather<0>(p, i); });
  call("one_hot", "one_hot<10>(indices)", with(in<4, 6>{"indices"}), [](auto, auto i) { return ep::one_hot<10>(i); });
}

void reductions() {
  row("section", "Reductions, searches, softmax");
  call("sum", "sum<1>(a)", with(a), [](auto, auto p) { return ep::sum<1>(p); });
  call("sum", "sum(a)", with(a), [](auto, auto p) { return ep::sum(p); });
  call("sum", "sum<1>(a, keep_dims)", with(a), [](auto, auto p) { return ep::sum<1>(p, ep::keep_dims); });
  call("max", "max<1>(a)", with(a), [](auto, auto p) { return ep::max<1>(p); });
  call("min", "min<1>(a)", with(a), [](auto, auto p) { return ep::min<1>(p); });
  call("prod", "prod<1>(a)", with(a), [](auto, auto p) { return ep::prod<1>(p); });
  call("mean", "mean<1>(a)", with(a), [](auto, auto p) { return ep::mean<1>(p); });
  call("any", "any<1>(a)", with(a), [](auto, auto p) { return ep::any<1>(p); });
  call("all", "all<1>(a)", with(a), [](auto, auto p) { return ep::all<1>(p); });
  call("argmax", "argmax<1>(a)", with(a), [](auto, auto p) { return ep::argmax<1>(p); });
  call("argmin", "argmin<1>(a)", with(a), [](auto, auto p) { return ep::argmin<1>(p); });
  call("cumsum", "cumsum<1>(a)", with(a), [](auto, auto p) { return ep::cumsum<1>(p); });
  call("cumsum", "cumsum<1>(a, from_last)", with(a), [](auto, auto p) { return ep::cumsum<1>(p, ep::from_last); });
  call("cumprod", "cumprod<1>(a)", with(a), [](auto, auto p) { return ep::cumprod<1>(p); });
  call("cummax", "cummax<1>(a)", with(a), [](auto, auto p) { return ep::cummax<1>(p); });
  call("cummin", "cummin<1>(a)", with(a), [](auto, auto p) { return ep::cummin<1>(p); });
  call("linear_recurrence", "linear_recurrence<1>(a, b)", with(a, b),
       [](auto, auto p, auto q) { return ep::linear_recurrence<1>(p, q); });
  call("top_k", "top_k<1, 3>(a)", with(a), [](auto, auto p) { return ep::top_k<1, 3>(p); });
  call("max_with_index", "max_with_index<1>(a)", with(a), [](auto, auto p) { return ep::max_with_index<1>(p); });
  call("softmax", "softmax<1>(a)", with(a), [](auto, auto p) { return ep::softmax<1>(p); });
  call("log_softmax", "log_softmax<1>(a)", with(a), [](auto, auto p) { return ep::log_softmax<1>(p); });
}

constexpr ep::convolution_settings same{.low = {1, 1}, .high = {1, 1}};
constexpr ep::convolution_settings depthwise{.low = {1, 1}, .high = {1, 1}, .groups = 4};
constexpr ep::pooling_settings pairs{.size = {2, 2}, .stride = {2, 2}};

void windows() {
  row("section", "Windows");
  const in<2, 8, 8, 4> image{"x"};
  call("convolution", "convolution<settings>(x, w)", with(image, in<3, 3, 4, 6>{"w"}),
       [](auto, auto p, auto w) { return ep::convolution<same>(p, w); });
  call("convolution", "convolution<settings>(x, w), depthwise", with(image, in<3, 3, 1, 4>{"w"}),
       [](auto, auto p, auto w) { return ep::convolution<depthwise>(p, w); });
  call("sum_pool", "sum_pool<settings>(x)", with(image), [](auto, auto p) { return ep::sum_pool<pairs>(p); });
  call("max_pool", "max_pool<settings>(x)", with(image), [](auto, auto p) { return ep::max_pool<pairs>(p); });
  call("mean_pool", "mean_pool<settings>(x)", with(image), [](auto, auto p) { return ep::mean_pool<pairs>(p); });
}

void random_numbers() {
  row("section", "Random numbers");
  call_as_is("random_key", "random_key(like, 7)", "u32", with(fixed<ep::f32<>>{"like"}),
             [](auto, auto like) { return ep::random_key(like, 7); });
  call_as_is("fold_in", "fold_in(key, number)", "u32", with(key, fixed<ep::i32<>>{"number"}),
             [](auto, auto k, auto n) { return ep::fold_in(k, n); });
  call_as_is("split_key", "split_key<4>(key)", "u32", with(key), [](auto, auto k) { return ep::split_key<4>(k); });
  call("random_bits", "random_bits<u32<4, 6>>(key)", with(key),
       [](auto t, auto k) { return ep::random_bits<typename decltype(t)::template tensor<4, 6>>(k); });
  call("uniform", "uniform<f32<4, 6>>(key)", with(key),
       [](auto t, auto k) { return ep::uniform<typename decltype(t)::template tensor<4, 6>>(k); });
  call("uniform", "uniform<f32<4, 6>>(key, -1, 1)", with(key),
       [](auto t, auto k) { return ep::uniform<typename decltype(t)::template tensor<4, 6>>(k, -1, 1); });
  call("normal", "normal<f32<4, 6>>(key)", with(key),
       [](auto t, auto k) { return ep::normal<typename decltype(t)::template tensor<4, 6>>(k); });
  call("bernoulli", "bernoulli<boolean<4, 6>>(key, 0.5)", with(key),
       [](auto t, auto k) { return ep::bernoulli<typename decltype(t)::template tensor<4, 6>>(k, 0.5); });
  call("bernoulli", "bernoulli<boolean<4, 6>>(key, p)", with(key, in<4, 6>{"p"}),
       [](auto, auto k, auto p) { return ep::bernoulli<ep::boolean<4, 6>>(k, p); });
  call("categorical", "categorical<1>(key, logits)", with(key, in<4, 6>{"logits"}),
       [](auto, auto k, auto l) { return ep::categorical<1>(k, l); });
  call("dropout", "dropout(key, x, 0.1)", with(key, x), [](auto, auto k, auto p) { return ep::dropout(k, p, 0.1); });
}

struct layer {
  constexpr auto operator()(auto carry, auto weight) const { return ep::matmul(carry, weight); }
};
struct halved {
  constexpr auto operator()(auto carry) const { return carry / 2; }
};
struct is_large {
  constexpr auto operator()(auto carry) const { return ep::sum(ep::convert<ep::dtype::f32>(carry)) > 9; }
};

void loops() {
  row("section", "Loops");
  call("scan", "scan(body, carry, layers)", with(in<4, 6>{"carry"}, in<3, 6, 6>{"layers"}),
       [](auto, auto c, auto l) { return ep::scan(layer{}, c, l); });
  call("scan", "scan(body, carry, layers, recompute)", with(in<4, 6>{"carry"}, in<3, 6, 6>{"layers"}),
       [](auto, auto c, auto l) { return ep::scan(layer{}, c, l, ep::recompute); });
  call("repeat", "repeat<10>(body, carry)", with(in<4, 6>{"carry"}),
       [](auto, auto c) { return ep::repeat<10>(halved{}, c); });
  call("while_loop", "while_loop(condition, body, state, at_most_iterations<10>)", with(in<4, 6>{"state"}),
       [](auto, auto c) { return ep::while_loop(is_large{}, halved{}, c, ep::at_most_iterations<10>); });
  call("cond", "cond(sum(a) > 0, [&] { return a; }, [&] { return a + a; })", with(in<4, 6>{"a"}), [](auto, auto p) {
    return ep::cond(
        ep::sum(p) > 0, [&] { return p; }, [&] { return p + p; });
  });
  call("switch_case", "switch_case(argmax(a), [&] { return a; }, [&] { return a + a; }, [&] { return a * a; })",
       with(in<4, 6>{"a"}), [](auto, auto p) {
         return ep::switch_case(
             ep::argmax(p), [&] { return p; }, [&] { return p + p; }, [&] { return p * p; });
       });
}

void layouts() {
  row("section", "Layouts");
  call("shard", "shard<machine, none>(a)", with(a), [](auto, auto p) { return ep::shard<machine, ep::none>(p); });
  call("reshard", "reshard<none, none>(a)", with(a), [](auto, auto p) { return ep::reshard<ep::none, ep::none>(p); });
  call("shard_like", "shard_like(a, like)", with(a, in<4, 6>{"like"}),
       [](auto, auto p, auto l) { return ep::shard_like(p, l); });
  call("shard_as", "shard_as(a, b)", with(a, b), [](auto, auto p, auto q) { return ep::shard_as(p, q); });
  call("label", "label<\"hidden\">(a)", with(a), [](auto, auto p) { return ep::label<"hidden">(p); });
}

struct loss_of {
  constexpr auto operator()(auto p, auto q) const { return ep::sum(ep::matmul(q, p)); }
};
struct product_of {
  constexpr auto operator()(auto p) const { return p * p; }
};

void functions_of_functions() {
  row("section", "Functions of functions");
  const in<6, 4> parameter{"p"};
  call<true>("value_and_grad", "value_and_grad(f)(p, x)", with(parameter, x),
             [](auto, auto p, auto q) { return ep::value_and_grad(loss_of{})(p, q); });
  call<true>("value_and_grad", "value_and_grad<0, 1>(f)(p, x)", with(parameter, x),
             [](auto, auto p, auto q) { return ep::value_and_grad<0, 1>(loss_of{})(p, q); });
  call<true>("grad", "grad(f)(p, x)", with(parameter, x),
             [](auto, auto p, auto q) { return ep::grad(loss_of{})(p, q); });
  call<true>("jvp", "jvp(f)(p, dp)", with(parameter, in<6, 4>{"dp"}),
             [](auto, auto p, auto dp) { return ep::jvp(product_of{})(p, dp); });
}

struct scaled {
  constexpr auto operator()(auto p, auto value, auto cotangent) const {
    static_cast<void>(p);
    return value * cotangent;
  }
};

void gradients_of_ones_own() {
  call<true>("custom_gradient", "custom_gradient(forward, backward)(p)", with(in<6, 4>{"p"}),
             [](auto, auto p) { return ep::custom_gradient(product_of{}, scaled{})(p); });
  call<true>("checkpoint", "checkpoint(f)(p)", with(in<6, 4>{"p"}),
             [](auto, auto p) { return ep::checkpoint(product_of{})(p); });
}

template <class Leaf> struct parameters {
  BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<4, 6>>, weight));
};

void models() {
  row("section", "Parts of models: ep::nn");
  const in<2, 8, 4, 6> query{"query"};
  const in<2, 8, 4, 6> key_of{"key"};
  const in<2, 8, 4, 6> value{"value"};
  const in<2, 4, 8, 8> scores{"scores"};
  const in<6> gain{"gain"};
  const in<6> bias{"bias"};
  const fixed<ep::i32<4>> targets{"targets"};
  call("nn::attention", "nn::attention(query, key, value)", with(query, key_of, value),
       [](auto, auto q, auto k, auto v) { return ep::nn::attention(q, k, v); });
  call("nn::causal_attention", "nn::causal_attention(query, key, value)", with(query, key_of, value),
       [](auto, auto q, auto k, auto v) { return ep::nn::causal_attention(q, k, v); });
  call("nn::attention_scores", "nn::attention_scores(query, key)", with(query, key_of),
       [](auto, auto q, auto k) { return ep::nn::attention_scores(q, k); });
  call("nn::hide_future", "nn::hide_future(scores)", with(scores), [](auto, auto s) { return ep::nn::hide_future(s); });
  call("nn::hide_unseen", "nn::hide_unseen(scores, seen)", with(scores, fixed<ep::boolean<2, 1, 1, 8>>{"seen"}),
       [](auto, auto s, auto seen) { return ep::nn::hide_unseen(s, seen); });
  call("nn::attention_mix", "nn::attention_mix(weights, value)", with(in<2, 4, 8, 8>{"weights"}, value),
       [](auto, auto w, auto v) { return ep::nn::attention_mix(w, v); });
  call("nn::dense", "nn::dense(x, weight, bias)", with(x, in<6, 8>{"weight"}, in<8>{"bias"}),
       [](auto, auto p, auto w, auto c) { return ep::nn::dense(p, w, c); });
  call("nn::mlp", "nn::mlp(x, weight_in, bias_in, weight_out, bias_out)",
       with(x, in<6, 8>{"weight_in"}, in<8>{"bias_in"}, in<8, 6>{"weight_out"}, in<6>{"bias_out"}),
       [](auto, auto p, auto w, auto c, auto v, auto d) { return ep::nn::mlp(p, w, c, v, d); });
  call("nn::layer_norm", "nn::layer_norm(x, gain, bias)", with(x, gain, bias),
       [](auto, auto p, auto g, auto c) { return ep::nn::layer_norm(p, g, c); });
  call("nn::rms_norm", "nn::rms_norm(x, gain)", with(x, gain),
       [](auto, auto p, auto g) { return ep::nn::rms_norm(p, g); });
  call("nn::batch_norm", "nn::batch_norm(x, gain, bias)", with(x, gain, bias),
       [](auto, auto p, auto g, auto c) { return ep::nn::batch_norm(p, g, c); });
  call("nn::batch_norm_with", "nn::batch_norm_with(x, mean, variance, gain, bias)",
       with(x, in<6>{"mean"}, in<6>{"variance"}, gain, bias),
       [](auto, auto p, auto m, auto v, auto g, auto c) { return ep::nn::batch_norm_with(p, m, v, g, c); });
  call("nn::batch_statistics", "nn::batch_statistics(x)", with(x),
       [](auto, auto p) { return ep::nn::batch_statistics(p); });
  call("nn::group_norm", "nn::group_norm<2>(x, gain, bias)", with(x, gain, bias),
       [](auto, auto p, auto g, auto c) { return ep::nn::group_norm<2>(p, g, c); });
  const in<4, 6> logits{"logits"};
  call("nn::cross_entropy", "nn::cross_entropy(logits, targets)", with(logits, targets),
       [](auto, auto l, auto t) { return ep::nn::cross_entropy(l, t); });
  call("nn::cross_entropy_sum", "nn::cross_entropy_sum(logits, targets)", with(logits, targets),
       [](auto, auto l, auto t) { return ep::nn::cross_entropy_sum(l, t); });
  call("nn::cross_entropy_each", "nn::cross_entropy_each(logits, targets)", with(logits, targets),
       [](auto, auto l, auto t) { return ep::nn::cross_entropy_each(l, t); });
  // A state is a tree; here one of a single matrix, whose tensors are made from that.
  const fixed<ep::f32<>> rate{"rate"};
  call_as_is("nn::adamw_step", "nn::adamw_step(state, gradients, rate)", "f32",
             with(fixed<ep::f32<4, 6>>{"parameter"}, fixed<ep::f32<4, 6>>{"gradient"}, rate),
             [](auto, auto p, auto g, auto r) {
               using leaf = ep::symbols<typename decltype(p)::mesh>;
               ep::nn::adamw<parameters>::state<leaf> state{{p}, {p}, {p}, r};
               return ep::nn::adamw_step(state, parameters<leaf>{g}, r);
             });
  call_as_is("nn::sgd_step", "nn::sgd_step(state, gradients, rate)", "f32",
             with(fixed<ep::f32<4, 6>>{"parameter"}, fixed<ep::f32<4, 6>>{"gradient"}, rate),
             [](auto, auto p, auto g, auto r) {
               using leaf = ep::symbols<typename decltype(p)::mesh>;
               ep::nn::sgd<parameters>::state<leaf> state{{p}, {p}, r};
               return ep::nn::sgd_step(state, parameters<leaf>{g}, r);
             });
}

/// Ops that the calls above do not come to: what holds a program together.
void note_others() {
  ep::builder code;
  const int from = ep::emit::argument(code, ep::dtype::f32, ep::f32<4, 6>::shape, 0);
  ep::emit::result(code, from, 0, -1);
  ep::emit::region_begin(code, 3, false, false);
  const int carry = ep::emit::region_parameter(code, from);
  const int own = ep::emit::own(code, from);
  ep::emit::region_yield(code, carry, own);
  ep::emit::region_end(code);
  ep::emit::loop_sum(code, own);
  ep::emit::loop_stack(code, own);
  const int places = ep::emit::top_k(code, from, 1, 3) + 1;
  ep::emit::put_along(code, ep::emit::take_along(code, from, places, 1), places, 1, 6);
  ep::instruction part_top = ep::builder::make(ep::ops::part_of_top_k, ep::dtype::f32, ep::f32<4, 3>::shape, from);
  ep::set_attributes(part_top, ep::along_attributes{.dim = 1});
  ep::emit::further_result(code, code.append(part_top), 1, ep::dtype::i32, ep::f32<4, 3>::shape);
  ep::emit::normalised(code, ep::ops::standardise, from, from, from, 0b10);
  ep::instruction part = ep::builder::make(ep::ops::part_of_cumulate, ep::dtype::f32, ep::f32<4, 2>::shape, from);
  ep::set_attributes(part, ep::cumulate_attributes{.dim = 1});
  code.append(part);
  ep::emit::again(code, from);
  ep::emit::annotated(code, ep::ops::shard_value, from, code.annotate(ep::f32<4, 6>::shape, ep::sharding::whole(2)));
  const int square = ep::emit::argument(code, ep::dtype::f32, ep::f32<6, 6>::shape, 1);
  const ep::detail::einsum_formula formula = ep::detail::formula_of<"ab,bc->ac">;
  const int product = ep::emit::einsum(code, from, formula.operand[0], square, formula.operand[1], formula.result);
  ep::emit::add_to(code, from, product);
  for (int id = 0; id < code.size(); ++id) note_op(code, id);
}

}  // namespace

int main() {
  for (const ep::dtype type : types_in_order)
    row("type", ep::name_of(type), ep::is_floating(type) ? "float" : ep::is_integer(type) ? "integer" : "truth");
  operators();
  elementwise();
  made_from_nothing();
  products();
  dimensions();
  reductions();
  windows();
  random_numbers();
  loops();
  layouts();
  functions_of_functions();
  gradients_of_ones_own();
  models();
  note_others();
  for (const auto& [name, known] : op_rows)
    row("op", name, known.rule, partial_of(*known.op), kernel_of(*known.op), gradient_of_op(*known.op));
}
