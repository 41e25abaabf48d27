// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/run/call_summary.hpp>
#include <espalier/comm/run/element.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Holds what is known of calls, those used last in front; calls that differ in names only may share an entry. A call
/// that is repeated is found by comparing some numbers, and no memory is taken. All ranks look up the same calls in the
/// same order, so all forget the same ones. `Known` has the call as `call`.
template <class Known> class recent_calls {
 public:
  explicit recent_calls(std::size_t kept) : kept_(std::max<std::size_t>(1, kept)) { entries_.reserve(kept_ + 1); }

  /// All of a call but its counts: whatever ranks have to agree on.
  struct key {
    std::uint64_t kind = 0;  // as in a `call_summary`
    std::int64_t element_bytes = 1;

    [[nodiscard]] friend bool operator==(const key&, const key&) = default;

    /// Times do not depend on the type, nor on which operation it is.
    [[nodiscard]] key without_names() const {
      constexpr std::uint64_t names = (std::uint64_t{1} << (flags_at - type_at)) - 1;
      return {kind & ~(names << type_at), element_bytes};
    }
  };
  [[nodiscard]] static key key_of(collective what, int root, bool in_place, bool ordered, const element& by) {
    const bool typed = by.type != no_type();
    const bool named = by.operation != no_operation();
    const unsigned flags = (in_place ? in_place_flag : 0U) | (ordered ? ordered_flag : 0U) | (typed ? typed_flag : 0U) |
                           (named ? named_flag : 0U);
    const element_operation combines = reduces(what) ? by.by.operation : element_operation::unnamed;
    return {kind_word(what, by.by.type, combines, root, flags), by.by.element_bytes};
  }

  /// A call all of whose counts are `count`; null if it is not known.
  [[nodiscard]] Known* find(const key& wanted, std::int64_t count) {
    return find_if([&](const entry& e) { return e.of == wanted && e.count == count; });
  }
  [[nodiscard]] Known* find(const key& wanted, const std::vector<std::int64_t>& counts) {
    if (counts.size() == 1) return find(wanted, counts.front());
    return find_if([&](const entry& e) { return e.of == wanted && e.known->call.counts == counts; });
  }

  /// A call that takes as long as one of this kind with these counts, whatever its type and operation; null if none is
  /// known. What is in front stays there.
  [[nodiscard]] std::shared_ptr<Known> find_like(const key& wanted, const std::vector<std::int64_t>& counts) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const entry& e) {
      return e.of.without_names() == wanted.without_names() && e.known->call.counts == counts;
    });
    return found == entries_.end() ? nullptr : found->known;
  }

  /// Puts a call in front, and forgets what was not used for longest.
  Known& add(const key& of, std::shared_ptr<Known> known) {
    const std::vector<std::int64_t>& counts = known->call.counts;
    const bool uniform = std::all_of(counts.begin(), counts.end(), [&](auto c) { return c == counts.front(); });
    entry made{of, uniform && !counts.empty() ? counts.front() : -1, std::move(known)};
    entries_.insert(entries_.begin(), std::move(made));
    if (entries_.size() > kept_) entries_.pop_back();
    return *entries_.front().known;
  }

  void clear() { entries_.clear(); }

 private:
  struct entry {
    key of;
    std::int64_t count = -1;  // of all blocks; -1: they differ
    std::shared_ptr<Known> known;
  };

  template <class Is> [[nodiscard]] Known* find_if(const Is& is) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), is);
    if (found == entries_.end()) return nullptr;
    if (found != entries_.begin()) std::rotate(entries_.begin(), found, found + 1);
    return entries_.front().known.get();
  }

  std::size_t kept_;
  std::vector<entry> entries_;
};

}  // namespace espalier::comm::detail
