// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/comm/host/call_frame.hpp>
#include <espalier/comm/host/copy.hpp>
#include <espalier/comm/host/endpoint.hpp>
#include <espalier/comm/host/shape.hpp>
#include <espalier/comm/host/space.hpp>
#include <espalier/comm/host/traffic.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace espalier::comm::host {

/// How readers learn where a source's bytes are.
enum class source_places : std::uint8_t {
  staged,    ///< always in the source's region
  in_flags,  ///< the first flag of each source says where
  known      ///< all ranks told each other before
};

/// Every reader gets its own bytes from every source, chunk by chunk.
///
/// A source publishes a chunk: it writes the bytes to its region and raises a flag that names the call and the round.
/// A source that can be read in place publishes only where it is. A reader copies or reduces a chunk and then marks it
/// as read, so that its room can be used again.
template <SharedSpace Space> class chunk_protocol {
 public:
  /// `exposes`: this rank's source may be read in place; for `source_places::known`: it is.
  chunk_protocol(endpoint<Space>& self, const call_tag& tag, const call_buffers& buffers, source_places places,
                 bool exposes)
      : self_(&self),
        buffers_(&buffers),
        duplex_(!has_root(self.flows.operation()) && self.flows.fan() == 1),
        frame_(self, tag,
               [&] {
                 return shape_of(self.layout, self.how, self.flows.most(), self.flows.fan(),
                                 self.flows.folds() ? buffers.element : 1, duplex_);
               }),
        // A line that has the bytes themselves has no room for where they are.
        places_(places == source_places::in_flags && frame_.cut().beside ? source_places::staged : places),
        exposed_(exposes && places_ != source_places::staged) {}

  [[nodiscard]] call_end run() {
    if (flows().sends()) frame_.await_room();
    if (exposed_ && places_ == source_places::in_flags) expose_source();
    const bool stages = flows().sends() && !exposed_;
    if (stages && !cut().beside) self_->writer.begin(cut().rounds);
    interleaves_ = stages && duplex_ && cut().rounds > 1 && (!flows().folds() || self_->fold.has_kernel());
    // A rank's own bytes are copied while others write, or while they wait for this rank's source: then last, so that
    // they need not wait for that, too.
    const bool own_last = exposed_ && !flows().folds();
    std::int64_t slot = 0;  // of the round, in units of the fan
    for (std::int64_t round = 0; round < cut().rounds; ++round) {
      const std::int64_t begin = round * cut().chunk;
      if (flows().sends()) publish(round, slot, begin);
      if (flows().receives() && flows().folds()) {
        fold_chunk(round, slot, begin);
      } else {
        if (!own_last) copy_own(begin, cut().chunk);
        if (flows().receives()) copy_chunks(round, slot, begin);
      }
      slot = slot_after(slot);
    }
    if (own_last) {
      self_->tell_finished();
      copy_own(0, flows().own().bytes);
    }
    return {exposed_, cut().rounds};
  }

 private:
  [[nodiscard]] const traffic& flows() const { return self_->flows; }
  [[nodiscard]] int rank() const { return self_->rank; }
  [[nodiscard]] int size() const { return self_->size; }
  static constexpr unsigned read_bits = 24;
  static constexpr std::int64_t piece_bytes = 1024;  // of a chunk and of the next one, in turn

  [[nodiscard]] const shape& cut() const { return frame_.cut(); }
  [[nodiscard]] std::int64_t slot_after(std::int64_t slot) const { return slot + 1 == cut().in_flight ? 0 : slot + 1; }
  [[nodiscard]] std::int64_t length(const flow& f, std::int64_t begin) const {
    return espalier::detail::smaller_of(cut().chunk, f.bytes - begin);
  }

  void copy_own(std::int64_t begin, std::int64_t most) {
    const std::int64_t bytes = espalier::detail::smaller_of(most, flows().own().bytes - begin);
    if (bytes <= 0 || buffers_->output == nullptr) return;
    copy_bytes(buffers_->output + flows().own_target() + begin, buffers_->source + flows().own().at + begin, bytes,
               buffers_->stores);
  }

  // --- a source ---

  void publish(std::int64_t round, std::int64_t slot, std::int64_t begin) {
    if (round < published_ || (exposed_ && (places_ == source_places::known || round > 0))) return;
    if (flows().common()) {
      const flow& f = to_another();
      if (f.bytes <= begin) return;
      await_read_by_all(round);
      publish_to(f, round, slot, begin);
      return;
    }
    for (int r = 0; r < size(); ++r) {
      const flow& f = flows().to(r);
      if (f.bytes <= begin) continue;
      if (round >= cut().in_flight) await_read(r, round);
      publish_to(f, round, slot * flows().fan() + flows().slot(rank(), r), begin);
    }
  }

  /// The flow to some other rank: all flows of a chunk are alike, or there is only one.
  [[nodiscard]] const flow& to_another() const { return flows().to(rank() == 0 ? 1 : 0); }

  void await_read_by_all(std::int64_t round) {
    if (round < cut().in_flight) return;
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && (flows().operation() != collective::reduce || r == flows().root())) await_read(r, round);
    }
  }

  void await_read(int reader, std::int64_t round) {
    const std::uint64_t expected = read_tag(round - cut().in_flight + 1);
    const std::atomic<std::uint64_t>& count = chunks_read(reader, rank());
    self_->waits.until([&] { return count.load(std::memory_order_acquire) >= expected; },
                       {reader, "room", round, cut().rounds});
  }

  void publish_to(const flow& f, std::int64_t round, std::int64_t slot, std::int64_t begin) {
    flag_line& flag = frame_.line(rank(), slot);
    const std::byte* const from = buffers_->source + f.at + begin;
    const std::int64_t bytes = length(f, begin);
    if (cut().beside) {
      copy_beside(&flag.beside[0], from, bytes);
    } else {
      if (places_ == source_places::in_flags && round == 0) {
        const exposed place{own_place_.how, own_place_.where + static_cast<std::uint64_t>(f.at)};
        std::memcpy(&flag.beside[0], &place, sizeof place);
      }
      if (!exposed_) self_->writer.write(frame_.data(rank(), slot), from, bytes, round);
    }
    frame_.raise(flag, round);
  }

  /// Copies up to 56 bytes: most calls have 4 or 8, which need no call of a function.
  static void copy_beside(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (bytes == 4) {
      std::memcpy(to, from, 4);
    } else if (bytes == 8) {
      std::memcpy(to, from, 8);
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }

  /// Lets readers read this rank's source in place, if they can reach it.
  void expose_source() {
    std::int64_t end = 0;
    for (int r = 0; r < size(); ++r) end = espalier::detail::larger_of(end, flows().to(r).at + flows().to(r).bytes);
    own_place_ = self_->expose(buffers_->source, end);
    exposed_ = own_place_.how != reach::staged;
  }

  // --- a reader ---

  /// Chunks of `source` that `reader` has read.
  [[nodiscard]] std::atomic<std::uint64_t>& chunks_read(int reader, int source) const {
    return line_at(self_->region(reader), self_->layout.taken_at(source)).flag;
  }
  [[nodiscard]] std::uint64_t read_tag(std::int64_t chunks) const {
    return self_->number << read_bits | static_cast<std::uint64_t>(chunks);
  }
  void mark_read(int source, std::int64_t round) {
    if (cut().in_flight == cut().rounds) return;
    chunks_read(rank(), source).store(read_tag(round + 1), std::memory_order_release);
  }

  /// Waits for a source's chunk. Returns where it can be read, or null if the operating system has to copy it.
  const std::byte* await_chunk(int source, std::int64_t round, std::int64_t slot, std::int64_t begin) {
    slot = slot * flows().fan() + flows().slot(source, rank());
    if (places_ != source_places::staged) {
      exposed& place = self_->places[static_cast<std::size_t>(source)].input;
      if (place.how == reach::unknown) {
        const flag_line& first = frame_.line(source, flows().slot(source, rank()));
        frame_.await(first, 0, source, "data");
        std::memcpy(&place, &first.beside[0], sizeof place);
      }
      if (place.how == reach::direct) return self_->space->direct(source, place) + begin;
      if (place.how == reach::kernel) return nullptr;
    }
    const flag_line& flag = frame_.line(source, slot);
    frame_.await(flag, round, source, "data");
    return cut().beside ? &flag.beside[0] : frame_.data(source, slot);
  }

  void copy_chunks(std::int64_t round, std::int64_t slot, std::int64_t begin) {
    for (int k = 1; k < size(); ++k) {
      const int source = rank() + k < size() ? rank() + k : rank() + k - size();
      copy_chunk(source, round, slot, begin);
    }
  }

  void copy_chunk(int source, std::int64_t round, std::int64_t slot, std::int64_t begin) {
    const flow& f = flows().from(source);
    const std::int64_t bytes = length(f, begin);
    if (bytes <= 0) return;
    const std::byte* const from = await_chunk(source, round, slot, begin);
    std::byte* const to = buffers_->output + f.at + begin;
    if (from == nullptr) {
      // It is all there, and to ask the operating system costs as much as to copy some KiB.
      if (round == 0) self_->fetch(source, 0, to, f.bytes);
      return;
    }
    if (cut().beside) return copy_beside(to, from, bytes);  // one chunk: no source waits until it is read
    next_chunk next = interleaves_ ? chunk_after(round, slot) : next_chunk{};
    in_turns(next, to, bytes, 1,
             [&](std::int64_t at, std::int64_t n) { copy_bytes(to + at, from + at, n, buffers_->stores); });
    mark_read(source, round);
    publish_next(next, round);
  }

  void fold_chunk(std::int64_t round, std::int64_t slot, std::int64_t begin) {
    const std::int64_t bytes = length(flows().own(), begin);
    if (bytes <= 0) return;
    // There is room for one contribution where the result will be, unless this rank's own is there.
    std::byte* room = flows().in_output() ? nullptr : buffers_->output + flows().own_target() + begin;
    for (int s = 0; s < size(); ++s) {
      if (s == rank()) {
        self_->parts[static_cast<std::size_t>(s)] = buffers_->source + flows().own().at + begin;
        continue;
      }
      const std::byte* part = await_chunk(s, round, slot, begin);
      if (part == nullptr) {
        part = fetched(s, round, begin, room);
        room = nullptr;
      }
      self_->parts[static_cast<std::size_t>(s)] = part;
    }
    std::byte* target = buffers_->output + flows().own_target() + begin;
    next_chunk next = interleaves_ ? chunk_after(round, slot) : next_chunk{};
    in_turns(next, target, bytes, buffers_->element, [&](std::int64_t, std::int64_t n) {
      self_->fold({&target, 1, self_->parts.data(), size(), n / buffers_->element, buffers_->stores});
      target += n;
      for (const std::byte*& part : self_->parts) part += n;
    });
    for (int s = 0; s < size(); ++s) {
      if (s != rank()) mark_read(s, round);
    }
    publish_next(next, round);
  }

  /// Copies a source's chunk to memory of this rank, at `room` if that is given. The operating system copies it
  /// together with the chunks after it, as many as fit into the nearer caches: a call of it costs as much as to copy
  /// some KiB.
  const std::byte* fetched(int source, std::int64_t round, std::int64_t begin, std::byte* room) {
    const std::int64_t rounds = espalier::detail::larger_of<std::int64_t>(1, self_->how.chunk / cut().chunk);
    const std::int64_t done = round % rounds * cut().chunk;
    if (room == nullptr) room = self_->tile(source, rounds * cut().chunk) + done;
    if (done == 0)
      self_->fetch(source, begin, room,
                   espalier::detail::smaller_of(rounds * cut().chunk, flows().own().bytes - begin));
    return room;
  }

  // --- the next chunk, written while this one is read ---

  /// A chunk on its way into this rank's region.
  struct next_chunk {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::int64_t left = 0;      // bytes
    flag_line* flag = nullptr;  // null: there is no such chunk, or it is published later

    /// Asks for the lines of the piece after the next.
    void prepare() const {
      for (std::int64_t at = piece_bytes; at < espalier::detail::smaller_of(2 * piece_bytes, left); at += line_bytes) {
        espalier::detail::prefetch_to_write(to + at);
      }
    }
    void write(std::int64_t bytes) {
      bytes = espalier::detail::smaller_of(bytes, left);
      copy_bytes(to, from, bytes);
      to += bytes;
      from += bytes;
      left -= bytes;
    }
  };

  /// The chunk after `round`, if it is to be written in turns with this one, as soon as there is room for it: two
  /// rounds always have some. Also in place none of its bytes is where results of `round` are written.
  [[nodiscard]] next_chunk chunk_after(std::int64_t round, std::int64_t slot) {
    const std::int64_t begin = (round + 1) * cut().chunk;
    if (round + 1 < published_ || begin >= to_another().bytes || !self_->writer.in_pieces(round + 1)) return {};
    await_read_by_all(round + 1);
    slot = slot_after(slot);
    const flow& f = to_another();
    return {frame_.data(rank(), slot), buffers_->source + f.at + begin, length(f, begin), &frame_.line(rank(), slot)};
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
      work(at, espalier::detail::smaller_of(end, bytes) - at);
      next.write(piece_bytes);
    }
  }

  void publish_next(next_chunk& next, std::int64_t round) {
    if (next.flag == nullptr) return;
    next.write(next.left);
    frame_.raise(*next.flag, round + 1);
    published_ = round + 2;
  }

  endpoint<Space>* self_;
  const call_buffers* buffers_;
  bool duplex_;  // ranks write a chunk while they read one
  call_frame<Space> frame_;
  source_places places_;
  bool exposed_;  // this rank's source is read in place
  exposed own_place_;
  bool interleaves_ = false;    // a chunk is written while the one before is read
  std::int64_t published_ = 0;  // if so: chunks that need not be published any more
};

}  // namespace espalier::comm::host
