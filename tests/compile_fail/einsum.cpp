// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/core/program/program.hpp>

#include <boost/hana/define_struct.hpp>

/// Mistakes in an einsum, where the user wrote it, in a function it calls, and in a loop that is differentiated.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

#if defined(CASE_wrong_operand_count)
inline constexpr ep::detail::fixed_string formula = "bm->bm";
#elif defined(CASE_bad_formula)
inline constexpr ep::detail::fixed_string formula = "bm,mh->bx";
#elif defined(CASE_letter_twice)
inline constexpr ep::detail::fixed_string formula = "bm,mh->bb";
#elif defined(CASE_batch)
inline constexpr ep::detail::fixed_string formula = "...bm,...mh->...bh";
#else
inline constexpr ep::detail::fixed_string formula = "bm,mh->bh";
#endif

struct product {
  constexpr auto operator()(auto x, auto w) const {
    return ep::relu(ep::einsum<formula>(x, w));  // the mistake
  }
};

constexpr auto project(const auto& x, const auto& w) {
  return ep::einsum<"bm,mh->bh">(x, w);  // the mistake in a function
}
struct calls_a_function {
  constexpr auto operator()(auto x, auto w) const { return ep::tanh(project(x, w)); }
};
struct multiplies {
  constexpr auto operator()(auto x, auto w) const { return ep::matmul(x, w); }
};

template <class Leaf> struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<256, 256>>, weight), (ep::leaf<Leaf, ep::f32<256>>, bias));
};
template <class Leaf> using layers = layer<ep::stacked<Leaf, 4>>;

struct one_layer {
  constexpr auto operator()(auto h, auto p) const {
#if defined(CASE_in_scan_in_value_and_grad)
    return ep::tanh(ep::einsum<"bm,mh->bh">(h, p.bias) + p.bias);  // the mistake in a loop
#else
    return ep::tanh(ep::einsum<"bm,mh->bh">(h, p.weight) + p.bias);
#endif
  }
};
struct loss_of {
  constexpr auto operator()(auto p, auto x) const { return ep::mean(ep::scan(one_layer{}, x, p)); }
};
struct train {
  constexpr auto operator()(auto p, auto x) const {
    const auto [loss, gradient] = ep::value_and_grad(loss_of{})(p, x);
    return ep::results(loss, gradient);
  }
};

// Every message: the sentence first, the place in its type, the line that asked for the program.
// clang-format off
// kind(CASE_size): `einsum`: one label, two sizes
// first(CASE_size): einsum: the same label stands for two different sizes. Make the dimensions equal
// expect(CASE_size): einsum_size_mismatch<espalier::why::text<'m'>, espalier::why::extent<256>, espalier::why::extent<255>
// expect(CASE_size): at<espalier::why::line<29>, 'e', 'i', 'n', 's', 'u', 'm', '.', 'c', 'p', 'p'>
// user_line(CASE_size): step::collectives
// budget(CASE_size): 5 16
// first(CASE_rank): einsum: an operand has another number of dimensions than labels. Write one label per dimension, or ...
// expect(CASE_rank): einsum_wrong_rank<espalier::f32<64, 256>, espalier::f32<256, 4, 256> ?>
// expect(CASE_rank): line<29>
// user_line(CASE_rank): step::collectives
// first(CASE_wrong_operand_count): einsum: the formula names another number of operands than were given.
// expect(CASE_wrong_operand_count): einsum_wrong_operand_count<espalier::why::count<1>, espalier::f32<64, 256>, espalier::f32<256, 1024> ?>
// expect(CASE_wrong_operand_count): line<29>
// user_line(CASE_wrong_operand_count): step::collectives
// kind(CASE_bad_formula): `einsum`: no formula
// first(CASE_bad_formula): einsum: the formula is not of the form .*every letter of the result in some operand
// expect(CASE_bad_formula): line<29>
// user_line(CASE_bad_formula): step::collectives
// first(CASE_letter_twice): einsum: the formula is not of the form .*no letter twice in the result
// expect(CASE_letter_twice): line<29>
// user_line(CASE_letter_twice): step::collectives
// first(CASE_batch): einsum, matmul: the dimensions that ... stands for.* do not broadcast against each other
// expect(CASE_batch): einsum_batch_mismatch<espalier::f32<2, 64, 256>, espalier::f32<3, 256, 1024> ?>
// expect(CASE_batch): line<29>
// user_line(CASE_batch): step::collectives
// first(CASE_element_types): these tensors have different element types. None is converted silently
// expect(CASE_element_types): dtype_mismatch<espalier::f32<64, 256>, espalier::f64<256, 1024> ?>
// expect(CASE_element_types): line<29>
// user_line(CASE_element_types): step::collectives
// kind(CASE_matmul): `matmul` of sizes that do not fit
// first(CASE_matmul): matmul: the last dimension of the first operand differs from the last but one of the second
// expect(CASE_matmul): matmul_size_mismatch<espalier::f32<64, 256>, espalier::f32<1024, 256> ?>
// expect(CASE_matmul): line<40>
// user_line(CASE_matmul): step::collectives
// first(CASE_in_a_function): einsum: the same label stands for two different sizes
// expect(CASE_in_a_function): line<34>
// user_line(CASE_in_a_function): step::collectives
// budget(CASE_in_a_function): 5 16
// first(CASE_in_scan_in_value_and_grad): einsum: an operand has another number of dimensions than labels
// expect(CASE_in_scan_in_value_and_grad): einsum_wrong_rank<espalier::f32<64, 256>, espalier::f32<256> ?>
// expect(CASE_in_scan_in_value_and_grad): line<51>
// user_line(CASE_in_scan_in_value_and_grad): training::flops
// budget(CASE_in_scan_in_value_and_grad): 5 16
// clang-format on
#if defined(CASE_size)
using step = ep::program<mesh, product, ep::f32<64, 256>, ep::f32<255, 1024>>;
#elif defined(CASE_rank)
using step = ep::program<mesh, product, ep::f32<64, 256>, ep::f32<256, 4, 256>>;
#elif defined(CASE_batch)
using step = ep::program<mesh, product, ep::f32<2, 64, 256>, ep::f32<3, 256, 1024>>;
#elif defined(CASE_element_types)
using step = ep::program<mesh, product, ep::f32<64, 256>, ep::f64<256, 1024>>;
#elif defined(CASE_matmul)
using step = ep::program<mesh, multiplies, ep::f32<64, 256>, ep::f32<1024, 256>>;
#elif defined(CASE_in_a_function)
using step = ep::program<mesh, calls_a_function, ep::f32<64, 256>, ep::f32<255, 1024>>;
#else
using step = ep::program<mesh, product, ep::f32<64, 256>, ep::f32<256, 1024>>;
static_assert(ep::program<mesh, multiplies, ep::f32<64, 256>, ep::f32<256, 64>>::collectives() == 0);
static_assert(ep::program<mesh, calls_a_function, ep::f32<64, 256>, ep::f32<256, 1024>>::collectives() == 0);
#endif
static_assert(step::collectives<ep::all_gather>() == 0);

using training = ep::program<mesh, train, layers<ep::spec>, ep::f32<64, 256>>;
constexpr auto work = training::flops();
