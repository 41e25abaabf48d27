// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/execute/array.hpp>
#include <espalier/execute/device.hpp>
#include <espalier/sharding/print.hpp>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace espalier {

/// An argument does not fit the program it is given to.
struct argument_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

namespace detail {

/// The run-time data for what a program declares or returns.
template <class T> struct data_for { using type = sharded_array<plain<T>>; };
template <class T> struct data_for<donated<T>> : data_for<T> {};
template <class Mesh, class Tensor> struct data_for<symbol<Mesh, Tensor>> { using type = sharded_array<Tensor>; };
template <ParameterTree Tree> struct data_for<Tree> { using type = with_leaves<Tree, arrays>; };
template <class... Parts> struct data_for<results<Parts...>> {
  using type = results<typename data_for<Parts>::type...>;
};

}  // namespace detail

/// Runs a program on a world. Making one allocates everything the program needs; calling it allocates nothing.
///
///     runner<step> run(world);
///     auto x = run.argument<0>();          // zeros, laid out as the program wants them; fill them, or scatter into
///     them const auto& y = run(x, w_in, w_out);
///
/// Results stay valid until the next call. A donated argument's result is that argument.
template <class Program> class runner {
 public:
  using result_type = typename detail::data_for<typename Program::result_type>::type;
  template <int I> using argument_type = typename detail::data_for<typename Program::template argument_at<I>>::type;
  static constexpr int arity = Program::arity;

  explicit runner(world& where) : world_(where), tables_(tables_of<Program>()) {
    static const bool warned = warn(where);
    static_cast<void>(warned);
    make_results();
    start_devices();
  }
  runner(const runner&) = delete;
  runner& operator=(const runner&) = delete;

  /// Argument I, all zeros.
  template <int I> [[nodiscard]] argument_type<I> argument() const {
    argument_type<I> made;
    int index = Program::template first_leaf<I>();
    detail::for_each_leaf(made, [&](auto& one) {
      using array = std::remove_reference_t<decltype(one)>;
      one = array(world_, Program::argument_layout(index++).placement);
    });
    return made;
  }

  /// Errors: `argument_error` if an array is empty or laid out in another way than the program wants it.
  template <class... Arguments> const result_type& operator()(Arguments&... arguments) {
    static_assert(sizeof...(Arguments) == static_cast<std::size_t>(arity),
                  "run: the program takes another number of arguments");
    call(std::make_integer_sequence<int, arity>{}, arguments...);
    return results_;
  }

 private:
  template <int... I, class... Arguments> void call(std::integer_sequence<int, I...>, Arguments&... arguments) {
    static_assert((std::is_same_v<std::remove_const_t<Arguments>, argument_type<I>> && ...),
                  "run: an argument has another type than the program declares; compare argument_type<I>");
    int index = 0;
    (detail::for_each_leaf(arguments, [&](auto& one) { bind(index++, one); }), ...);
    index = 0;
    detail::for_each_leaf(results_, [&](auto& one) { share_donated(index++, one, arguments...); });
    world_.on_devices([this](int local, auto&) { devices_[static_cast<std::size_t>(local)]->run(); });
  }

  template <class Tensor> void bind(int index, const sharded_array<Tensor>& array) {
    const sharding& wanted = Program::argument_layout(index).placement;
    if (array.empty() || !array.placed().placement.same_layout(wanted)) {
      const auto text = [&](const sharding& s) {
        return to_string(world_.mesh_value(), Tensor::type, Tensor::shape, s);
      };
      throw argument_error("argument " + std::to_string(index) + " of the program is laid out as " + text(wanted) +
                           ", but was given " +
                           (array.empty() ? std::string("an empty array") : text(array.placed().placement)) +
                           ". Make it with runner::argument<I>(), or declare the argument as sharded<...>.");
    }
    for (int local = 0; local < array.local_count(); ++local) {
      devices_[static_cast<std::size_t>(local)]->set_argument(index, array.data(local));
    }
  }

  /// The result that takes an argument's place is that argument.
  template <class Array, class... Arguments> void share_donated(int index, Array& result, Arguments&... arguments) {
    const int source = donated_[static_cast<std::size_t>(index)];
    if (source < 0) return;
    int leaf = 0;
    const auto look = [&](auto& one) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(one)>, Array>) {
        if (leaf == source) result = one;
      }
      ++leaf;
    };
    (detail::for_each_leaf(arguments, look), ...);
  }

  static bool warn(const world& where) {
    const char* const warning = kernels::blas_warning();
    if (warning != nullptr && where.is_root()) std::cerr << "espalier: " << warning << '\n';
    return true;
  }

  void make_results() {
    for (int id = 0; id < tables_.code.size; ++id) {
      const instruction& i = tables_.code[id];
      if (i.op != &ops::result) continue;
      donated_.push_back(i.operand_count == 2 ? static_cast<int>(tables_.code[i.operand[1]].attribute[0]) : -1);
    }
    int index = 0;
    detail::for_each_leaf(results_, [&](auto& one) {
      using array = std::remove_reference_t<decltype(one)>;
      if (donated_[static_cast<std::size_t>(index)] < 0) one = array(world_, Program::result_layout(index).placement);
      ++index;
    });
  }

  void start_devices() {
    devices_.resize(static_cast<std::size_t>(world_.local_devices()));
    world_.on_devices([this](int local, auto& communicator) {
      using communicator_type = std::remove_reference_t<decltype(communicator)>;
      devices_[static_cast<std::size_t>(local)] =
          std::make_unique<device_of<communicator_type>>(tables_, world_.device(local), communicator);
    });
    int index = 0;
    detail::for_each_leaf(results_, [&](auto& one) {
      for (int local = 0; local < one.local_count(); ++local) {
        devices_[static_cast<std::size_t>(local)]->set_result(index, one.data(local));
      }
      ++index;
    });
  }

  /// One process has devices of one kind of communicator; which one is known when the world is.
  struct any_device {
    any_device() = default;
    any_device(const any_device&) = delete;
    any_device& operator=(const any_device&) = delete;
    virtual ~any_device() = default;
    virtual void run() = 0;
    virtual void set_argument(int index, void* data) = 0;
    virtual void set_result(int index, void* data) = 0;
  };
  template <class Communicator> struct device_of final : any_device {
    detail::device_executor<Communicator> executor;
    device_of(const program_tables& t, int device, Communicator& comm) : executor(t, device, comm) {}
    void run() override { executor.run(); }
    void set_argument(int index, void* data) override { executor.set_argument(index, data); }
    void set_result(int index, void* data) override { executor.set_result(index, data); }
  };

  world& world_;
  program_tables tables_;
  result_type results_;
  std::vector<int> donated_;
  std::vector<std::unique_ptr<any_device>> devices_;
};

}  // namespace espalier
