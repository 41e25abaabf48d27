// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// Moves data between the devices of a replica while they run a layer's programs: a `comm::Communicator` on the
/// pipeline's own messages, so that a rank that waits here lets activations, gradients and reductions of the step go
/// on, and hears of a failure on any rank. Replicas are small: everything goes straight from one device to another.
class peer_communicator {
 public:
  explicit peer_communicator(replica_link& link) : link_(&link) {
    for (int k = 0; k < link.devices(); ++k) all_.members.push_back(k);
    all_.self = link.device();
  }

  [[nodiscard]] int rank() const { return link_->device(); }
  [[nodiscard]] int size() const { return link_->devices(); }

  void prepare(const comm::transfer& moves) {
    comm::detail::require_consistent(moves, rank(), size());
    prepare(static_cast<const comm::transfer_group&>(moves));
    std::int64_t bytes = 0;
    for (const auto* list : {&moves.outgoing, &moves.incoming})
      for (const comm::block& box : *list) bytes += aligned_memory::rounded(box.elements() * size_of(moves.type));
    reserve(bytes);
  }
  void prepare(const comm::transfer_group& group) {
    comm::detail::require_consistent(group, rank(), size());
    counters_.reserve(group.channel);
    staged_.resize(std::max(staged_.size(), group.members.size()));
    parts_.resize(staged_.size());
  }

  void exchange(const comm::transfer& moves, const void* source, void* target) {
    start(moves, source, static_cast<std::byte*>(target));
    comm::copy_block(moves.type, target, source, moves.incoming[self(moves)]);
    link_->wait();
    for (std::size_t k = 0; k < moves.members.size(); ++k)
      if (staged_[k] != nullptr) comm::unpack(moves.type, target, staged_[k], moves.incoming[k]);
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void reduce_exchange(const comm::transfer& moves, const void* source, void* target, const comm::reducer& by) {
    comm::detail::require_reducible(moves, by, where_);
    start(moves, source, nullptr);
    link_->wait();
    for (std::size_t k = 0; k < moves.members.size(); ++k) parts_[k] = {staged_[k], nullptr};
    const comm::block& own = moves.incoming[self(moves)];
    parts_[self(moves)] = {source, &own};
    comm::detail::reduce_range(by, target, own, 0, own.elements(), parts_.data(),
                               static_cast<int>(moves.members.size()));
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void all_reduce(const comm::transfer_group& group, const void* source, void* target, std::int64_t count,
                  const comm::reducer& by) {
    comm::detail::require_reducible(by, where_);
    const auto members = static_cast<int>(group.members.size());
    const std::int64_t bytes = count * size_of(by.type);
    // Two devices send as much either way, and little is sooner there in one round than in two.
    if (members == 2 || bytes <= small_bytes) {
      const auto all = [&](int) { return comm::element_range{0, count}; };
      gather_parts(group, source, all, all(0), by.type);
      reduce(group, source, target, all(0), by);
      counters_.add(group.channel, bytes * (members - 1));
      return;
    }
    const auto range = [&](int k) { return comm::owned_range(count, members, k); };
    const comm::element_range own = range(group.self);
    gather_parts(group, source, range, own, by.type);
    reduce(group, source, target, own, by);
    const std::int64_t element = size_of(by.type);
    auto* const sums = static_cast<std::byte*>(target);
    for (int k = 0; k < members; ++k) {
      if (k == group.self) continue;
      receive(group, k, sums + range(k).begin * element, range(k).size() * element);
      send(group, k, sums + own.begin * element, own.size() * element);
    }
    link_->wait();
    counters_.add(group.channel, comm::all_reduce_sent_bytes(count, element, members, group.self));
  }

  void barrier() {
    std::byte mine{};
    std::vector<std::byte> theirs(all_.members.size());
    for (int k = 0; k < size(); ++k) {
      if (k == rank()) continue;
      receive(all_, k, &theirs[static_cast<std::size_t>(k)], 1);
      send(all_, k, &mine, 1);
    }
    link_->wait();
  }
  void broadcast(void* data, std::int64_t bytes, int root) {
    for (int k = 0; k < size() && rank() == root; ++k)
      if (k != root) send(all_, k, data, bytes);
    if (rank() != root) receive(all_, root, data, bytes);
    link_->wait();
  }

  [[nodiscard]] std::span<const std::int64_t> counters() const { return counters_.view(); }
  void reset_counters() { counters_.reset(); }
  void set_context(const comm::context* where) { where_ = where; }
  /// Nothing: the engine tells the other ranks what a layer threw.
  void abort(const std::string&) {}

 private:
  static constexpr std::int64_t small_bytes = std::int64_t{16} << 10U;

  [[nodiscard]] static std::size_t self(const comm::transfer_group& group) {
    return static_cast<std::size_t>(group.self);
  }
  void send(const comm::transfer_group& group, int member, const void* data, std::int64_t bytes) {
    if (bytes > 0) link_->send(group.members[static_cast<std::size_t>(member)], data, bytes);
  }
  void receive(const comm::transfer_group& group, int member, void* data, std::int64_t bytes) {
    if (bytes > 0) link_->receive(group.members[static_cast<std::size_t>(member)], data, bytes);
  }
  void reserve(std::int64_t bytes) {
    if (bytes <= staging_bytes_) return;
    staging_ = aligned_memory(bytes);
    staging_bytes_ = bytes;
  }

  /// Starts all messages of a transfer: boxes that lie in one piece go from and to where they are, others through the
  /// staging memory; so do all that come, where there is no target. Afterwards `staged_` says where what comes is
  /// staged.
  void start(const comm::transfer& moves, const void* source, std::byte* target) {
    std::byte* room = staging_.data();
    const auto take = [&](std::int64_t bytes) {
      std::byte* const taken = room;
      room += aligned_memory::rounded(bytes);
      return taken;
    };
    const std::int64_t element = size_of(moves.type);
    for (std::size_t k = 0; k < moves.members.size(); ++k) {
      staged_[k] = nullptr;
      if (k == self(moves)) continue;
      const comm::block& box = moves.incoming[k];
      const std::int64_t elements = box.elements();
      const std::int64_t at = target == nullptr ? -1 : comm::detail::contiguous_target(box, 0, elements);
      if (at < 0) staged_[k] = take(elements * element);
      receive(moves, static_cast<int>(k), at < 0 ? staged_[k] : target + at * element, elements * element);
    }
    for (std::size_t k = 0; k < moves.members.size(); ++k) {
      const comm::block& box = moves.outgoing[k];
      const std::int64_t elements = box.elements();
      if (k == self(moves) || elements == 0) continue;
      const std::int64_t at = comm::detail::contiguous_source(box, 0, elements);
      const std::byte* from = static_cast<const std::byte*>(source) + at * element;
      if (at < 0) {
        std::byte* const packed = take(elements * element);
        comm::pack(moves.type, packed, source, box);
        from = packed;
      }
      send(moves, static_cast<int>(k), from, elements * element);
    }
  }

  /// Sends `range(k)` of the source to member k, and gets the `own` range of every member.
  template <class Range>
  void gather_parts(const comm::transfer_group& group, const void* source, const Range& range,
                    const comm::element_range& own, dtype type) {
    const auto members = static_cast<int>(group.members.size());
    const std::int64_t element = size_of(type);
    const std::int64_t slot = aligned_memory::rounded(own.size() * element);
    reserve(slot * members);
    for (int k = 0; k < members; ++k) {
      staged_[static_cast<std::size_t>(k)] = staging_.data() + slot * k;
      if (k == group.self) continue;
      receive(group, k, staged_[static_cast<std::size_t>(k)], own.size() * element);
      send(group, k, static_cast<const std::byte*>(source) + range(k).begin * element, range(k).size() * element);
    }
    link_->wait();
  }
  /// Reduces in the order of the group, the same on all members.
  void reduce(const comm::transfer_group& group, const void* source, void* target, const comm::element_range& own,
              const comm::reducer& by) {
    const std::int64_t begin = own.begin * size_of(by.type);
    for (std::size_t k = 0; k < group.members.size(); ++k) parts_[k] = {staged_[k], nullptr};
    parts_[self(group)] = {static_cast<const std::byte*>(source) + begin, nullptr};
    comm::detail::reduce_range(by, static_cast<std::byte*>(target) + begin, comm::contiguous_block(own.size()), 0,
                               own.size(), parts_.data(), static_cast<int>(group.members.size()));
  }

  replica_link* link_;
  comm::transfer_group all_;
  const comm::context* where_ = nullptr;
  aligned_memory staging_;
  std::int64_t staging_bytes_ = 0;
  std::vector<std::byte*> staged_;  // by member
  std::vector<comm::contribution> parts_;
  comm::detail::byte_counters counters_;
};

}  // namespace espalier::pipeline::detail
