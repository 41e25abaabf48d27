// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/core/graph/instruction.hpp>

/// Values stored in an instruction's attributes come back as they were, whatever the types of the fields.
namespace ep = espalier;

namespace {

enum class colour : std::uint8_t { red, green, blue };

struct one_field {
  bool on = false;
};
struct two_fields {
  ep::axis_list axes;
  std::int64_t offset = 0;
};
struct three_fields {
  int dim = 0;
  colour paint = colour::red;
  bool on = false;
};
struct four_fields {
  unsigned mask = 0;
  std::int64_t low = 0;
  bool first = false;
  ep::dtype type = ep::dtype::f32;
};
static_assert(ep::detail::field_count<one_field> == 1 && ep::detail::field_count<two_fields> == 2 &&
              ep::detail::field_count<three_fields> == 3 && ep::detail::field_count<four_fields> == 4);

template <class Attributes> constexpr Attributes through(const Attributes& attributes) {
  ep::instruction i;
  for (std::int64_t& a : i.attribute) a = 77;  // whatever another op has left there
  ep::set_attributes(i, attributes);
  return ep::attributes_of<Attributes>(i);
}

static_assert(through(one_field{true}).on && !through(one_field{false}).on);
static_assert(through(two_fields{ep::axis_list(3).with(0), -(std::int64_t{1} << 40)}).axes == ep::axis_list(3).with(0));
static_assert(through(two_fields{{}, -(std::int64_t{1} << 40)}).offset == -(std::int64_t{1} << 40));
static_assert(through(three_fields{-1, colour::blue, true}).dim == -1);
static_assert(through(three_fields{-1, colour::blue, true}).paint == colour::blue);
static_assert(through(three_fields{-1, colour::blue, true}).on);
static_assert(through(four_fields{0xffffffffU, 5, true, ep::dtype::i8}).mask == 0xffffffffU);
static_assert(through(four_fields{1, 5, true, ep::dtype::i8}).low == 5);
static_assert(through(four_fields{1, 5, true, ep::dtype::i8}).first);
static_assert(through(four_fields{1, 5, true, ep::dtype::i8}).type == ep::dtype::i8);

// Unused attributes are 0, so that equal instructions are equal in all attributes.
constexpr bool the_rest_is_zero() {
  ep::instruction i;
  for (std::int64_t& a : i.attribute) a = 77;
  ep::set_attributes(i, two_fields{ep::axis_list(0), 9});
  return i.attribute[1] == 9 && i.attribute[2] == 0 && i.attribute[3] == 0;
}
static_assert(the_rest_is_zero());

}  // namespace
