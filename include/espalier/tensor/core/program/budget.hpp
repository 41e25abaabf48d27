// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

// First, so that a message about a budget need not list the way here.
#include <espalier/tensor/core/diagnostics/report.hpp>

#include <espalier/tensor/core/ops/shard.hpp>
#include <espalier/tensor/core/program/callers.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <cstdint>

/// The costs that a program may have, checked by the compiler:
///
///     static_assert(ep::budget<step, ep::at_most<ep::all_gather, 0>, ep::fits_in<2_MiB>>::holds);
///
/// `static_assert(step::collectives<ep::all_gather>() == 0)` checks the same; a budget also says which collective, of
/// which line, is one too many.
namespace espalier {

inline namespace literals {
/// Sizes of memory, in bytes.
[[nodiscard]] constexpr std::int64_t operator""_KiB(unsigned long long n) { return static_cast<std::int64_t>(n) << 10; }
[[nodiscard]] constexpr std::int64_t operator""_MiB(unsigned long long n) { return static_cast<std::int64_t>(n) << 20; }
[[nodiscard]] constexpr std::int64_t operator""_GiB(unsigned long long n) { return static_cast<std::int64_t>(n) << 30; }
}  // namespace literals

namespace detail {

/// One collective of a program, and the totals of its kind.
struct budget_item {
  int id = -1;
  std::int64_t bytes = 0;
  std::int64_t total = 0;
};

template <class Program, class Kind, class... Axes> class collective_budget {
  using mesh_type = typename Program::mesh;
  static constexpr axis_mask axes = (axis_mask{0} | ... | axes_behind<mesh_type, Axes>().mask());

  template <class F> static constexpr void visit(const F& f) {
    for (int id = 0; id < Program::code.size; ++id) {
      const instruction& i = Program::code.code[id];
      if (!starts_collective(i) || collective_index(i.op) != static_cast<int>(Kind::kind)) continue;
      if ((Program::axes_of(i) & axes) != axes) continue;
      f(id, repetitions(Program::code, id), Program::sent_bytes_of(id));
    }
  }

 public:
  /// The collective with which the number allowed is exceeded.
  [[nodiscard]] static constexpr budget_item beyond_count(std::int64_t limit) {
    budget_item item;
    item.total = Program::template collectives<Kind, Axes...>();
    if (item.total <= limit) return item;
    std::int64_t so_far = 0;
    visit([&](int id, std::int64_t times, std::int64_t bytes) {
      so_far += times;
      if (so_far > limit && item.id < 0) {
        item.id = id;
        item.bytes = times * bytes;
      }
    });
    return item;
  }
  /// The collective that sends most, if all together send more than allowed.
  [[nodiscard]] static constexpr budget_item beyond_bytes(std::int64_t limit) {
    budget_item item;
    item.total = Program::template bytes<Kind, Axes...>();
    if (item.total <= limit) return item;
    visit([&](int id, std::int64_t times, std::int64_t bytes) {
      if (item.id >= 0 && times * bytes <= item.bytes) return;
      item.id = id;
      item.bytes = times * bytes;
    });
    return item;
  }
  /// The bytes that these collectives send in another program on the same mesh.
  [[nodiscard]] static constexpr std::int64_t bytes_in(graph_view code) {
    std::int64_t sum = 0;
    for (int id = 0; id < code.size; ++id) {
      if (!starts_collective(code[id]) || collective_index(code[id].op) != static_cast<int>(Kind::kind)) continue;
      if ((Program::axes_of(code[id]) & axes) != axes) continue;
      sum += repetitions(code, id) * most_sent_in_messages(Program::device_mesh::value, code, id);
    }
    return sum;
  }
  template <int Id>
  using axes_of =
      typename listed_axes<mesh_type, list_of(Program::axes_of(Program::code.code[Id])).code(), why::along>::type;
  /// The whole tensor that instruction Id works on.
  template <int Id>
  using tensor_of =
      tensor_for<Program::code.code[Id].type, Program::code.annotations[Program::code.code[Id].annotation].shape>;
};

/// The lines with annotations of a program, the first four, each by its first annotation.
struct annotated_lines {
  static constexpr int most = 4;
  int count = 0;
  int id[most]{};
};
[[nodiscard]] constexpr bool is_users_annotation(const instruction& i) {
  return requests_of(i) == layout_request::annotation || requests_of(i) == layout_request::change;
}
[[nodiscard]] constexpr bool are_on_one_line(const source_line& a, const source_line& b) {
  return a.line == b.line && same_text(a.file, b.file);
}
[[nodiscard]] constexpr annotated_lines find_annotated_lines(graph_view traced) {
  annotated_lines lines;
  for (int id = 0; id < traced.size && lines.count < annotated_lines::most; ++id) {
    bool is_new = is_users_annotation(traced[id]) && traced[id].where.line != 0;
    for (int n = 0; n < lines.count && is_new; ++n)
      is_new = !are_on_one_line(traced[lines.id[n]].where, traced[id].where);
    if (is_new) lines.id[lines.count++] = id;
  }
  return lines;
}
/// The traced program without the annotations of the line that instruction `Id` is on.
template <class Program, int Id> struct without_line {
  struct source {
    [[nodiscard]] static constexpr graph make() {
      const graph_view traced = Program::traced;
      graph result = copy_of(traced);
      for (instruction& i : result.code) {
        if (is_users_annotation(i) && are_on_one_line(i.where, traced[Id].where)) {
          i.op = &ops::shard;
          i.annotation = result.annotations.push_back({i.shape, sharding::all_open(i.shape.rank)});
        }
      }
      return result;
    }
  };
  using mesh = typename Program::device_mesh;
};

/// The least bytes that the collectives of a budget are known to send: those of the program, or, if it sends less
/// without the annotations of a line and computes no more than a tenth more, those without it. Only a program that
/// exceeds its budget is compiled again to find that out.
template <class Program, class Counted> class least_of_budget {
  static constexpr annotated_lines lines = find_annotated_lines(Program::traced);
  template <int N> [[nodiscard]] static constexpr std::int64_t bytes_without() {
    using changed = without_line<Program, lines.id[N]>;
    if constexpr (is_given_up<changed>) {
      return -1;
    } else {
      using priced = price_on_sub_axes<changed>;
      if (static_cast<double>(priced::value.work) > 1.1 * static_cast<double>(Program::flops())) return -1;
      return Counted::bytes_in(priced::code);
    }
  }

 public:
  // Public for clang 14, which finds no private member in `decltype` here.
  template <std::int64_t Least, int At, int N = 0> [[nodiscard]] static constexpr auto words() {
    if constexpr (N < lines.count) {
      constexpr std::int64_t bytes = bytes_without<N>();
      constexpr bool is_less = bytes >= 0 && bytes < Least;
      return words < is_less ? bytes : Least, is_less ? lines.id[N] : At, N + 1 > ();
    } else if constexpr (At < 0) {
      return why::least_bytes<Least>{};
    } else {
      return why::least_bytes<Least, place_of_instruction<Program::traced, At>>{};
    }
  }

  /// @param Needs the bytes that the program sends
  template <std::int64_t Needs> using type = decltype(words<Needs, -1>());
};

inline constexpr int named_buffers = 3;

/// The largest buffers of those that exist when most memory is in use: arguments, results and temporaries.
struct largest_buffers {
  int id[named_buffers]{-1, -1, -1};
  std::int64_t bytes[named_buffers]{};

  constexpr void offer(int candidate, std::int64_t size) {
    for (int n = 0; n < named_buffers; ++n) {
      if (id[n] >= 0 && bytes[n] >= size) continue;
      for (int m = named_buffers - 1; m > n; --m) {
        id[m] = id[m - 1];
        bytes[m] = bytes[m - 1];
      }
      id[n] = candidate;
      bytes[n] = size;
      return;
    }
  }
};

/// The launch of the schedule during which the temporaries need most.
[[nodiscard]] constexpr int fullest_launch(const buffer* buffers, int count, int launches) {
  list<std::int64_t> change(launches + 1, 0);
  for (int i = 0; i < count; ++i) {
    change[buffers[i].first] += buffers[i].bytes;
    change[buffers[i].last + 1] -= buffers[i].bytes;
  }
  std::int64_t live = 0;
  std::int64_t most = -1;
  int result = 0;
  for (int u = 0; u < launches; ++u) {
    live += change[u];
    if (live <= most) continue;
    most = live;
    result = u;
  }
  return result;
}

template <class Program> [[nodiscard]] constexpr largest_buffers find_largest_buffers() {
  using plan = planned<typename Program::device_mesh, Program::code>;
  const buffer* const buffers = &plan::buffers.of[0];
  const int launch = fullest_launch(buffers, plan::buffer_count, plan::launch_count);
  largest_buffers found;
  for (int i = 0; i < plan::buffer_count; ++i) {
    if (buffers[i].first <= launch && launch <= buffers[i].last) found.offer(buffers[i].value, buffers[i].bytes);
  }
  for (int id = 0; id < Program::code.size; ++id) {
    const instruction& i = Program::code.code[id];
    if (structure_of(i) == structure::argument || (structure_of(i) == structure::result && i.operand_count == 1))
      found.offer(id, bytes_of(i));
  }
  return found;
}

template <class Program, int Id, std::int64_t Bytes> [[nodiscard]] constexpr auto buffer_words() {
  if constexpr (Id < 0) {
    return why::no_buffer{};
  } else {
    using tensor = tensor_for<Program::code.code[Id].type, Program::code.code[Id].shape>;
    return why::buffer<tensor, why::bytes<Bytes>, place_and_calls<Program, Id>>{};
  }
}

}  // namespace detail

/// The limit is Count collectives of a kind per run, those in loops once per iteration; with axes, of those along all
/// of them. Errors: `too_many_collectives`.
template <CollectiveKind Kind, std::int64_t Count, MeshAxis... Axes> struct at_most {
  template <class Program> [[nodiscard]] static constexpr auto check() {
    using counted = detail::collective_budget<Program, Kind, Axes...>;
    constexpr detail::budget_item item = counted::beyond_count(Count);
    if constexpr (item.id < 0) {
      return detail::nothing_to_report{};
    } else {
      return detail::report<
          why::too_many_collectives<Kind, typename counted::template axes_of<item.id>, why::needs<item.total>,
                                    why::allowed<Count>, typename counted::template tensor_of<item.id>,
                                    why::bytes<item.bytes>>,
          detail::place_and_calls<Program, item.id>>{};
    }
  }
};

/// The limit is Bytes bytes that a device sends per run in collectives of a kind; axes as for `at_most`.
/// The message says the least that these collectives are known to send: as the program is, or without the annotations
/// of one of its first four lines with annotations. An annotation is never left out for a budget. Errors:
/// `too_many_bytes`.
template <CollectiveKind Kind, std::int64_t Bytes, MeshAxis... Axes> struct at_most_bytes {
  template <class Program> [[nodiscard]] static constexpr auto check() {
    using counted = detail::collective_budget<Program, Kind, Axes...>;
    constexpr detail::budget_item item = counted::beyond_bytes(Bytes);
    if constexpr (item.id < 0) {
      return detail::nothing_to_report{};
    } else {
      return detail::report<
          why::too_many_bytes<Kind, typename counted::template axes_of<item.id>, why::needs_bytes<item.total>,
                              why::allowed_bytes<Bytes>,
                              typename detail::least_of_budget<Program, counted>::template type<item.total>,
                              typename counted::template tensor_of<item.id>, why::bytes<item.bytes>>,
          detail::place_and_calls<Program, item.id>>{};
    }
  }
};

/// A device needs at most Bytes bytes: arguments, results and temporaries. Errors: `does_not_fit`.
template <std::int64_t Bytes> struct fits_in {
  template <class Program> [[nodiscard]] static constexpr auto check() {
    if constexpr (Program::peak_bytes_per_device() <= Bytes) {
      return detail::nothing_to_report{};
    } else {
      constexpr detail::largest_buffers most = detail::find_largest_buffers<Program>();
      return detail::report<
          why::does_not_fit<why::needs_bytes<Program::peak_bytes_per_device()>, why::allowed_bytes<Bytes>,
                            decltype(detail::buffer_words<Program, most.id[0], most.bytes[0]>()),
                            decltype(detail::buffer_words<Program, most.id[1], most.bytes[1]>()),
                            decltype(detail::buffer_words<Program, most.id[2], most.bytes[2]>())>,
          detail::place_and_calls<Program, most.id[0]>>{};
    }
  }
};

namespace detail {

/// The first limit that a program exceeds. One that does not compile has said enough already.
template <class Program> [[nodiscard]] constexpr auto check_limits() { return nothing_to_report{}; }
template <class Program, class First, class... Rest> [[nodiscard]] constexpr auto check_limits() {
  if constexpr (!Program::is_sound) {
    return nothing_to_report{};
  } else {
    using finding = decltype(First::template check<Program>());
    if constexpr (finding::is_mistake) {
      return finding{};
    } else {
      return check_limits<Program, Rest...>();
    }
  }
}

}  // namespace detail

/// The limits of a program: any number of `at_most`, `at_most_bytes` and `fits_in`. Asking whether it `holds` is a
/// compile error when it does not; the error names the first limit exceeded and the line that did it.
template <class Program, class... Limits> class budget {
  // A mistake in the program is reported from here, not from the depth of a check.
  static_assert(sizeof(Program) > 0);
  using finding = decltype(detail::check_limits<Program, Limits...>());
  static_assert(sizeof(typename finding::raised) > 0);

 public:
  /// Always true: the error has been reported otherwise.
  static constexpr bool holds = true;
};

}  // namespace espalier
