// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/base/light_std/sort_few.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/run/combine.hpp>
#include <espalier/comm/schedule/call.hpp>
#include <espalier/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier::comm {

/// The facts that have to be the same on all ranks that take part in a call, in three words: small enough to be told to
/// the other ranks at every call, and enough to say in words what differs.
struct call_summary {
  std::uint64_t kind = 0;  ///< collective, element class, operation, root; what else ranks must agree on
  std::uint64_t element_bytes = 0;
  std::uint64_t size = 0;  ///< elements of each block; where blocks differ, of all, with a fingerprint of the blocks

  [[nodiscard]] friend constexpr bool operator==(const call_summary&, const call_summary&) = default;
};

/// Ranks, and what they are in.
struct said_by_rank {
  int rank;
  call_summary call;
};
using said_by_ranks = espalier::detail::plain_vector<said_by_rank>;

}  // namespace espalier::comm

namespace espalier::comm::detail {

// The positions of the bit fields in `call_summary::kind`.
inline constexpr unsigned what_bits = 5;
static_assert(collective_kinds <= 1 << what_bits);
inline constexpr unsigned type_at = 5;
inline constexpr unsigned operation_at = 9;
inline constexpr unsigned flags_at = 13;
inline constexpr unsigned root_at = 32;
inline constexpr std::uint64_t blocks_differ = std::uint64_t{1} << 63U;
inline constexpr unsigned blocks_at = 40;

/// The facts, other than the call itself, on which ranks agree. None of these changes a result.
enum call_flags : unsigned {
  in_place_flag = 1,
  ordered_flag = 2,
  typed_flag = 4,
  named_flag = 8,
  exposed_flag = 16,
  compares_flag = 32  ///< only in notices: the rank compares its call with those of the others
};

[[nodiscard]] constexpr std::uint64_t kind_word(collective what, element_class type, element_operation by, int root,
                                                unsigned flags = 0) {
  return static_cast<std::uint64_t>(what) | static_cast<std::uint64_t>(type) << type_at |
         static_cast<std::uint64_t>(by) << operation_at | static_cast<std::uint64_t>(flags) << flags_at |
         static_cast<std::uint64_t>(root) << root_at;
}

[[nodiscard]] constexpr collective collective_of(const call_summary& said) {
  return static_cast<collective>(said.kind & ((1U << what_bits) - 1));
}
[[nodiscard]] constexpr unsigned flags_of(std::uint64_t kind) {
  return static_cast<unsigned>(kind >> flags_at & ((std::uint64_t{1} << (root_at - flags_at)) - 1));
}

/// Returns the summary of a call. Moves have no operation, and only some calls have a root: ranks need not agree on an
/// unused field.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR call_summary summary_of(const collective_call& call, const combiner& by,
                                                                unsigned flags = 0) {
  call_summary made;
  made.kind = kind_word(call.kind, by.type, reduces(call.kind) ? by.operation : element_operation::unnamed,
                        has_root(call.kind) ? call.root : 0, flags);
  made.element_bytes = static_cast<std::uint64_t>(by.element_bytes);
  const std::int64_t first = call.counts.empty() ? 0 : call.counts.front();
  bool alike = true;
  for (const std::int64_t count : call.counts) alike = alike && count == first;
  made.size = static_cast<std::uint64_t>(first);
  if (alike) return made;
  std::uint64_t hash = 0xCBF29CE484222325U;
  std::uint64_t total = 0;
  for (const std::int64_t count : call.counts) {
    hash = (hash ^ static_cast<std::uint64_t>(count)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32U;
    total += static_cast<std::uint64_t>(count);
  }
  made.size = blocks_differ | hash >> (blocks_at + 1) << blocks_at | (total & ((std::uint64_t{1} << blocks_at) - 1));
  return made;
}

/// `said`, of a call whose elements were not named, for elements that are.
[[nodiscard]] constexpr call_summary with_names(call_summary said, const combiner& by) {
  const collective what = collective_of(said);
  const element_operation combines = reduces(what) ? by.operation : element_operation::unnamed;
  said.kind |= kind_word(what, by.type, combines, 0);
  return said;
}

/// 16 bits of a summary, for where there is room for no more. Calls of the same size and root that differ in the
/// collective, the type, the operation or `exposed_flag` have different ones, for type and operation in the lowest
/// eight bits already.
[[nodiscard]] constexpr std::uint64_t short_fingerprint(const call_summary& said) {
  const std::uint64_t sizes =
      (said.size ^ said.element_bytes << 48U ^ said.kind >> root_at << 24U) * 0x9E3779B97F4A7C15U;
  const std::uint64_t what = said.kind & ((1U << what_bits) - 1);
  const std::uint64_t exposed = said.kind >> flags_at & exposed_flag;
  const std::uint64_t code = (said.kind >> type_at & 0xFFU) | exposed << 4U | what << 9U;
  return ((sizes >> 48U) + code) & 0xFFFFU;
}

[[nodiscard]] constexpr std::uint64_t long_fingerprint(const call_summary& said) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const std::uint64_t word : {said.kind, said.element_bytes, said.size}) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29U;
  }
  return hash;
}

/// Whether they are the same call. Flags may be said at one stage of a call and not at another.
[[nodiscard]] constexpr bool same_for_all(call_summary one, call_summary other) {
  constexpr std::uint64_t own = ((std::uint64_t{1} << (root_at - flags_at)) - 1) << flags_at;
  one.kind |= own;
  other.kind |= own;
  return one == other;
}

/// A summary in words.
class spelled_call {
 public:
  explicit spelled_call(const call_summary& said) : said_(said) {}

  [[nodiscard]] const char* name() const { return name_of(kind()); }
  /// "f32", "u64", "elements of 12 bytes"
  [[nodiscard]] std::string type() const {
    const auto of_bits = [this](const char* kind) { return joined({kind, said_.element_bytes * 8}); };
    switch (static_cast<element_class>(said_.kind >> type_at & 15U)) {
      case element_class::unnamed: break;
      case element_class::floating: return of_bits("f");
      case element_class::brain_floating: return of_bits("bf");
      case element_class::complex: return of_bits("complex");
      case element_class::integer: return of_bits("i");
      case element_class::natural: return of_bits("u");
      case element_class::boolean: return "bool";
      case element_class::pair_of_float: return "pair of an int and a float";
      case element_class::pair_of_double: return "pair of an int and a double";
      case element_class::pair_of_long_double: return "pair of an int and a long double";
      case element_class::pair_of_int: return "pair of an int and an int";
      case element_class::pair_of_long: return "pair of an int and a long";
      case element_class::pair_of_short: return "pair of an int and a short";
    }
    return joined({"elements of ", said_.element_bytes, said_.element_bytes == 1 ? " byte" : " bytes"});
  }
  [[nodiscard]] const char* operation_name() const {
    constexpr std::array<const char*, 13> names{
        "the caller's own", "sum",     "prod",   "max",     "min",           "logical and",  "logical or",
        "logical xor",      "bit and", "bit or", "bit xor", "max and place", "min and place"};
    return names[espalier::detail::smaller_of<std::size_t>(said_.kind >> operation_at & 15U, names.size() - 1)];
  }
  [[nodiscard]] std::string root() const { return joined({"rank ", said_.kind >> root_at}); }
  [[nodiscard]] std::string count() const {
    const bool differ = (said_.size & blocks_differ) != 0;
    return joined({differ ? said_.size & ((std::uint64_t{1} << blocks_at) - 1) : said_.size,
                   differ ? " in blocks of different sizes" : ""});
  }
  /// Whether boxes are sent, over a channel, instead of so many elements.
  [[nodiscard]] bool is_transfer() const { return !has_schedules(kind()); }
  [[nodiscard]] bool has_root() const { return comm::has_root(kind()); }
  [[nodiscard]] bool reduces() const { return comm::reduces(kind()); }

  /// "all_reduce of 100 f32, sum"; "broadcast of 7 elements of 3 bytes, root rank 2"
  [[nodiscard]] std::string text() const {
    std::string made = joined({name(), " of "});
    if (!is_transfer()) append_text(made, {count(), " "});
    made += type();
    if (reduces()) append_text(made, {", ", operation_name()});
    if (has_root()) append_text(made, {", root ", root()});
    return made;
  }

 private:
  [[nodiscard]] collective kind() const { return collective_of(said_); }

  call_summary said_;
};

/// Returns the differences of two calls, with both values: "the operation (max, not sum) and the count (90, not 100)".
/// Differences that follow from another collective are left out.
[[nodiscard]] inline std::string difference_text(const call_summary& one, const call_summary& other) {
  const spelled_call here(one);
  const spelled_call there(other);
  const bool is_other = collective_of(one) != collective_of(other);
  if (is_other) return joined({"the collective (", here.name(), ", not ", there.name(), ")"});
  std::string text;
  std::string last;
  const auto found = [&](const std::string& difference) {
    if (!last.empty()) append_text(text, {text.empty() ? "" : ", ", last});
    last = difference;
  };
  const auto note = [&](const char* name, const std::string& mine, const std::string& theirs) {
    if (mine != theirs) found(joined({name, " (", mine, ", not ", theirs, ")"}));
  };
  note("the operation", here.operation_name(), there.operation_name());
  note("the type", here.type(), there.type());
  note(here.is_transfer() ? "the channel" : "the count", here.count(), there.count());
  if (here.has_root()) note("the root", here.root(), there.root());
  if (!text.empty()) return joined({text, " and ", last});
  if (!last.empty()) return last;
  if (one.size != other.size) return "the sizes of blocks";
  const std::uint64_t flags = (one.kind ^ other.kind) >> flags_at;
  if ((flags & in_place_flag) != 0) {
    return (one.kind >> flags_at & in_place_flag) != 0 ? "the place of the input (in the output, not apart from it)"
                                                       : "the place of the input (apart from the output, not in it)";
  }
  if ((flags & ordered_flag) != 0) return "whether the order of ranks is kept";
  if ((flags & exposed_flag) != 0) return "how memory is read";
  return "whether type and operation have names of the MPI library's";
}

/// Which ranks make another call than most, and in what it differs. `said`: what ranks make, not all the same; or
/// nothing, if that is not known.
[[nodiscard]] inline std::string mismatch_text(said_by_ranks said) {
  const char* const rule =
      "all ranks must call the same collectives in the same order, with the same counts, roots, types and operations";
  if (said.empty()) return rule;
  espalier::detail::sort_few(said, [](const said_by_rank& a, const said_by_rank& b) { return a.rank < b.rank; });
  struct group {
    std::size_t first;  // that makes the call, in `said`
    std::size_t ranks;
  };
  espalier::detail::plain_vector<group> groups;
  bool flags_count = false;
  const auto is_in = [&](const group& g, const said_by_rank& one) {
    const call_summary& call = said[g.first].call;
    return flags_count ? call == one.call : same_for_all(call, one.call);
  };
  const auto gather = [&] {
    groups.clear();
    for (std::size_t i = 0; i < said.size(); ++i) {
      std::size_t g = 0;
      while (g < groups.size() && !is_in(groups[g], said[i])) ++g;
      if (g == groups.size()) groups.push_back({i, 0});
      ++groups[g].ranks;
    }
  };
  gather();
  if (groups.size() == 1) {
    flags_count = true;
    gather();
  }
  // Most first; where there are as many, the one with the lowest rank.
  espalier::detail::sort_few(groups, [](const group& a, const group& b) {
    return a.ranks != b.ranks ? a.ranks > b.ranks : a.first < b.first;
  });
  const auto ranks_of = [&](const group& g) {
    std::vector<int> ranks;
    for (const said_by_rank& one : said) {
      if (is_in(g, one)) ranks.push_back(one.rank);
    }
    return list_ranks(ranks);
  };
  std::string text;
  for (std::size_t g = 1; g < groups.size(); ++g) {
    append_text(text,
                {g == 1 ? "" : "; ", ranks_of(groups[g]), groups[g].ranks == 1 ? " differs from " : " differ from ",
                 ranks_of(groups[0]), " in ", difference_text(said[groups[g].first].call, said[groups[0].first].call)});
  }
  for (const group& g : groups) {
    append_text(text,
                {"\n  ", ranks_of(g), g.ranks == 1 ? " calls " : " call ", spelled_call(said[g.first].call).text()});
  }
  append_text(text, {"\n  ", rule});
  return text;
}

}  // namespace espalier::comm::detail
