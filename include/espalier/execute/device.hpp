// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/execute/buffer.hpp>
#include <espalier/execute/causal.hpp>
#include <espalier/execute/chain.hpp>
#include <espalier/execute/parts.hpp>
#include <espalier/execute/transfer_tables.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace espalier::detail {

/// One device at work: its memory, its part of every collective, and the walk over the units. Everything is allocated
/// when it is made; a run allocates nothing.
template <class Communicator> class device_executor {
 public:
  device_executor(const program_tables& t, int device, Communicator& comm)
      : t_(t),
        device_(device),
        comm_(comm),
        causal_(t_),
        chains_(t_, causal_),
        groups_(part_finder(t_, causal_).run()),
        arena_(t.arena_bytes),
        scratch_(aligned(t.kernel_scratch_bytes) + chains_.scratch_bytes()),
        iteration_(static_cast<std::size_t>(t.code.size), 0),
        here_(static_cast<std::size_t>(t.code.size)),
        moves_(static_cast<std::size_t>(t.code.size)),
        contexts_(static_cast<std::size_t>(t.code.size)),
        arguments_(static_cast<std::size_t>(t.argument_count)),
        results_(static_cast<std::size_t>(t.result_count)) {
    std::int64_t local_bytes = 0;
    for (const part_group& group : groups_) local_bytes = std::max(local_bytes, group.local_bytes);
    locals_ = shared_buffer(local_bytes * chains_.threads());
    for (int id = 0; id < t.code.size; ++id) prepare(id);
    for (int u = 0; u < t.unit_count; ++u) {
      const instruction& i = t.code[t.order[t.units[u].first]];
      if (i.op == &ops::loop_begin) loops_.push_back({t.order[t.units[u].first], u, -1});
      if (i.op != &ops::loop_end) continue;
      for (loop_bounds& loop : loops_) {
        if (loop.begin == i.operand[0]) loop.end = t.order[t.units[u].first];
      }
    }
  }
  device_executor(const device_executor&) = delete;
  device_executor& operator=(const device_executor&) = delete;

  void set_argument(int index, void* data) { arguments_[static_cast<std::size_t>(index)] = data; }
  void set_result(int index, void* data) { results_[static_cast<std::size_t>(index)] = data; }

  void run() {
    std::size_t next = 0;
    for (int u = 0; u < t_.unit_count; ++u) {
      // Loops go back: the next group is the first that has not begun.
      while (next > 0 && groups_[next - 1].first >= u) --next;
      while (next < groups_.size() && groups_[next].first < u) ++next;
      if (next < groups_.size() && groups_[next].first == u && run_parts(groups_[next])) {
        u = groups_[next].last;
      } else {
        u = execute(u);
      }
    }
  }

 private:
  struct loop_bounds {
    int begin;
    int unit;
    int end;
  };

  void prepare(int id) {
    const instruction& i = t_.code[id];
    here_[static_cast<std::size_t>(id)] =
        i.place.extent > 0 ? local_interval(t_.mesh, i.place.extent, i.place.axes, device_) : interval{0, 0};
    contexts_[static_cast<std::size_t>(id)] = {i.op->name, i.where.file, i.where.line};
    const int kind = collective_index(i.op);
    if (kind < 0) return;
    const layout& to = t_.code.annotations[i.annotation];
    const layout& from = t_.code.annotations[t_.code.operand(id, 0).annotation];
    const auto axes = static_cast<axis_mask>(i.attribute[0]);
    const auto what = static_cast<collective>(kind);
    comm::transfer& moves = moves_[static_cast<std::size_t>(id)];
    const int channel = kind * 256 + static_cast<int>(axes);
    if (what == collective::all_reduce) {
      const axis_list group = list_of(axes);
      moves.type = i.type;
      moves.channel = channel;
      moves.self = t_.mesh.position(device_, group);
      for (int k = 0; k < static_cast<int>(t_.mesh.parts(group)); ++k) {
        moves.members.push_back(t_.mesh.member(device_, group, k));
      }
      comm_.prepare(static_cast<const comm::transfer_group&>(moves));
    } else {
      moves = make_transfer(t_.mesh, to.shape, i.type, from.placement, to.placement,
                            what == collective::local_slice ? axis_mask{0} : axes, what == collective::reduce_scatter,
                            device_, channel);
      if (what != collective::local_slice) comm_.prepare(moves);
    }
  }

  [[nodiscard]] void* address(int id) const {
    const location& w = t_.where[id];
    char* base = nullptr;
    switch (w.space) {
      case memory_space::arena: base = static_cast<char*>(arena_.data()); break;
      case memory_space::argument: base = static_cast<char*>(arguments_[static_cast<std::size_t>(w.index)]); break;
      case memory_space::result: base = static_cast<char*>(results_[static_cast<std::size_t>(w.index)]); break;
      case memory_space::nowhere: return nullptr;
    }
    std::int64_t offset = w.offset;
    for (int level = 0; level < max_loop_depth && w.loop[level] >= 0; ++level) {
      offset += w.stride[level] * iteration_[static_cast<std::size_t>(w.loop[level])];
    }
    return base + offset;
  }

  /// Executes unit `u` and returns it, or the unit to go back to.
  int execute(int u) {
    const unit& what = t_.units[u];
    const int id = t_.order[what.first];
    if (what.fused) {
      chains_.run(
          u, static_cast<char*>(scratch_.data()) + aligned(t_.kernel_scratch_bytes),
          [this](int value) { return address(value); },
          [this](int value) { return here_[static_cast<std::size_t>(value)]; });
      return u;
    }
    const instruction& i = t_.code[id];
    if (t_.kernel_functions[u] != nullptr) {
      call_kernel(u, id);
    } else if (i.op == &ops::loop_begin) {
      begin_loop(id);
    } else if (i.op == &ops::loop_end) {
      return end_loop(u, i.operand[0]);
    } else if (i.op == &ops::loop_next) {
      // What the iteration adds to stacks and sums is taken before the first carry is overwritten.
      if (t_.code[id - 1].op != &ops::loop_next) collect(bounds(i.loop));
      copy(id, i.operand[1]);
    } else if (i.op == &ops::result) {
      if (t_.copied[id]) copy(id, i.operand[0]);
    } else if (collective_index(i.op) >= 0) {
      communicate(id);
    }
    return u;
  }

  void call_kernel(int u, int id) {
    const instruction& i = t_.code[id];
    kernels::kernel_call call;
    for (int k = 0; k < i.operand_count; ++k) call.operand[k] = address(i.operand[k]);
    call.result = address(id);
    call.scalar = i.scalar;
    call.here = here_[static_cast<std::size_t>(id)];
    call.scratch = scratch_.data();
    t_.kernel_functions[u](call);
  }

  // --- parts ----------------------------------------------------------------------------------------------------

  /// Runs a group's units part by part; false if where values lie now does not allow it.
  [[nodiscard]] bool run_parts(const part_group& group) {
    if (!parts_are_independent(t_, group, [this](int value) { return address(value); })) return false;
    for (const part_group::member& m : group.members) {
      if (m.whole) execute(m.unit);
    }
    const auto threads = static_cast<int>(std::min<std::int64_t>(available_threads(), group.parts));
    if (threads == 1) {
      run_parts(group, 0, 0, group.parts);
      return true;
    }
    ESPALIER_OMP(parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; ++t) {
      run_parts(group, t, group.parts * t / threads, group.parts * (t + 1) / threads);
    }
    return true;
  }

  void run_parts(const part_group& group, int thread, std::int64_t first, std::int64_t last) {
    char* const room = static_cast<char*>(locals_.data()) + thread * group.local_bytes;
    char* const scratch = static_cast<char*>(scratch_.data()) + aligned(t_.kernel_scratch_bytes);
    for (std::int64_t part = first; part < last; ++part) {
      const auto at = [&](int value) -> void* {
        const part_local* const local = group.local(value);
        // Where the value would start if all of its parts existed.
        return local == nullptr ? address(value) : room + local->offset - part * local->chunk;
      };
      for (const part_group::member& m : group.members) {
        if (m.whole) continue;
        if (t_.units[m.unit].fused) {
          const std::int64_t rows = t_.chains[m.unit].rows / group.parts;
          chains_.run_rows(m.unit, part * rows, (part + 1) * rows, thread, scratch, at,
                           [this](int value) { return here_[static_cast<std::size_t>(value)]; });
        } else {
          const int id = t_.order[t_.units[m.unit].first];
          kernels::kernel_call call;
          for (int k = 0; k < t_.code[id].operand_count; ++k) call.operand[k] = at(t_.code[id].operand[k]);
          call.result = at(id);
          call.part = part;
          call.lower_triangle = m.lower_triangle;
          t_.kernel_functions[m.unit](call);
        }
      }
    }
  }

  void copy(int to, int from) {
    void* const target = address(to);
    const void* const source = address(from);
    if (target != source) copy_bytes(target, source, bytes_of(t_.code[to]));
  }
  static void copy_bytes(void* to, const void* from, std::int64_t bytes) {
    parallel_ranges(bytes, bytes / 4, [=](std::int64_t first, std::int64_t last) {
      std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                  static_cast<std::size_t>(last - first));
    });
  }

  void communicate(int id) {
    const instruction& i = t_.code[id];
    const comm::transfer& moves = moves_[static_cast<std::size_t>(id)];
    const void* const source = address(i.operand[0]);
    void* const target = address(id);
    const auto kind = static_cast<collective>(collective_index(i.op));
    if (kind == collective::local_slice) {
      comm::copy_block(i.type, target, source, moves.incoming[0]);
      return;
    }
    comm_.set_context(&contexts_[static_cast<std::size_t>(id)]);
    if (kind == collective::all_reduce) {
      comm_.all_reduce(moves, source, target, i.shape.elements(), i.type, static_cast<reduction>(i.attribute[1]));
    } else if (kind == collective::reduce_scatter) {
      comm_.reduce_exchange(moves, source, target, static_cast<reduction>(i.attribute[1]));
    } else {
      comm_.exchange(moves, source, target);
    }
  }

  // --- loops ----------------------------------------------------------------------------------------------------

  [[nodiscard]] std::int64_t& iteration(int loop) { return iteration_[static_cast<std::size_t>(loop)]; }

  void begin_loop(int loop) {
    const instruction& begin = t_.code[loop];
    iteration(loop) = begin.attribute[1] != 0 ? begin.attribute[0] - 1 : 0;
    for (int id = loop + 1; id < t_.code.size && t_.code[id].op == &ops::loop_carry; ++id) {
      copy(id, t_.code[id].operand[0]);
    }
    for (int id = loop; id < t_.code.size; ++id) {
      if (t_.code[id].op == &ops::loop_sum && t_.code[t_.code[id].operand[0]].loop == loop) {
        void* const sum = address(id);
        const std::int64_t bytes = bytes_of(t_.code[id]);
        parallel_ranges(bytes, bytes / 4, [=](std::int64_t first, std::int64_t last) {
          std::memset(static_cast<char*>(sum) + first, 0, static_cast<std::size_t>(last - first));
        });
      }
    }
  }

  [[nodiscard]] const loop_bounds& bounds(int loop) const {
    std::size_t n = 0;
    while (loops_[n].begin != loop) ++n;
    return loops_[n];
  }

  /// Adds this iteration's values to the stacks and sums behind the loop.
  void collect(const loop_bounds& loop) {
    for (int id = loop.end + 1; id < t_.code.size; ++id) {
      const instruction& i = t_.code[id];
      if (i.op != &ops::loop_stack && i.op != &ops::loop_sum) break;
      if (i.op == &ops::loop_sum) {
        add(id, i.operand[0]);
      } else if (t_.copied[id]) {
        const std::int64_t bytes = bytes_of(t_.code[i.operand[0]]);
        copy_bytes(static_cast<char*>(address(id)) + iteration(loop.begin) * bytes, address(i.operand[0]), bytes);
      }
    }
  }

  int end_loop(int u, int begin) {
    const loop_bounds& loop = bounds(begin);
    if (t_.code[loop.end - 1].op != &ops::loop_next) collect(loop);
    const instruction& first = t_.code[begin];
    const std::int64_t next = iteration(begin) + (first.attribute[1] != 0 ? -1 : 1);
    if (next < 0 || next >= first.attribute[0]) return u;
    iteration(begin) = next;
    return loop.unit;
  }

  void add(int sum, int term) {
    const std::int64_t count = t_.code[sum].shape.elements();
    if (t_.code[sum].type == dtype::f64) {
      add_elements(static_cast<double*>(address(sum)), static_cast<const double*>(address(term)), count);
    } else {
      add_elements(static_cast<float*>(address(sum)), static_cast<const float*>(address(term)), count);
    }
  }
  template <class T> static void add_elements(T* sum, const T* term, std::int64_t count) {
    parallel_ranges(count, count, [=](std::int64_t first, std::int64_t last) {
      ESPALIER_OMP(simd)
      for (std::int64_t n = first; n < last; ++n) sum[n] += term[n];
    });
  }

  const program_tables& t_;
  int device_;
  Communicator& comm_;
  causal_finder causal_;
  chain_runner chains_;
  std::vector<part_group> groups_;
  shared_buffer locals_;
  shared_buffer arena_;
  shared_buffer scratch_;
  std::vector<std::int64_t> iteration_;
  std::vector<interval> here_;
  std::vector<comm::transfer> moves_;
  std::vector<comm::context> contexts_;
  std::vector<loop_bounds> loops_;
  std::vector<void*> arguments_;
  std::vector<void*> results_;
};

}  // namespace espalier::detail
