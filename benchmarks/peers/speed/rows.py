#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The rows of benchmarks/speed in PyTorch, eager and compiled, and in JAX, on the same numbers.

    rows.py eager|compiled|jax ROWS     ROWS: a row's name, or a part of it up to a slash (elements, attention, products,
                                        decode)

Prints JSON lines as our program does; `mean_magnitude` is that of the (first) result, by which one sees that both
compute the same. As many threads as OMP_NUM_THREADS says; JAX's own take the processors that the process may use.
"""
import json
import math
import os
import statistics
import sys
import time

# Activations of some MiB would be unmapped and faulted in again by every call.
ENVIRONMENT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30), "MALLOC_TOP_PAD_": str(64 << 20),
               "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "JAX_PLATFORMS": "cpu", "ESPALIER_PEER_READY": "1"}
if __name__ == "__main__" and "ESPALIER_PEER_READY" not in os.environ:
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})

import numpy  # noqa: E402

ROWS, WIDTH, CLASSES, WORDS, TOKENS, HEADS, FEATURES = 4096, 1024, 8192, 8192, 8192, 8, 64
QUERY_HEADS, KEY_HEADS, CONTEXT, HIDDEN = 16, 4, 2048, 2816  # of the block that generates


def drawn(argument, *shape, squared=False, weight=False):
    i = numpy.arange(math.prod(shape), dtype=numpy.int64)
    x = (((i * 7919 + argument * 104729) % 4001) / 1000.0 - 2.0).astype(numpy.float32)
    return (x * x if squared else x / 32 if weight else x).reshape(shape)


def indices(limit, *shape):
    i = numpy.arange(math.prod(shape), dtype=numpy.int64)
    return (i * 7919 % 4001 * limit // 4001).reshape(shape)


def shapes():
    """Row, kind, arguments."""
    matrix, row = (ROWS, WIDTH), (WIDTH,)
    yield "elements/exp", "exp", [drawn(0, *matrix)]
    yield "elements/tanh", "tanh", [drawn(0, *matrix)]
    yield "elements/gelu", "gelu", [drawn(0, *matrix)]
    yield "elements/gelu_gradient", "gelu_gradient", [drawn(0, *matrix), drawn(1, *matrix)]
    yield "elements/layer_norm", "layer_norm", [drawn(0, *matrix), drawn(1, *row), drawn(2, *row)]
    yield "elements/layer_norm_both_ways", "layer_norm_both_ways", [drawn(0, *matrix), drawn(1, *row), drawn(2, *row), drawn(3, *matrix)]
    yield "elements/softmax", "softmax", [drawn(0, *matrix)]
    yield "elements/cross_entropy_gradient", "cross_entropy_gradient", [drawn(0, 512, CLASSES), indices(CLASSES, 512)]
    yield "elements/transpose", "transpose", [drawn(0, *matrix)]
    yield "elements/sums_of_rows", "sums_of_rows", [drawn(0, *matrix)]
    yield "elements/sums_of_columns", "sums_of_columns", [drawn(0, *matrix)]
    yield "elements/gather_gradient", "gather_gradient", [drawn(0, WORDS, 512), indices(WORDS, 8192), drawn(2, 8192, 512)]
    yield "elements/adamw", "adamw", [drawn(0, *matrix), drawn(1, *matrix), drawn(2, *matrix, squared=True), drawn(3, *matrix)]
    for sequence in (512, 1024, 2048, 4096, 8192):
        qkv = [drawn(n, TOKENS // sequence, sequence, HEADS, FEATURES) for n in range(4)]
        yield f"attention/forward_{sequence}", "attention", qkv[:3]
        yield f"attention/both_ways_{sequence}", "attention_both_ways", qkv
    for m, k, n in ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (2048, 256, 768), (2048, 256, 1024), (2048, 1024, 256)):
        yield f"products/{m}x{k}x{n}", "product", [drawn(0, m, k), drawn(1, k, n)]
    yield "decode/llama_block", "llama_block", [
        drawn(0, 1, KEY_HEADS, CONTEXT, FEATURES), drawn(1, 1, KEY_HEADS, CONTEXT, FEATURES), drawn(2, 1, WIDTH),
        drawn(3, 1, FEATURES), drawn(4, 1, FEATURES), drawn(6, WIDTH, weight=True),
        drawn(7, QUERY_HEADS * FEATURES, WIDTH, weight=True), drawn(8, KEY_HEADS * FEATURES, WIDTH, weight=True),
        drawn(9, KEY_HEADS * FEATURES, WIDTH, weight=True), drawn(10, WIDTH, QUERY_HEADS * FEATURES, weight=True),
        drawn(11, WIDTH, weight=True), drawn(12, HIDDEN, WIDTH, weight=True), drawn(13, HIDDEN, WIDTH, weight=True),
        drawn(14, WIDTH, HIDDEN, weight=True)]
    yield "products/weights_by_values", "weights_by_values", [drawn(0, 16, 8, 128, 128), drawn(1, 16, 128, 8, 32)]
    yield "products/queries_by_keys", "queries_by_keys", [drawn(0, 16, 128, 8, 32), drawn(1, 16, 128, 8, 32)]


class Torch:
    """Eager, and as torch.compile makes it of the same function."""

    def __init__(self, compiled):
        global torch
        import torch
        self.compiled = compiled
        self.name = f"torch {torch.__version__.split('+')[0]} {'compiled' if compiled else 'eager'}"
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    def prepare(self, kind, arguments):
        if kind.startswith("attention"):  # [batch, heads, sequence, features] is what its kernel reads
            arguments = [a.transpose(0, 2, 1, 3).copy() for a in arguments]
        if kind == "weights_by_values":
            arguments = [arguments[0], arguments[1].transpose(0, 2, 1, 3).copy()]
        if kind == "queries_by_keys":
            arguments = [a.transpose(0, 2, 1, 3).copy() for a in arguments]
        tensors = [torch.from_numpy(a.copy()) for a in arguments]
        function = getattr(self, kind)
        if kind == "adamw":
            parameter = torch.nn.Parameter(tensors[0])
            parameter.grad = tensors[3]
            optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.01, fused=not self.compiled)
            optimizer.step()
            state = optimizer.state[parameter]
            state["exp_avg"].copy_(tensors[1])
            state["exp_avg_sq"].copy_(tensors[2])

            def step():
                optimizer.step()
                return (parameter.detach(),)
            return torch.compile(step) if self.compiled else step
        if self.compiled:
            function = torch.compile(function, dynamic=False)
        needs = ("_both_ways" in kind or kind in ("cross_entropy_gradient", "gather_gradient"))

        def call():
            if needs:
                return function(*tensors)
            with torch.no_grad():
                return function(*tensors)
        return call

    @staticmethod
    def finish(result):
        pass

    @staticmethod
    def magnitude(result):
        first = result[0] if isinstance(result, (tuple, list)) else result
        return float(first.detach().double().abs().mean())

    @staticmethod
    def exp(x):
        return torch.exp(x)

    @staticmethod
    def tanh(x):
        return torch.tanh(x)

    @staticmethod
    def gelu(x):
        return torch.nn.functional.gelu(x, approximate="tanh")

    @staticmethod
    def gelu_gradient(x, upper):
        return torch.ops.aten.gelu_backward(upper, x, approximate="tanh")

    @staticmethod
    def layer_norm(x, gain, bias):
        return torch.nn.functional.layer_norm(x, (WIDTH,), gain, bias)

    @staticmethod
    def layer_norm_both_ways(x, gain, bias, upper):
        y, mean, deviation = torch.ops.aten.native_layer_norm(x, (WIDTH,), gain, bias, 1e-5)
        return (y, *torch.ops.aten.native_layer_norm_backward(upper, x, (WIDTH,), mean, deviation, gain, bias, [True] * 3))

    @staticmethod
    def softmax(x):
        return torch.softmax(x, -1)

    @staticmethod
    def cross_entropy_gradient(x, targets):
        logarithms = torch.log_softmax(x, -1)
        upper = torch.ops.aten.nll_loss_backward(torch.ones(()), logarithms, targets, None, 1, -100, torch.tensor(float(len(targets))))
        return torch.ops.aten._log_softmax_backward_data(upper, logarithms, 1, torch.float32)

    @staticmethod
    def transpose(x):
        return x.t().contiguous()

    @staticmethod
    def sums_of_rows(x):
        return x.sum(1)

    @staticmethod
    def sums_of_columns(x):
        return x.sum(0)

    @staticmethod
    def gather_gradient(table, tokens, upper):
        return torch.ops.aten.embedding_dense_backward(upper, tokens, WORDS, -1, False)

    @staticmethod
    def adamw():
        pass

    @staticmethod
    def attention(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    @staticmethod
    def attention_both_ways(q, k, v, upper):
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (mixed, *torch.autograd.grad(mixed, (q, k, v), upper))

    @staticmethod
    def product(a, b):
        return a @ b

    @staticmethod
    def weights_by_values(weights, values):
        return weights @ values

    @staticmethod
    def queries_by_keys(queries, keys):
        return queries @ keys.transpose(-1, -2)

    @staticmethod
    def llama_block(keys, values, x, cosine, sine, attention_norm, query, key, value, output, mlp_norm, gate, up, down):
        functional = torch.nn.functional

        def turn(heads):
            return heads * cosine + torch.roll(heads, FEATURES // 2, -1) * sine
        a = functional.rms_norm(x, (WIDTH,), attention_norm, 1e-5)
        keys[:, :, CONTEXT - 1] = turn(functional.linear(a, key).view(1, KEY_HEADS, FEATURES))
        values[:, :, CONTEXT - 1] = functional.linear(a, value).view(1, KEY_HEADS, FEATURES)
        queries = turn(functional.linear(a, query).view(1, QUERY_HEADS, FEATURES))[:, :, None]
        mixed = functional.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
        y = x + functional.linear(mixed.reshape(1, -1), output)
        m = functional.rms_norm(y, (WIDTH,), mlp_norm, 1e-5)
        return y + functional.linear(functional.silu(functional.linear(m, gate)) * functional.linear(m, up), down)


class Jax:
    def __init__(self):
        global jax, jnp
        import jax
        import jax.numpy as jnp
        self.name = f"jax {jax.__version__}"

    def prepare(self, kind, arguments):
        arrays = [jnp.asarray(a.astype(numpy.int32) if a.dtype == numpy.int64 else a) for a in arguments]
        if kind == "adamw":
            function = jax.jit(self.adamw, donate_argnums=(0, 1, 2))
            state = arrays[:3]

            def step():
                state[:] = function(*state, arrays[3])
                return state
            return step
        if kind == "llama_block":
            function = jax.jit(self.llama_block, donate_argnums=(0, 1))
            cache = arrays[:2]

            def step():
                made, *cache[:] = function(*cache, *arrays[2:])
                return made
            return step
        function = jax.jit(getattr(self, kind))
        return lambda: function(*arrays)

    @staticmethod
    def finish(result):
        jax.block_until_ready(result)

    @staticmethod
    def magnitude(result):
        first = result[0] if isinstance(result, (tuple, list)) else result
        return float(numpy.abs(numpy.asarray(first, dtype=numpy.float64)).mean())

    @staticmethod
    def exp(x):
        return jnp.exp(x)

    @staticmethod
    def tanh(x):
        return jnp.tanh(x)

    @staticmethod
    def gelu(x):
        return jax.nn.gelu(x, approximate=True)

    @staticmethod
    def gelu_gradient(x, upper):
        return jax.vjp(Jax.gelu, x)[1](upper)

    @staticmethod
    def layer_norm(x, gain, bias):
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + bias

    @staticmethod
    def layer_norm_both_ways(x, gain, bias, upper):
        y, back = jax.vjp(Jax.layer_norm, x, gain, bias)
        return (y, *back(upper))

    @staticmethod
    def softmax(x):
        return jax.nn.softmax(x)

    @staticmethod
    def cross_entropy_gradient(x, targets):
        def loss(x):
            return -jnp.take_along_axis(jax.nn.log_softmax(x), targets[:, None], 1).mean()
        return jax.grad(loss)(x)

    @staticmethod
    def transpose(x):
        return x.T

    @staticmethod
    def sums_of_rows(x):
        return x.sum(1)

    @staticmethod
    def sums_of_columns(x):
        return x.sum(0)

    @staticmethod
    def gather_gradient(table, tokens, upper):
        return jax.vjp(lambda t: t[tokens], table)[1](upper)[0]

    @staticmethod
    def adamw(parameter, first, second, gradient):
        mean = first + (gradient - first) * 0.1
        square = second + (gradient * gradient - second) * 0.001
        return parameter * (1 - 1e-5) - mean / (jnp.sqrt(square) + 1e-8) * 1e-3, mean, square

    @staticmethod
    def attention(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    @staticmethod
    def attention_both_ways(q, k, v, upper):
        mixed, back = jax.vjp(Jax.attention, q, k, v)
        return (mixed, *back(upper))

    @staticmethod
    def product(a, b):
        return a @ b

    @staticmethod
    def weights_by_values(weights, values):
        return jnp.einsum("bhqk,bkhd->bqhd", weights, values)

    @staticmethod
    def queries_by_keys(queries, keys):
        return jnp.einsum("bqhd,bkhd->bhqk", queries, keys)

    @staticmethod
    def llama_block(keys, values, x, cosine, sine, attention_norm, query, key, value, output, mlp_norm, gate, up, down):
        def norm(x, gain):
            return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain

        def turn(heads):
            return heads * cosine + jnp.roll(heads, FEATURES // 2, -1) * sine
        a = norm(x, attention_norm)
        keys = keys.at[:, :, CONTEXT - 1].set(turn((a @ key.T).reshape(1, KEY_HEADS, FEATURES)))
        values = values.at[:, :, CONTEXT - 1].set((a @ value.T).reshape(1, KEY_HEADS, FEATURES))
        queries = turn((a @ query.T).reshape(1, KEY_HEADS, QUERY_HEADS // KEY_HEADS, FEATURES))
        weights = jax.nn.softmax(jnp.einsum("bhgd,bhkd->bhgk", queries, keys) / math.sqrt(FEATURES))
        y = x + jnp.einsum("bhgk,bhkd->bhgd", weights, values).reshape(1, -1) @ output.T
        m = norm(y, mlp_norm)
        return y + (jax.nn.silu(m @ gate.T) * (m @ up.T)) @ down.T, keys, values


def milliseconds(call, finish):
    """The median of as many calls as take a second, 5 to 50; the third call, if one takes more than two seconds."""
    def once():
        begin = time.perf_counter()
        finish(call())
        return time.perf_counter() - begin
    once()
    if once() > 2:  # a row that takes so long is no close one
        return once() * 1e3
    once()
    count = min(50, max(5, int(1 / min(once() for _ in range(2)))))
    return statistics.median(once() for _ in range(count)) * 1e3


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("eager", "compiled", "jax"):
        sys.exit(__doc__)
    peer = Jax() if sys.argv[1] == "jax" else Torch(sys.argv[1] == "compiled")
    for row, kind, arguments in shapes():
        if row != sys.argv[2] and not row.startswith(sys.argv[2] + "/"):
            continue
        try:
            call = peer.prepare(kind, arguments)
            first = peer.magnitude(call())
            taken = milliseconds(call, peer.finish)
        except Exception as error:  # a row that a peer cannot do is missing, the others are not
            print(f"{peer.name}: {row}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        print(json.dumps({"row": row.replace("/", f"_{os.environ.get('OMP_NUM_THREADS', 'all')}t/"), "what": peer.name, "value": taken, "unit": "ms", "mean_magnitude": first}), flush=True)


if __name__ == "__main__":
    main()
