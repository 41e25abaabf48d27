// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/diagnostics/report.hpp>
#include <espalier/execute/aliases.hpp>
#include <espalier/execute/array.hpp>
#include <espalier/execute/program_device.hpp>
#include <espalier/graph/named_leaves.hpp>
#include <espalier/program/program.hpp>
#include <espalier/sharding/print.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier {

namespace detail {

/// The run-time data for what a program declares or returns.
template <class T> struct data_for { using type = sharded_array<plain<T>>; };
template <class T> struct data_for<donated<T>> : data_for<T> {};
template <class Mesh, class Tensor> struct data_for<symbol<Mesh, Tensor>> { using type = sharded_array<Tensor>; };
template <ParameterTree Tree> struct data_for<Tree> { using type = with_leaves<Tree, arrays>; };
template <class... Parts> struct data_for<results<Parts...>> {
  using type = results<typename data_for<Parts>::type...>;
};

/// Throws `argument_error`. `wanted`, `given`: the layouts, as they are printed; `elsewhere`: the devices of another
/// world on which the argument lies, or empty.
[[noreturn]] void refuse_argument(const world& where, const std::string& name, const std::string& maker,
                                  const std::string& wanted, const std::string& given, const std::string& elsewhere);

template <class Given, class Taken> struct argument_pair {};
/// The first argument of a call that is not of the type that the program takes, as a report.
template <int Index, class First, class... Rest> [[nodiscard]] constexpr auto find_argument_mistake() {
  return []<class Given, class Taken>(argument_pair<Given, Taken>) {
    if constexpr (!std::is_same_v<Given, Taken>) {
      return report<why::run_argument_of_another_type<Given, Taken>, why::argument<Index>>{};
    } else if constexpr (sizeof...(Rest) > 0) {
      return find_argument_mistake<Index + 1, Rest...>();
    } else {
      return nothing_to_report{};
    }
  }(First{});
}

/// What stands for arrays of a program with a mistake: nothing that is asked of them adds an error to the one that
/// counts.
class no_array : public sharded_array<f32<>> {
 public:
  template <int I> [[nodiscard]] const no_array& get() const { return *this; }
  template <class F> void for_each(const F& /*f*/) const {}
};
template <class Argument> struct argument_data { using type = no_array; };
template <class Argument>
  requires requires { typename data_for<Argument>::type; }
struct argument_data<Argument> : data_for<Argument> {};

template <> struct data_for<no_result> { using type = no_array; };

}  // namespace detail

}  // namespace espalier

template <> struct std::tuple_size<espalier::detail::no_array> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I> struct std::tuple_element<I, espalier::detail::no_array> {
  using type = const espalier::detail::no_array;
};

namespace espalier {

/// Runs a program on a world. Making one allocates everything the program needs; calling it allocates nothing.
///
///     runner<step> run(world);
///     auto x = run.argument<0>();               // zeros, laid out as the program wants them: fill them
///     const auto& y = run(x, w_in, w_out);
///
/// Results stay valid until the next call. A donated argument's result is that argument.
///
/// Whatever arrays are the same, each argument is read as it was before the call. `x = run(x)` and `run(y)` for a
/// result y of the last call are right: results then go to a second set of buffers, which the first such call
/// allocates. So is an array given twice, once of it donated: it is copied for each call.
template <class Program> class runner {
  // Before the program itself is made from here.
  static_assert(sizeof(typename detail::mistake_in_types<Program>::type::raised) > 0);

 public:
  using result_type = typename detail::data_for<typename Program::result_type>::type;
  template <int I>
  using argument_type = typename detail::argument_data<typename Program::template argument_at<I>>::type;
  static constexpr int arity = Program::arity;

  /// Errors: `launch_error` if the world's mesh is not the program's.
  explicit runner(world& where) : world_(where), tables_(tables_for(where)), aliases_(find_results()) {
    if constexpr (Program::is_sound) {
      static const bool warned = warn(where);
      static_cast<void>(warned);
      make_results();
      start_devices();
    }
  }
  /// Of a program that `compile` returned: `runner run(world, step)`.
  runner(world& where, const Program& /*program*/) : runner(where) {}
  runner(const runner&) = delete;
  runner& operator=(const runner&) = delete;

  /// Argument I, all zeros.
  template <int I> [[nodiscard]] argument_type<I> argument() const {
    argument_type<I> made;
    int index = Program::template first_leaf<I>();
    detail::for_each_leaf(made, [&](auto& one) {
      using array = std::remove_reference_t<decltype(one)>;
      one = array(world_, Program::parts, Program::argument_layout(index++).placement);
    });
    return made;
  }

  /// Errors: `argument_error` if an array is empty, of another world or laid out in another way than the program wants
  /// it, or if one array is given for two arguments that both change; then nothing has run.
  template <class... Arguments> const result_type& operator()(Arguments&... arguments) {
    using mistake = decltype(check_types<std::remove_const_t<Arguments>...>(std::make_integer_sequence<int, arity>{}));
    static_assert(sizeof(typename mistake::raised) > 0);
    if constexpr (!mistake::is_mistake) call(std::make_integer_sequence<int, arity>{}, arguments...);
    return results_;
  }

 private:
  template <class... Given, int... I> static constexpr auto check_types(std::integer_sequence<int, I...> /*all*/) {
    constexpr int given = static_cast<int>(sizeof...(Given));
    if constexpr (!Program::is_sound) {
      return detail::reported_by_compiler{};
    } else if constexpr (given != arity) {
      return detail::report<why::run_takes_other_arguments<why::takes<arity>, why::given<given>>, why::program>{};
    } else if constexpr (arity == 0) {
      return detail::nothing_to_report{};
    } else {
      return detail::find_argument_mistake<0, detail::argument_pair<Given, argument_type<I>>...>();
    }
  }

  template <int... I, class... Arguments> void call(std::integer_sequence<int, I...> all, Arguments&... arguments) {
    int index = 0;
    (detail::for_each_leaf(arguments, [&](const auto& one) { check(all, index++, one); }), ...);
    bool as_before = settled_;
    settled_ = false;
    index = 0;
    (detail::for_each_leaf(arguments,
                           [&](const auto& one) {
                             void*& begin = begins_[static_cast<std::size_t>(index++)];
                             as_before = as_before && begin == one.data(0);
                             begin = one.data(0);
                           }),
     ...);
    if (!as_before) {
      find_aliases(all);
      forget_former();  // of a call that failed
    }
    index = 0;
    (detail::for_each_leaf(arguments, [&](const auto& one) { bind(index++, one, as_before); }), ...);
    // Arguments may be results: not before all of them are bound.
    if (!as_before) place_results();
    world_.on_devices([this](int local, comm::any_communicator&) {
      for (const copy& one : copies_[static_cast<std::size_t>(local)]) one.make();
      devices_[static_cast<std::size_t>(local)]->run();
    });
    // What only the last results held was an argument until now.
    if (!as_before) forget_former();
    settled_ = aliases_.copied().empty() && aliases_.renewed().empty();
  }

  template <int... I, class Tensor>
  void check(std::integer_sequence<int, I...> all, int index, const sharded_array<Tensor>& array) const {
    const sharding& wanted = Program::argument_layout(index).placement;
    if (!array.empty() && array.lies_in(world_) && array.lies_as(tables_.mesh, wanted)) return;
    const bool is_elsewhere = !array.empty() && !array.lies_in(world_);
    detail::refuse_argument(world_, "argument " + name_of(all, index) + " of the program", maker_of(all, index),
                            to_string(world_.mesh_value(), Program::parts, Tensor::type, Tensor::shape, wanted),
                            array.empty() ? std::string("an empty array") : array.text(),
                            is_elsewhere ? detail::array_memory::devices_of(array) : std::string());
  }

  template <int... I> void find_aliases(std::integer_sequence<int, I...> all) {
    aliases_.find(begins_, own_results_);
    if (const auto [first, second] = aliases_.clash(); first >= 0) {
      throw argument_error("arguments " + name_of(all, first) + " and " + name_of(all, second) +
                           " are the same array, but each is donated, for a result of its own. Make the second with " +
                           maker_of(all, second) + " of this runner, and copy the elements.");
    }
  }

  /// "1", or "1.blocks.up.weight" for a leaf of a tree.
  template <int... I> static std::string name_of(std::integer_sequence<int, I...>, int leaf) {
    std::string name;
    const auto look = [&](auto made, int argument, int first) {
      for_each_named_leaf(made, [&](const auto&, const leaf_path& path) {
        if (first++ != leaf) return;
        const std::string inside = path.str();
        name = std::to_string(argument) + (inside.empty() ? "" : ".") + inside;
      });
    };
    (look(argument_type<I>(), I, Program::template first_leaf<I>()), ...);
    return name;
  }
  template <int... I> static std::string maker_of(std::integer_sequence<int, I...>, int leaf) {
    int argument = 0;
    ((argument = Program::template first_leaf<I>() <= leaf ? I : argument), ...);
    return "argument<" + std::to_string(argument) + ">()";
  }

  template <class Tensor> void bind(int index, const sharded_array<Tensor>& array, bool as_before) {
    const auto at = static_cast<std::size_t>(index);
    const auto& copied = aliases_.copied();
    const bool apart = !as_before && std::find(copied.begin(), copied.end(), index) != copied.end();
    const std::vector<shared_buffer>& shards = detail::array_memory::shards(array);
    if (apart && private_[at].empty()) private_[at] = buffers_like(shards);
    for (std::size_t local = 0; local < shards.size(); ++local) {
      if (apart) copies_[local].push_back({private_[at][local].data(), shards[local].data(), shards[local].bytes()});
      devices_[local]->set_argument(index, (apart ? private_[at] : shards)[local].data());
    }
    if (!as_before && result_in_[at] >= 0) donations_[at] = shards;
  }

  static bool is_free(const std::vector<shared_buffer>& buffers) {
    return !buffers.empty() && std::none_of(buffers.begin(), buffers.end(), std::mem_fn(&shared_buffer::is_shared));
  }
  static std::vector<shared_buffer> buffers_like(const std::vector<shared_buffer>& others) {
    std::vector<shared_buffer> made;
    for (const shared_buffer& one : others) made.emplace_back(one.bytes());
    return made;
  }

  /// Gives each result that takes an argument's place that argument's memory, and other memory to those whose own is an
  /// argument. What they had stays until `forget_former`, or as the next such call's other memory.
  void place_results() {
    const auto& renewed = aliases_.renewed();
    int index = 0;
    detail::for_each_leaf(results_, [&](auto& one) {
      std::vector<shared_buffer>& own = detail::array_memory::shards(one);
      const auto at = static_cast<std::size_t>(index);
      if (const int source = donated_[at]; source >= 0) {
        former_[at].swap(own);
        own = donations_[static_cast<std::size_t>(source)];
      } else if (std::find(renewed.begin(), renewed.end(), index) != renewed.end()) {
        std::vector<shared_buffer>& other = former_[at];
        if (!is_free(other)) other = buffers_like(own);
        other.swap(own);
        set_result(index, own);
      }
      ++index;
    });
  }
  void forget_former() {
    for (std::size_t r = 0; r < donated_.size(); ++r) {
      if (donated_[r] >= 0) former_[r].clear();
    }
    for (auto& one : donations_) one.clear();
    for (auto& list : copies_) list.clear();
  }

  static bool warn(const world& where) {
    const char* const warning = kernels::blas_warning();
    if (warning != nullptr && where.is_root()) std::cerr << "espalier: " << warning << '\n';
    return true;
  }

  static program_tables tables_for(const world& where) {
    if (detail::same_grid(where.mesh_value(), Program::mesh::value)) return tables_of<Program>();
    throw launch_error("the program is compiled for " + detail::text_of(Program::mesh::value) +
                       ", but the world it is to run on has " + detail::text_of(where.mesh_value()) +
                       ": make the world with the program's mesh");
  }

  /// Which result takes which argument's place.
  detail::alias_finder find_results() {
    std::vector<char> changed(static_cast<std::size_t>(tables_.argument_count), 0);
    result_in_.resize(changed.size(), -1);
    for (int id = 0; id < tables_.code.size; ++id) {
      const instruction& i = tables_.code[id];
      if (part_of(i) != structure::result) continue;
      const int source =
          i.operand_count == 2 ? attributes_of<border_attributes>(tables_.code[i.operand[1]]).number : -1;
      if (source >= 0) {
        changed[static_cast<std::size_t>(source)] = 1;
        result_in_[static_cast<std::size_t>(source)] = static_cast<int>(donated_.size());
      }
      donated_.push_back(source);
    }
    return {std::move(changed), static_cast<int>(donated_.size())};
  }

  void make_results() {
    begins_.resize(result_in_.size());
    private_.resize(result_in_.size());
    donations_.resize(result_in_.size());
    former_.resize(donated_.size());
    own_results_.resize(donated_.size(), nullptr);
    copies_.resize(static_cast<std::size_t>(world_.local_devices()));
    std::size_t index = 0;
    detail::for_each_leaf(results_, [&](auto& one) {
      using array = std::remove_reference_t<decltype(one)>;
      if (const int source = donated_[index]; source >= 0) {
        detail::array_memory::place(one, world_, Program::parts, Program::argument_layout(source).placement);
      } else {
        one = array(world_, Program::parts, Program::result_layout(static_cast<int>(index)).placement);
      }
      ++index;
    });
  }

  void start_devices() {
    devices_.resize(static_cast<std::size_t>(world_.local_devices()));
    world_.on_devices([this](int local, comm::any_communicator& communicator) {
      devices_[static_cast<std::size_t>(local)] = detail::make_device(tables_, world_.device(local), communicator);
    });
    int index = 0;
    detail::for_each_leaf(results_, [&](auto& one) { set_result(index++, detail::array_memory::shards(one)); });
  }
  void set_result(int index, const std::vector<shared_buffer>& shards) {
    if (shards.empty()) return;
    own_results_[static_cast<std::size_t>(index)] = shards.front().data();
    for (std::size_t local = 0; local < shards.size(); ++local)
      devices_[local]->set_result(index, shards[local].data());
  }

  struct copy {
    void* to;
    const void* from;
    std::int64_t bytes;

    void make() const {
      detail::parallel_ranges(bytes, bytes / 4, [this](std::int64_t first, std::int64_t last) {
        std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                    static_cast<std::size_t>(last - first));
      });
    }
  };

  world& world_;
  program_tables tables_;
  result_type results_;
  std::vector<int> donated_;    // by result: the argument whose place it takes, or -1
  std::vector<int> result_in_;  // by argument: the result that takes its place, or -1
  detail::alias_finder aliases_;
  /// Where arguments and the results with memory of their own begin, on the first device of this process.
  std::vector<void*> begins_;
  std::vector<void*> own_results_;
  /// The last call had these arguments, and nothing had to be done about them.
  bool settled_ = false;
  /// By argument: what a copy is made into; and during a call the memory that a result takes.
  std::vector<std::vector<shared_buffer>> private_;
  std::vector<std::vector<shared_buffer>> donations_;
  /// By result: the memory it does not use at present.
  std::vector<std::vector<shared_buffer>> former_;
  std::vector<std::vector<copy>> copies_;  // by device: before it runs
  std::vector<std::unique_ptr<detail::program_device>> devices_;
};

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/execute/runner_compiled.hpp>
#endif
