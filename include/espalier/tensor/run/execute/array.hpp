// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/dtype.hpp>
#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/tensor/core/diagnostics/reasons.hpp>
#include <espalier/tensor/core/graph/named_leaves.hpp>
#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/mesh/axis_parts.hpp>
#include <espalier/tensor/run/execute/buffer.hpp>
#include <espalier/tensor/run/execute/world.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier {

/// An argument does not fit the program or the world it is given to.
struct argument_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

namespace detail {
struct array_memory;

/// Whatever may make an array of partial sums calls this first, so that its readers can reduce them
/// (execute/reduce_terms.hpp).
void expect_partial_sums();

/// A call to which an array was donated: its handles, and the copies of these, share one.
struct donation {
  const char* file = "";
  int line = 0;
  int argument = 0;
  /// How many arrays of the user have taken its result. They count for good, whether they live on or not, so that
  /// lifetimes do not decide what a line means.
  int takers = 0;
};

/// A handle's own: a copy of a runner's result is a user's.
struct handle_state {
  handle_state() = default;
  handle_state(const handle_state& other) { become(other); }
  handle_state(handle_state&& other) noexcept : donated(std::move(other.donated)) { take(other); }
  handle_state& operator=(const handle_state& other) {
    if (this != &other) become(other);
    return *this;
  }
  handle_state& operator=(handle_state&& other) noexcept {
    donated = std::move(other.donated);
    take(other);
    return *this;
  }
  ~handle_state() = default;

  /// This copy was made for its layout alone: it has memory of its own, and takes nothing from other arrays.
  void own_memory() {
    donated = nullptr;
    if (took != nullptr) --took->takers;
    took = nullptr;
  }

  std::shared_ptr<donation> donated;
  bool is_of_runner = false;
  /// The donation of the argument in whose memory this result of a runner lies; else null.
  donation* gives = nullptr;

 private:
  void become(const handle_state& other) {
    donated = other.donated;
    take(other);
  }
  void take(const handle_state& other) {
    took = other.gives;
    if (took != nullptr) ++took->takers;
  }

  donation* took = nullptr;  // as long as the copy of a runner's result is being made
};

}  // namespace detail

/// A tensor spread over the devices of a world, for code that needs no elements: the members that arrays of all types
/// share.
class any_array {
 public:
  [[nodiscard]] bool empty() const { return shards_.empty(); }
  [[nodiscard]] dtype type() const { return type_; }
  /// The shape of the whole tensor.
  [[nodiscard]] const extents& shape() const { return shape_; }
  /// How it is placed on `mesh()`.
  [[nodiscard]] const layout& placed() const { return placed_; }
  /// The world's mesh; of an array of a program that cuts axes into parts, `device_mesh` of the program.
  [[nodiscard]] const mesh_shape& mesh() const { return mesh_; }
  /// The axes of `mesh()`, as parts of those of the world's mesh.
  [[nodiscard]] const axis_parts& parts() const { return parts_; }
  /// `f32[64@data, 1024@model]`
  [[nodiscard]] std::string text() const;
  /// Whether every device holds the same elements as in this layout on parts of the axes of the same mesh.
  [[nodiscard]] bool lies_as(const mesh_shape& mesh, const sharding& placement) const;
  [[nodiscard]] int local_count() const { return static_cast<int>(shards_.size()); }
  [[nodiscard]] int device(int local) const { return devices_[static_cast<std::size_t>(local)]; }
  /// The shape of every shard's buffer, padding included.
  [[nodiscard]] extents local_extents() const { return local_shape(mesh_, shape_, placed_.placement); }
  /// Whether a program of `where` finds this array's shards where it looks for its own: it was made for that world, or
  /// for another one in which this process has the same devices of the same mesh.
  [[nodiscard]] bool lies_in(const world& where) const;
  /// Whether this was donated to a call whose result another array has taken: its memory is that array's.
  [[nodiscard]] bool is_spent() const { return handle_.donated != nullptr && handle_.donated->takers > 0; }
  /// Errors: `argument_error`, with the call, if it is.
  void require_unspent() const {
    if (is_spent()) refuse_spent();
  }
  /// Which elements of dimension `dim` a shard really holds.
  [[nodiscard]] interval held(int local, int dim) const {
    return local_interval(mesh_, shape_[dim], placed_.placement.dim[dim], device(local));
  }

 protected:
  any_array(dtype type, const extents& shape);
  any_array(const any_array& other);
  any_array(any_array&& other) noexcept;
  any_array& operator=(const any_array& other);
  any_array& operator=(any_array&& other) noexcept;
  ~any_array();

  /// Zeros, placed as given on parts of the axes of the world's mesh.
  void make(const world& where, const axis_parts& parts, const sharding& placement);
  [[nodiscard]] void* memory(int local) const {
    require_unspent();
    return shards_[static_cast<std::size_t>(local)].data();
  }
  /// Prepares a device's shard for writing: if the array is a partial sum, its terms become 0. Returns whether this
  /// device writes the elements.
  bool begin_writing(int local) const;
  void refuse_reading_terms() const {
    if (placed_.placement.unreduced != 0) refuse_terms("for_each reads");
  }

 private:
  friend struct detail::array_memory;

  dtype type_;
  extents shape_;
  mesh_shape world_mesh_;
  axis_parts parts_;
  mesh_shape mesh_;
  layout placed_;
  std::vector<int> devices_;
  /// A call exchanges these if the array is an argument in a donated place.
  mutable std::vector<shared_buffer> shards_;
  mutable detail::handle_state handle_;

  [[noreturn]] void refuse_spent() const;
  [[noreturn]] void refuse_terms(const char* what) const;
};

namespace detail {

/// The rows of a shard, runs along the tensor's last dimension, in order: while `any`.
class shard_rows {
 public:
  shard_rows(const any_array& array, int local);
  void next();

  bool any = true;
  std::int64_t at = 0;      ///< the row's first element in the shard's buffer
  std::int64_t flat = 0;    ///< the same in the whole tensor
  std::int64_t length = 1;  ///< elements

 private:
  int outer_ = 0;
  std::int64_t count_[max_rank]{};
  std::int64_t index_[max_rank]{};
  std::int64_t step_[max_rank]{};
  std::int64_t whole_step_[max_rank]{};
};

}  // namespace detail

/// A tensor spread over the devices of a world: this process holds the shards of its own devices. Copies share the
/// shards.
template <TensorType Tensor> class sharded_array : public any_array {
 public:
  using tensor = Tensor;
  using value_type = storage_t<Tensor::type>;

  sharded_array() : any_array(Tensor::type, Tensor::shape) {}
  /// Zeros, placed as given on the world's mesh.
  sharded_array(const world& where, const sharding& placement)
      : sharded_array(where, axis_parts::whole(where.mesh_value()), placement) {}
  /// Zeros, placed as given on parts of the axes of the world's mesh.
  sharded_array(const world& where, const axis_parts& parts, const sharding& placement) : sharded_array() {
    detail::expect_partial_sums();
    make(where, parts, placement);
  }

  /// A shard's elements, dense and row-major in `local_extents()`; of partial sums this device's terms.
  [[nodiscard]] value_type* data(int local) const { return static_cast<value_type*>(memory(local)); }

  // Not there: the elements are spread over devices. A compile error says what to do instead.
  template <class Index> value_type& operator[](const Index& /*index*/) const {
    static_assert(sizeof(typename why::array_is_not_indexed<Index>::template raise<why::array>) > 0);
    return *data(0);
  }
  template <class Index = Tensor> value_type* begin() const {
    static_assert(sizeof(typename why::array_is_not_indexed<Index>::template raise<why::array>) > 0);
    return nullptr;
  }
  template <class Index = Tensor> value_type* end() const { return nullptr; }

  /// Calls f(element, flat index in the whole tensor) for every element this process holds.
  ///
  /// Of partial sums (`unreduced`) the first device of each sum gets what `f` writes, as the whole sum, into elements
  /// that are 0 before; the terms of all others become 0.
  /// Errors: `argument_error` if `f` only reads, and the array holds partial sums, or if the array was donated.
  template <class F> void for_each(const F& f) const {
    constexpr bool reads = std::is_invocable_v<const F&, value_type, std::int64_t>;
    if constexpr (reads) refuse_reading_terms();
    for (int k = 0; k < local_count(); ++k) {
      if constexpr (!reads) {
        if (!begin_writing(k)) continue;
      }
      for (detail::shard_rows row(*this, k); row.any; row.next()) {
        value_type* const first = data(k) + row.at;
        for (std::int64_t i = 0; i < row.length; ++i) f(first[i], row.flat + i);
      }
    }
  }
};

namespace detail {

/// Arrays' insides, for what runs programs on them.
struct array_memory {
  /// One for each device of this process; none in an empty array.
  static std::vector<shared_buffer>& shards(any_array& array) { return array.shards_; }
  static const std::vector<shared_buffer>& shards(const any_array& array) { return array.shards_; }
  static bool begin_writing(const any_array& array, int local) { return array.begin_writing(local); }
  static detail::handle_state& handle(const any_array& array) { return array.handle_; }
  /// Replaces the shards of an argument in a donated place.
  static void renew(const any_array& array, const std::vector<shared_buffer>& shards) { array.shards_ = shards; }
  /// Zeros, placed as given.
  static void make(any_array& array, const world& where, const axis_parts& parts, const sharding& as) {
    array.make(where, parts, as);
  }
  /// An empty array that is placed as given.
  static void place(any_array& array, const world& where, const axis_parts& parts, const sharding& as);
  /// "data 2, model 4, of which this process has device 3"
  [[nodiscard]] static std::string devices_of(const any_array& array);
  [[nodiscard]] static std::string devices_of(const world& where);
};

/// Errors: `argument_error` if the array, called `what` in the text, is empty or not of this world.
void require_in_world(const world& where, const any_array& array, const char* what);

}  // namespace detail

/// Leaves that are data: `dense<arrays>` is a parameter tree at run time.
struct arrays {
  template <class Tensor> using of = sharded_array<plain<Tensor>>;
};

namespace detail {

/// Visits every array of a tree or of `results`, with its path in its tree, in the order of declaration. A tree is
/// walked by the same code whoever visits.
template <class T>
void visit_arrays(T& tree, function_ref<void(any_array&, const leaf_path&)> visit, const leaf_path& path = {}) {
  if constexpr (std::is_const_v<T>) {
    // Handles are all that a visitor changes, and one of a tree that is const does not.
    visit_arrays(const_cast<std::remove_const_t<T>&>(tree), visit, path);
  } else if constexpr (ParameterTree<T>) {
    boost::hana::unpack(boost::hana::accessors<T>(), [&](const auto&... member) {
      (visit_arrays(boost::hana::second(member)(tree), visit, leaf_path{&path, boost::hana::first(member).c_str()}),
       ...);
    });
  } else if constexpr (is_results<T>) {
    if constexpr (!std::is_same_v<T, results<>>) {
      visit_arrays(tree.first, visit, path);
      visit_arrays(tree.rest, visit, path);
    }
  } else {
    visit(tree, path);
  }
}

}  // namespace detail

template <class T> inline constexpr bool is_sharded_array = false;
template <class Tensor> inline constexpr bool is_sharded_array<sharded_array<Tensor>> = true;

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/array.ipp>
#endif
