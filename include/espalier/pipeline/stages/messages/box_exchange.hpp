// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Boxes that ranks give each other, all that go from one to another as one message. Every rank adds the same boxes in
/// one order, and keeps those that it sends or gets.
class box_exchange {
 public:
  /// @param members ranks; `self`: this one's place among them
  box_exchange(std::vector<int> members, std::size_t self, int tag)
      : members_(std::move(members)), self_(self), tag_(tag), out_(members_.size()), in_(members_.size()) {}

  /// Adds a box from member `from` to member `to`. It lies `source` bytes after the source that the calls below are
  /// given, and goes `target` bytes after their target.
  void add(std::size_t from, std::size_t to, dtype type, const comm::block& box, std::int64_t source,
           std::int64_t target) {
    if (from != self_ && to != self_) return;
    if (from == to) {
      own_.push_back({type, box, source, target, 0});
      return;
    }
    message& one = from == self_ ? out_[to] : in_[from];
    const std::int64_t element = size_of(type);
    one.bytes = (one.bytes + element - 1) / element * element;
    one.boxes.push_back({type, box, source, target, one.bytes});
    one.bytes += box.elements() * element;
  }
  /// Makes room for the messages. Called after the last box is added.
  void finish() {
    for (auto* list : {&out_, &in_})
      for (message& one : *list) {
        one.memory = aligned_memory(one.bytes);
        bytes_ += aligned_memory::rounded(one.bytes);
      }
  }
  [[nodiscard]] std::int64_t staging_bytes() const { return bytes_; }

  void receive(transport& ranks) {
    for (std::size_t k = 0; k < in_.size(); ++k)
      if (in_[k].bytes > 0) in_[k].request = ranks.receive(members_[k], tag_, in_[k].memory.data(), in_[k].bytes);
  }
  /// Sends what others get, and copies what this rank itself gets.
  void send(transport& ranks, const std::byte* source, std::byte* target) {
    for (const one_box& one : own_) comm::copy_block(one.type, target + one.target, source + one.source, one.box);
    for (std::size_t k = 0; k < out_.size(); ++k) {
      if (out_[k].bytes == 0) continue;
      for (const one_box& one : out_[k].boxes)
        comm::pack(one.type, out_[k].memory.data() + one.packed, source + one.source, one.box);
      out_[k].request = ranks.send(members_[k], tag_, out_[k].memory.data(), out_[k].bytes);
    }
  }
  /// Puts what has come where it belongs; true when all has.
  [[nodiscard]] bool has_come(transport& ranks, std::byte* target) {
    bool all = true;
    for (message& one : in_) {
      if (one.request == none) continue;
      if (!ends(ranks, one)) {
        all = false;
        continue;
      }
      for (const one_box& box : one.boxes)
        comm::unpack(box.type, target + box.target, one.memory.data() + box.packed, box.box);
    }
    return all;
  }
  /// True when all that was sent is received.
  [[nodiscard]] bool has_gone(transport& ranks) {
    bool all = true;
    for (message& one : out_) all = (one.request == none || ends(ranks, one)) && all;
    return all;
  }

 private:
  static constexpr int none = -1;
  struct one_box {
    dtype type;
    comm::block box;
    std::int64_t source, target;  ///< bytes
    std::int64_t packed;          ///< bytes from the beginning of the message
  };
  struct message {
    std::vector<one_box> boxes;
    std::int64_t bytes = 0;
    aligned_memory memory;
    int request = none;
  };

  [[nodiscard]] static bool ends(transport& ranks, message& one) {
    if (!ranks.finished(one.request)) return false;
    one.request = none;
    return true;
  }

  std::vector<int> members_;
  std::size_t self_;
  int tag_;
  std::vector<message> out_, in_;  // by member
  std::vector<one_box> own_;
  std::int64_t bytes_ = 0;
};

}  // namespace espalier::pipeline::detail
