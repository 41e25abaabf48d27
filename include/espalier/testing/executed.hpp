// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/run/execute/part_executor.hpp>
#include <espalier/testing/interpret_spmd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// Executes programs over poisoned memory, all devices of a mesh by turns in one thread, with the very walk that
/// programs take everywhere: compiled ones, and graphs made at run time, which go through schedule, memory and fusion
/// first and have each op's `evaluate` for kernels. Collectives are plain copies.
namespace espalier::test {

// --- the plan, made at run time
// ---------------------------------------------------------------------------------------

/// A buffer of the arena, and where it is.
struct placed_buffer : buffer {
  std::int64_t offset = 0;
};

/// The parts of `detail::planned` and `detail::lowered`, in order.
class run_time_plan {
 public:
  /// `limits`: from where on rows are cut, and into which blocks.
  run_time_plan(const mesh_shape& mesh, graph_view g, row_limits limits = {}) : schedule_(make_schedule(g, limits)) {
    memory_outline outline = outline_memory(mesh, g, schedule_);
    const auto size = static_cast<std::size_t>(g.size);
    const int count = outline.buffers.size();
    const int units = schedule_.units.size();
    buffers_.assign(outline.buffers.data(), outline.buffers.data() + count);
    offsets_.resize(buffers_.size());
    std::vector<int> order(buffers_.size());
    sort_buffers(buffers_.data(), count, order.data());
    tables_.arena_bytes = place_buffers(buffers_.data(), order.data(), 0, count, units, offsets_.data());
    std::vector<std::int64_t> base(size, -1);
    for (std::size_t b = 0; b < buffers_.size(); ++b) base[static_cast<std::size_t>(buffers_[b].value)] = offsets_[b];
    copies_.assign(size, -1);
    saved_at_.assign(size, -1);
    for (int n = 0; n < outline.copies.size(); ++n) copies_[static_cast<std::size_t>(n)] = outline.copies[n];
    for (int id = 0; id < g.size; ++id) {
      if (outline.saved[id]) saved_at_[static_cast<std::size_t>(id)] = base[static_cast<std::size_t>(id)];
      location at = outline.within[id];
      if (outline.root[id] < 0) at = {};
      if (at.space == memory_space::arena) at.offset += base[static_cast<std::size_t>(outline.root[id])];
      where_.push_back(at);
      if (part_of(g[id]) == structure::argument) {
        tables_.argument_count = std::max(tables_.argument_count, attributes_of<border_attributes>(g[id]).number + 1);
      }
      if (part_of(g[id]) == structure::result) ++tables_.result_count;
    }
    root_ = std::move(outline.root);
    copied_ = std::move(outline.copied);
    tables_.mesh = mesh;
    tables_.code = g;
    tables_.units = schedule_.units.data();
    tables_.unit_count = units;
    tables_.order = schedule_.order.data();
    tables_.unit_of = schedule_.unit_of.data();
    tables_.role = schedule_.role.data();
    tables_.stored = schedule_.stored.data();
    tables_.where = where_.data();
    tables_.root = root_.data();
    tables_.copied = copied_.data();
    tables_.copies = copies_.data();
    tables_.saved_at = saved_at_.data();
    fused_ = detail::fuser(g, tables_, limits).run();
    tables_.steps = fused_.steps.data();
    tables_.step_count = fused_.steps.size();
    tables_.chains = fused_.chains.data();
    tables_.reducer_of = &comm::reducer_of;
    tables_.transfers = detail::all_transfers();
  }
  run_time_plan(const run_time_plan&) = delete;
  run_time_plan& operator=(const run_time_plan&) = delete;

  [[nodiscard]] const program_tables& tables() const { return tables_; }
  [[nodiscard]] std::vector<placed_buffer> buffers() const {
    std::vector<placed_buffer> all;
    for (std::size_t b = 0; b < buffers_.size(); ++b) all.push_back({buffers_[b], offsets_[b]});
    return all;
  }

 private:
  schedule schedule_;
  std::vector<buffer> buffers_;
  std::vector<std::int64_t> offsets_;
  std::vector<location> where_;
  detail::list<int> root_;
  detail::list<bool> copied_;
  std::vector<int> copies_;
  std::vector<std::int64_t> saved_at_;
  fused_program fused_;
  program_tables tables_;
};

// --- elements in memory
// -----------------------------------------------------------------------------------------------

/// Bytes that are a NaN in every floating-point type, -1 as an integer, and no truth value.
inline constexpr int poison = 0xFF;

[[nodiscard]] inline double load(dtype type, const void* memory, std::int64_t index) {
  const char* const at = static_cast<const char*>(memory) + index * size_of(type);
  return with_storage(type, [at]<class T>(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      std::memcpy(&byte, at, 1);
      return byte != 0 ? 1.0 : 0.0;
    } else {
      std::memcpy(&value, at, sizeof(T));
      return static_cast<double>(value);
    }
  });
}

inline void save(dtype type, void* memory, std::int64_t index, double value) {
  char* const at = static_cast<char*>(memory) + index * size_of(type);
  with_storage(type, [at, value]<class T>(T element) {
    using limits = std::numeric_limits<T>;
    if constexpr (std::is_same_v<T, bool>) {
      element = value != 0;
    } else if constexpr (std::is_integral_v<T>) {
      // The maximum of nothing is the smallest number; no number at all is padding, which nobody may read.
      element = value != value                                ? static_cast<T>(-1)
                : value <= static_cast<double>(limits::min()) ? limits::min()
                : value >= static_cast<double>(limits::max()) ? limits::max()
                                                              : static_cast<T>(value);
    } else {
      element = static_cast<T>(static_cast<computed_t<T>>(value));
    }
    std::memcpy(at, &element, sizeof(T));
  });
}

[[nodiscard]] inline std::vector<double> load_all(dtype type, const void* memory, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n) values[static_cast<std::size_t>(n)] = load(type, memory, n);
  return values;
}

// --- kernels
// ----------------------------------------------------------------------------------------------------------

/// Every unit, and every step of a fused chain, by its op's `evaluate`.
class evaluated_kernels {
 public:
  explicit evaluated_kernels(const program_tables& t) : t_(&t) {}

  void run(int unit, const kernels::kernel_call& call) const {
    const int id = t_->order[t_->units[unit].first];
    const instruction& self = t_->code[id];
    if (call.part >= 0) return run_part(id, call);
    std::vector<std::vector<double>> operands(static_cast<std::size_t>(self.operand_count));
    evaluation e;
    e.self = &self;
    e.boxes = call.boxes;
    e.windows = call.windows;
    for (int k = 0; k < self.operand_count; ++k) {
      const instruction& operand = t_->code.operand(id, k);
      std::vector<double>& read = operands[static_cast<std::size_t>(k)];
      read = load_all(operand.type, call.operand_at(k), operand.shape.elements());
      e.operand[k] = read.data();
      e.operand_shape[k] = &operand.shape;
      e.operand_type[k] = operand.type;
    }
    std::vector<double> result(static_cast<std::size_t>(self.shape.elements()));
    e.result = result.data();
    std::vector<std::vector<double>> further;
    std::vector<double*> addresses;
    for (int k = 1; k <= further_results(t_->code.code, t_->code.size, id); ++k) {
      further.emplace_back(static_cast<std::size_t>(t_->code[id + k].shape.elements()));
      addresses.push_back(further.back().data());
    }
    e.further_result = addresses.data();
    self.op->evaluate(e);
    for (std::int64_t n = 0; n < self.shape.elements(); ++n) {
      save(self.type, call.result, n, result[static_cast<std::size_t>(n)]);
    }
    for (std::size_t k = 0; k < further.size(); ++k) {
      const kernels::further_result& to = call.further_results[k];
      for (std::size_t n = 0; n < further[k].size(); ++n) {
        save(to.type, to.data, static_cast<std::int64_t>(n), further[k][n]);
      }
    }
  }

  /// A step of a fused chain on a block of rows.
  class block_function {
   public:
    block_function() = default;
    block_function(const instruction& self, const fused_step& step) : self_(&self), step_(&step) {}

    void operator()(const kernels::block_call& call) const {
      if (self_->op->fuse == fusion::source) {
        count(call);
      } else if (self_->op->fuse == fusion::reduction) {
        reduce(call);
      } else {
        map(call);
      }
    }

   private:
    [[nodiscard]] double element(const kernels::block_call& call, int k, std::int64_t row, std::int64_t column) const {
      const kernels::stream& from = call.operand[k];
      return load(step_->operand_type[k], from.data, row * from.row + (step_->wide[k] ? column : 0));
    }

    void map(const kernels::block_call& call) const {
      const std::int64_t columns = step_->result_wide ? call.columns : 1;
      instruction self = *self_;
      self.shape = extents{1, {columns}};
      std::vector<double> operands[3];
      std::vector<double> result(static_cast<std::size_t>(columns));
      evaluation e;
      e.self = &self;
      e.result = result.data();
      for (std::int64_t r = 0; r < call.rows; ++r) {
        for (int k = 0; k < step_->operand_count; ++k) {
          operands[k].resize(result.size());
          for (std::int64_t c = 0; c < columns; ++c) operands[k][static_cast<std::size_t>(c)] = element(call, k, r, c);
          e.operand[k] = operands[k].data();
          e.operand_shape[k] = &self.shape;
          e.operand_type[k] = step_->operand_type[k];
        }
        self_->op->evaluate(e);
        for (std::int64_t c = 0; c < columns; ++c) {
          save(step_->type, call.result.data, r * call.result.row + c, result[static_cast<std::size_t>(c)]);
        }
      }
    }

    void reduce(const kernels::block_call& call) const {
      const reduction kind = attributes_of<fused_reduction_attributes>(*step_).kind;
      for (std::int64_t r = 0; r < call.rows; ++r) {
        if (step_->accumulates) {
          // Sums of bf16, say, are kept in f32 until all rows are in.
          const dtype held = facts_of(step_->type).accumulate;
          for (std::int64_t c = 0; c < call.columns; ++c) {
            save(held, call.result.data, c, load(held, call.result.data, c) + element(call, 0, r, c));
          }
          continue;
        }
        double total = detail::identity_of(kind);
        for (std::int64_t c = 0; c < call.columns; ++c) total = detail::combine(kind, total, element(call, 0, r, c));
        save(step_->type, call.result.data, r * call.result.row, total);
      }
    }

    /// An index along the columns, or one that belongs to the row.
    void count(const kernels::block_call& call) const {
      const std::int64_t columns = step_->result_wide ? call.columns : 1;
      const auto index = attributes_of<fused_index_attributes>(*step_);
      const int dim = attributes_of<index_attributes>(*self_).dim;
      const std::int64_t start = call.boxes->result.dim[dim].start;
      for (std::int64_t r = 0; r < call.rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const std::int64_t at =
              index.along_columns ? call.first_column + c : (call.first_row + r) / index.repeat % index.size;
          save(step_->type, call.result.data, r * call.result.row + c, static_cast<double>(start + at));
        }
      }
    }

    const instruction* self_ = nullptr;
    const fused_step* step_ = nullptr;
  };
  [[nodiscard]] block_function block(int step) const {
    return {t_->code[t_->steps[step].instruction], t_->steps[step]};
  }

 private:
  /// One of an einsum's batched products.
  void run_part(int id, const kernels::kernel_call& call) const {
    const kernels::kernel_key key = detail::key_of(t_->code, id);
    const kernels::gemm_plan p =
        detail::plan_for(detail::contraction_for(key), key.operand_type[0], key.operand_type[1], key.type);
    const detail::loop_axis at = detail::locate(p.loops, p.loop_count, call.part);
    const int left = p.swapped ? 1 : 0;
    for (std::int64_t m = 0; m < p.m; ++m) {
      for (std::int64_t n = 0; n < p.n; ++n) {
        if (call.lower_triangle && n / kernels::triangle_grain > m / kernels::triangle_grain) continue;
        double sum = 0;
        for (std::int64_t s = 0; s < p.sum_iterations; ++s) {
          const detail::loop_axis term = detail::locate(p.sum_loops, p.sum_loop_count, s);
          for (std::int64_t k = 0; k < p.k; ++k) {
            sum +=
                load(key.operand_type[left], call.operand[left], at.a + term.a + m * p.a_row + k * p.a_column) *
                load(key.operand_type[1 - left], call.operand[1 - left], at.b + term.b + k * p.b_row + n * p.b_column);
          }
        }
        save(key.type, call.result, at.c + m * p.c_row + n * p.c_column, sum);
      }
    }
  }

  const program_tables* t_;
};

// --- devices
// ----------------------------------------------------------------------------------------------------------

/// Stands where an executor has its communicator: collectives are carried out for all devices at once.
struct no_communicator {
  void prepare(const comm::transfer_group&) {}
  void set_context(const comm::context*) {}
  template <class... Any> void exchange(const Any&...) { refuse(); }
  template <class... Any> void reduce_exchange(const Any&...) { refuse(); }
  template <class... Any> void all_reduce(const Any&...) { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("a device communicates by itself"); }
};

/// Memory with a margin on both sides, all of it poisoned.
class guarded_buffer {
 public:
  explicit guarded_buffer(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), memory_(new char[bytes_ + 2 * margin]) {
    std::memset(memory_.get(), poison, bytes_ + 2 * margin);
  }
  [[nodiscard]] char* data() const { return memory_.get() + margin; }
  [[nodiscard]] bool is_intact() const {
    const auto clean = [](char c) { return c == static_cast<char>(poison); };
    return std::all_of(memory_.get(), data(), clean) && std::all_of(data() + bytes_, data() + bytes_ + margin, clean);
  }

 private:
  static constexpr std::size_t margin = 64;
  std::size_t bytes_;
  std::unique_ptr<char[]> memory_;
};

/// Executes a planned program on all devices of its mesh, from whole arguments to whole results.
/// Throws std::logic_error where devices part ways, or somebody writes where nothing is.
template <class Kernels> class lockstep_execution {
 public:
  /// `t` is kept.
  lockstep_execution(const program_tables& t, std::vector<placed_buffer> buffers)
      : t_(t), mesh_(t.mesh), g_(t.code), buffers_(std::move(buffers)) {
    const mesh_shape& mesh = mesh_;
    const graph_view g = g_;
    argument_.assign(static_cast<std::size_t>(t.argument_count), -1);
    result_.assign(static_cast<std::size_t>(t.result_count), -1);
    for (int id = 0; id < g.size; ++id) {
      if (part_of(g[id]) == structure::argument) argument_[number_of(g[id])] = id;
      if (part_of(g[id]) == structure::result) result_.at(number_of(g[id])) = id;
    }
    for (int device = 0; device < mesh.devices(); ++device) {
      devices_.push_back(std::make_unique<executor>(t, device, nobody_, Kernels(t)));
    }
  }

  [[nodiscard]] std::vector<tensor_value> run(const std::vector<tensor_value>& arguments) {
    std::vector<std::vector<guarded_buffer>> given(devices_.size());
    std::vector<std::vector<guarded_buffer>> made(devices_.size());
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      executor& device = *devices_[d];
      for (std::size_t n = 0; n < argument_.size(); ++n) {
        given[d].emplace_back(argument_[n] < 0 ? 0 : bytes_of(g_[argument_[n]]));
        device.set_argument(static_cast<int>(n), given[d].back().data());
        if (argument_[n] >= 0) put(argument_[n], arguments.at(n), static_cast<int>(d), given[d].back().data());
      }
      for (std::size_t n = 0; n < result_.size(); ++n) {
        made[d].emplace_back(bytes_of(g_[result_[n]]));
        device.set_result(static_cast<int>(n), made[d].back().data());
      }
      std::memset(device.arena(), poison, static_cast<std::size_t>(t_.arena_bytes));
      device.start();
    }
    last_unit_ = -1;
    walk();
    check_margins(given);
    check_margins(made);
    check_arguments(arguments, given);
    std::vector<tensor_value> results;
    for (const int id : result_) results.push_back(take(id));
    return results;
  }

 private:
  using executor = detail::part_executor<no_communicator, Kernels>;

  [[nodiscard]] const layout& layout_of(int id) const { return g_.annotations[g_[id].annotation]; }

  /// Calls f(index in the buffer, index in the whole tensor) for the real elements of a device's part.
  template <class F> void for_each_held(int id, int device, const F& f) const {
    const layout& l = layout_of(id);
    const detail::tensor_box mine = detail::box_of(mesh_, l.shape, l.placement, device);
    std::int64_t start[max_rank]{};
    std::int64_t extent[max_rank]{};
    const std::int64_t origin[max_rank]{};
    for (int d = 0; d < l.shape.rank; ++d) {
      start[d] = mine.dim[d].start;
      extent[d] = mine.dim[d].size;
    }
    detail::for_each_index(l.shape.rank, &extent[0], [&](const std::int64_t* index) {
      f(detail::position_in(g_[id].shape, &origin[0], index), detail::position_in(l.shape, &start[0], index));
    });
  }

  void put(int id, const tensor_value& whole, int device, void* memory) const {
    // A pending sum that comes from outside is the first device's term.
    const bool has_term = mesh_.position(device, list_of(layout_of(id).placement.unreduced)) == 0;
    for_each_held(id, device, [&](std::size_t at, std::size_t from) {
      save(g_[id].type, memory, static_cast<std::int64_t>(at), has_term ? whole.data[from] : 0);
    });
  }

  /// A result from all devices' parts; copies must agree to the last bit, and the terms of pending sums are added up.
  [[nodiscard]] tensor_value take(int id) const {
    const layout& l = layout_of(id);
    const auto size = static_cast<std::size_t>(l.shape.elements());
    tensor_value whole{l.shape, std::vector<double>(size, std::numeric_limits<double>::quiet_NaN())};
    std::vector<bool> known(size, false);
    const axis_list terms = list_of(l.placement.unreduced);
    for (int device = 0; device < mesh_.devices(); ++device) {
      if (mesh_.position(device, terms) != 0) continue;
      for_each_held(id, device, [&](std::size_t at, std::size_t to) {
        double value = 0;
        for (int n = 0; n < static_cast<int>(mesh_.parts(terms)); ++n) {
          const auto member = static_cast<std::size_t>(mesh_.member(device, terms, n));
          value += load(g_[id].type, devices_[member]->address(id), static_cast<std::int64_t>(at));
        }
        const bool same = whole.data[to] == value || (value != value && whole.data[to] != whole.data[to]);
        if (known[to] && !same) throw std::logic_error("the copies of a result's replicated elements differ");
        known[to] = true;
        whole.data[to] = value;
      });
    }
    if (std::find(known.begin(), known.end(), false) != known.end()) {
      throw std::logic_error("no device holds some element of a result");
    }
    return whole;
  }

  static void check_margins(const std::vector<std::vector<guarded_buffer>>& all) {
    for (const auto& device : all) {
      for (const guarded_buffer& one : device) {
        if (!one.is_intact()) throw std::logic_error("something was written beside an argument or a result");
      }
    }
  }
  /// Of an argument or a result.
  [[nodiscard]] static std::size_t number_of(const instruction& i) {
    return static_cast<std::size_t>(attributes_of<border_attributes>(i).number);
  }
  /// Only a donated argument may change.
  void check_arguments(const std::vector<tensor_value>& arguments,
                       const std::vector<std::vector<guarded_buffer>>& given) const {
    std::vector<bool> is_donated(argument_.size(), false);
    for (const int id : result_) {
      if (g_[id].operand_count == 2) is_donated[number_of(g_.operand(id, 1))] = true;
    }
    for (std::size_t n = 0; n < argument_.size(); ++n) {
      if (argument_[n] < 0 || is_donated[n]) continue;
      for (std::size_t d = 0; d < devices_.size(); ++d) {
        const guarded_buffer expected(bytes_of(g_[argument_[n]]));
        put(argument_[n], arguments[n], static_cast<int>(d), expected.data());
        const auto bytes = static_cast<std::size_t>(bytes_of(g_[argument_[n]]));
        if (std::memcmp(expected.data(), given[d][n].data(), bytes) != 0) {
          throw std::logic_error("argument " + std::to_string(n) + ", which is not donated, was changed");
        }
      }
    }
  }

  // --- the walk
  // -------------------------------------------------------------------------------------------------------

  /// One step on every device, then the next: all take the same steps.
  void walk() {
    while (const detail::device_step* s = devices_[0]->next()) {
      for (const auto& device : devices_) {
        const detail::device_step* other = device->next();
        if (other == nullptr || other->kind != s->kind || other->unit != s->unit || other->target != s->target) {
          throw std::logic_error("two devices are at different steps");
        }
      }
      const detail::device_step now = *s;
      for (const auto& device : devices_) spoil(*device, now.unit);
      last_unit_ = now.unit;
      if (now.kind == detail::step_kind::move) {
        move(now.target);
        for (const auto& device : devices_) device->pass();
      } else {
        for (const auto& device : devices_) device->step();
      }
      for (int d = 0; d < mesh_.devices(); ++d) poison_padding(now, d);
    }
    for (const auto& device : devices_) {
      if (device->next() != nullptr) throw std::logic_error("a device has more to do than the first");
    }
  }

  /// Before the first step of a unit: buffers that nobody needs any more, and those that only begin to be used, hold
  /// nothing that anybody may read.
  void spoil(executor& device, int unit) const {
    if (unit == last_unit_) return;
    for (const placed_buffer& one : buffers_) {
      const bool begins = one.first == unit;
      const bool has_ended = last_unit_ < unit && one.last >= last_unit_ && one.last < unit;
      if (!begins && !has_ended) continue;
      // Where another one lives now, it is that one's.
      if (!begins && overlaps_living(one, unit)) continue;
      std::memset(device.arena() + one.offset, poison, static_cast<std::size_t>(one.bytes));
    }
  }
  [[nodiscard]] bool overlaps_living(const placed_buffer& one, int unit) const {
    return std::any_of(buffers_.begin(), buffers_.end(), [&](const placed_buffer& other) {
      return other.first <= unit && unit <= other.last && other.offset < one.offset + one.bytes &&
             one.offset < other.offset + other.bytes;
    });
  }

  /// What a kernel leaves in padding is nobody's business, except where a mask was made for the next instruction.
  void poison_padding(const detail::device_step& now, int device) const {
    if (now.kind == detail::step_kind::kernel) {
      if (std::string_view(g_[now.target].op->name) != ops::mask.name) poison_padding(now.target, device);
    } else if (now.kind == detail::step_kind::chain) {
      const unit& what = t_.units[now.unit];
      for (int n = what.first; n < what.first + what.count; ++n) {
        if (t_.root[t_.order[n]] >= 0) poison_padding(t_.order[n], device);
      }
    }
  }
  void poison_padding(int id, int device) const {
    const layout& l = layout_of(id);
    const tensor_box mine = detail::box_of(mesh_, g_, id, device);
    if (detail::elements_of(mine, l.shape.rank) == g_[id].shape.elements()) return;
    char* const memory = static_cast<char*>(devices_[static_cast<std::size_t>(device)]->address(id));
    detail::for_each_index(g_[id].shape.rank, &g_[id].shape.size[0], [&](const std::int64_t* index) {
      const std::int64_t origin[max_rank]{};
      bool real = true;
      for (int d = 0; d < g_[id].shape.rank; ++d) real = real && index[d] < mine.dim[d].size;
      if (real) return;
      const auto at = static_cast<std::int64_t>(detail::position_in(g_[id].shape, &origin[0], index));
      std::memset(memory + at * size_of(g_[id].type), poison, static_cast<std::size_t>(size_of(g_[id].type)));
    });
  }

  // --- collectives
  // ----------------------------------------------------------------------------------------------------

  /// Collectives that travel together, or one whose boxes go through messages: from and to the memory of these.
  void move_messages(int id) {
    const auto kind = static_cast<collective>(detail::collective_index(g_[id].op));
    const reduction combining = attributes_of<collective_attributes>(g_[id]).combine;
    std::vector<std::vector<char>> made;
    for (const auto& device : devices_) device->pack(*device->messages_of(id));
    for (const auto& device : devices_) {
      const detail::message_table& all = *device->messages_of(id);
      const comm::transfer& moves = all.moves;
      std::vector<char> target(static_cast<std::size_t>(all.received * size_of(moves.type)), static_cast<char>(poison));
      std::vector<comm::contribution> parts;
      for (std::size_t k = 0; k < moves.members.size(); ++k) {
        const executor& member = *devices_[static_cast<std::size_t>(moves.members[k])];
        const auto& theirs = member.messages_of(id)->moves.outgoing[static_cast<std::size_t>(moves.self)];
        const bool fits = kind == collective::all_reduce || (theirs.source_offset == moves.incoming[k].source_offset &&
                                                             theirs.elements() == moves.incoming[k].elements());
        if (!fits) throw std::logic_error("a message is not where its receiver looks for it");
        parts.push_back({member.sent_memory(), kind == collective::all_reduce ? nullptr : &moves.incoming[k]});
        if (!facts_of(kind).reduces) copy_block(moves.type, target.data(), member.sent_memory(), moves.incoming[k]);
      }
      if (kind == collective::all_reduce) {
        reduce(moves.type, combining, target.data(), comm::contiguous_block(all.sent), parts);
      } else if (kind == collective::reduce_scatter) {
        reduce(moves.type, combining, target.data(), moves.incoming[static_cast<std::size_t>(moves.self)], parts);
      }
      made.push_back(std::move(target));
    }
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const detail::message_table& all = *devices_[d]->messages_of(id);
      if (!made[d].empty()) std::memcpy(devices_[d]->received_memory(all), made[d].data(), made[d].size());
      for (const detail::message_part& part : all.parts) spoil_result(part.id, *devices_[d]);
      devices_[d]->unpack(all);
    }
  }
  /// What is not received is not there, but for rows that stay where they are.
  void spoil_result(int id, const executor& device) const {
    if (t_.where[id].is_displaced) return;
    std::memset(device.address(id), poison, static_cast<std::size_t>(bytes_of(g_[id])));
  }

  void move(int id) {
    if (devices_[0]->messages_of(id) != nullptr) return move_messages(id);
    const instruction& i = g_[id];
    const auto kind = static_cast<collective>(detail::collective_index(i.op));
    const reduction combining = attributes_of<collective_attributes>(i).combine;
    const std::int64_t bytes = bytes_of(i);
    // All targets are written when all sources have been read: on a device they may be the same.
    std::vector<std::vector<char>> made;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const comm::transfer& moves = devices_[d]->moves_of(id);
      std::vector<char> target(static_cast<std::size_t>(bytes), static_cast<char>(poison));
      if (t_.where[id].is_displaced) {
        // What is not received stays: the device's own rows, and those that another exchange has brought.
        std::memcpy(target.data(), devices_[d]->address(id), target.size());
      }
      std::vector<comm::contribution> parts;
      for (std::size_t k = 0; k < moves.members.size(); ++k) {
        const auto member = static_cast<std::size_t>(moves.members[k]);
        const void* const source = devices_[member]->address(i.operand[0]);
        if (kind == collective::all_reduce) {
          parts.push_back({source, nullptr});
        } else if (kind == collective::reduce_scatter) {
          parts.push_back({source, &moves.incoming[k]});
        } else {
          comm::copy_block(i.type, target.data(), source, moves.incoming[k]);
        }
      }
      if (kind == collective::all_reduce) {
        const comm::block all = comm::contiguous_block(i.shape.elements());
        reduce(i.type, combining, target.data(), all, parts);
      } else if (kind == collective::reduce_scatter) {
        reduce(i.type, combining, target.data(), moves.incoming[static_cast<std::size_t>(moves.self)], parts);
      }
      made.push_back(std::move(target));
    }
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      if (bytes > 0) std::memcpy(devices_[d]->address(id), made[d].data(), made[d].size());
    }
  }
  static void reduce(dtype type, reduction kind, void* target, const comm::block& box,
                     const std::vector<comm::contribution>& parts) {
    const comm::reducer by = comm::reducer_of(type, kind);
    comm::detail::require_reducible(by, nullptr);
    comm::detail::reduce_range(by, target, box, 0, box.elements(), parts.data(), static_cast<int>(parts.size()));
  }

  const program_tables& t_;
  mesh_shape mesh_;
  graph_view g_;
  std::vector<placed_buffer> buffers_;
  no_communicator nobody_;
  std::vector<std::unique_ptr<executor>> devices_;
  /// By number: the instruction, or -1.
  std::vector<int> argument_;
  std::vector<int> result_;
  int last_unit_ = -1;
};

/// Takes a partitioned graph through the rest of the compiler and executes it.
[[nodiscard]] inline std::vector<tensor_value> execute(const mesh_shape& mesh, graph_view g,
                                                       const std::vector<tensor_value>& arguments,
                                                       row_limits limits = {}) {
  const run_time_plan plan(mesh, g, limits);
  return lockstep_execution<evaluated_kernels>(plan.tables(), plan.buffers()).run(arguments);
}

}  // namespace espalier::test
