// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/detail/light_std/extremes.hpp>
#include <espalier/ops/ops.hpp>
#include <espalier/partition/boxes.hpp>
#include <espalier/partition/schedule.hpp>

namespace espalier {

enum class memory_space : std::uint8_t {
  /// Not stored: made by its readers, or inside a fused chain.
  nowhere,
  /// At an offset in the one block that a device allocates for a program.
  arena,
  /// In the caller's buffer of an argument or of a result.
  argument,
  result,
};

/// Where a value's buffer is. Inside loops the address moves with the iterations: slices of stacked tensors are read
/// and written where they are. How far, a chain of locations says, of one loop each, so that loops nest to any depth.
struct location {
  memory_space space = memory_space::nowhere;
  int index = -1;
  std::int64_t offset = 0;
  /// In each iteration of this loop, so many bytes further; and as far as the location of instruction `outer` moves.
  int loop = -1;
  int outer = -1;
  std::int64_t stride = 0;
  /// Instead, `stride` bytes further in every second iteration: in those whose number plus `phase` is odd.
  bool alternates = false;
  int phase = 0;
  /// On each device so many rows further as the first one it needs is from its operand's (`rows_to_needed`).
  bool is_displaced = false;
};

/// How far the iterations of all loops around a value move its address; `iteration(loop)` is the index of the one that
/// runs, `where(id)` the location of an instruction.
template <class Where, class Iteration>
[[nodiscard]] constexpr std::int64_t moved_by(const location& at, const Where& where, const Iteration& iteration) {
  std::int64_t bytes = 0;
  for (const location* l = &at; l->loop >= 0; l = &where(l->outer)) {
    bytes += l->stride * (l->alternates ? (iteration(l->loop) + l->phase) % 2 : iteration(l->loop));
    if (l->outer < 0) break;
  }
  return bytes;
}

/// A buffer that the arena has to provide, and the units [first, last] during which it is needed.
struct buffer {
  int value = -1;
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

inline constexpr std::int64_t arena_alignment = 64;

[[nodiscard]] constexpr std::int64_t bytes_of(const instruction& i) { return i.shape.elements() * size_of(i.type); }
[[nodiscard]] constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

/// Which values share a buffer, and how long each buffer lives.
struct memory_outline {
  /// The value in whose buffer this one is (itself: it has its own), or -1 if it is not stored.
  detail::list<int> root;
  /// Relative to the root's buffer.
  detail::list<location> within;
  detail::list<buffer> buffers;
  /// For results, carries and stacks whose value could not be computed in place: a copy is made.
  detail::list<bool> copied;
  /// The results and the `loop_next`s that are copied, in an order in which none overwrites what a later one of the
  /// same unit reads, but for those that are saved: their values go to a buffer of their own first.
  detail::list<int> copies;
  detail::list<bool> saved;
};

namespace detail {

class outliner {
 public:
  constexpr outliner(const mesh_shape& mesh, graph_view g, const schedule_view& s)
      : mesh_(mesh),
        g_(g),
        s_(s),
        first_(g.size, -1),
        last_(g.size, -1),
        end_of_(g.size, -1),
        sharer_(g.size, -1),
        next_sharer_(g.size, -1) {
    result_.root.resize(g.size, -1);
    result_.within.resize(g.size);
    result_.copied.resize(g.size, false);
    result_.saved.resize(g.size, false);
  }

  constexpr memory_outline run() {
    bool updates = false;
    for (int id = 0; id < g_.size; ++id) {
      if (part_of(g_[id]) == structure::loop_end) end_of_[g_[id].operand[0]] = id;
      updates = updates || g_[id].op->facts.overwrites >= 0;
    }
    if (updates) find_last_reads();
    find_room_around();
    find_roots();
    place_alternating();
    find_lives();
    place_results();
    order_copies();
    for (int id = 0; id < g_.size; ++id) {
      if (result_.saved[id]) {
        result_.buffers.push_back({id, aligned(bytes_of(g_[id])), s_.unit_of[id], s_.unit_of[id]});
      }
      if (result_.root[id] != id || result_.within[id].space != memory_space::arena) continue;
      result_.buffers.push_back({id, room_of(id), first_[id], last_[id]});
    }
    return static_cast<memory_outline&&>(result_);
  }

 private:
  constexpr void own(int id) {
    result_.root[id] = id;
    result_.within[id].space = memory_space::arena;
  }
  constexpr void share(int id, int with) {
    result_.within[id] = result_.within[with];
    if (!around_.empty()) around_[id].phase = around_[with].phase;
    follow(id, result_.root[with]);
  }
  /// Lists `id` among those that share the buffer of `root` (which may be none).
  constexpr void follow(int id, int root) {
    result_.root[id] = root;
    if (root < 0) return;
    next_sharer_[id] = sharer_[root];
    sharer_[root] = id;
  }
  /// Each iteration of `loop` has its own slice of the value whose buffer `id` shares.
  constexpr void slice(int id, int of, int loop) {
    location& where = result_.within[id];
    where.outer = where.loop >= 0 ? of : -1;
    where.loop = loop;
    where.stride = bytes_of(g_[id]);
  }

  constexpr void find_roots() {
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      switch (part_of(i)) {
        case structure::argument:
          own(id);
          result_.within[id].space = memory_space::argument;
          result_.within[id].index = attributes_of<border_attributes>(i).number;
          break;
        case structure::result:
        case structure::loop_begin:
        case structure::loop_end: break;
        case structure::loop_next:
          share(id, i.operand[0]);
          if (may_alternate(id)) alternate(id);
          result_.copied[id] = result_.root[i.operand[1]] != result_.root[id];
          break;
        case structure::loop_slice:
          share(id, i.operand[0]);
          slice(id, i.operand[0], i.loop);
          break;
        case structure::loop_stack:
          own(id);
          stack(id);
          break;
        case structure::none:
        case structure::loop_carry:
        case structure::loop_result:
        case structure::loop_sum:
          if (i.op->facts.shares_operand) {
            share(id, i.operand[0]);
          } else if (may_lie_around(id)) {
            lie_around(id);
          } else if (part_of(i) == structure::loop_carry && !wants_room(id) && starts_in_place(id)) {
            share(id, i.operand[0]);
            home_[result_.root[id]] = i.loop;
          } else if (i.op->facts.overwrites >= 0 && is_last_reader(id)) {
            share(id, g_.operand_at(i, i.op->facts.overwrites));
          } else if (s_.unit_of[id] >= 0 && s_.stored[id]) {
            own(id);
          }
          break;
      }
    }
  }

  /// Calls `f(value, reader, unit)` for each operand that an instruction reads.
  template <class F> constexpr void for_each_read(int id, const F& f) const {
    const instruction& i = g_[id];
    const int at = s_.unit_of[id];
    if (collects(part_of(i))) {
      f(i.operand[0], i.operand[0], s_.unit_of[end_of_[g_[i.operand[0]].loop]]);
    } else if (part_of(i) == structure::loop_carry) {
      f(i.operand[0], i.loop, s_.unit_of[i.loop]);
    } else if (at >= 0) {
      // A result's second operand only names the argument whose place it takes.
      const int read_operands = part_of(i) == structure::result ? 1 : i.operand_count;
      for (int k = 0; k < read_operands; ++k) f(g_.operand_at(i, k), id, at);
    }
  }

  // --- rows of neighbours around a value ----------------------------------------------------------------------------

  /// What is known of a value because of exchanges; only programs that have some ask for it.
  struct surroundings {
    /// Of an exchange whose result may be seen around its operand. (In bytes; before < 0: of none.)
    room_around room{};
    /// Of a value: whether such an exchange reads it.
    bool is_wanted = false;
    /// Of a root: the room that is kept, and the first exchange that uses it.
    std::int64_t before = 0;
    std::int64_t behind = 0;
    bool is_enlarged = false;
    int exchange = -1;
    /// Of the root of a carry that changes places with the next value: its loop.
    int alternates_in = -1;
    int phase = 0;
  };

  constexpr void find_room_around() {
    for (int id = 0; id < g_.size && around_.empty(); ++id) {
      if (g_[id].op->facts.moves >= 0 && reads_windows(g_[id])) around_.resize(g_.size);
    }
    if (around_.empty()) return;
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      if (i.op->facts.moves >= 0 && reads_windows(i)) {
        const std::int64_t bytes = size_of(i.type);
        const room_around room = room_around_operand(mesh_, g_, id);
        if (room.before >= 0) around_[id].room = {aligned(room.before * bytes), room.behind * bytes};
      }
      // Whoever else reads it expects a buffer that starts where it does.
      for (int k = 0; k < i.operand_count; ++k) {
        if (i.op->windows == nullptr) around_[g_.operand_at(i, k)].room.before = -1;
      }
    }
    for (int id = 0; id < g_.size; ++id) {
      if (around_[id].room.before >= 0) around_[g_[id].operand[0]].is_wanted = true;
    }
  }
  [[nodiscard]] constexpr bool wants_room(int id) const { return !around_.empty() && around_[id].is_wanted; }
  [[nodiscard]] constexpr bool is_enlarged(int root) const { return !around_.empty() && around_[root].is_enlarged; }
  [[nodiscard]] constexpr std::int64_t room_of(int root) const {
    const std::int64_t own = bytes_of(g_[root]);
    if (!is_enlarged(root)) return aligned(own);
    const std::int64_t one = around_[root].before + aligned(own + around_[root].behind);
    return around_[root].alternates_in >= 0 ? 2 * one : one;
  }

  /// Whether exchange `id` can leave its operand where it is. Not if somebody relies on what is behind the real rows.
  [[nodiscard]] constexpr bool may_lie_around(int id) const {
    if (around_.empty() || around_[id].room.before < 0) return false;
    const int operand = g_[id].operand[0];
    const int root = result_.root[operand];
    if (root < 0 || bytes_of(g_[root]) != bytes_of(g_[operand]) || g_[operand].op == &ops::mask) return false;
    const location& where = result_.within[operand];
    const bool is_plain = where.space == memory_space::arena && where.loop < 0 && !where.is_displaced;
    const structure part = part_of(g_[root]);
    if (!is_plain || (part != structure::none && part != structure::loop_carry)) return false;
    return !is_enlarged(root) || brings_the_same(id, around_[root].exchange);
  }
  /// Whether what two exchanges bring next to a value is the same wherever they both bring something: rows of one
  /// dimension of one tensor. A shard of a single row has as many neighbours as it has dimensions.
  [[nodiscard]] constexpr bool brings_the_same(int a, int b) const {
    const int from_a = g_[a].operand[0];
    const int from_b = g_[b].operand[0];
    return rows_around(mesh_, g_, a) == rows_around(mesh_, g_, b) && g_[from_a].shape == g_[from_b].shape &&
           g_.annotations[g_[from_a].annotation].shape == g_.annotations[g_[from_b].annotation].shape;
  }
  constexpr void lie_around(int id) {
    share(id, g_[id].operand[0]);
    result_.within[id].is_displaced = true;
    surroundings& kept = around_[result_.root[id]];
    if (!kept.is_enlarged) kept.exchange = id;
    kept.is_enlarged = true;
    kept.before = larger_of(kept.before, around_[id].room.before);
    kept.behind = larger_of(kept.behind, around_[id].room.behind);
  }

  /// Whether a carry that keeps its neighbours' rows around it and the value that takes its place can have a buffer of
  /// two halves, and change halves in every iteration: then nothing is copied.
  [[nodiscard]] constexpr bool may_alternate(int next) const {
    const int carry = g_[next].operand[0];
    const int value = g_[next].operand[1];
    if (!is_enlarged(carry) || around_[carry].alternates_in >= 0) return false;
    const int loop = g_[carry].loop;
    const bool is_own = result_.root[carry] == carry && result_.root[value] == value && carry != value;
    if (!is_own || g_[value].loop != loop || attributes_of<loop_attributes>(g_[loop]).iterations < 2) return false;
    if (part_of(g_[value]) != structure::none || bytes_of(g_[value]) != bytes_of(g_[carry])) return false;
    if (result_.within[carry].space != memory_space::arena || result_.within[value].space != memory_space::arena) {
      return false;
    }
    for (const int root : {carry, value}) {
      if (result_.within[root].loop >= 0) return false;
      for (int other = sharer_[root]; other >= 0; other = next_sharer_[other]) {
        if (result_.within[other].loop >= 0) return false;
      }
    }
    return true;
  }
  constexpr void alternate(int next) {
    const int carry = g_[next].operand[0];
    const int value = g_[next].operand[1];
    around_[carry].alternates_in = g_[carry].loop;
    around_[carry].before = larger_of(around_[carry].before, around_[value].before);
    around_[carry].behind = larger_of(around_[carry].behind, around_[value].behind);
    int other = sharer_[value];
    sharer_[value] = -1;
    around_[value].phase = 1;
    follow(value, carry);
    while (other >= 0) {
      const int following = next_sharer_[other];
      around_[other].phase = 1;
      follow(other, carry);
      other = following;
    }
  }
  /// Once all are known that share an enlarged buffer: where in it they are.
  constexpr void place_alternating() {
    if (around_.empty()) return;
    for (int id = 0; id < g_.size; ++id) {
      const int root = result_.root[id];
      if (root < 0 || !around_[root].is_enlarged || part_of(g_[id]) == structure::result) continue;
      location& where = result_.within[id];
      where.offset += around_[root].before;
      const int loop = around_[root].alternates_in;
      if (loop < 0) continue;
      const std::int64_t half = room_of(root) / 2;
      int inside = g_[id].loop;
      while (inside >= 0 && inside != loop) inside = g_[inside].loop;
      if (inside == loop) {
        where.loop = loop;
        where.stride = half;
        where.alternates = true;
        where.phase = around_[id].phase;
      } else {
        // Behind the loop: where the last iteration has put it.
        const auto begin = attributes_of<loop_attributes>(g_[loop]);
        const std::int64_t last = begin.reverse ? 0 : begin.iterations - 1;
        where.offset += (last + 1) % 2 * half;
      }
    }
  }

  // --- values that are overwritten ----------------------------------------------------------------------------------

  /// Only programs that overwrite values ask for it.
  constexpr void find_last_reads() {
    last_read_.resize(g_.size, -1);
    home_.resize(g_.size, -1);
    donated_.resize(g_.size, false);
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      for_each_read(id, [&](int value, int /*reader*/, int at) {
        // To be passed on, a carry is named, not read.
        if (part_of(i) == structure::loop_next && value == i.operand[0] && value != i.operand[1]) return;
        for (;; value = g_[value].operand[0]) {
          if (last_read_[value] < at) last_read_[value] = at;
          if (g_[value].op->fuse != fusion::broadcast) return;
        }
      });
      home_[id] = i.loop;
      if (part_of(i) == structure::result && i.operand_count == 2) donated_[i.operand[1]] = true;
    }
  }

  /// Whether the buffer of `value` may hold something else from unit `at` on, in the loop `loop`: nothing in it is read
  /// later, neither in this iteration nor in the next one, and it is none that the caller keeps.
  constexpr bool takes_over(int value, int loop, int at) const {
    if (last_read_.empty()) return false;
    const int root = result_.root[value];
    if (root < 0 || bytes_of(g_[root]) != bytes_of(g_[value])) return false;
    if (part_of(g_[root]) == structure::argument && !donated_[root]) return false;
    int home = home_[root];
    while (home >= 0 && home != loop) home = g_[home].loop;
    if (home != loop || last_read_[root] > at) return false;
    for (int other = sharer_[root]; other >= 0; other = next_sharer_[other]) {
      if (last_read_[other] > at) return false;
    }
    return true;
  }
  /// One carry of a loop at most takes the memory of what it starts from.
  [[nodiscard]] constexpr bool starts_in_place(int carry) const {
    const instruction& i = g_[carry];
    return takes_over(i.operand[0], g_[i.loop].loop, s_.unit_of[i.loop]) && home_[result_.root[i.operand[0]]] != i.loop;
  }
  [[nodiscard]] constexpr bool is_last_reader(int id) const {
    const instruction& i = g_[id];
    const int overwritten = g_.operand_at(i, i.op->facts.overwrites);
    if (!takes_over(overwritten, i.loop, s_.unit_of[id])) return false;
    for (int k = 0; k < i.operand_count; ++k) {
      if (k != i.op->facts.overwrites && result_.root[g_.operand_at(i, k)] == result_.root[overwritten]) return false;
    }
    return true;
  }

  /// A value that is stacked is computed in its place in the stack, unless it already lives somewhere else.
  constexpr void stack(int id) {
    const int value = g_[id].operand[0];
    const int loop = g_[value].loop;
    const bool plain = result_.root[value] == value && result_.within[value].space == memory_space::arena &&
                       !is_enlarged(value) && part_of(g_[value]) != structure::loop_carry &&
                       result_.within[value].loop < 0;
    if (!plain) {
      result_.copied[id] = true;
      return;
    }
    // What was found to share the value's buffer follows it into the stack.
    int other = sharer_[value];
    sharer_[value] = -1;
    move(value, id, loop, bytes_of(g_[value]));
    while (other >= 0) {
      const int next = next_sharer_[other];
      move(other, id, loop, bytes_of(g_[value]));
      other = next;
    }
  }
  /// What moves already goes on to do so, within a buffer that now moves too: the chains that end at `id` grow by one.
  constexpr void move(int id, int into, int loop, std::int64_t stride) {
    location& where = result_.within[id];
    if (where.loop < 0) {
      where.loop = loop;
      where.stride = stride;
    } else if (where.outer < 0) {
      where.outer = g_[into].operand[0];
    }
    follow(id, into);
  }

  constexpr void live(int root, int at) {
    if (first_[root] < 0 || at < first_[root]) first_[root] = at;
    if (at > last_[root]) last_[root] = at;
  }

  /// A use inside a loop that the buffer's value comes from outside of keeps it until the loop ends.
  constexpr void use(int value, int reader, int at) {
    const int root = result_.root[value];
    if (root < 0) return;
    live(root, at);
    for (int loop = g_[reader].loop; loop >= 0 && loop != g_[root].loop; loop = g_[loop].loop) {
      live(root, s_.unit_of[end_of_[loop]]);
    }
  }

  /// Reads behind virtual values count for their readers, wherever these are.
  constexpr void read(int value, int reader, int at) {
    if (result_.root[value] >= 0) {
      use(value, reader, at);
      return;
    }
    const instruction& i = g_[value];
    if (i.op->fuse == fusion::broadcast) read(i.operand[0], reader, at);
  }

  constexpr void find_lives() {
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      const int at = s_.unit_of[id];
      if (at >= 0 && result_.root[id] >= 0) use(id, id, at);
      if (collects(part_of(i))) {
        const int loop = g_[i.operand[0]].loop;
        live(result_.root[id], s_.unit_of[loop]);
        live(result_.root[id], s_.unit_of[end_of_[loop]]);
      } else if (part_of(i) == structure::loop_carry) {
        // Until its loop ends: there the value that is passed on is copied into it.
        live(result_.root[id], s_.unit_of[i.loop]);
      }
      for_each_read(id, [this](int value, int reader, int unit) { read(value, reader, unit); });
    }
  }

  /// A result is computed where the caller wants it, when its value has a buffer of its own that nothing else needs
  /// to be elsewhere; a donated argument's memory may be taken once the argument has been read for the last time.
  constexpr void place_results() {
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      if (part_of(i) != structure::result) continue;
      location target;
      target.space = memory_space::result;
      target.index = attributes_of<border_attributes>(i).number;
      if (i.operand_count == 2) {
        target.space = memory_space::argument;
        target.index = attributes_of<border_attributes>(g_[i.operand[1]]).number;
      }
      result_.root[id] = id;
      result_.within[id] = target;
      const int root = result_.root[i.operand[0]];
      if (i.operand_count == 2 && root == i.operand[1]) continue;  // the argument as it is, or reshaped
      const bool plain = root >= 0 && result_.within[root].space == memory_space::arena && !is_enlarged(root) &&
                         result_.within[root].loop < 0 && g_[root].loop < 0 && bytes_of(g_[root]) == bytes_of(i);
      if (!plain || (i.operand_count == 2 && !may_overwrite(root, i.operand[1]))) {
        result_.copied[id] = true;
        continue;
      }
      for (int other = sharer_[root]; other >= 0; other = next_sharer_[other]) {
        result_.within[other].space = target.space;
        result_.within[other].index = target.index;
      }
      result_.within[root].space = target.space;
      result_.within[root].index = target.index;
    }
  }

  /// Whether the buffer of `root` may be the argument's: all reads of the argument happen before it is first written,
  /// or element by element in the same fused chain, before the write.
  [[nodiscard]] constexpr bool may_overwrite(int root, int argument) const {
    const int written = first_[root];
    if (last_[argument] < written) return true;
    if (last_[argument] > written || !s_.units[written].fused) return false;
    const unit& u = s_.units[written];
    if (u.reads_again) return false;
    bool overwritten = false;
    for (int n = u.first; n < u.first + u.count; ++n) {
      const int id = s_.order[n];
      for (int k = 0; k < g_[id].operand_count; ++k) {
        const int o = g_.operand_at(g_[id], k);
        const bool through = g_[o].op->fuse == fusion::broadcast && g_[o].operand[0] == argument;
        if (through) return false;
        if (o == argument && overwritten) return false;
        if (o != argument && result_.root[o] == argument) return false;
      }
      if (result_.root[id] == root) overwritten = true;
    }
    return g_[root].shape == g_[argument].shape;
  }

  // --- copies that happen at once ---------------------------------------------------------------------------------

  /// The carries of a loop change hands at once, and so do the results of a program that take arguments' places: what
  /// one overwrites may be what another one reads. Readers come first; where they form a cycle, one value is saved.
  constexpr void order_copies() {
    unread_.resize(g_.size, 0);
    writer_.resize(g_.size, -1);
    // Copies of one unit form a group; loops nest, so a group is found by its unit.
    list<int> head(s_.unit_count, -1);
    list<int> next(g_.size, -1);
    for (int id = g_.size - 1; id >= 0; --id) {
      if (!result_.copied[id] || part_of(g_[id]) == structure::loop_stack) continue;
      int& first = head[s_.unit_of[id]];
      next[id] = first;
      first = id;
    }
    for (int u = 0; u < s_.unit_count; ++u) {
      if (head[u] >= 0) order_group(head[u], next);
    }
  }

  [[nodiscard]] constexpr int copied_from(int id) const {
    return g_[id].operand[part_of(g_[id]) == structure::result ? 0 : 1];
  }
  /// The buffer that a copy overwrites, by its root; -1 for a result that takes nobody's place.
  [[nodiscard]] constexpr int overwritten(int id) const {
    if (part_of(g_[id]) != structure::result) return result_.root[id];
    return g_[id].operand_count == 2 ? g_[id].operand[1] : -1;
  }

  constexpr void order_group(int head, const list<int>& next) {
    for (int id = head; id >= 0; id = next[id]) {
      unread_[result_.root[copied_from(id)]] = 0;
      if (overwritten(id) >= 0) unread_[overwritten(id)] = 0;
    }
    for (int id = head; id >= 0; id = next[id]) {
      ++unread_[result_.root[copied_from(id)]];
      if (overwritten(id) >= 0) writer_[overwritten(id)] = id;
    }
    for (int id = head; id >= 0; id = next[id]) try_copy(id);
    // Whatever is left waits for a cycle, or is part of one.
    for (int id = head; id >= 0; id = next[id]) {
      if (overwritten(id) < 0 || writer_[overwritten(id)] != id) continue;
      result_.saved[id] = true;
      was_read(result_.root[copied_from(id)]);
    }
  }
  /// Copies if nobody reads any more what is overwritten, and then those that waited for this one to read.
  constexpr void try_copy(int id) {
    while (id >= 0) {
      const int target = overwritten(id);
      if (target >= 0) {
        if (writer_[target] != id || unread_[target] > 0) return;
        writer_[target] = -1;
      }
      result_.copies.push_back(id);
      if (result_.saved[id]) return;
      const int source = result_.root[copied_from(id)];
      id = --unread_[source] == 0 ? writer_[source] : -1;
    }
  }
  constexpr void was_read(int root) {
    if (--unread_[root] == 0 && writer_[root] >= 0) try_copy(writer_[root]);
  }

  const mesh_shape& mesh_;
  graph_view g_;
  schedule_view s_;
  memory_outline result_;
  list<surroundings> around_;
  list<int> first_;
  list<int> last_;
  list<int> end_of_;
  /// By root: one of those that share its buffer; `next_sharer_` links to the others.
  list<int> sharer_;
  list<int> next_sharer_;
  /// By root, within a group of copies: how many of them still have to read it, and which one overwrites it.
  list<int> unread_;
  list<int> writer_;
  /// By value, if values are overwritten: the last unit that reads it; the loop whose iterations may change what is in
  /// its buffer; whether it is an argument whose place a result takes.
  list<int> last_read_;
  list<int> home_;
  list<bool> donated_;
};

}  // namespace detail

[[nodiscard]] constexpr memory_outline outline_memory(const mesh_shape& mesh, graph_view g, const schedule_view& s) {
  return detail::outliner(mesh, g, s).run();
}

/// The largest sum of the sizes of buffers that are needed at the same time: no arena can be smaller.
[[nodiscard]] constexpr std::int64_t live_bytes(const buffer* buffers, int count, int units) {
  detail::list<std::int64_t> change(units + 1, 0);
  for (int i = 0; i < count; ++i) {
    change[buffers[i].first] += buffers[i].bytes;
    change[buffers[i].last + 1] -= buffers[i].bytes;
  }
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (int u = 0; u < units; ++u) {
    live += change[u];
    most = live > most ? live : most;
  }
  return most;
}

namespace detail {

/// What is occupied in the arena, and when: a segment tree over the units of the schedule, whose nodes hold sets of
/// offsets as spans that neither touch nor overlap. Looking for the conflicts of a buffer meets a few spans on each
/// level of the tree, where a list of all buffers would be quadratic.
class arena_occupancy {
 public:
  struct span {
    std::int64_t begin;
    std::int64_t end;
    int next;  // in the same set, in order of offset; 0 ends it
  };

  constexpr explicit arena_occupancy(int units) {
    while (leaves_ < units) leaves_ *= 2;
    throughout_.resize(2 * leaves_, 0);
    inside_.resize(2 * leaves_, 0);
    spans_.push_back({});
  }

  /// Offsets [begin, end) are in use from unit `first` to unit `last`.
  constexpr void occupy(int first, int last, std::int64_t begin, std::int64_t end) {
    int left = first + leaves_;
    int right = last + leaves_;
    for (int l = left, r = right + 1; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) {
        add(throughout_[l], 0, begin, end);
        add(inside_[l], 0, begin, end);
        ++l;
      }
      if (r % 2 == 1) {
        --r;
        add(throughout_[r], 0, begin, end);
        add(inside_[r], 0, begin, end);
      }
    }
    for (; left != right; left /= 2, right /= 2) {
      add(inside_[left], 0, begin, end);
      add(inside_[right], 0, begin, end);
    }
    for (; left > 0; left /= 2) add(inside_[left], 0, begin, end);
  }

  /// The lowest of the smallest gaps that `bytes` fit into, beside everything in use between two units.
  [[nodiscard]] constexpr std::int64_t tightest(int first, int last, std::int64_t bytes) {
    taken_ = 0;
    int left = first + leaves_;
    int right = last + leaves_;
    for (int l = left, r = right + 1; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) take(inside_[l++]);
      if (r % 2 == 1) take(inside_[--r]);
    }
    for (; left != right; left /= 2, right /= 2) {
      take(throughout_[left]);
      take(throughout_[right]);
    }
    for (; left > 0; left /= 2) take(throughout_[left]);
    std::int64_t best = -1;
    std::int64_t best_gap = -1;
    std::int64_t end = 0;
    for (int at = taken_; at != 0; at = spans_[at].next) {
      const std::int64_t gap = spans_[at].begin - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = spans_[at].end;
    }
    release(taken_);
    return best < 0 ? end : best;
  }

 private:
  constexpr void take(int set) {
    int from = 0;  // both are in order of offset: no span of this set is looked for twice in the other
    for (; set != 0; set = spans_[set].next) from = add(taken_, from, spans_[set].begin, spans_[set].end);
  }

  /// Adds [begin, end) to the set whose first span is `first`. Looks behind span `from`, which ends before `begin`, or
  /// from the first on if that is 0. Returns the last span that ends before `begin`: a `from` for what begins later.
  constexpr int add(int& first, int from, std::int64_t begin, std::int64_t end) {
    int before = from;
    int at = from == 0 ? first : spans_[from].next;
    while (at != 0) {
      const span& met = spans_[at];
      if (met.end >= begin) {
        if (met.begin <= begin && end <= met.end) return before;
        break;
      }
      before = at;
      at = met.next;
    }
    while (at != 0) {
      span& met = spans_[at];
      if (met.begin > end) break;
      begin = met.begin < begin ? met.begin : begin;
      end = met.end > end ? met.end : end;
      const int swallowed = at;
      at = met.next;
      met.next = free_;
      free_ = swallowed;
    }
    const int grown = made_span({begin, end, at});
    (before == 0 ? first : spans_[before].next) = grown;
    return before;
  }
  constexpr int made_span(const span& content) {
    if (free_ == 0) return spans_.push_back(content);
    const int made = free_;
    free_ = spans_[made].next;
    spans_[made] = content;
    return made;
  }
  constexpr void release(int set) {
    while (set != 0) {
      const int next = spans_[set].next;
      spans_[set].next = free_;
      free_ = set;
      set = next;
    }
  }

  int leaves_ = 1;
  /// By node: what is in use during all of its units because of this node (not of those above it), and what is in use
  /// during any of its units because of this node and those below it.
  list<int> throughout_;
  list<int> inside_;
  list<span> spans_;
  int free_ = 0;
  int taken_ = 0;
};

}  // namespace detail

/// Offsets in the arena, found for the largest buffers first: each goes into the tightest gap that the buffers it
/// lives beside leave. Places numbers [start, stop) of `order`, when those before them have been; returns the bytes
/// that they take together.
constexpr std::int64_t place_buffers(const buffer* buffers, const int* order, int start, int stop, int units,
                                     std::int64_t* offset) {
  detail::arena_occupancy occupied(units);
  std::int64_t size = 0;
  for (int n = 0; n < stop; ++n) {
    const buffer& b = buffers[order[n]];
    if (n >= start) offset[order[n]] = occupied.tightest(b.first, b.last, b.bytes);
    const std::int64_t at = offset[order[n]];
    occupied.occupy(b.first, b.last, at, at + b.bytes);
    size = at + b.bytes > size ? at + b.bytes : size;
  }
  return size;
}

/// The buffers' numbers, largest first; among equals the one needed first. (Merge sort: no quadratic pass.)
constexpr void sort_buffers(const buffer* buffers, int count, int* order) {
  detail::list<int> other(count);
  for (int i = 0; i < count; ++i) order[i] = i;
  const auto before = [&](int a, int b) {
    if (buffers[a].bytes != buffers[b].bytes) return buffers[a].bytes > buffers[b].bytes;
    return a < b;
  };
  for (int width = 1; width < count; width *= 2) {
    for (int low = 0; low < count; low += 2 * width) {
      const int middle = low + width < count ? low + width : count;
      const int high = low + 2 * width < count ? low + 2 * width : count;
      int i = low;
      int j = middle;
      for (int k = low; k < high; ++k) {
        const bool left = j >= high || (i < middle && !before(order[j], order[i]));
        other[k] = left ? order[i++] : order[j++];
      }
    }
    for (int i = 0; i < count; ++i) order[i] = other[i];
  }
}

}  // namespace espalier
