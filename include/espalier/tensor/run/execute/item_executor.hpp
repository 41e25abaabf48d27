// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/tensor/run/execute/batch_items.hpp>
#include <espalier/tensor/run/execute/device.hpp>
#include <espalier/tensor/run/execute/row_regions.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace espalier::detail {

/// A device that takes neighbouring launches item by item where it can (see execute/batch_items.hpp), and those of a
/// row region a few rows at a time.
template <class Communicator, class Kernels = compiled_kernels>
class item_executor final : public device_executor<Communicator, Kernels> {
  using base = device_executor<Communicator, Kernels>;
  using base::causal_, base::chains_, base::finite_, base::kernels_, base::position_, base::steps_, base::t_;

 public:
  item_executor(const program_tables& t, int device, Communicator& comm) : item_executor(t, device, comm, Kernels(t)) {}
  item_executor(const program_tables& t, int device, Communicator& comm, Kernels kernels)
      : base(t, device, comm, std::move(kernels)),
        groups_(item_finder(t_, causal_).run()),
        regions_(row_region_reader(t_, causal_).run()),
        group_at_(static_cast<std::size_t>(steps_.size()), -1) {
    std::int64_t local_bytes = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      local_bytes = larger_of(local_bytes, groups_[g].local_bytes);
      group_at_[static_cast<std::size_t>(steps_.first_of(groups_[g].first))] = static_cast<int>(g);
    }
    for (const row_region& r : regions_) local_bytes = larger_of(local_bytes, r.bytes);
    round_.resize(static_cast<std::size_t>(chains_.threads()));
    locals_ = shared_buffer(local_bytes * chains_.threads());
  }

  void step() override {
    for (const row_region& r : regions_) {
      if (steps_.first_of(r.first) != position_) continue;
      run_region(r);
      position_ = steps_.first_of(r.last + 1);
      if (finite_.is_on()) this->report_not_finite();
      return;
    }
    const int group = group_at_[static_cast<std::size_t>(position_)];
    if (group >= 0 && run_items(groups_[static_cast<std::size_t>(group)])) {
      position_ = steps_.first_of(groups_[static_cast<std::size_t>(group)].last + 1);
      if (finite_.is_on()) this->report_not_finite();
    } else {
      base::step();
    }
  }

 private:
  /// Threads that may run now, of those that there was room made for.
  [[nodiscard]] std::int64_t threads_with_room() const {
    return smaller_of<std::int64_t>(available_threads(), chains_.threads());
  }

  /// Runs a group's launches item by item; false if where values lie now does not allow it.
  [[nodiscard]] bool run_items(const item_group& group) {
    if (!items_are_independent(t_, group, [this](int value) { return this->address(value); })) return false;
    for (const item_group::member& m : group.members) {
      if (!m.whole) continue;
      for (int n = steps_.first_of(m.launch); n < steps_.first_of(m.launch + 1); ++n) (void)this->execute(n);
    }
    const auto threads = static_cast<int>(smaller_of(threads_with_room(), group.items));
    if (threads == 1) {
      run_items(group, 0, 0, group.items);
      return true;
    }
    ESPALIER_OMP(parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; ++t) {
      run_items(group, t, group.items * t / threads, group.items * (t + 1) / threads);
    }
    return true;
  }

  void run_items(const item_group& group, int thread, std::int64_t first, std::int64_t last) {
    char* const room = static_cast<char*>(locals_.data()) + thread * group.local_bytes;
    char* const scratch = this->chain_scratch();
    for (std::int64_t item = first; item < last; ++item) {
      const auto at = [&](int value) -> void* {
        const item_local* const local = group.local(value);
        // Where the value would start if all of its items existed.
        return local == nullptr ? this->address(value) : room + local->offset - item * local->chunk;
      };
      for (std::size_t n = 0; n < group.members.size(); ++n) {
        const item_group::member& m = group.members[n];
        if (m.whole) continue;
        if (!t_.launches[m.launch].fused) {
          multiply_item(m, item, at);
          if (finite_.is_on()) check_item(group, m, item, at);
        } else if (!run_item(group, m.launch, item, thread, scratch, at)) {
          // A row that is hidden entirely: with what products have left out for this chain.
          for (std::size_t before = 0; before < n; ++before) {
            if (group.members[before].lower_triangle) multiply_item(group.members[before], item, at);
          }
          (void)run_item(group, m.launch, item, thread, scratch, at);
        }
      }
    }
  }

  template <class Address>
  [[nodiscard]] bool run_item(const item_group& group, int u, std::int64_t item, int thread, char* scratch,
                              const Address& at) {
    const std::int64_t rows = t_.chains[u].rows / group.items;
    return chains_.run_rows(u, item * rows, (item + 1) * rows, thread, scratch, at,
                            [this](int value) { return this->boxes(value); });
  }

  template <class Address> void multiply_item(const item_group::member& m, std::int64_t item, const Address& at) const {
    const int id = t_.order[t_.launches[m.launch].first];
    kernels::kernel_call call;
    for (int k = 0; k < t_.code[id].operand_count; ++k) call.operand[k] = at(t_.code[id].operand[k]);
    call.result = at(id);
    call.item = item;
    call.lower_triangle = m.lower_triangle;
    for (const int reader : m.readers) call.lower_triangle = call.lower_triangle && chains_.side(reader) > 0;
    kernels_.run(m.launch, call);
  }

  template <class Address>
  void check_item(const item_group& group, const item_group::member& m, std::int64_t item, const Address& at) {
    const int id = t_.order[t_.launches[m.launch].first];
    const std::int64_t elements = t_.code[id].shape.elements() / group.items;
    const std::int64_t columns = stride_of(t_.code[id].shape, t_.code[id].shape.rank - 2);
    const std::int64_t size = size_of(t_.code[id].type);
    const char* row = static_cast<const char*>(at(id)) + item * elements * size;
    for (std::int64_t first = 0; first < elements; first += columns, row += columns * size) {
      // Of a lower triangle, nothing else has been computed.
      finite_.look_at(id, row, item * elements + first, m.lower_triangle ? first / columns + 1 : columns);
    }
  }

  // --- row regions --------------------------------------------------------------------------------------------------

  void run_region(const row_region& r) {
    const std::int64_t units = r.items / r.together;
    const std::int64_t available = threads_with_room();
    // Few items are no work for all threads: these share the blocks of each.
    const bool shares_items = units % available != 0 && units < 4 * available;
    const std::int64_t threads = smaller_of(available, shares_items ? r.items * r.blocks() : units);
    if (threads == 1) {
      run_blocks(r, 0, 0, r.items, 0, 1);
    } else if (shares_items && r.sums) {
      run_rounds(r, static_cast<int>(threads));
    } else {
      ESPALIER_OMP(parallel for num_threads(static_cast<int>(threads)) schedule(static))
      for (std::int64_t t = 0; t < threads; ++t) {
        if (shares_items) {
          run_blocks(r, static_cast<int>(t), 0, r.items, t, threads);
        } else {
          run_blocks(r, static_cast<int>(t), units * t / threads * r.together, units * (t + 1) / threads * r.together,
                     0, 1);
        }
      }
    }
    if (!finite_.is_on()) return;
    for (const row_region::member& m : r.members) {
      const int id = t_.order[t_.launches[m.launch].first];
      if (m.product != nullptr && m.product->plan.role != row_role::makes) finite_.look_at(id, this->address(id));
    }
  }

  /// A few rows of an item.
  struct row_block {
    std::int64_t item = -1;
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    /// Of its scores there are those that a causal mask lets it see, and no others.
    bool triangles = false;
  };
  [[nodiscard]] static row_block block_of(const row_region& r, std::int64_t number) {
    const std::int64_t first = number % r.blocks() * r.block;
    return {number / r.blocks(), first, smaller_of(r.block, r.rows - first)};
  }

  /// Every `step`th block of items [first, last), from block `from` on.
  void run_blocks(const row_region& r, int thread, std::int64_t first, std::int64_t last, std::int64_t from,
                  std::int64_t step) {
    std::int64_t previous = -1;
    for (std::int64_t n = first * r.blocks() + from; n < last * r.blocks(); n += step) {
      row_block rows = block_of(r, n);
      for (int begin = 0; begin >= 0;) begin = run_block(r, thread, rows, rows.item != previous, begin, true);
      previous = rows.item;
    }
  }
  /// Every thread takes a block, and then some of the keys of what is summed up over the rows of all of these, one
  /// block after the other: the same sums as those of one thread, in the same order.
  void run_rounds(const row_region& r, int threads) {
    const std::int64_t blocks = r.items * r.blocks();
    for (row_block& rows : round_) rows.item = -1;
    for (std::int64_t first = 0; first < blocks; first += threads) {
      const int count = static_cast<int>(smaller_of<std::int64_t>(threads, blocks - first));
      ESPALIER_OMP(parallel for num_threads(threads) schedule(static))
      for (int t = 0; t < count; ++t) {
        row_block& rows = round_[static_cast<std::size_t>(t)];
        const std::int64_t previous = rows.item;
        rows = block_of(r, first + t);
        for (int begin = 0; begin >= 0;) begin = run_block(r, t, rows, rows.item != previous, begin, false);
      }
      ESPALIER_OMP(parallel for num_threads(threads) schedule(static))
      for (int t = 0; t < threads; ++t) {
        for (int owner = 0; owner < count; ++owner) {
          const row_block& rows = round_[static_cast<std::size_t>(owner)];
          for (const row_region::member& m : r.members) {
            if (sums_up(m)) multiply(r, m, rows, false, {owner, t, t, threads});
          }
        }
      }
    }
  }
  [[nodiscard]] static bool sums_up(const row_region::member& m) {
    return m.product != nullptr && m.product->plan.role == row_role::sums;
  }

  [[nodiscard]] char* room_of(int thread) {
    return static_cast<char*>(locals_.data()) + thread * (locals_.bytes() / chains_.threads());
  }
  /// Where a value would start if all of its rows existed.
  [[nodiscard]] void* address_in(const row_region& r, const row_block& rows, int thread, int value) {
    const row_local* const local = r.local(value);
    if (local == nullptr) return this->address(value);
    return room_of(thread) + local->offset - (rows.item * r.rows + rows.first_row) * local->row_bytes;
  }

  /// Runs all launches for some rows, or all but those that sum up over rows; -1. Or up to a chain that meets a row
  /// that is hidden entirely: returns its place, so that the block is run again as a whole; what products before this
  /// place have added up they have added up.
  [[nodiscard]] int run_block(const row_region& r, int thread, row_block& rows, bool begins_item, int begin,
                              bool adds_up) {
    const auto at = [&](int value) { return address_in(r, rows, thread, value); };
    rows.triangles = r.may_see_triangles;
    for (const row_region::member& m : r.members) {
      if (m.product == nullptr && chains_.possible_side(m.launch) > 0)
        rows.triangles = rows.triangles && chains_.side(m.launch) > 0;
    }
    for (std::size_t n = 0; n < r.members.size(); ++n) {
      const row_region::member& m = r.members[n];
      if (m.product == nullptr) {
        const std::int64_t side = rows.triangles ? chains_.possible_side(m.launch) : 0;
        const std::int64_t row = rows.item * r.rows + rows.first_row;
        if (!chains_.run_rows(
                m.launch, row, row + rows.rows, thread, this->chain_scratch(), at,
                [this](int value) { return this->boxes(value); }, side, m.clears_little ? seen_by(r, rows) : 0)) {
          return static_cast<int>(n);
        }
        continue;
      }
      if (sums_up(m) && (!adds_up || static_cast<int>(n) < begin)) continue;
      multiply(r, m, rows, begins_item, {thread, thread, 0, 1});
    }
    return -1;
  }
  /// The keys that a causal mask lets the last of some rows see.
  [[nodiscard]] static std::int64_t seen_by(const row_region& r, const row_block& rows) {
    constexpr std::int64_t grain = kernels::triangle_grain;
    return smaller_of(r.keys, (rows.first_row + rows.rows + grain - 1) / grain * grain);
  }

  /// The thread whose block it is, the one that works, and which part of what is summed up is its.
  struct shared_work {
    int owner;
    int thread;
    int part;
    int parts;
  };
  void multiply(const row_region& r, const row_region::member& m, const row_block& rows, bool begins_item,
                const shared_work& by) {
    const int id = t_.order[t_.launches[m.launch].first];
    const launch& product = t_.launches[m.launch];
    kernels::row_call call;
    for (int k = 0; k < 2; ++k) {
      const int operand = product.unscaled[k] >= 0 ? product.unscaled[k] : t_.code[id].operand[k];
      call.operand[k] = address_in(r, rows, by.owner, operand);
    }
    call.result = address_in(r, rows, by.owner, id);
    call.item = rows.item;
    call.first_row = rows.first_row;
    call.rows = rows.rows;
    call.begins_item = begins_item;
    call.lower_triangle = rows.triangles && m.follows_mask;
    call.keys = call.lower_triangle ? seen_by(r, rows) : r.keys;
    call.scratch = room_of(by.thread) + m.scratch_at;
    call.part = by.part;
    call.parts = by.parts;
    const std::int64_t items_of_y = m.product->plan.items_of_y();
    call.begins_sum = rows.first_row == 0 && rows.item % items_of_y == 0;
    call.ends_sum = rows.first_row + rows.rows == r.rows && (rows.item + 1) % items_of_y == 0;
    m.product->run(call);
    if (finite_.is_on() && m.product->plan.role == row_role::makes) check_rows(id, call, r);
  }
  void check_rows(int id, const kernels::row_call& call, const row_region& r) {
    for (std::int64_t i = 0; i < call.rows; ++i) {
      const std::int64_t first = (call.item * r.rows + call.first_row + i) * r.keys;
      const std::int64_t seen = smaller_of(call.keys, call.first_row + i + 1);
      finite_.look_at(id, static_cast<const char*>(call.result) + first * size_of(t_.code[id].type), first,
                      call.lower_triangle ? seen : call.keys);
    }
  }

  object_vector<item_group> groups_;
  object_vector<row_region> regions_;
  /// The group that begins at each step, or -1.
  plain_vector<int> group_at_;
  /// For each thread, the block that it took last.
  plain_vector<row_block> round_;
  shared_buffer locals_;
};

template <class Program, std::size_t... Kind>
[[nodiscard]] constexpr bool may_have_items(std::index_sequence<Kind...> /*of launches*/) {
  constexpr std::int64_t items[]{items_of_product<Program, static_cast<int>(Kind)>()..., 0};
  for (const std::int64_t count : items) {
    if (count >= item_finder::fewest_items) return true;
  }
  return false;
}

/// The executor of a program. Only programs with a row region, or a batched product whose items can be handed on,
/// instantiate `item_executor`.
template <class Program, class Communicator>
using executor_of = std::conditional_t<kernel_kinds<Program>::has_row_regions ||
                                           may_have_items<Program>(std::make_index_sequence<static_cast<std::size_t>(
                                                                       kernel_kinds<Program>::of_launches.count)>{}),
                                       item_executor<Communicator>, device_executor<Communicator>>;

}  // namespace espalier::detail
