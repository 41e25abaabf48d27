// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive/bits.hpp>
#include <espalier/testing/naive/functions.hpp>
#include <espalier/testing/naive/values.hpp>
#include <espalier/testing/table_numbers.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

/// The meanings of constants and of functions of elements.
namespace espalier::test::naive {

/// Meanings of ops without operands, and of ops on elements at the same index.
class element_equations : protected equation_values {
 protected:
  using equation_values::equation_values;

  /// The value of an op without tensors as operands, if it is one.
  std::optional<tensor_value> source(int id) {
    const instruction& self = g_[id];
    const op_info* const op = self.op;
    if (op == &ops::argument) return argument(id);
    if (op == &ops::constant) {
      return tensor_of(self.shape, [&](const place_in&) { return self.scalar; });
    }
    if (op == &ops::iota) {
      const int along = attributes_of<index_attributes>(self).dim;
      return tensor_of(self.shape, [&](const place_in& i) { return static_cast<double>(i[along]); });
    }
    if (op == &table_of(self.type)) {
      std::int64_t at = 0;
      return tensor_of(
          self.shape, [&](const place_in&) { return static_cast<double>(table_number(at++, is_unsigned(self.type))); });
    }
    if (op == &ops::random_bits) {
      const tensor_value& keys = operand(id, 0);
      const auto purpose = static_cast<std::int64_t>(attributes_of<detail::random_attributes>(self).purpose);
      const auto count = keys.data.size() / 2;
      const std::uint64_t words = count == 0 ? 1 : static_cast<std::uint64_t>(self.shape.elements()) / count;
      std::uint64_t at = 0;  // elements come in their order
      return tensor_of(self.shape, [&](const place_in&) {
        const std::uint64_t n = at / words;
        tensor_value key = keys;
        key.data = {keys.data.at(2 * n), keys.data.at(2 * n + 1)};
        const double number = self.operand_count > 1 ? operand(id, 1).data.at(n) : 0;
        return in_memory(self.type, random_word(at++ % words, key, number, purpose));
      });
    }
    return std::nullopt;
  }

  /// The value of an op on elements at the same index, if it is one.
  std::optional<tensor_value> elementwise(int id) {
    const instruction& self = g_[id];
    const op_info* const op = self.op;
    if (const auto f = function_of_one(op); f != nullptr) {
      tensor_value made = operand(id, 0);
      for (double& x : made.data) x = f(x);
      return made;
    }
    if (const auto f = function_of_two(op, self.type); f != nullptr) {
      const tensor_value& x = operand(id, 0);
      const tensor_value& y = same_shape(id, 1);
      return tensor_of(x.shape, [&](const place_in& i) { return f(element(x, i), element(y, i)); });
    }
    if (op == &ops::convert) {
      tensor_value made = operand(id, 0);
      for (double& x : made.data) x = converted(self.type, x, g_[self.operand[0]].type);
      return made;
    }
    if (is_function_of_words(op)) {
      const tensor_value& x = operand(id, 0);
      const tensor_value& y = same_shape(id, 1);
      return tensor_of(
          x.shape, [&](const place_in& i) { return function_of_words(op, self.type, element(x, i), element(y, i)); });
    }
    if (op == &ops::bitwise_not) {
      tensor_value made = operand(id, 0);
      for (double& x : made.data) x = self.type == dtype::boolean ? 1 - x : in_memory(self.type, -x - 1);
      return made;
    }
    if (op == &ops::bit_cast) {
      tensor_value made = operand(id, 0);
      const dtype from = attributes_of<bit_cast_attributes>(self).from;
      for (double& x : made.data) x = with_bits_of(from, self.type, x);
      return made;
    }
    if (op == &ops::clamp) {
      const tensor_value& low = same_shape(id, 0);
      const tensor_value& x = same_shape(id, 1);
      const tensor_value& high = same_shape(id, 2);
      return tensor_of(x.shape, [&](const place_in& i) {
        return smaller(larger(element(x, i), element(low, i)), element(high, i));
      });
    }
    if (op == &ops::select) {
      const tensor_value& condition = operand(id, 0);
      const tensor_value& yes = same_shape(id, 1);
      const tensor_value& no = same_shape(id, 2);
      return tensor_of(condition.shape, [&](const place_in& i) {
        return element(condition, i) == 0 ? element(no, i) : element(yes, i);
      });
    }
    if (op == &ops::softmax || op == &ops::standardise) {
      const tensor_value& x = same_shape(id, 1);
      const tensor_value& factor = same_shape(id, 2);
      return tensor_of(x.shape, [&](const place_in& i) { return element(x, i) * element(factor, i); });
    }
    return std::nullopt;
  }
};

}  // namespace espalier::test::naive
