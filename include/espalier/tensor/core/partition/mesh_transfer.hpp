// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/transfer.hpp>
#include <espalier/tensor/core/sharding/box.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

/// A tensor goes from one mesh to another: from devices that hold it in one layout to others, or some of the same, that
/// need it in another layout. A reshard within one mesh is planned by `transfer.hpp`, in constants; this is planned
/// when a program starts, since which ranks form a mesh is known then.
namespace espalier {

/// The box of a tensor that one rank holds or needs; the box begins at the start of a buffer of this shape.
struct held_box {
  int rank = 0;
  tensor_box box;
  extents buffer;
};

/// Returns device `device` of a mesh, as rank `rank`, with its shard of a tensor in this layout.
/// @pre the tensor is no partial
[[nodiscard]] inline held_box held_shard(const mesh_shape& mesh, const layout& whole, int device, int rank) {
  return {rank, detail::box_of(mesh, whole.shape, whole.placement, device),
          local_shape(mesh, whole.shape, whole.placement)};
}

/// A box of the tensor that goes from one rank to another, or stays where it is: `from` and `to` are numbers of a
/// holder and of a reader, `box` is relative to the buffers of both (its `source` is the holder's rank).
struct moved_piece {
  std::size_t from = 0;
  std::size_t to = 0;
  piece box;
};

namespace detail {

/// Cuts the pieces that the holders of one box have for some readers, one piece after the other, into as many equal
/// shares as there are holders. A piece in which a share ends is cut along its longest dimension, to the nearest layer,
/// so that one box goes from a holder to a reader; a small piece is not cut.
class copy_shares {
 public:
  /// Fewer elements are not worth a message of their own.
  static constexpr std::int64_t least = 256;

  copy_shares(std::int64_t total, std::size_t copies)
      : share_(std::max<std::int64_t>(1, ceil_div(total, static_cast<std::int64_t>(copies)))) {}

  /// Calls `send(copy, box)` for all boxes that the next piece is cut into.
  template <class Send> void next(const piece& whole, int rank, const Send& send) {
    const std::int64_t count = elements_of(whole, rank);
    int longest = 0;
    for (int d = 1; d < rank; ++d) longest = whole.extent[d] > whole.extent[longest] ? d : longest;
    const std::int64_t layers = whole.extent[longest];
    const std::int64_t smallest = std::min(layers, ceil_div(least * layers, count));
    std::int64_t begin = 0;
    for (std::int64_t copy = before_ / share_; begin < layers; ++copy) {
      const std::int64_t room = (copy + 1) * share_ - before_;
      std::int64_t end = layers;
      if (room < count) {
        end = (2 * room * layers + count) / (2 * count);
        // Nothing smaller than that on either side of a cut.
        if (end - begin < smallest) end = 2 * (end - begin) < smallest ? begin : begin + smallest;
        if (end > begin && layers - end < smallest) end = layers;
      }
      if (end == begin) continue;
      piece box = whole;
      box.extent[longest] = end - begin;
      box.source_start[longest] += begin;
      box.target_start[longest] += begin;
      send(static_cast<std::size_t>(copy), box);
      begin = end;
    }
    before_ += count;
  }

 private:
  std::int64_t share_;
  std::int64_t before_ = 0;
};

}  // namespace detail

/// Returns the pieces to send so that every reader gets its box of a tensor of so many dimensions. Elements that the
/// reader's rank already holds are not sent; each missing element is sent once. Ranks that hold the same box send equal
/// shares, but for half a layer of a piece at each cut, or a piece that is too small to be cut. A holder sends a reader
/// at most one piece; readers are served in their order.
/// @pre boxes of different holders are the same, or have nothing in common
/// Throws std::invalid_argument if no rank holds an element that a reader needs.
[[nodiscard]] inline std::vector<moved_piece> moved_pieces(const std::vector<held_box>& holders,
                                                           const std::vector<held_box>& readers, int dimensions) {
  const auto same = [&](const tensor_box& a, const tensor_box& b) {
    return std::equal(a.dim, a.dim + dimensions, b.dim, [](const interval& one, const interval& other) {
      return one.start == other.start && one.size == other.size;
    });
  };
  std::vector<std::vector<std::size_t>> classes;  // holders of the same box
  for (std::size_t h = 0; h < holders.size(); ++h) {
    if (detail::elements_of(holders[h].box, dimensions) == 0) continue;
    const auto known = std::find_if(classes.begin(), classes.end(), [&](const std::vector<std::size_t>& one) {
      return same(holders[one.front()].box, holders[h].box);
    });
    if (known == classes.end()) {
      classes.push_back({h});
    } else {
      known->push_back(h);
    }
  }
  std::vector<moved_piece> moves;
  std::vector<std::int64_t> missing;
  for (const held_box& reader : readers) missing.push_back(detail::elements_of(reader.box, dimensions));
  for (const std::vector<std::size_t>& copies : classes) {
    const tensor_box& theirs = holders[copies.front()].box;
    std::int64_t total = 0;
    std::vector<std::size_t> wanted;
    for (std::size_t r = 0; r < readers.size(); ++r) {
      const piece box = detail::common_piece(theirs, readers[r].box, dimensions, 0);
      const std::int64_t count = detail::elements_of(box, dimensions);
      if (count == 0) continue;
      missing[r] -= count;
      const auto own =
          std::find_if(copies.begin(), copies.end(), [&](std::size_t h) { return holders[h].rank == readers[r].rank; });
      if (own != copies.end()) {
        moves.push_back({*own, r, box});
        moves.back().box.source = readers[r].rank;
        continue;
      }
      total += count;
      wanted.push_back(r);
    }
    detail::copy_shares shares(total, copies.size());
    for (const std::size_t r : wanted)
      shares.next(detail::common_piece(theirs, readers[r].box, dimensions, 0), dimensions,
                  [&](std::size_t copy, const piece& box) {
                    moves.push_back({copies[copy], r, box});
                    moves.back().box.source = holders[copies[copy]].rank;
                  });
  }
  for (std::size_t r = 0; r < readers.size(); ++r)
    if (missing[r] != 0)
      throw std::invalid_argument("a tensor cannot be moved: of what rank " + std::to_string(readers[r].rank) +
                                  " needs, " + std::to_string(std::abs(missing[r])) + " elements are held by " +
                                  (missing[r] > 0 ? "nobody" : "several ranks whose parts overlap"));
  return moves;
}

}  // namespace espalier
