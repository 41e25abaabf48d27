// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The code that docs/coming-from.md shows: each comment `JAX: ...`, `PyTorch: ...` or `MPI: ...` and the code below it
// are a row of a table there (tests/support/quotes.py).

#include <espalier/core.hpp>
#include <espalier/tensor/core/nn/nn.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;

namespace {

/// Calls that are passed here compile, and are no mistake.
template <class... T> constexpr void use(const T&... /*values*/) { static_assert((!ep::Failed<T> && ...)); }

// JAX: `mesh = jax.make_mesh((2, 2), ("data", "model"))`
struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct square {
  constexpr auto operator()(auto v) const { return ep::sum(v * v); }
};
struct product {
  constexpr auto operator()(auto v, auto w, auto u) const { return ep::sum(ep::matmul(v, w) * u); }
};
struct layer {
  constexpr auto operator()(auto carry, auto weight) const { return ep::tanh(ep::matmul(carry, weight)); }
};
struct halve {
  constexpr auto operator()(auto v) const { return v / 2; }
};

struct jax {
  constexpr auto operator()(auto x, auto w, auto layers, auto tokens, auto i) const {
    const auto f = square{};
    const auto g = product{};
    const auto body = layer{};
    const auto mask = x > 0;
    const auto u = ep::slice<0, 0, 2>(x);
    const auto y = ep::matmul(x, w);
    const auto dx = ep::sign(x);
    const auto table = x;
    // JAX: `jax.lax.with_sharding_constraint(x, P("data", None))`
    use(ep::shard<data, ep::none>(x));
    // JAX: `with_sharding_constraint(x, P("data", P.UNCONSTRAINED))`
    use(ep::shard<data, ep::open>(x));
    // JAX: `P(("data", "model"), None)`
    use(ep::shard<ep::axes<data, model>, ep::none>(x));
    // JAX: `jax.sharding.reshard(x, P(None, "model"))`
    use(ep::reshard<ep::none, model>(x));
    // JAX: `jnp.einsum("bm,mh->bh", x, w)`
    use(ep::einsum<"bm,mh->bh">(x, w));
    // JAX: `x @ w`
    use(ep::matmul(x, w));
    // JAX: `x + 1`, `x * y`, `-x`, `x > 0`, `mask & mask`
    use(x + 1, x * y, -x, x > 0, mask & mask);
    // JAX: `x == y`, `x != 2`
    use(x == y, x != 2);
    // JAX: `jnp.where(mask, x, 0)`
    use(ep::select(mask, x, 0));
    // JAX: `jnp.sum(x, axis=1, keepdims=True)`
    use(ep::sum<1>(x, ep::keep_dims));
    // JAX: `jnp.cumsum(x, axis=0)`
    use(ep::cumsum<0>(x));
    // JAX: `jnp.argmax(x, axis=-1)`
    use(ep::argmax<-1>(x));
    // JAX: `jax.lax.top_k(x, 3)`
    use(ep::top_k<-1, 3>(x).values);
    // JAX: `jax.nn.softmax(x, axis=-1)`
    use(ep::softmax<-1>(x));
    // JAX: `x[3]`
    use(ep::take<0, 3>(x));
    // JAX: `x[2:5]`
    use(ep::slice<0, 2, 5>(x));
    // JAX: `jax.lax.dynamic_slice_in_dim(x, i, 2)`
    use(ep::dynamic_slice<0, 2>(x, i));
    // JAX: `jax.lax.dynamic_update_slice_in_dim(x, u, i, 0)`
    use(ep::dynamic_update_slice<0>(x, u, i));
    // JAX: `table[tokens]`
    use(ep::gather<0>(table, tokens));
    // JAX: `x.reshape(64, 16, 16)`
    use(ep::reshape<64, 16, 16>(x));
    // JAX: `x.T`
    use(ep::transpose<1, 0>(x));
    // JAX: `x.astype(jnp.bfloat16)`
    use(ep::convert<ep::dtype::bf16>(x));
    // JAX: `jnp.concatenate([x, u], axis=0)`
    use(ep::concat<0>(x, u));
    // JAX: `jnp.roll(x, 1, axis=0)`
    use(ep::roll<0, 1>(x));
    // JAX: `jnp.pad(x, ((1, 2), (0, 0)))`
    use(ep::pad<0, 1, 2>(x));
    // JAX: `jax.value_and_grad(f)(x)`
    use(ep::value_and_grad(f)(x).gradient);
    // JAX: `jax.grad(g, argnums=(0, 2))(x, w, y)`
    use(ep::grad<0, 2>(g)(x, w, y));
    // JAX: `jax.jvp(f, (x,), (dx,))`
    use(ep::jvp(f)(x, dx));
    // JAX: `jax.checkpoint(f)(x)`
    use(ep::checkpoint(f)(x));
    // JAX: `jax.lax.stop_gradient(x)`
    use(ep::stop_gradient(x));
    // JAX: `jax.lax.scan(body, x, layers)`
    use(ep::scan(body, x, layers));
    // JAX: `jax.lax.scan(jax.checkpoint(body), x, layers)`
    use(ep::scan(body, x, layers, ep::recompute));
    // JAX: `jax.lax.fori_loop(0, 10, lambda i, v: v / 2, x)`
    use(ep::repeat<10>(halve{}, x));
    // JAX: `key = jax.random.key(0)`
    const auto key = ep::random_key(x, 0);
    // JAX: `jax.random.normal(key, (64, 256))`
    use(ep::normal<ep::f32<64, 256>>(key));
    // JAX: `jax.random.fold_in(key, 7)`
    use(ep::fold_in(key, 7));

    return x;
  }
};

// JAX: `jax.ShapeDtypeStruct((64, 256), jnp.float32)`
using activations = ep::f32<64, 256>;
// JAX: the same with `sharding=NamedSharding(mesh, P(None, "model"))`
using columns = ep::sharded<ep::f32<256, 256>, ep::none, model>;
// JAX: `jax.jit(f, donate_argnums=0).lower(...).compile()`
using compiled =
    ep::program<mesh, jax, ep::donated<activations>, columns, ep::f32<3, 256, 256>, ep::i32<64>, ep::i32<>>;

static_assert(compiled::is_sound);

// PyTorch: `class Net(nn.Module): def __init__(self): self.up = nn.Linear(256, 1024)`
template <class Leaf> struct net {
  BOOST_HANA_DEFINE_STRUCT(net, (ep::leaf<Leaf, ep::f32<256, 1024>>, up), (ep::leaf<Leaf, ep::f32<1024>>, bias));
};

struct torch_loss {
  constexpr auto operator()(const auto& p, auto x) const { return ep::mean(ep::nn::dense(x, p.up, p.bias)); }
};

struct torch {
  constexpr auto operator()(const auto& state, auto x, auto tokens, auto targets, auto heads, auto gain,
                            auto rate) const {
    const auto loss_of = torch_loss{};
    const auto mask = x > 0;
    const auto up = state.parameters.up;
    const auto offset = state.parameters.bias;
    const auto bias = gain;
    const auto table = x;
    const auto q = heads;
    const auto k = heads;
    const auto v = heads;
    // PyTorch: `F.linear(x, up, offset)`
    use(ep::nn::dense(x, up, offset));
    // PyTorch: `torch.einsum("bm,mh->bh", x, up)`
    use(ep::einsum<"bm,mh->bh">(x, up));
    // PyTorch: `F.relu(x), F.silu(x), F.gelu(x, approximate="tanh")`
    use(ep::relu(x), ep::silu(x), ep::gelu(x));
    // PyTorch: `x.sum(dim=1), x.mean(dim=1, keepdim=True)`
    use(ep::sum<1>(x), ep::mean<1>(x, ep::keep_dims));
    // PyTorch: `torch.where(mask, x, 0), x.masked_fill(mask, 0)`
    use(ep::select(mask, x, 0), ep::select(mask, 0, x));
    // PyTorch: `x.view(64, 16, 16), x.permute(1, 0)`
    use(ep::reshape<64, 16, 16>(x), ep::transpose<1, 0>(x));
    // PyTorch: `x.unsqueeze(0), x.expand(8, 64, 256)`
    use(ep::expand_dims<0>(x), ep::broadcast_to<8, 64, 256>(x));
    // PyTorch: `torch.cat([x, x], dim=0), torch.stack([x, x])`
    use(ep::concat<0>(x, x), ep::stack<0>(x, x));
    // PyTorch: `torch.tril(x), torch.roll(x, 1, 0)`
    use(ep::tril(x), ep::roll<0, 1>(x));
    // PyTorch: `x.to(torch.bfloat16)`
    use(ep::convert<ep::dtype::bf16>(x));
    // PyTorch: `F.embedding(tokens, table), F.one_hot(tokens, 10)`
    use(ep::gather<0>(table, tokens), ep::one_hot<10>(tokens));
    // PyTorch: `F.rms_norm(x, (256,), gain)`, `F.layer_norm(x, (256,), gain, bias)`
    use(ep::nn::rms_norm(x, gain), ep::nn::layer_norm(x, gain, bias));
    // PyTorch: `F.batch_norm(x, mean, var, gain, bias, training=True)`, `F.group_norm(x, 8, gain, bias)`
    use(ep::nn::batch_norm(x, gain, bias), ep::nn::group_norm<8>(x, gain, bias));
    // PyTorch: `F.scaled_dot_product_attention(q, k, v, is_causal=True)`
    use(ep::nn::causal_attention(q, k, v));
    // PyTorch: `F.scaled_dot_product_attention(q, k, v)`
    use(ep::nn::attention(q, k, v));
    // PyTorch: `F.cross_entropy(x, targets)`: labels of -100 do not count
    use(ep::nn::cross_entropy(x, targets, ep::nn::ignore{-100}));
    // PyTorch: `x.detach()`
    use(ep::stop_gradient(x));
    // PyTorch: `DistributedDataParallel(model)`: each device has some rows of the batch
    x = ep::shard<data, ep::none>(x);
    // PyTorch: `ColumnParallelLinear`: each device has some columns of the weight
    use(ep::shard<ep::none, model>(up));
    // PyTorch: `loss = loss_of(model, x); loss.backward()`
    const auto [loss, gradients] = ep::value_and_grad(loss_of)(state.parameters, x);
    // PyTorch: `ZeroRedundancyOptimizer`: its state is split over the devices that share a batch
    use(ep::nn::adamw_step(state, gradients, rate, {}, ep::nn::split_state<data, 256>{}));
    // PyTorch: `optimizer = torch.optim.AdamW(model.parameters()); optimizer.step()`
    return ep::results(ep::nn::adamw_step(state, gradients, rate), loss);
  }
};
using training = ep::program<mesh, torch, ep::donated<ep::nn::adamw<net>::state<ep::spec>>, activations, ep::i32<64>,
                             ep::i32<64>, ep::f32<4, 16, 8, 32>, ep::f32<256>, ep::f32<>>;
static_assert(training::is_sound);

// Here the code on the right is a function of a tensor x, or of two; that it moves what the left side does is asserted.
template <auto Function> struct of {
  constexpr auto operator()(auto x) const { return Function(x); }
  constexpr auto operator()(auto x, auto w) const { return Function(x, w); }
};
template <auto Function, class... Arguments> using moves = ep::program<mesh, of<Function>, Arguments...>;
using rows = ep::sharded<ep::f32<64, 256>, data, ep::none>;
using parts = ep::sharded<ep::f32<64, 256>, ep::none, model>;
using weight_rows = ep::sharded<ep::f32<256, 512>, model, ep::none>;

// MPI: `MPI_Cart_create(comm, 2, {2, 2}, ...)`
using grid = ep::mesh<data, model>;

// MPI: `C = A * B; MPI_Allreduce(C, MPI_SUM)`: each rank has some columns of A, and those rows of B
constexpr auto all_reduced = [](auto x, auto w) { return ep::matmul(x, w); };

// MPI: `C = A * B; MPI_Reduce_scatter(C, MPI_SUM)`
constexpr auto reduce_scattered = [](auto x, auto w) { return ep::shard<model, ep::none>(ep::matmul(x, w)); };

// MPI: `MPI_Allgatherv(x)`
constexpr auto gathered = [](auto x) { return ep::reshard<ep::none, ep::none>(x); };

// MPI: `MPI_Alltoallv(x)`: rows become columns
constexpr auto exchanged = [](auto x) { return ep::reshard<ep::none, data>(x); };

// MPI: `MPI_Neighbor_alltoallv(x)`: a row from either neighbour
constexpr auto halos = [](auto x) { return ep::shift<0, 1>(x) - 2 * x + ep::shift<0, -1>(x); };

// MPI: `MPI_Sendrecv(x)` around a ring
constexpr auto ring = [](auto x) { return ep::roll<0, 32>(x); };

// MPI: `for (i ...) s += x[i] * x[i]; MPI_Allreduce(s, MPI_SUM)`
constexpr auto norm = [](auto x) { return ep::sum(x * x); };

/// One collective of this kind, and no other.
template <class Program, class Kind> constexpr bool needs_only() {
  return Program::template collectives<Kind>() == 1 && Program::collectives() == 1;
}
static_assert(needs_only<moves<all_reduced, parts, weight_rows>, ep::all_reduce>());
static_assert(needs_only<moves<reduce_scattered, parts, weight_rows>, ep::reduce_scatter>());
static_assert(needs_only<moves<gathered, rows>, ep::all_gather>());
static_assert(needs_only<moves<exchanged, rows>, ep::all_to_all>());
static_assert(needs_only<moves<norm, rows>, ep::all_reduce>());
static_assert(moves<ring, rows>::collectives() == 1);
static_assert(moves<ring, rows>::bytes<ep::collective_permute>() + moves<ring, rows>::bytes<ep::exchange>() ==
              32 * 256 * 4);
// Of two devices each has one neighbour, and sends it one row.
static_assert(moves<halos, rows>::bytes<ep::exchange>() + moves<halos, rows>::bytes<ep::collective_permute>() == 1024);

}  // namespace
