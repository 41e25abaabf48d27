// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/layout.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

namespace espalier::detail {

/// One device's moves in an exchange from an owner (`owner_attributes`), for each device of its group that may be the
/// owner: the owner cuts its buffer into as many pieces as there are others, and sends one to each; the others pass
/// their pieces on to one another. Of three devices with 1,000 elements the owner sends 500 and 500, and the others
/// send 500 each.
class owner_exchange {
 public:
  /// @param all the elements that the owner sends
  owner_exchange(const mesh_shape& mesh, graph_view g, int id, int device, int channel, std::int64_t all)
      : owners_(attributes_of<owner_attributes>(g[id])), row_type_(g.operand(id, 1).type) {
    const axis_list group = list_of(owners_.axes);
    const int members = static_cast<int>(mesh.parts(group));
    const int self = mesh.position(device, group);
    comm::transfer nothing;
    nothing.type = g[id].type;
    nothing.channel = channel;
    nothing.self = self;
    for (int k = 0; k < members; ++k) nothing.members.push_back(mesh.member(device, group, k));
    nothing.incoming.assign(static_cast<std::size_t>(members), comm::empty_block());
    nothing.outgoing = nothing.incoming;
    for (int owner = 0; owner < members; ++owner) {
      const auto piece = [&](int member) { return piece_of(all, members, member < owner ? member : member - 1); };
      comm::transfer dealt = nothing;
      comm::transfer passed = nothing;
      for (int k = 0; k < members; ++k) {
        const auto at = static_cast<std::size_t>(k);
        if (self == owner) dealt.outgoing[at] = k == self ? comm::contiguous_block(all) : piece(k);
        if (self != owner && k != owner && k != self) {
          passed.outgoing[at] = piece(self);
          passed.incoming[at] = piece(k);
        }
      }
      dealt.incoming[static_cast<std::size_t>(owner)] = self == owner ? comm::contiguous_block(all) : piece(self);
      dealt_.push_back(dealt);
      if (members > 2) passed_.push_back(passed);
    }
  }

  template <class Communicator> void prepare(Communicator& communicator) const {
    for (const comm::transfer& one : dealt_) communicator.prepare(one);
    for (const comm::transfer& one : passed_) communicator.prepare(one);
  }
  /// @param row operand 1
  template <class Communicator>
  void run(Communicator& communicator, const void* row, const void* source, void* target) const {
    const auto owner = static_cast<std::size_t>(owner_of(row));
    communicator.exchange(dealt_[owner], source, target);
    if (!passed_.empty()) communicator.exchange(passed_[owner], target, target);
  }
  /// The place in the group of the device that has this row.
  [[nodiscard]] int owner_of(const void* row) const {
    if (row_type_ == dtype::i64) return owners_.owner_of(read<std::int64_t>(row));
    return owners_.owner_of(read<std::int32_t>(row));
  }

 private:
  template <class T> [[nodiscard]] static std::int64_t read(const void* memory) {
    T value;
    std::memcpy(&value, memory, sizeof value);
    return value;
  }
  /// The piece of the n-th device that is not the owner: at the same place in every buffer.
  [[nodiscard]] static comm::block piece_of(std::int64_t all, int members, int n) {
    const std::int64_t begin = all * n / (members - 1);
    const std::int64_t end = all * (n + 1) / (members - 1);
    return comm::contiguous_block(end - begin, begin, begin);
  }

  owner_attributes owners_;
  dtype row_type_;
  std::vector<comm::transfer> dealt_;
  std::vector<comm::transfer> passed_;
};

}  // namespace espalier::detail
