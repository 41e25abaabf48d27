// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive/sums.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

/// The meanings of convolutions and pooling.
namespace espalier::test::naive {

/// Meanings of ops that combine the elements of a window.
class window_equations : protected sum_equations {
 protected:
  using sum_equations::sum_equations;

  [[nodiscard]] const placed_window& window_of(int id, int spatial) const {
    return g_.windows[attributes_of<windowed_attributes>(g_[id]).first_window + spatial];
  }
  /// [taps] of the windows of an op.
  [[nodiscard]] extents taps_of(int id, int spatial) const {
    extents taps;
    for (int d = 0; d < spatial; ++d) taps.append(window_of(id, d).size);
    return taps;
  }
  /// The element of [n, spatial ..., channels] that tap k of the window at `o` sees: false if there is none.
  bool seen_by(int id, const extents& shape, const place_in& o, const place_in& k, place_in& p) const {
    p[0] = o[0];
    for (int d = 0; d < shape.rank - 2; ++d) {
      const placed_window& w = window_of(id, d);
      p[d + 1] = -1;
      for (std::int64_t one = 0; one < shape[d + 1]; ++one) {
        if (w.base_dilation * one + w.low == w.stride * o[d + 1] + w.dilation * k[d]) p[d + 1] = one;
      }
      if (p[d + 1] < 0) return false;
    }
    return true;
  }

  /// Calls f(x's place, filter's place, y's place) for all products of a convolution.
  template <class F>
  void for_each_product(int id, const extents& x, const extents& filter, const extents& y, const F& f) {
    const int spatial = filter.rank - 2;
    const int last = spatial + 1;
    const std::int64_t groups = x[last] / filter[spatial];
    for_each_index(y, [&](const place_in& at_y) {
      for_each_index(taps_of(id, spatial), [&](const place_in& k) {
        place_in at_x;
        if (!seen_by(id, x, at_y, k, at_x)) return;
        place_in at_filter = k;
        at_filter[spatial + 1] = at_y[last];
        const std::int64_t group = at_y[last] / (y[last] / groups);
        for (std::int64_t c = 0; c < filter[spatial]; ++c) {
          at_filter[spatial] = c;
          at_x[last] = group * filter[spatial] + c;
          f(at_x, at_filter, at_y);
        }
      });
    });
  }
  /// Sums products into a tensor: `f(add)` calls add(place, term) for every one.
  template <class F> tensor_value summed(int id, const F& f) {
    tensor_value made = tensor_of(g_[id].shape, [](const place_in&) { return 0.0; });
    tensor_value size = made;
    f([&](const place_in& to, double term) {
      element_at(made, to) += term;
      element_at(size, to) += std::abs(term);
    });
    for (std::size_t n = 0; n < made.data.size(); ++n) note(g_[id].type, made.data[n], size.data[n]);
    return made;
  }

  tensor_value convolution(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& w = operand(id, 1);
    return summed(id, [&](const auto& add) {
      for_each_product(id, x.shape, w.shape, g_[id].shape, [&](const auto& at_x, const auto& at_w, const auto& at_y) {
        add(at_y, element(x, at_x) * element(w, at_w));
      });
    });
  }
  tensor_value input_gradient(int id) {
    const tensor_value& y = operand(id, 0);
    const tensor_value& w = operand(id, 1);
    return summed(id, [&](const auto& add) {
      for_each_product(id, g_[id].shape, w.shape, y.shape, [&](const auto& at_x, const auto& at_w, const auto& at_y) {
        add(at_x, element(y, at_y) * element(w, at_w));
      });
    });
  }
  tensor_value filter_gradient(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& y = operand(id, 1);
    return summed(id, [&](const auto& add) {
      for_each_product(id, x.shape, g_[id].shape, y.shape, [&](const auto& at_x, const auto& at_w, const auto& at_y) {
        add(at_w, element(x, at_x) * element(y, at_y));
      });
    });
  }

  /// Calls f(o, p) for every window at o of the result's shape and every element p of `seen` that it sees.
  template <class F> void for_each_seen(int id, const extents& seen, const F& f) {
    const int spatial = seen.rank - 2;
    for_each_index(g_[id].shape, [&](const place_in& o) {
      for_each_index(taps_of(id, spatial), [&](const place_in& k) {
        place_in p;
        if (!seen_by(id, seen, o, k, p)) return;
        p[spatial + 1] = o[spatial + 1];
        f(o, p);
      });
    });
  }
  tensor_value pool(int id) {
    const tensor_value& x = operand(id, 0);
    if (g_[id].op == &ops::sum_pool) {
      return summed(id, [&](const auto& add) {
        for_each_seen(id, x.shape, [&](const place_in& o, const place_in& p) { add(o, element(x, p)); });
      });
    }
    const double least = -std::numeric_limits<double>::infinity();
    tensor_value made = tensor_of(g_[id].shape, [&](const place_in&) { return least; });
    for_each_seen(id, x.shape, [&](const place_in& o, const place_in& p) {
      element_at(made, o) = larger(element_at(made, o), element(x, p));
    });
    return made;
  }
  tensor_value pool_equal(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& y = operand(id, 1);
    const tensor_value& v = operand(id, 2);
    return summed(id, [&](const auto& add) {
      for_each_seen(id, x.shape, [&](const place_in& o, const place_in& p) {
        if (element(x, p) == element(y, o)) add(o, element(v, p));
      });
    });
  }
  tensor_value spread_equal(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& y = operand(id, 1);
    const tensor_value& g = operand(id, 2);
    return summed(id, [&](const auto& add) {
      for_each_seen(id, y.shape, [&](const place_in& p, const place_in& o) {
        if (element(x, p) == element(y, o)) add(p, element(g, o));
      });
    });
  }
};

}  // namespace espalier::test::naive
