// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: never
// together: layers

#include "gradients_check.hpp"

#include <functional>
#include <string>

namespace {

using namespace espalier;
using namespace gradients_check;
using test::extents_of;
using test::random_source;
using test::random_tensor;
using ids = std::vector<int>;

/// The values that a body passes on and gives out, or a scan returns.
struct scanned {
  ids carries;
  ids outputs;
};

/// Writes a scan as a loop, or iteration by iteration: the same program in two ways.
struct scan_writer {
  bool unrolled = false;
  bool reverse = false;
  /// Whether the gradient recomputes, by depth of nesting.
  std::vector<bool> recompute;
  /// Whether loops are tested for a condition, which holds until their last iteration: then they count their
  /// iterations.
  bool tested = false;

  template <class Body>
  scanned operator()(builder& b, int count, const ids& initial, const ids& stacked, Body body, int depth = 0) const {
    return unrolled ? write_out(b, count, initial, stacked, body) : write_loop(b, count, initial, stacked, body, depth);
  }

 private:
  static int holds(builder& b) {
    const int zero = emit::constant(b, dtype::i32, extents{}, 0);
    return emit::compare(b, ops::less, zero, emit::constant(b, dtype::i32, extents{}, 1));
  }

  template <class Body>
  scanned write_loop(builder& b, int count, const ids& initial, const ids& stacked, Body body, int depth) const {
    const auto level = static_cast<std::size_t>(depth);
    region_attributes attributes{count, reverse, level < recompute.size() && recompute[level]};
    if (tested) attributes.kind = region_kind::until_or_at_most;
    const int zero = tested ? emit::constant(b, dtype::i32, extents{}, 0) : -1;
    emit::region_begin(b, attributes, tested ? holds(b) : -1);
    const int counter = tested ? emit::region_parameter(b, zero) : -1;
    ids carries;
    ids slices;
    for (const int id : initial) carries.push_back(emit::region_parameter(b, id));
    for (const int id : stacked) slices.push_back(emit::loop_slice(b, id));
    const scanned made = body(b, carries, slices);
    ids next;
    for (std::size_t k = 0; k < carries.size(); ++k) {
      next.push_back(emit::region_yield(b, carries[k], made.carries[k]));
    }
    const int counted =
        tested ? emit::region_yield(b, counter, emit::add(b, counter, emit::constant(b, dtype::i32, extents{}, 1)))
               : -1;
    emit::region_end(b, tested ? holds(b) : -1);
    if (tested) emit::region_result(b, counted);
    scanned result;
    for (const int id : next) result.carries.push_back(emit::region_result(b, id));
    for (const int id : made.outputs) result.outputs.push_back(emit::loop_stack(b, id));
    return result;
  }

  template <class Body>
  scanned write_out(builder& b, int count, const ids& initial, const ids& stacked, Body body) const {
    scanned state{initial, {}};
    std::vector<ids> outputs(static_cast<std::size_t>(count));
    for (int k = 0; k < count; ++k) {
      const int index = reverse ? count - 1 - k : k;
      ids slices;
      for (const int id : stacked) {
        const int one = emit::slice(b, id, 0, index, 1);
        extents shape;
        for (int d = 1; d < b[id].shape.rank; ++d) shape.append(b[id].shape[d]);
        slices.push_back(emit::reshape(b, one, shape));
      }
      const scanned made = body(b, state.carries, slices);
      state.carries = made.carries;
      for (const int id : made.outputs) {
        extents shape = extents_of({1});
        for (int d = 0; d < b[id].shape.rank; ++d) shape.append(b[id].shape[d]);
        outputs[static_cast<std::size_t>(index)].push_back(emit::reshape(b, id, shape));
      }
    }
    for (std::size_t k = 0; k < outputs[0].size(); ++k) {
      ids parts;
      for (const ids& of_iteration : outputs) parts.push_back(of_iteration[k]);
      state.outputs.push_back(emit::concat(b, parts.data(), count, 0));
    }
    return state;
  }
};

/// All elements of some values in one row.
int flat(builder& b, const scanned& values) {
  ids parts;
  for (const ids& list : {values.carries, values.outputs}) {
    for (const int id : list) parts.push_back(emit::reshape(b, id, extents_of({b[id].shape.elements()})));
  }
  return emit::concat(b, parts.data(), static_cast<int>(parts.size()), 0);
}

/// Checks the gradients of a program made with a scan_writer: by differences, and against the unrolled program; first
/// to last and last to first, with every combination of recomputation in `depth` levels of loops.
template <class Program>
void check_scan(const std::vector<tensor_value>& data, Program program, int depth = 1, bool tested = false) {
  for (const bool reverse : {false, true}) {
    const auto expected = check_gradients(data, [&](builder& b, const ids& a) {
      return program(b, a, scan_writer{true, reverse, {}, tested});
    });
    for (int bits = 0; bits < (1 << depth); ++bits) {
      scan_writer loop{false, reverse, {}, tested};
      std::string flags;
      for (int d = 0; d < depth; ++d) {
        loop.recompute.push_back((bits >> d & 1) != 0);
        flags += loop.recompute.back() ? "recompute " : "keep ";
      }
      CAPTURE(reverse, flags);
      const auto results = check_gradients(data, [&](builder& b, const ids& a) { return program(b, a, loop); });
      REQUIRE(results.size() == expected.size());
      for (std::size_t r = 0; r < results.size(); ++r) {
        CAPTURE(r);
        require_close(results[r], expected[r], 1e-12);
      }
    }
  }
}

int tanh(builder& b, int x) { return b.append(ops::tanh, b[x].type, b[x].shape, x); }
int product(builder& b, int vector, int matrix) {
  return detail::emit_einsum(b, detail::formula_of<"a,ab->b">, ids{vector, matrix}.data());
}

}  // namespace

TEST_CASE("scan: gradients of the initial carry and of stacked arguments") {
  random_source random(1);
  check_scan({random_tensor(random, extents_of({3})), random_tensor(random, extents_of({4, 3, 3}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               return flat(b, scan(b, 4, {a[0]}, {a[1]}, [](builder& c, const ids& carry, const ids& x) {
                             return scanned{{tanh(c, product(c, carry[0], x[0]))}, {}};
                           }));
             });
}

TEST_CASE("scan: gradients of values captured from outside, used once and twice") {
  random_source random(2);
  check_scan({random_tensor(random, extents_of({3})), random_tensor(random, extents_of({3, 3})),
              random_tensor(random, extents_of({3}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               const int outside = b.append(ops::exp, dtype::f64, b[a[2]].shape, a[2]);
               const scanned made = scan(b, 3, {a[0]}, {}, [&](builder& c, const ids& carry, const ids&) {
                 const int h = emit::add(c, product(c, carry[0], a[1]), outside);
                 return scanned{{tanh(c, emit::multiply(c, h, outside))}, {}};
               });
               return emit::multiply(b, made.carries[0], outside);
             });
}

TEST_CASE("scan: gradients through stacked outputs") {
  random_source random(3);
  check_scan({random_tensor(random, extents_of({2})), random_tensor(random, extents_of({5, 2}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               return flat(b, scan(b, 5, {a[0]}, {a[1]}, [](builder& c, const ids& carry, const ids& x) {
                             const int h = tanh(c, emit::add(c, carry[0], x[0]));
                             return scanned{{emit::multiply(c, h, x[0])}, {emit::multiply(c, h, h), carry[0], x[0]}};
                           }));
             });
}

TEST_CASE("scan: only an output is used, and the carry is not") {
  random_source random(4);
  check_scan({random_tensor(random, extents_of({2})), random_tensor(random, extents_of({3, 2}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               return scan(b, 3, {a[0]}, {a[1]},
                           [](builder& c, const ids& carry, const ids& x) {
                             const int h = tanh(c, emit::add(c, carry[0], x[0]));
                             return scanned{{h}, {emit::multiply(c, h, x[0])}};
                           })
                   .outputs[0];
             });
}

TEST_CASE("scan: two carries that swap") {
  random_source random(5);
  check_scan({random_tensor(random, extents_of({2})), random_tensor(random, extents_of({2})),
              random_tensor(random, extents_of({3, 2}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               return flat(b, scan(b, 3, {a[0], a[1]}, {a[2]}, [](builder& c, const ids& carry, const ids& x) {
                             return scanned{{carry[1], tanh(c, emit::add(c, carry[0], x[0]))},
                                            {emit::multiply(c, carry[0], carry[1])}};
                           }));
             });
  check_scan({random_tensor(random, extents_of({2})), random_tensor(random, extents_of({2}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               return flat(b, scan(b, 3, {a[0], a[1]}, {}, [](builder&, const ids& carry, const ids&) {
                             return scanned{{carry[1], carry[0]}, {}};
                           }));
             });
}

TEST_CASE("scan: a carry that stays, one that is forgotten, one that is replaced from outside") {
  random_source random(6);
  check_scan({random_tensor(random, extents_of({2})), random_tensor(random, extents_of({2})),
              random_tensor(random, extents_of({2}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               return flat(b, scan(b, 3, {a[0], a[1], a[0]}, {}, [&](builder& c, const ids& carry, const ids&) {
                             const int h = emit::multiply(c, carry[0], emit::add(c, carry[1], carry[2]));
                             return scanned{{carry[0], tanh(c, a[2]), a[2]}, {h}};
                           }));
             });
}

TEST_CASE("scan: gradients where only a carry's initial value is wanted, through an integer carry's loop") {
  random_source random(7);
  check_scan({random_tensor(random, extents_of({3}), 0.5, 1.5)}, [](builder& b, const ids& a, const scan_writer& scan) {
    const int zero = emit::constant(b, dtype::i32, extents_of({1}), 0);
    const int one = emit::constant(b, dtype::i32, extents_of({1}), 1);
    const scanned made = scan(b, 3, {a[0], zero}, {}, [&](builder& c, const ids& carry, const ids&) {
      const int number = emit::convert(c, emit::broadcast_to(c, carry[1], extents_of({3})), dtype::f64);
      return scanned{{tanh(c, emit::add(c, carry[0], number)), emit::add(c, carry[1], one)}, {}};
    });
    return made.carries[0];
  });
}

TEST_CASE("scan: one after another, the second over the first's outputs") {
  random_source random(8);
  check_scan({random_tensor(random, extents_of({2})), random_tensor(random, extents_of({3, 2}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               const auto body = [](builder& c, const ids& carry, const ids& x) {
                 const int h = tanh(c, emit::multiply(c, carry[0], x[0]));
                 return scanned{{emit::add(c, h, x[0])}, {h}};
               };
               const scanned first = scan(b, 3, {a[0]}, {a[1]}, body);
               return flat(b, scan(b, 3, first.carries, first.outputs, body));
             });
}

TEST_CASE("scan: nested, with everything captured everywhere") {
  random_source random(9);
  check_scan(
      {random_tensor(random, extents_of({2})), random_tensor(random, extents_of({3, 2, 2})),
       random_tensor(random, extents_of({2}))},
      [](builder& b, const ids& a, const scan_writer& scan) {
        return flat(b, scan(b, 3, {a[0]}, {a[1]}, [&](builder& c, const ids& carry, const ids& x) {
                      const int between = tanh(c, emit::multiply(c, carry[0], a[2]));
                      const scanned inner = scan(
                          c, 2, {carry[0]}, {x[0]},
                          [&](builder& d, const ids& inside, const ids& y) {
                            const int h = emit::multiply(d, emit::add(d, inside[0], between), y[0]);
                            const int next = tanh(d, emit::add(d, h, a[2]));
                            return scanned{{next}, {emit::multiply(d, next, h)}};
                          },
                          1);
                      const int folded = emit::reduce_sum(c, inner.outputs[0], 1);
                      return scanned{{emit::multiply(c, inner.carries[0], between)},
                                     {inner.outputs[0], emit::add(c, folded, between)}};
                    }));
      },
      2);
}

TEST_CASE("scan: two inner loops in one body, the second over the first's outputs") {
  random_source random(10);
  check_scan(
      {random_tensor(random, extents_of({2})), random_tensor(random, extents_of({3, 2, 2}))},
      [](builder& b, const ids& a, const scan_writer& scan) {
        return flat(b, scan(b, 3, {a[0]}, {a[1]}, [&](builder& c, const ids& carry, const ids& x) {
                      const auto body = [&](builder& d, const ids& inside, const ids& y) {
                        const int h = tanh(d, emit::multiply(d, inside[0], y[0]));
                        return scanned{{emit::add(d, h, carry[0])}, {h}};
                      };
                      const scanned one = scan(c, 2, {carry[0]}, {x[0]}, body, 1);
                      const scanned two = scan(c, 2, one.carries, one.outputs, body, 1);
                      return scanned{{tanh(c, two.carries[0])}, {two.outputs[0]}};
                    }));
      },
      2);
}

TEST_CASE("scan: three levels") {
  random_source random(11);
  check_scan(
      {random_tensor(random, extents_of({2})), random_tensor(random, extents_of({2, 2, 2, 2})),
       random_tensor(random, extents_of({2}))},
      [](builder& b, const ids& a, const scan_writer& scan) {
        return flat(b, scan(b, 2, {a[0]}, {a[1]}, [&](builder& c, const ids& carry, const ids& x) {
                      const int between = emit::multiply(c, carry[0], a[2]);
                      const scanned middle = scan(
                          c, 2, {carry[0]}, {x[0]},
                          [&](builder& d, const ids& inside, const ids& y) {
                            const int deeper = tanh(d, emit::add(d, inside[0], between));
                            const scanned inner = scan(
                                d, 2, {inside[0]}, {y[0]},
                                [&](builder& e, const ids& innermost, const ids& z) {
                                  const int h = emit::multiply(e, emit::add(e, innermost[0], deeper), z[0]);
                                  // Two levels out it is always the same.
                                  const int same = emit::multiply(e, between, carry[0]);
                                  return scanned{{tanh(e, emit::multiply(e, h, same))}, {emit::add(e, h, carry[0])}};
                                },
                                2);
                            return scanned{{emit::multiply(d, inner.carries[0], deeper)}, {inner.outputs[0]}};
                          },
                          1);
                      return scanned{{emit::add(c, middle.carries[0], between)}, {middle.outputs[0]}};
                    }));
      },
      3);
}

TEST_CASE("scan: a gradient taken inside the body") {
  random_source random(12);
  for (const bool reverse : {false, true}) {
    const auto function = [&](const scan_writer& scan) {
      return [&](builder& b, const ids& a) {
        return flat(b, scan(b, 3, {a[0]}, {a[1]}, [](builder& c, const ids& carry, const ids& x) {
                      const int loss = emit::reduce_sum(c, tanh(c, emit::multiply(c, carry[0], x[0])), 1);
                      int gradient = -1;
                      differentiate(c, loss, carry.data(), 1, &gradient);
                      return scanned{{emit::subtract(c, carry[0], emit::scale(c, gradient, 0.5))}, {gradient}};
                    }));
      };
    };
    const std::vector<tensor_value> data{random_tensor(random, extents_of({2})),
                                         random_tensor(random, extents_of({3, 2}))};
    const auto expected = check_gradients(data, function(scan_writer{true, reverse, {}}));
    const auto results = check_gradients(data, function(scan_writer{false, reverse, {}}));
    for (std::size_t r = 0; r < results.size(); ++r) require_close(results[r], expected[r], 1e-12);
  }
}

TEST_CASE("scan: an inner loop's gradient taken inside the body, values only") {
  random_source random(13);
  for (const bool repeats : {false, true}) {
    const auto function = [&](const scan_writer& scan) {
      return [&](builder& b, const ids& a) {
        return flat(b, scan(b, 3, {a[0]}, {a[1]}, [&](builder& c, const ids& carry, const ids& x) {
                      const scanned inner = scan(
                          c, 2, {carry[0]}, {x[0]},
                          [&](builder& d, const ids& inside, const ids& y) {
                            return scanned{{tanh(d, emit::multiply(d, inside[0], y[0]))}, {}};
                          },
                          1);
                      const int loss = emit::reduce_sum(c, inner.carries[0], 1);
                      int gradient = -1;
                      differentiate(c, loss, carry.data(), 1, &gradient);
                      return scanned{{emit::subtract(c, carry[0], gradient)}, {gradient}};
                    }));
      };
    };
    const std::vector<tensor_value> data{random_tensor(random, extents_of({2})),
                                         random_tensor(random, extents_of({3, 2, 2}))};
    const auto value = [&](const scan_writer& scan) {
      builder b;
      ids a;
      for (std::size_t i = 0; i < data.size(); ++i) {
        a.push_back(emit::argument(b, dtype::f64, data[i].shape, static_cast<int>(i)));
      }
      emit::result(b, function(scan)(b, a), 0);
      return run_all_forms(b.result(), data)[0];
    };
    require_close(value(scan_writer{false, false, {false, repeats}}), value(scan_writer{true, false, {}}), 1e-12);
  }
}

TEST_CASE("scan: second derivatives through a loop") {
  random_source random(14);
  check_scan({random_tensor(random, extents_of({2})), random_tensor(random, extents_of({3, 2}))},
             [](builder& b, const ids& a, const scan_writer& scan) {
               const scanned made = scan(b, 3, {a[0]}, {a[1]}, [&](builder& c, const ids& carry, const ids& x) {
                 const int h = tanh(c, emit::multiply(c, carry[0], x[0]));
                 return scanned{{emit::add(c, h, a[0])}, {h}};
               });
               const int row = flat(b, made);
               const int loss = emit::reduce_sum(b, emit::multiply(b, row, row), 1);
               int gradient[2]{-1, -1};
               differentiate(b, loss, a.data(), 2, gradient);
               return flat(b, scanned{{gradient[0], gradient[1]}, {}});
             });
}

TEST_CASE("scan: second derivatives through nested loops") {
  random_source random(15);
  check_scan(
      {random_tensor(random, extents_of({2})), random_tensor(random, extents_of({2, 2, 2})),
       random_tensor(random, extents_of({2}))},
      [](builder& b, const ids& a, const scan_writer& scan) {
        const scanned made = scan(b, 2, {a[0]}, {a[1]}, [&](builder& c, const ids& carry, const ids& x) {
          const int between = emit::multiply(c, carry[0], a[2]);
          const scanned inner = scan(
              c, 2, {carry[0]}, {x[0]},
              [&](builder& d, const ids& inside, const ids& y) {
                const int h = tanh(d, emit::multiply(d, inside[0], y[0]));
                return scanned{{emit::multiply(d, h, between)}, {emit::multiply(d, h, a[2])}};
              },
              1);
          return scanned{{emit::add(c, inner.carries[0], between)}, {inner.outputs[0]}};
        });
        const int row = flat(b, made);
        const int loss = emit::reduce_sum(b, emit::multiply(b, row, row), 1);
        int gradient[3]{-1, -1, -1};
        differentiate(b, loss, a.data(), 3, gradient);
        return flat(b, scanned{{gradient[0], gradient[1], gradient[2]}, {}});
      },
      2);
}

/// The first gradient repeats the inner loops, and needs no gradient of them; the second differentiates what was
/// repeated.
TEST_CASE("scan: second derivatives through loops that a gradient has repeated") {
  random_source random(16);
  for (const bool tested : {false, true}) {
    CAPTURE(tested);
    check_scan(
        {random_tensor(random, extents_of({2})), random_tensor(random, extents_of({2, 2})),
         random_tensor(random, extents_of({2}))},
        [](builder& b, const ids& a, const scan_writer& scan) {
          const auto innermost = [&](builder& c, const ids& carry, const ids&) {
            return scanned{{tanh(c, emit::multiply(c, carry[0], a[2]))}, {}};
          };
          const auto inner = [&](builder& c, const ids& carry, const ids&) {
            return scan(c, 3, carry, {}, innermost, 2);
          };
          const scanned made = scan(b, 2, {a[0]}, {a[1]}, [&](builder& c, const ids& carry, const ids& x) {
            return scanned{{emit::multiply(c, carry[0], scan(c, 2, {x[0]}, {}, inner, 1).carries[0])}, {}};
          });
          const int loss = emit::reduce_sum(b, emit::multiply(b, made.carries[0], made.carries[0]), 1);
          int gradient = -1;
          differentiate(b, loss, a.data(), 1, &gradient);
          return gradient;
        },
        3, tested);
  }
}

TEST_CASE("scan: the gradient of a loop's sum, where the cotangent is the same in all iterations") {
  random_source random(16);
  check_gradients({random_tensor(random, extents_of({3, 2})), random_tensor(random, extents_of({2}))},
                  [](builder& b, const ids& a) {
                    emit::region_begin(b, 3, false, false);
                    const int sum = emit::add(b, emit::loop_slice(b, a[0]), a[1]);
                    emit::region_end(b);
                    return emit::loop_sum(b, sum);
                  });
}

namespace {

struct data : axis<"data", 1> {};
using one_device = mesh<data>;
template <class Tensor> using tensor = symbol<one_device, Tensor>;

/// Runs `function(symbol, symbol)` on a row of two and a stack of three rows.
template <class Function>
std::vector<tensor_value> run_typed(const std::vector<tensor_value>& given, Function function) {
  builder b;
  const tensor<f64<2>> row(b, emit::argument(b, dtype::f64, extents_of({2}), 0));
  const tensor<f64<3, 2>> rows(b, emit::argument(b, dtype::f64, extents_of({3, 2}), 1));
  int index = 0;
  const auto made = function(row, rows);
  detail::for_each_leaf(made, [&](const auto& one) { emit::result(b, one.id, index++); });
  return run_all_forms(b.result(), given);
}

const std::vector<tensor_value>& typed_data() {
  static const std::vector<tensor_value> given{tensor_value{extents_of({2}), {2, 3}},
                                               tensor_value{extents_of({3, 2}), {1, 2, 3, 4, 5, 6}}};
  return given;
}

}  // namespace

TEST_CASE("scan: outputs that are not computed in the body") {
  const auto made = run_typed(typed_data(), [](auto row, auto rows) {
    const auto twice = row + row;
    return scan([&](auto carry, auto x) { return results(carry + x, twice); }, row, rows);
  });
  CHECK(made[0].data == std::vector<double>{11, 15});
  CHECK(made[1].data == std::vector<double>{4, 6, 4, 6, 4, 6});
  // And the gradient of one.
  const auto gradient = run_typed(typed_data(), [](auto row, auto rows) {
    const auto loss = [&](auto w) {
      return sum(scan([&](auto carry, auto x) { return results(carry * x, w); }, row, rows).template get<1>());
    };
    return value_and_grad(loss)(row).gradient;
  });
  CHECK(gradient[0].data == std::vector<double>{3, 3});
}

TEST_CASE("value_and_grad differentiates by its argument, not by other uses of the same value") {
  const auto made = run_typed(typed_data(), [](auto row, auto) {
    const auto captured = row * row;
    const auto loss = [&](auto w, auto other) { return sum(w * w * captured * other); };
    const auto [value, gradient] = value_and_grad(loss)(row, row);
    return results(value, gradient);
  });
  // d/dw of w^2 c^2 c = 2 w c^3 with c = 2, 3.
  CHECK(made[0].data[0] == 32 + 243);
  CHECK(made[1].data == std::vector<double>{32, 162});
}

TEST_CASE("value_and_grad in a scan's body knows nothing of the scan") {
  const auto made = run_typed(typed_data(), [](auto row, auto rows) {
    return scan(
        [&](auto carry, auto x) {
          const auto step = value_and_grad([&](auto w) { return sum(w * w * x); })(carry);
          return results(carry - 0.5 * step.gradient, step.value);
        },
        row, rows);
  });
  double w[2]{2, 3};
  for (int k = 0; k < 3; ++k) {
    const double x[2]{1.0 + 2 * k, 2.0 + 2 * k};
    CHECK(made[1].data[static_cast<std::size_t>(k)] == w[0] * w[0] * x[0] + w[1] * w[1] * x[1]);
    for (int d = 0; d < 2; ++d) w[d] -= w[d] * x[d];
  }
  CHECK(made[0].data == std::vector<double>{w[0], w[1]});
}

TEST_CASE("value_and_grad in a scan's body by a value from outside") {
  const auto made = run_typed(typed_data(), [](auto row, auto rows) {
    return scan(
        [&](auto carry, auto x) {
          const auto step = value_and_grad([&](auto w) { return sum(w * w * x * carry); })(row);
          return results(carry + x, step.gradient);
        },
        row, rows);
  });
  CHECK(made[1].data == std::vector<double>{8, 36, 36, 120, 120, 324});
}

TEST_CASE("scan: what does not change in the body is not kept for each iteration") {
  // Neither slices, which stand outside, nor what is larger than its operands, which is made again.
  for (const bool larger : {false, true}) {
    CAPTURE(larger);
    builder b;
    const int w = emit::argument(b, dtype::f64, extents_of({6, 3}), 0);
    const int stacked = emit::argument(b, dtype::f64, extents_of({4, 3, 3}), 1);
    emit::region_begin(b, 4, false, false);
    const int carry = emit::region_parameter(b, emit::slice(b, w, 0, 0, 3));
    const int first = emit::slice(b, w, 0, 3, 3);
    const int row = emit::slice(b, w, 0, 2, 1);
    const int factor =
        larger ? emit::multiply(b, emit::broadcast_to(b, emit::reshape(b, row, extents_of({3})), extents_of({3, 3})),
                                emit::broadcast_along(b, emit::reshape(b, row, extents_of({3})), extents_of({3, 3}), 2))
               : first;
    const int next =
        emit::region_yield(b, carry, emit::multiply(b, emit::multiply(b, factor, carry), emit::loop_slice(b, stacked)));
    emit::region_end(b);
    const int loss = emit::reduce_sum(b, emit::region_result(b, next), 3);
    int gradients[2];
    const int wanted[2]{w, stacked};
    differentiate(b, loss, &wanted[0], 2, &gradients[0]);
    emit::result(b, loss, 0);
    for (int k = 0; k < 2; ++k) emit::result(b, gradients[k], k + 1);
    const graph normal = normalise(b.result());
    int kept = 0;
    for (const instruction& i : normal.code) {
      if (i.op != &ops::loop_stack) continue;
      // The gradient by the stacked argument is a stack, and belongs to a reverse loop.
      if (!attributes_of<region_attributes>(normal.code[normal.code[i.operand[0]].region]).reverse) ++kept;
    }
    CHECK(kept == 2);  // the carry, and its product with the factor
    random_source random(5);
    require_gradients(
        b.result(),
        {test::random_tensor(random, extents_of({6, 3})), test::random_tensor(random, extents_of({4, 3, 3}))}, {0, 1},
        1, 1e-6);
  }
}

TEST_CASE("gradients of random programs") {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    random_source random(seed);
    test::random_graph_options options;
    options.stop_gradients = false;
    const test::random_program program = test::random_graph(random, options);
    std::vector<int> wanted;
    for (const int id : program.parameters) {
      wanted.push_back(attributes_of<border_attributes>(program.code[id]).number);
    }
    require_gradients(program.code.result(), program.arguments, wanted, 2, 2e-6);
  }
}
