// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/host/fold.hpp>
#include <espalier/comm/host/shape.hpp>
#include <espalier/comm/host/space.hpp>
#include <espalier/comm/host/staging.hpp>
#include <espalier/comm/host/traffic.hpp>
#include <espalier/comm/host/wait.hpp>
#include <espalier/comm/schedule/call.hpp>
#include <espalier/detail/light_std/function_ref.hpp>
#include <espalier/detail/light_std/plain_vector.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

namespace espalier::comm::host {

/// The eight collectives over memory that ranks share: the same for processes and for threads.
///
/// A source shows its bytes chunk by chunk: in its own region, behind a flag that says which call and which chunk; or
/// where they stand, if they can be read there. Readers take a chunk straight to where it belongs, or combine it on
/// the way, and say so, so that its room can be used again. Nothing else is ever copied. A call's flags and rooms are
/// the next call's with another number, so calls follow each other without a barrier.
///
/// Contributions are always combined in the order of ranks: results are equal to the bit on all ranks and on every run.
template <SharedSpace Space> class engine {
 public:
  engine(Space& space, const sizes& how, std::chrono::duration<double> deadline)
      : space_(&space),
        how_(how),
        layout_(space.size(), how.region),
        watch_(space, deadline),
        traffic_(space.size(), space.rank()),
        parts_(static_cast<std::size_t>(space.size())),
        targets_(static_cast<std::size_t>(space.size())),
        inputs_(static_cast<std::size_t>(space.size())),
        outputs_(static_cast<std::size_t>(space.size())),
        known_(static_cast<std::size_t>(space.size()), 0),
        staging_(space.crowded() ? how.stage_by.value_or(store::cached) : how.stage_by),
        rank_(space.rank()),
        size_(space.size()),
        epoch_(state_of(space.region(space.rank())).finished.load(std::memory_order_relaxed)) {
    // Where buffers are is said in a flag's own line: what fits beside a flag has no use for that.
    how_.expose_from = std::max(how_.expose_from, 2 * line_bytes);
  }

  [[nodiscard]] static std::int64_t region_bytes(int ranks, const sizes& how) {
    return region_layout(ranks, how.region).bytes();
  }
  [[nodiscard]] const sizes& how() const { return how_; }

  /// Whether chunks can hold such elements.
  [[nodiscard]] bool holds(std::int64_t element_bytes) const {
    return element_bytes <= layout_.of(region_layout::tiers - 1).bytes / (4 * (size_ + 1)) - 2 * line_bytes;
  }

  /// Takes part in a collective. `said`: what its ranks have to agree on; `number`: of this call for who else reads the
  /// ranks' notices, 0: nobody does. Errors: std::invalid_argument before anything is shared; `comm_error` when the
  /// deadline passes or other ranks are in another call: then this rank can make no other.
  void run(const collective_call& call, const call_summary& said, std::uint64_t number, const void* input, void* output,
           const combiner& by, const context* where) {
    require_whole(where);
    traffic_.set(call, by.element_bytes);
    element_ = by.element_bytes;
    if (traffic_.folds()) fold_.set(by);
    output_ = static_cast<std::byte*>(output);
    source_ = traffic_.in_output() ? output_ : static_cast<const std::byte*>(input);
    if (traffic_.total() == 0) return;
    if (size_ == 1) return alone();
    guarded([&] { together(said, number, where); });
  }

  /// Until all ranks have come here. `operation`: for the error of a rank that waits in vain; else as `run`.
  void meet(const char* operation, const context* where) { static_cast<void>(largest(0, operation, where)); }

  /// The largest of the numbers that all ranks bring, on all. As `meet`.
  [[nodiscard]] double largest(double mine, const char* operation, const context* where) {
    require_whole(where);
    if (size_ == 1) return mine;
    double found = mine;
    guarded([&] {
      begin_call(~std::uint64_t{0} >> (64 - hash_bits), false, operation, where);
      shape_ = shape_of(layout_, how_, sizeof mine, 1, 1);
      area_ = area();
      await_room();
      swap_words(mine, "its coming", [&](int, double theirs) { found = std::max(found, theirs); });
      end_call(false);
    });
    return found;
  }

  /// What another rank has for this one: its source, where it stands, or what it packed of it for this rank.
  struct lent_memory {
    const std::byte* memory = nullptr;
    bool packed = false;
  };
  using lent_list = espalier::detail::plain_vector<lent_memory>;
  /// What a rank lends: its source; or nothing, since it packs what the others need: at most `packed_room` bytes each.
  struct lender {
    const void* source = nullptr;
    bool packs = true;
  };
  static constexpr std::int64_t packed_room = 1024;
  using packer = espalier::detail::function_ref<void(int rank, std::byte* room)>;
  using lent_reader = espalier::detail::function_ref<void(const lent_list&)>;

  /// All ranks meet, and `work(lent)` reads what all of them have for this one: what is not laid out as a
  /// `collective_call` says. Sources may be read until this returns, which it does when nobody does any more; without
  /// waiting, if all ranks pack. `pack(rank, room)` writes what a rank is to get. `said`: the same on all ranks, which
  /// is verified. Errors: as above; `pack` and `work` throw nothing.
  void meet(const char* operation, const call_summary& said, const lender& mine, const context* where, packer pack,
            lent_reader work) requires Space::lends {
    require_whole(where);
    guarded([&] {
      note(said, 0);
      begin_call(detail::short_fingerprint(said), true, operation, where);
      const bool all_pack = exchange_sources(said, mine, pack);
      work(lent_);
      finish_streaming();
      end_call(!all_pack);
    });
  }

 private:
  static constexpr unsigned round_bits = 12;
  static constexpr unsigned taken_bits = 24;
  static constexpr std::int64_t piece_bytes = 1024;  // of a chunk and of the next one, in turn

  void alone() { copy_bytes(output_ + traffic_.own_target(), source_ + traffic_.own().at, traffic_.own().bytes); }

  void require_whole(const context* where) const {
    if (!broken_) return;
    throw comm_error(detail::joined({"rank ", rank_, ": an earlier collective failed", detail::during(where)}));
  }
  void guarded(espalier::detail::function_ref<void()> body) {
    try {
      body();
    } catch (const std::exception& error) {
      leave(error.what());
      throw;
    } catch (...) {
      leave("an exception that is not a std::exception");
      throw;
    }
  }
  void leave(const char* why) {
    broken_ = true;
    watch_.give_up(why);
    if constexpr (Space::lends) watch_.take_back();
  }

  /// Before the call begins, so that who sees it begin can read what it is.
  void note(const call_summary& said, std::uint64_t number) {
    state_of(space_->region(rank_)).notice.write(number != 0 ? number : epoch_ + 1, said);
  }
  void begin_call(std::uint64_t hash, bool noted, const char* operation, const context* where) {
    ++epoch_;
    const std::uint64_t word = epoch_ << hash_bits | hash;
    tag_ = word << round_bits;
    watch_.begin(word, noted, operation, where);
    watch_.enter();
  }
  /// This rank reads nothing of others any more.
  void tell_finished() { state_of(space_->region(rank_)).finished.store(epoch_, std::memory_order_release); }
  void end_call(bool wait_for_all) {
    tell_finished();
    if (!wait_for_all) return;
    // Others may still be reading (or writing) this rank's buffers.
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) await_finished(r, epoch_, "the end");
    }
  }

  void together(call_summary said, std::uint64_t number, const context* where) {
    // Whether ranks look for each other's buffers depends on this.
    if (space_->exposes()) said.kind |= std::uint64_t{detail::exposed_flag} << detail::flags_at;
    note(said, number);
    begin_call(detail::short_fingerprint(said), true, name_of(traffic_.what()), where);
    shared_ = false;
    inputs_known_ = false;
    offers_ = false;
    offered_ = false;
    mine_ = {};
    headers_ = false;
    stores_ = store_of(overwrites());
    if (traffic_.total() < how_.expose_from || !space_->exposes()) {
      if (splits()) {
        split();
      } else {
        chunks();
      }
    } else {
      large();
    }
    if (stores_ == store::streaming) finish_streaming();
    end_call(shared_);
  }

  /// Buffers may be read in place.
  void large() {
    if (traffic_.what() == collective::all_reduce) return large_all_reduce();
    if (splits()) {
      exchange_places();
      return split();
    }
    headers_ = true;
    std::fill(inputs_.begin(), inputs_.end(), unknown());
    // What is overwritten while others read it has to be staged.
    offers_ = traffic_.sends() && !overwrites();
    chunks();
  }

  void large_all_reduce() {
    exchange_places();
    bool all_direct = true;
    bool safe = true;
    for (int r = 0; r < size_; ++r) {
      const auto k = static_cast<std::size_t>(r);
      all_direct = all_direct && inputs_[k].how == reach::direct && outputs_[k].how == reach::direct;
      safe = safe && (inputs_[k].how == reach::staged || !same_place(k));
    }
    if (all_direct) return everywhere();
    // In place, only who reads a piece may overwrite it: that is so where each reduces its own.
    if (splits() || !safe) return split();
    chunks();
  }

  /// Whether this rank's contribution is overwritten by results.
  [[nodiscard]] bool overwrites() const {
    return traffic_.in_output() && (traffic_.folds() || traffic_.what() == collective::all_to_all);
  }
  [[nodiscard]] bool same_place(std::size_t k) const { return in_place_[k] != 0; }

  // --- what a call looks like ---

  /// Streaming pays where what is read and written does not fit into the last cache, and was not there before.
  [[nodiscard]] store store_of(bool in_place) const {
    return !in_place && traffic_.total() * size_ >= how_.stream_from ? store::streaming : store::cached;
  }

  /// Whether each rank reduces a part for all, instead of everything for itself.
  [[nodiscard]] bool splits() const {
    return traffic_.common() && traffic_.folds() && size_ > 2 && traffic_.total() * (size_ - 2) > how_.split_from;
  }

  // --- waiting ---

  [[nodiscard]] std::byte* region(int rank) const { return space_->region(rank); }

  /// The tag of a chunk of this call: exact, for a flag's line never holds anything but tags.
  [[nodiscard]] std::uint64_t tag(std::int64_t round) const {
    return tag_ | (static_cast<std::uint64_t>(round) & ((1U << round_bits) - 1));
  }

  ESPALIER_ALWAYS_INLINE void await(const flag_line& line, std::int64_t round, int rank, const char* what) {
    const std::uint64_t wanted = tag(round);
    watch_.until([&] { return line.flag.load(std::memory_order_acquire) == wanted; },
                 {rank, what, round, shape_.rounds});
  }

  void await_finished(int rank, std::uint64_t call, const char* what) {
    const rank_state& other = state_of(region(rank));
    std::uint64_t& known = known_[static_cast<std::size_t>(rank)];
    watch_.until(
        [&] {
          known = other.finished.load(std::memory_order_acquire);
          return known >= call;
        },
        {rank, what, 0, shape_.rounds});
  }

  /// Before the first write into this call's copy of a tier: nobody needs what an earlier call left there.
  ESPALIER_ALWAYS_INLINE void await_room() {
    const auto depth = static_cast<std::uint64_t>(shape_.of->depth);
    if (epoch_ <= depth || free_before_ + depth >= epoch_) return;
    free_before_ = std::numeric_limits<std::uint64_t>::max();
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      if (known_[static_cast<std::size_t>(r)] + depth < epoch_) await_finished(r, epoch_ - depth, "room");
      free_before_ = std::min(free_before_, known_[static_cast<std::size_t>(r)]);
    }
  }

  // --- chunks: every reader takes what is its own from every source ---

  [[nodiscard]] std::int64_t area() const {
    return shape_.of->at + static_cast<std::int64_t>(epoch_ & static_cast<std::uint64_t>(shape_.of->depth - 1)) *
                               shape_.of->copy_bytes();
  }
  [[nodiscard]] flag_line& line(int rank, std::int64_t slot) const {
    return line_at(region(rank), area_ + slot * line_bytes);
  }
  [[nodiscard]] std::byte* data(int rank, std::int64_t slot) const {
    return region(rank) + area_ + shape_.of->flags * line_bytes + slot * shape_.stride;
  }
  [[nodiscard]] std::atomic<std::uint64_t>& taken(int reader, int source) const {
    return line_at(region(reader), layout_.taken_at(source)).flag;
  }

  void chunks() {
    // The same on all ranks.
    const bool both_ways = !has_root(traffic_.what()) && traffic_.fan() == 1;
    shape_ = shape_of(layout_, how_, traffic_.most(), traffic_.fan(), traffic_.folds() ? element_ : 1, both_ways);
    area_ = area();
    if (traffic_.sends()) await_room();
    // Beside the flag there is no room for both the bytes and where they are.
    headers_ = headers_ && !shape_.beside;
    if (headers_ && offers_) offer();
    const bool stages = traffic_.sends() && !offered_;
    if (stages) staging_.begin(shape_.rounds);
    interleaves_ = stages && both_ways && (!traffic_.folds() || fold_.has_kernel());
    shown_ = 0;
    // What stays here is copied while others write, or while they wait for this rank's source: then it comes last, so
    // that they need not wait for that, too.
    const bool own_last = offered_ && !traffic_.folds();
    std::int64_t slot = 0;  // of the round, in units of the fan
    for (std::int64_t round = 0; round < shape_.rounds; ++round) {
      const std::int64_t begin = round * shape_.chunk;
      if (traffic_.sends()) show(round, slot, begin);
      if (traffic_.receives()) {
        if (traffic_.folds()) {
          fold_chunk(round, slot, begin);
        } else {
          if (!own_last) copy_own(begin, shape_.chunk);
          for (int k = 1; k < size_; ++k) {
            const int s = rank_ + k < size_ ? rank_ + k : rank_ + k - size_;
            copy_chunk(s, round, slot, begin);
          }
        }
      } else if (!own_last) {
        copy_own(begin, shape_.chunk);
      }
      slot = slot_after(slot);
    }
    if (!own_last) return;
    tell_finished();
    copy_own(0, traffic_.own().bytes);
  }

  [[nodiscard]] std::int64_t slot_after(std::int64_t slot) const { return slot + 1 == shape_.in_flight ? 0 : slot + 1; }

  [[nodiscard]] std::int64_t length(const flow& f, std::int64_t begin) const {
    return std::min(shape_.chunk, f.bytes - begin);
  }

  void copy_own(std::int64_t begin, std::int64_t most) {
    const std::int64_t bytes = std::min(most, traffic_.own().bytes - begin);
    if (bytes <= 0 || output_ == nullptr) return;
    copy_bytes(output_ + traffic_.own_target() + begin, source_ + traffic_.own().at + begin, bytes, stores_);
  }

  void show(std::int64_t round, std::int64_t slot, std::int64_t begin) {
    if (round < shown_ || (offered_ && (inputs_known_ || round > 0))) return;
    if (traffic_.common()) {
      const flow& f = to_another();
      if (f.bytes <= begin) return;
      await_taken_by_all(round);
      show_to(f, round, slot, begin);
      return;
    }
    for (int r = 0; r < size_; ++r) {
      const flow& f = traffic_.to(r);
      if (f.bytes <= begin) continue;
      if (round >= shape_.in_flight) await_taken(r, round);
      show_to(f, round, slot * traffic_.fan() + traffic_.slot(rank_, r), begin);
    }
  }

  /// Where all flows of a chunk are alike, or there is only one.
  [[nodiscard]] const flow& to_another() const { return traffic_.to(rank_ == 0 ? 1 : 0); }

  void await_taken_by_all(std::int64_t round) {
    if (round < shape_.in_flight) return;
    for (int r = 0; r < size_; ++r) {
      if (r != rank_ && (traffic_.what() != collective::reduce || r == traffic_.root())) await_taken(r, round);
    }
  }

  void await_taken(int reader, std::int64_t round) {
    const std::uint64_t wanted = epoch_ << taken_bits | static_cast<std::uint64_t>(round - shape_.in_flight + 1);
    const std::atomic<std::uint64_t>& there = taken(reader, rank_);
    watch_.until([&] { return there.load(std::memory_order_acquire) >= wanted; },
                 {reader, "room", round, shape_.rounds});
  }

  void show_to(const flow& f, std::int64_t round, std::int64_t slot, std::int64_t begin) {
    flag_line& l = line(rank_, slot);
    const std::byte* const from = source_ + f.at + begin;
    const std::int64_t bytes = length(f, begin);
    if (shape_.beside) {
      copy_beside(&l.beside[0], from, bytes);
    } else {
      if (headers_ && round == 0) {
        const exposed e{mine_.how, mine_.where + static_cast<std::uint64_t>(f.at)};
        std::memcpy(&l.beside[0], &e, sizeof e);
      }
      if (!offered_) staging_.write(data(rank_, slot), from, bytes, round);
    }
    l.flag.store(tag(round), std::memory_order_release);
  }

  /// Up to 56 bytes: no call for these.
  static void copy_beside(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (bytes == 4) {
      std::memcpy(to, from, 4);
    } else if (bytes == 8) {
      std::memcpy(to, from, 8);
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }

  /// This rank's source can be read where it stands, if that is so.
  void offer() {
    std::int64_t end = 0;
    for (int r = 0; r < size_; ++r) end = std::max(end, traffic_.to(r).at + traffic_.to(r).bytes);
    mine_ = expose(source_, end);
    offered_ = mine_.how != reach::staged;
    shared_ = offered_;
  }

  [[nodiscard]] exposed expose(const std::byte* data, std::int64_t bytes) const {
    const exposed e = space_->expose(data, bytes);
    return e.how == reach::kernel && traffic_.most() < how_.expose_from ? exposed{} : e;
  }

  static exposed unknown() { return {static_cast<reach>(~std::uint64_t{0}), 0}; }

  /// A source's chunk, waited for: where it can be read, or null if the operating system has to be asked.
  const std::byte* view(int source, std::int64_t round, std::int64_t slot, std::int64_t begin) {
    slot = slot * traffic_.fan() + traffic_.slot(source, rank_);
    if (headers_ || inputs_known_) {
      exposed& e = inputs_[static_cast<std::size_t>(source)];
      if (e.how == unknown().how) {
        const flag_line& first = line(source, traffic_.slot(source, rank_));
        await(first, 0, source, "data");
        std::memcpy(&e, &first.beside[0], sizeof e);
      }
      if (e.how == reach::direct) return space_->direct(source, e) + begin;
      if (e.how == reach::kernel) return nullptr;
    }
    const flag_line& l = line(source, slot);
    await(l, round, source, "data");
    return shape_.beside ? &l.beside[0] : data(source, slot);
  }

  void take(int source, std::int64_t round) {
    if (shape_.in_flight == shape_.rounds) return;
    taken(rank_, source).store(epoch_ << taken_bits | static_cast<std::uint64_t>(round + 1), std::memory_order_release);
  }

  void fetch(int source, std::int64_t begin, std::byte* to, std::int64_t bytes) {
    if (space_->fetch(source, inputs_[static_cast<std::size_t>(source)], begin, to, bytes)) return;
    throw comm_error(detail::joined({"rank ", rank_, ", in ", name_of(traffic_.what()),
                                     ", could not read the memory of rank ", source, ": it has ended"}));
  }

  void copy_chunk(int source, std::int64_t round, std::int64_t slot, std::int64_t begin) {
    const flow& f = traffic_.from(source);
    const std::int64_t bytes = length(f, begin);
    if (bytes <= 0) return;
    const std::byte* const from = view(source, round, slot, begin);
    std::byte* const to = output_ + f.at + begin;
    if (from == nullptr) {
      // It is all there, and to ask the operating system costs as much as to copy some KiB.
      if (round == 0) fetch(source, 0, to, f.bytes);
      return;
    }
    if (shape_.beside) {
      copy_beside(to, from, bytes);
      return take(source, round);
    }
    next_chunk next = chunk_after(round, slot);
    in_turns(next, to, bytes, 1, [&](std::int64_t at, std::int64_t n) { copy_bytes(to + at, from + at, n, stores_); });
    take(source, round);
    show_next(next, round);
  }

  void fold_chunk(std::int64_t round, std::int64_t slot, std::int64_t begin) {
    const std::int64_t bytes = length(traffic_.own(), begin);
    if (bytes <= 0) return;
    // Where results are to be there is room for one contribution, unless this rank's own is there.
    std::byte* room = traffic_.in_output() ? nullptr : output_ + traffic_.own_target() + begin;
    for (int s = 0; s < size_; ++s) {
      if (s == rank_) {
        parts_[static_cast<std::size_t>(s)] = source_ + traffic_.own().at + begin;
        continue;
      }
      const std::byte* part = view(s, round, slot, begin);
      if (part == nullptr) {
        part = fetched(s, round, begin, room);
        room = nullptr;
      }
      parts_[static_cast<std::size_t>(s)] = part;
    }
    std::byte* target = output_ + traffic_.own_target() + begin;
    next_chunk next = chunk_after(round, slot);
    in_turns(next, target, bytes, element_, [&](std::int64_t, std::int64_t n) {
      fold_({&target, 1, parts_.data(), size_, n / element_, stores_});
      target += n;
      for (const std::byte*& part : parts_) part += n;
    });
    for (int s = 0; s < size_; ++s) {
      if (s != rank_) take(s, round);
    }
    show_next(next, round);
  }

  /// A source's chunk, in memory of this rank: at `room`, if that is given. It is asked for with the chunks after it,
  /// as far as they fit into the nearer caches together: to ask the operating system costs as much as to copy some KiB.
  const std::byte* fetched(int source, std::int64_t round, std::int64_t begin, std::byte* room) {
    const std::int64_t rounds = std::max<std::int64_t>(1, how_.chunk / shape_.chunk);
    const std::int64_t done = round % rounds * shape_.chunk;
    if (room == nullptr) room = tile(source, rounds * shape_.chunk) + done;
    if (done == 0) fetch(source, begin, room, std::min(rounds * shape_.chunk, traffic_.own().bytes - begin));
    return room;
  }

  /// Room for what the operating system copies of a source's chunk.
  std::byte* tile(int source, std::int64_t bytes) {
    const std::int64_t each = std::max(tile_bytes_, (bytes + line_bytes - 1) / line_bytes * line_bytes);
    if (each > tile_bytes_ || tiles_.empty()) {
      tile_bytes_ = std::max(each, how_.chunk);
      tiles_.resize(static_cast<std::size_t>(tile_bytes_ * size_));
    }
    return tiles_.data() + source * tile_bytes_;
  }

  // --- the next chunk, written while this one is taken ---

  /// A chunk on its way into this rank's region.
  struct next_chunk {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::int64_t left = 0;      // bytes
    flag_line* flag = nullptr;  // none: there is no such chunk, or it is shown later

    /// Asks for the lines of the piece after the next.
    void prepare() const {
      for (std::int64_t at = piece_bytes; at < std::min(2 * piece_bytes, left); at += line_bytes) {
        espalier::detail::prefetch_to_write(to + at);
      }
    }
    void write(std::int64_t bytes) {
      bytes = std::min(bytes, left);
      copy_bytes(to, from, bytes);
      to += bytes;
      from += bytes;
      left -= bytes;
    }
  };

  /// The chunk after `round`, if it is to be written beside this one, as soon as there is room for it: two rounds
  /// always have some. Also in place none of its bytes lies where results of `round` are written.
  [[nodiscard]] next_chunk chunk_after(std::int64_t round, std::int64_t slot) {
    const std::int64_t begin = (round + 1) * shape_.chunk;
    if (!interleaves_ || round + 1 < shown_ || begin >= to_another().bytes || !staging_.in_pieces(round + 1)) return {};
    await_taken_by_all(round + 1);
    slot = slot_after(slot);
    const flow& f = to_another();
    return {data(rank_, slot), source_ + f.at + begin, length(f, begin), &line(rank_, slot)};
  }

  using piece_work = espalier::detail::function_ref<void(std::int64_t begin, std::int64_t bytes)>;
  /// Does `work` on all of a chunk, whose results go to `target`, and writes the next one: by pieces, in turns. A line
  /// that is read comes from where it was written, and one that is written is first asked back from where it was read.
  /// A processor waits for many of both at once, if they are not thousands apart: that saves a call a tenth to a fifth
  /// of its time (two cores of a Xeon that a line takes 0.3 us between, there and back).
  void in_turns(next_chunk& next, const std::byte* target, std::int64_t bytes, std::int64_t unit, piece_work work) {
    if (next.flag == nullptr) return work(0, bytes);
    // Pieces are whole elements (those that have kernels divide `piece_bytes`) and end where lines of the target do.
    std::int64_t end = piece_bytes + espalier::detail::to_next_line(target, bytes) / unit * unit;
    for (std::int64_t at = 0; at < bytes; at = end, end += piece_bytes) {
      next.prepare();
      work(at, std::min(end, bytes) - at);
      next.write(piece_bytes);
    }
  }

  void show_next(next_chunk& next, std::int64_t round) {
    if (next.flag == nullptr) return;
    next.write(next.left);
    next.flag->flag.store(tag(round + 1), std::memory_order_release);
    shown_ = round + 2;
  }

  // --- in place: each rank reduces its part of all inputs into all outputs ---

  /// Before ranks tell each other a few words, in the lines of a tier where this call has nothing else.
  void begin_words(int tier) {
    shape_ = shape_of(layout_, how_, flag_line::room, 1, 1);
    shape_.of = &layout_.of(tier);
    area_ = area();
    await_room();
  }
  /// All ranks tell each other a few words: `take(rank, words)` gets everybody's. `what`: for a wait in vain.
  template <class Words, class Take> void swap_words(const Words& mine, const char* what, const Take& take) {
    static_assert(sizeof(Words) <= static_cast<std::size_t>(flag_line::room));
    flag_line& l = line(rank_, 0);
    std::memcpy(&l.beside[0], &mine, sizeof mine);
    l.flag.store(tag(0), std::memory_order_release);
    for (int r = 0; r < size_; ++r) {
      Words there = mine;
      if (r != rank_) {
        const flag_line& other = line(r, 0);
        await(other, 0, r, what);
        std::memcpy(&there, &other.beside[0], sizeof there);
      }
      take(r, there);
    }
  }

  /// Returns whether all ranks pack.
  [[nodiscard]] bool exchange_sources(const call_summary& said, const lender& mine, packer pack) {
    struct words {
      call_summary said;
      const void* source;
      std::uint64_t packs;
    };
    begin_words(1);
    const auto room = [&](int from, int to) {
      return data(from, 0) + (to < from ? to : to - 1) * packed_room;  // none for itself
    };
    for (int r = 0; mine.packs && r < size_; ++r) {
      if (r != rank_) pack(r, room(rank_, r));
    }
    lent_.resize(static_cast<std::size_t>(size_));
    bool all_pack = true;
    swap_words(words{said, mine.source, mine.packs ? 1U : 0U}, "places of buffers", [&](int r, const words& there) {
      if (there.said != said) watch_.differ(r);
      all_pack = all_pack && there.packs != 0;
      const bool packed = r != rank_ && there.packs != 0;
      lent_[static_cast<std::size_t>(r)] = {packed ? room(r, rank_) : static_cast<const std::byte*>(there.source),
                                            packed};
    });
    return all_pack;
  }

  /// All ranks tell each other where their buffers can be had.
  void exchange_places() {
    struct places {
      exposed input;
      exposed output;
      std::uint64_t in_place;
    };
    places mine{};
    mine.input = expose(source_, traffic_.total());
    if (traffic_.receives()) mine.output = expose(output_, traffic_.total());
    mine.in_place = traffic_.in_output() ? 1 : 0;
    if (mine.input.how != reach::staged) shared_ = true;
    in_place_.resize(static_cast<std::size_t>(size_));
    // The smallest tier's lines: no call that comes here has its chunks there.
    begin_words(0);
    swap_words(mine, "places of buffers", [&](int r, const places& there) {
      const auto k = static_cast<std::size_t>(r);
      inputs_[k] = there.input;
      outputs_[k] = there.output;
      in_place_[k] = static_cast<char>(there.in_place);
    });
    inputs_known_ = true;
    offered_ = inputs_[static_cast<std::size_t>(rank_)].how != reach::staged;
  }

  void everywhere() {
    shared_ = true;
    const std::int64_t count = traffic_.total() / element_;
    const std::int64_t grain = std::max<std::int64_t>(1, 4096 / element_);
    const std::int64_t share = ((count + size_ - 1) / size_ + grain - 1) / grain * grain;
    const std::int64_t begin = std::min(count, share * rank_);
    bool any_in_place = false;
    for (int r = 0; r < size_; ++r) {
      const auto k = static_cast<std::size_t>(r);
      any_in_place = any_in_place || same_place(k);
      parts_[k] = place_of(r, inputs_[k], source_) + begin * element_;
      targets_[k] = const_cast<std::byte*>(place_of(r, outputs_[k], output_)) + begin * element_;  // NOLINT
    }
    stores_ = store_of(any_in_place);
    fold_({targets_.data(), size_, parts_.data(), size_, std::min(count - begin, share), stores_});
  }

  [[nodiscard]] const std::byte* place_of(int rank, const exposed& e, const std::byte* mine) const {
    return rank == rank_ ? mine : space_->direct(rank, e);
  }

  // --- split: each rank reduces its part of every chunk, and shows the result ---

  /// No rank says what it has taken: it shows its chunk k only after it has reduced its part of k - 1 and read all
  /// results of k - 2, and every rank waits for every other's chunk k. So two rooms for each are enough.
  void split() {
    split_shape parts = split_shape_of(layout_, how_, traffic_.total(), size_, element_);
    shape_.of = &layout_.of(region_layout::tiers - 1);
    shape_.rounds = parts.rounds;
    shape_.stride = 0;
    area_ = area();
    await_room();
    if (!(inputs_known_ && offered_)) staging_.begin(parts.rounds);
    for (std::int64_t round = 0; round < parts.rounds; ++round) {
      contribute(parts, round);
      reduce_part(parts, round);
      if (round > 0 && traffic_.receives()) collect(parts, round - 1);
    }
    if (traffic_.receives()) collect(parts, parts.rounds - 1);
  }

  void contribute(const split_shape& parts, std::int64_t round) {
    const std::int64_t begin = round * parts.chunk;
    if (!(inputs_known_ && offered_)) {
      staging_.write(data(rank_, 0) + parts.room(round), source_ + begin, parts.length(round), round);
    }
    line(rank_, round % 2).flag.store(tag(round), std::memory_order_release);
  }

  void reduce_part(const split_shape& parts, std::int64_t round) {
    const flow mine = parts.part(round, rank_);
    const std::int64_t begin = round * parts.chunk + mine.at;
    for (int s = 0; s < size_; ++s) {
      const auto k = static_cast<std::size_t>(s);
      if (s == rank_) {
        parts_[k] = source_ + begin;
        continue;
      }
      await(line(s, round % 2), round, s, "data");
      const reach how = inputs_known_ ? inputs_[k].how : reach::staged;
      if (how == reach::direct) {
        parts_[k] = space_->direct(s, inputs_[k]) + begin;
      } else if (how == reach::kernel && mine.bytes > 0) {
        std::byte* const here = tile(s, mine.bytes);
        fetch(s, begin, here, mine.bytes);
        parts_[k] = here;
      } else {
        parts_[k] = data(s, 0) + parts.room(round) + mine.at;
      }
    }
    std::byte* const room = data(rank_, 0) + parts.result(round);
    if (mine.bytes > 0) {
      const bool only_mine = traffic_.what() == collective::reduce && traffic_.receives();
      std::byte* const target = only_mine ? output_ + begin : room;
      fold_({&target, 1, parts_.data(), size_, mine.bytes / element_, store::cached});
      if (traffic_.receives() && !only_mine) copy_bytes(output_ + begin, room, mine.bytes, stores_);
    }
    line(rank_, 2 + round % 2).flag.store(tag(round), std::memory_order_release);
  }

  void collect(const split_shape& parts, std::int64_t round) {
    for (int k = 1; k < size_; ++k) {
      const int s = rank_ + k < size_ ? rank_ + k : rank_ + k - size_;
      await(line(s, 2 + round % 2), round, s, "results");
      const flow f = parts.part(round, s);
      copy_bytes(output_ + round * parts.chunk + f.at, data(s, 0) + parts.result(round), f.bytes, stores_);
    }
  }

  Space* space_;
  sizes how_;
  region_layout layout_;
  watch<Space> watch_;
  traffic traffic_;
  folder fold_;
  espalier::detail::plain_vector<const std::byte*> parts_;
  espalier::detail::plain_vector<std::byte*> targets_;
  espalier::detail::plain_vector<exposed> inputs_;
  espalier::detail::plain_vector<exposed> outputs_;
  espalier::detail::plain_vector<char> in_place_;
  lent_list lent_;
  espalier::detail::plain_vector<std::byte> tiles_;
  std::int64_t tile_bytes_ = 0;
  espalier::detail::plain_vector<std::uint64_t> known_;  // calls that each rank was seen to have finished
  std::uint64_t free_before_ = 0;                        // the least of these
  staging staging_;
  int rank_;
  int size_;
  bool broken_ = false;
  std::uint64_t epoch_;  // number of the call: goes on where an earlier engine on this region ended
  // Of the call under way:
  std::uint64_t tag_ = 0;
  shape shape_;
  std::int64_t area_ = 0;
  std::int64_t element_ = 1;
  const std::byte* source_ = nullptr;
  std::byte* output_ = nullptr;
  store stores_ = store::cached;
  bool interleaves_ = false;   // a chunk is written while the one before is taken
  std::int64_t shown_ = 0;     // if so: chunks that need not be shown any more
  bool headers_ = false;       // the first flags say where bytes can be had
  bool inputs_known_ = false;  // all ranks said so beforehand
  bool offers_ = false;        // this rank's source may be read in place
  bool offered_ = false;       // it is
  exposed mine_;               // where
  bool shared_ = false;        // somebody reads or writes this rank's buffers
};

}  // namespace espalier::comm::host
