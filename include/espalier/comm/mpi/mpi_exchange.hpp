// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/place_in.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/comm/mpi/mpi_messages.hpp>
#include <espalier/comm/mpi/mpi_requests.hpp>

#include <cstddef>
#include <cstdint>

namespace espalier::comm::detail {

inline constexpr std::int64_t exchange_alignment = 64;

[[nodiscard]] inline std::int64_t aligned(std::int64_t bytes) {
  return (bytes + exchange_alignment - 1) / exchange_alignment * exchange_alignment;
}

template <class Start>
[[nodiscard]] std::int64_t staging_bytes(const transfer& moves, const espalier::detail::plain_vector<block>& boxes,
                                         Start start) {
  std::int64_t bytes = 0;
  for (std::size_t k = 0; k < boxes.size(); ++k) {
    const block& box = boxes[k];
    const bool staged = k != static_cast<std::size_t>(moves.self) && start(box, 0, box.elements()) < 0;
    if (staged) bytes += aligned(box.elements() * size_of(moves.type));
  }
  return bytes;
}

/// Visits the members other than this one, starting after it, so that not all send to the same rank first.
template <class Visit> void for_each_peer(const transfer_group& group, Visit visit) {
  const int members = static_cast<int>(group.members.size());
  for (int step = 1; step < members; ++step) {
    const auto k = static_cast<std::size_t>((group.self + step) % members);
    visit(k, group.members[k]);
  }
}

/// Memory that operations use, kept so that a repeated one allocates nothing.
struct operation_memory {
  struct box {
    std::byte* memory = nullptr;  // null: received in place
    int messages = 0;             // still to arrive
  };
  staging_buffer incoming;
  staging_buffer outgoing;
  espalier::detail::plain_vector<box> boxes;
  espalier::detail::plain_vector<contribution> parts;
};

/// One exchange of boxes.
class mpi_exchange {
 public:
  mpi_exchange(mpi_messages& messages, operation_memory& memory, const transfer& moves, const void* source,
               void* target)
      : messages_(&messages),
        memory_(&memory),
        moves_(&moves),
        source_(static_cast<const std::byte*>(source)),
        target_(static_cast<std::byte*>(target)) {}

  void run() {
    post_receives();
    post_sends();
    const block& own = moves_->incoming[static_cast<std::size_t>(moves_->self)];
    copy_block(moves_->type, target_, source_, own);  // while the others' boxes travel
    messages_->drain([&](std::size_t place) { unpack_arrived(place); });
  }

 private:
  void post_receives() {
    const std::int64_t element = size_of(moves_->type);
    std::byte* staging = memory_->incoming.reserve(staging_bytes(*moves_, moves_->incoming, &contiguous_target));
    memory_->boxes.assign(moves_->members.size(), {});
    for_each_peer(*moves_, [&](std::size_t k, int rank) {
      const block& box = moves_->incoming[k];
      const std::int64_t bytes = box.elements() * element;
      const std::int64_t start = contiguous_target(box, 0, box.elements());
      memory_->boxes[k].messages = static_cast<int>(messages_->message_count(bytes));
      if (start >= 0) {
        messages_->receive_messages(target_ + start * element, bytes, rank);
        return;
      }
      memory_->boxes[k].memory = staging;
      messages_->receive_messages(staging, bytes, rank);
      staging += aligned(bytes);
    });
  }

  void post_sends() {
    const std::int64_t element = size_of(moves_->type);
    std::byte* staging = memory_->outgoing.reserve(staging_bytes(*moves_, moves_->outgoing, &contiguous_source));
    for_each_peer(*moves_, [&](std::size_t k, int rank) {
      const block& box = moves_->outgoing[k];
      const std::int64_t bytes = box.elements() * element;
      const std::int64_t start = contiguous_source(box, 0, box.elements());
      if (start >= 0) {
        messages_->send_messages(source_ + start * element, bytes, rank);
        return;
      }
      pack(moves_->type, staging, source_, box);
      messages_->send_messages(staging, bytes, rank);
      staging += aligned(bytes);
    });
  }

  void unpack_arrived(std::size_t place) {
    const request_table::entry& ended = messages_->requests().at(place);
    if (!ended.incoming) return;
    const auto k = static_cast<std::size_t>(espalier::detail::place_in(moves_->members, ended.rank));
    operation_memory::box& box = memory_->boxes[k];
    if (--box.messages == 0 && box.memory != nullptr) unpack(moves_->type, target_, box.memory, moves_->incoming[k]);
  }

  mpi_messages* messages_;
  operation_memory* memory_;
  const transfer* moves_;
  const std::byte* source_;
  std::byte* target_;
};

}  // namespace espalier::comm::detail
