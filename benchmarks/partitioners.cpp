// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Lists the traffic of a device when programs with a few annotations are partitioned over a 2 x 4 mesh: the bytes of
// all collectives together, and the number of collectives. peers/partitioners/jax_programs.py has the same programs
// under the same names.
//
// Types say it all: nothing runs. f(x, y, ...) takes whatever is not annotated in any layout the partitioner likes.

#include <espalier/core.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace {

namespace ep = espalier;
using ep::none;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 4> {};
using mesh = ep::mesh<data, model>;

template <class T, class... Entries> using at = ep::sharded<T, Entries...>;
using ep::f32;
using ep::i32;

// --- products
struct product {
  constexpr auto operator()(auto x, auto w) const { return ep::einsum<"mk,kn->mn">(x, w); }
};
template <class... Entries> struct product_to {
  constexpr auto operator()(auto x, auto w) const { return ep::shard<Entries...>(ep::einsum<"mk,kn->mn">(x, w)); }
};
struct gram {
  constexpr auto operator()(auto x) const { return ep::einsum<"mk,nk->mn">(x, x); }
};
struct batched {
  constexpr auto operator()(auto x, auto w) const { return ep::einsum<"bmk,bkn->bmn">(x, w); }
};
struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto h = ep::shard<data, model>(ep::relu(ep::einsum<"bm,mh->bh">(x, w_in)));
    return ep::einsum<"bh,hm->bm">(h, w_out);
  }
};
struct mlp_unhinted {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    return ep::einsum<"bh,hm->bm">(ep::relu(ep::einsum<"bm,mh->bh">(x, w_in)), w_out);
  }
};
struct mlp_residual {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    return ep::shard<data, model>(x + ep::einsum<"bh,hm->bm">(ep::relu(ep::einsum<"bm,mh->bh">(x, w_in)), w_out));
  }
};
struct attention {
  constexpr auto operator()(auto x, auto q, auto k, auto v, auto o) const {
    const auto query = ep::einsum<"bsm,mhd->bhsd">(x, q);
    const auto key = ep::einsum<"bsm,mhd->bhsd">(x, k);
    const auto value = ep::einsum<"bsm,mhd->bhsd">(x, v);
    const auto weights = ep::softmax(ep::einsum<"bhsd,bhtd->bhst">(query, key));
    return ep::einsum<"bhsd,hdm->bsm">(ep::einsum<"bhst,bhtd->bhsd">(weights, value), o);
  }
};

// --- layouts
template <class... Entries> struct laid_out {
  constexpr auto operator()(auto x) const { return ep::shard<Entries...>(ep::relu(x)); }
};
struct transposed {
  constexpr auto operator()(auto x) const { return ep::shard<data, model>(ep::transpose<1, 0>(x)); }
};
struct added_to_transpose {
  constexpr auto operator()(auto x) const { return ep::shard<data, model>(x + ep::transpose<1, 0>(x)); }
};

// --- neighbours, joins, cuts
struct neighbours {
  constexpr auto operator()(auto x) const {
    return ep::shard<model>(ep::slice<0, 2, 1026>(ep::pad<0, 1, 1>(x)) + ep::slice<0, 0, 1024>(ep::pad<0, 1, 1>(x)));
  }
};
struct differences {
  constexpr auto operator()(auto x) const { return ep::slice<0, 1, 1024>(x) - ep::slice<0, 0, 1023>(x); }
};
struct rolled {
  constexpr auto operator()(auto x) const { return ep::shard<model, none>(ep::roll<0, 1>(x)); }
};
struct rolled_far {
  constexpr auto operator()(auto x) const { return ep::shard<model, none>(ep::roll<0, 16>(x)); }
};
struct padded {
  constexpr auto operator()(auto x) const { return ep::shard<model, none>(ep::pad<0, 2, 2>(x)); }
};
struct half {
  constexpr auto operator()(auto x) const { return ep::shard<model, none>(ep::slice<0, 0, 32>(x)); }
};
struct every_second {
  constexpr auto operator()(auto x) const { return ep::shard<model, none>(ep::slice<0, 0, 64, 2>(x)); }
};
struct reversed {
  constexpr auto operator()(auto x) const { return ep::shard<model, none>(ep::reverse<0>(x)); }
};
struct joined {
  constexpr auto operator()(auto x, auto y) const { return ep::shard<model, none>(ep::concat<0>(x, y)); }
};
struct joined_across {
  constexpr auto operator()(auto x, auto y) const { return ep::shard<model, none>(ep::concat<1>(x, y)); }
};

// --- reshapes
struct merged {
  constexpr auto operator()(auto x) const { return ep::reshape<2048>(x); }
};
struct divided {
  constexpr auto operator()(auto x) const { return ep::reshape<2, 1024, 16>(x); }
};
struct divided_in_four {
  constexpr auto operator()(auto x) const { return ep::reshape<4, 512, 16>(x); }
};
struct heads {
  constexpr auto operator()(auto x) const { return ep::reshape<16, 128, 8, 32>(x); }
};
struct heads_joined {
  constexpr auto operator()(auto x) const { return ep::reshape<16, 128, 256>(x); }
};

// --- reductions
template <int... Dims> struct summed {
  constexpr auto operator()(auto x) const { return ep::sum<Dims...>(x); }
};
struct normalised {
  constexpr auto operator()(auto x) const {
    const auto centred = x - ep::mean<1>(x, ep::keep_dims);
    return centred * ep::rsqrt(ep::mean<1>(centred * centred, ep::keep_dims) + 1e-5F);
  }
};
struct softmax_rows {
  constexpr auto operator()(auto x) const { return ep::softmax(x); }
};
struct largest {
  constexpr auto operator()(auto x) const { return ep::max(x); }
};
struct cross_entropy {
  constexpr auto operator()(auto x, auto targets) const {
    return -ep::mean(ep::sum<1>(ep::one_hot<1024>(targets) * ep::log_softmax(x)));
  }
};

// --- tables
struct lookup {
  constexpr auto operator()(auto table, auto indices) const { return ep::gather(table, indices); }
};
struct lookup_gradient {
  struct loss {
    constexpr auto operator()(auto table, auto indices) const {
      const auto rows = ep::gather(table, indices);
      return ep::sum(rows * rows);
    }
  };
  constexpr auto operator()(auto table, auto indices) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(table, indices);
    return gradient;
  }
};

// --- gradients
struct squared_loss {
  constexpr auto operator()(auto w, auto x) const {
    const auto y = ep::einsum<"mk,kn->mn">(x, w);
    return ep::mean(y * y);
  }
};
struct product_gradient {
  constexpr auto operator()(auto w, auto x) const {
    const auto [loss, gradient] = ep::value_and_grad(squared_loss{})(w, x);
    return gradient;
  }
};
template <class... Entries> struct descent {
  constexpr auto operator()(auto w, auto x) const {
    const auto [loss, gradient] = ep::value_and_grad(squared_loss{})(w, x);
    return ep::results(ep::shard<Entries...>(w - 0.1F * gradient), loss);
  }
};
struct mlp_gradient {
  struct loss {
    constexpr auto operator()(auto w, auto w_out, auto x) const {
      const auto y = ep::einsum<"bh,hm->bm">(ep::relu(ep::einsum<"bm,mh->bh">(x, w)), w_out);
      return ep::mean(y * y);
    }
  };
  constexpr auto operator()(auto w, auto w_out, auto x) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(w, w_out, x);
    return ep::results(gradient, value);
  }
};

/// Whether a row is asked for: all, or the names given.
bool wanted(std::string_view name, int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (name == argv[i]) return true;
  return argc < 2;
}

struct printer {
  int argc;
  char** argv;

  template <class Function, class... Arguments> void row(std::string_view name) const {
    if (!wanted(name, argc, argv)) return;
    using step = ep::program<mesh, Function, Arguments...>;
    static constexpr std::int64_t bytes = [] {
      std::int64_t sum = 0;
      for (int id = 0; id < step::code.size; ++id)
        if (ep::communicates(step::code.code[id]))
          sum += ep::detail::repetitions(step::code, id) * step::sent_bytes_of(id);
      return sum;
    }();
    const std::string text(name);
    std::printf(R"({"row": "moved/%s", "what": "ours", "value": %lld, "unit": "B", "collectives": %lld})"
                "\n",
                text.c_str(), static_cast<long long>(bytes), static_cast<long long>(step::collectives()));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const printer print{argc, argv};
  using x = f32<64, 128>;
  using w = f32<128, 256>;
  using square = f32<128, 128>;
  print.row<product, at<x, data, none>, at<w, none, model>>("product_2d");
  print.row<product, at<x, data, model>, at<w, model, none>>("product_contracted");
  print.row<product_to<data, model>, at<x, data, model>, at<w, model, none>>("product_scattered");
  print.row<product_to<data, model>, at<x, data, model>, at<w, data, model>>("product_2d_weights");
  print.row<product_to<data, none>, at<x, data, none>, at<w, model, none>>("product_of_stored_weights");
  print.row<product, at<x, data, none>, w>("product_data_parallel");
  print.row<gram, at<x, data, model>>("gram");
  print.row<batched, at<f32<8, 64, 32>, data, none, none>, at<f32<8, 32, 64>, data, none, model>>("batched");
  print.row<batched, at<f32<8, 64, 32>, data, model, none>, at<f32<8, 32, 64>, data, none, model>>("batched_conflict");
  print.row<mlp, f32<64, 256>, f32<256, 1024>, f32<1024, 256>>("mlp_one_hint");
  print.row<mlp_unhinted, at<f32<64, 256>, data, none>, at<f32<256, 1024>, none, model>, f32<1024, 256>>(
      "mlp_two_hints");
  print.row<mlp_residual, at<f32<64, 256>, data, model>, at<f32<256, 1024>, none, model>,
            at<f32<1024, 256>, model, none>>("mlp_residual");
  print.row<attention, at<f32<8, 32, 64>, data, none, none>, at<f32<64, 4, 16>, none, model, none>, f32<64, 4, 16>,
            f32<64, 4, 16>, f32<4, 16, 64>>("attention_heads");

  print.row<laid_out<model, data>, at<f32<64, 256>, data, model>>("axes_swapped");
  print.row<laid_out<none, data>, at<f32<64, 256>, data, none>>("axis_moved");
  print.row<laid_out<data, none>, at<f32<64, 256>, data, model>>("axis_dropped");
  print.row<laid_out<data, model>, at<f32<64, 256>, data, none>>("axis_added");
  print.row<laid_out<ep::axes<model, data>, none>, at<f32<64, 256>, ep::axes<data, model>, none>>("axes_reordered");
  print.row<laid_out<none, ep::axes<data, model>>, at<f32<64, 256>, ep::axes<data, model>, none>>("axes_to_columns");
  print.row<laid_out<none, data, model>, at<f32<16, 32, 64>, data, model, none>>("axes_pushed_on");
  print.row<transposed, at<f32<256, 128>, data, model>>("transposed");
  print.row<added_to_transpose, at<square, data, model>>("added_to_transpose");

  print.row<neighbours, at<f32<1024>, model>>("neighbours");
  print.row<differences, at<f32<1024>, model>>("differences");
  print.row<rolled, at<f32<64, 128>, model, none>>("rolled");
  print.row<rolled_far, at<f32<64, 128>, model, none>>("rolled_by_a_part");
  print.row<padded, at<f32<60, 128>, model, none>>("padded");
  print.row<half, at<f32<64, 128>, model, none>>("half");
  print.row<every_second, at<f32<64, 128>, model, none>>("every_second");
  print.row<reversed, at<f32<64, 128>, model, none>>("reversed");
  print.row<joined, at<f32<32, 128>, model, none>, at<f32<32, 128>, model, none>>("joined");
  print.row<joined_across, at<f32<32, 128>, model, none>, at<f32<32, 64>, model, none>>("joined_across");

  print.row<merged, at<f32<64, 32>, data, none>>("merged");
  print.row<divided, at<f32<2048, 16>, ep::axes<data, model>, none>>("divided");
  print.row<divided_in_four, at<f32<2048, 16>, ep::axes<data, model>, none>>("divided_in_four");
  print.row<heads, at<f32<16, 128, 256>, data, none, model>>("heads");
  print.row<heads_joined, at<f32<16, 128, 8, 32>, data, none, model, none>>("heads_joined");

  print.row<summed<0>, at<x, data, model>>("summed_rows");
  print.row<summed<0, 1>, at<x, data, model>>("summed");
  print.row<normalised, at<x, data, model>>("normalised");
  print.row<softmax_rows, at<x, data, model>>("softmax");
  print.row<largest, at<x, data, model>>("largest");
  print.row<cross_entropy, at<f32<64, 1024>, data, model>, at<i32<64>, data>>("cross_entropy");

  print.row<lookup, at<f32<1024, 64>, model, none>, at<i32<64>, data>>("lookup_rows");
  print.row<lookup, at<f32<1024, 64>, none, model>, at<i32<64>, data>>("lookup_columns");
  print.row<lookup_gradient, at<f32<1024, 64>, none, model>, at<i32<64>, data>>("lookup_gradient");

  print.row<product_gradient, w, at<x, data, none>>("gradient_data_parallel");
  print.row<product_gradient, at<w, none, model>, at<x, data, none>>("gradient_tensor_parallel");
  print.row<descent<data, none>, at<w, data, none>, at<x, data, none>>("descent_of_stored_weights");
  print.row<mlp_gradient, at<f32<256, 1024>, none, model>, at<f32<1024, 256>, model, none>,
            at<f32<64, 256>, data, none>>("gradient_of_mlp");
}
