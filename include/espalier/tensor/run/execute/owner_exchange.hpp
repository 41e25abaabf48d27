// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>

#include <cstdint>
#include <cstring>

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
    comm::transfer_group among;
    among.channel = channel;
    among.self = mesh.position(device, group);
    for (int k = 0; k < members; ++k) among.members.push_back(mesh.member(device, group, k));
    for (int owner = 0; owner < members; ++owner) {
      dealt_.push_back(transfer_of(among, g[id].type, all, owner, true));
      if (members > 2) passed_.push_back(transfer_of(among, g[id].type, all, owner, false));
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
  /// What the owner deals out, or what the others pass on.
  [[nodiscard]] static comm::transfer transfer_of(const comm::transfer_group& among, dtype type, std::int64_t all,
                                                  int owner, bool deals) {
    comm::transfer made;
    static_cast<comm::transfer_group&>(made) = among;
    made.type = type;
    const int members = static_cast<int>(among.members.size());
    const int self = among.self;
    for (int k = 0; k < members; ++k) {
      const bool passes = !deals && self != owner && k != owner && k != self;
      const int sent = passes ? self : deals && self == owner ? k : -1;
      const int received = passes ? k : deals && k == owner ? self : -1;
      made.outgoing.push_back(piece_of(all, members, owner, sent));
      made.incoming.push_back(piece_of(all, members, owner, received));
    }
    return made;
  }
  /// The piece of a device, at the same place in every buffer: the owner has everything, and no device nothing.
  [[nodiscard]] static comm::block piece_of(std::int64_t all, int members, int owner, int device) {
    if (device < 0) return comm::empty_block();
    if (device == owner) return comm::contiguous_block(all);
    const int n = device < owner ? device : device - 1;
    const std::int64_t begin = all * n / (members - 1);
    const std::int64_t end = all * (n + 1) / (members - 1);
    return comm::contiguous_block(end - begin, begin, begin);
  }

  owner_attributes owners_;
  dtype row_type_;
  object_vector<comm::transfer> dealt_;
  object_vector<comm::transfer> passed_;
};

}  // namespace espalier::detail
