#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The rows of benchmarks/speed in PyTorch, eager and compiled, in JAX, and in PyTorch's oneDNN, on the same numbers.

    rows.py eager|compiled|jax|onednn ROWS     ROWS: a row's name, or a part of it up to a slash (elements, attention,
                                               products, decode; eager also memory)

Prints JSON lines as our program does; `mean_magnitude` is that of the (first) result, by which one sees that both
compute the same. A row that the peer cannot do has a `reason` instead of a value. As many threads as OMP_NUM_THREADS
says; JAX's own take the processors that the process may use.
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
# Where memory is counted, what is freed goes back to the system, so that the next call has to ask for it.
ENVIRONMENT_OF_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "MALLOC_TRIM_THRESHOLD_": str(1 << 16), "ESPALIER_PEER_READY": "1"}
if __name__ == "__main__" and "ESPALIER_PEER_READY" not in os.environ:
    counts_memory = len(sys.argv) > 2 and sys.argv[2].split("/")[0] == "memory"
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **(ENVIRONMENT_OF_MEMORY if counts_memory else ENVIRONMENT)})

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
    """Row, kind, and what draws its arguments."""
    matrix, row = (ROWS, WIDTH), (WIDTH,)
    yield "elements/exp", "exp", lambda: [drawn(0, *matrix)]
    yield "elements/tanh", "tanh", lambda: [drawn(0, *matrix)]
    yield "elements/gelu", "gelu", lambda: [drawn(0, *matrix)]
    yield "elements/gelu_gradient", "gelu_gradient", lambda: [drawn(0, *matrix), drawn(1, *matrix)]
    yield "elements/layer_norm", "layer_norm", lambda: [drawn(0, *matrix), drawn(1, *row), drawn(2, *row)]
    yield "elements/layer_norm_both_ways", "layer_norm_both_ways", lambda: [drawn(0, *matrix), drawn(1, *row), drawn(2, *row), drawn(3, *matrix)]
    yield "elements/softmax", "softmax", lambda: [drawn(0, *matrix)]
    yield "elements/cross_entropy_gradient", "cross_entropy_gradient", lambda: [drawn(0, 512, CLASSES), indices(CLASSES, 512)]
    yield "elements/transpose", "transpose", lambda: [drawn(0, *matrix)]
    yield "elements/sums_of_rows", "sums_of_rows", lambda: [drawn(0, *matrix)]
    yield "elements/sums_of_columns", "sums_of_columns", lambda: [drawn(0, *matrix)]
    yield "elements/gather_gradient", "gather_gradient", lambda: [drawn(0, WORDS, 512), indices(WORDS, 8192), drawn(2, 8192, 512)]
    yield "elements/adamw", "adamw", lambda: [drawn(0, *matrix), drawn(1, *matrix), drawn(2, *matrix, squared=True), drawn(3, *matrix)]
    for sequence in (512, 1024, 2048, 4096, 8192):
        shape = (TOKENS // sequence, sequence, HEADS, FEATURES)
        yield f"attention/forward_{sequence}", "attention", lambda shape=shape: [drawn(n, *shape) for n in range(3)]
        yield f"attention/both_ways_{sequence}", "attention_both_ways", lambda shape=shape: [drawn(n, *shape) for n in range(4)]
    for m, k, n in ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (2048, 256, 768), (2048, 256, 1024), (2048, 1024, 256)):
        yield f"products/{m}x{k}x{n}", "product", lambda m=m, k=k, n=n: [drawn(0, m, k), drawn(1, k, n)]
    yield "decode/llama_block", "llama_block", lambda: [
        drawn(0, 1, KEY_HEADS, CONTEXT, FEATURES), drawn(1, 1, KEY_HEADS, CONTEXT, FEATURES), drawn(2, 1, WIDTH),
        drawn(3, 1, FEATURES), drawn(4, 1, FEATURES), drawn(6, WIDTH, weight=True),
        drawn(7, QUERY_HEADS * FEATURES, WIDTH, weight=True), drawn(8, KEY_HEADS * FEATURES, WIDTH, weight=True),
        drawn(9, KEY_HEADS * FEATURES, WIDTH, weight=True), drawn(10, WIDTH, QUERY_HEADS * FEATURES, weight=True),
        drawn(11, WIDTH, weight=True), drawn(12, HIDDEN, WIDTH, weight=True), drawn(13, HIDDEN, WIDTH, weight=True),
        drawn(14, WIDTH, HIDDEN, weight=True)]
    yield "products/weights_by_values", "weights_by_values", lambda: [drawn(0, 16, 8, 128, 128), drawn(1, 16, 128, 8, 32)]
    yield "products/queries_by_keys", "queries_by_keys", lambda: [drawn(0, 16, 128, 8, 32), drawn(1, 16, 128, 8, 32)]


class Torch:
    """Eager, and as torch.compile makes it of the same function."""

    def __init__(self, compiled):
        global torch
        import torch
        self.compiled = compiled
        self.name = f"torch {torch.__version__.split('+')[0]} {'compiled' if compiled else 'eager'}"
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    def variants(self, kind, arguments):
        """What to call, under each name."""
        yield "", self.prepare(kind, arguments)

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
            # The first step makes the state. What it changed is set back, and the number of steps such that, as in our
            # row, nothing is left of the corrections of the first ones.
            optimizer.step()
            state = optimizer.state[parameter]
            state["step"].fill_(1e6)
            state["exp_avg"].copy_(tensors[1])
            state["exp_avg_sq"].copy_(tensors[2])
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(arguments[0]))

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


class OneDnn(Torch):
    """oneDNN as PyTorch ships and calls it: products alone, once with the right matrix packed before, once as it is."""

    def __init__(self):
        super().__init__(False)
        self.name = f"oneDNN in torch {torch.__version__.split('+')[0]}"

    def variants(self, kind, arguments):
        if kind != "product":
            return
        a, b = (torch.from_numpy(x.copy()) for x in arguments)
        linear = torch.ops.mkldnn._linear_pointwise  # multiplies by the transpose of its second operand
        packed = torch.ops.mkldnn._reorder_linear_weight(b.t().contiguous(), a.shape[0])
        yield "", lambda: linear(a, b.t(), None, "none", [], "")
        yield "packed before", lambda: linear(a, packed, None, "none", [], "")


class Jax:
    def __init__(self):
        global jax, jnp
        import jax
        import jax.numpy as jnp
        self.name = f"jax {jax.__version__}"

    def variants(self, kind, arguments):
        yield "", self.prepare(kind, arguments)

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


def milliseconds(call, finish, first):
    """The median of as many calls as take a second, 5 to 50. Of calls that take more than a second one counts, and of
    those that take more than ten the first, which also compiles: such a peer is not close, and would take minutes."""
    def once():
        begin = time.perf_counter()
        finish(call())
        return time.perf_counter() - begin
    if first > 10:
        return first * 1e3
    taken = once()
    if taken > 1:
        return taken * 1e3
    once()
    count = min(50, max(5, int(1 / min(once() for _ in range(2)))))
    return statistics.median(once() for _ in range(count)) * 1e3


def status_bytes(wanted):
    """A line of /proc/self/status: VmRSS, the memory in use, or VmHWM, the most since it was forgotten."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(wanted + ":"))


def report_memory(peer, wanted):
    """MiB by which the process grows at most while it makes the arguments and calls the function."""
    for sequence in (512, 1024, 2048, 4096, 8192):
        for way in ("forward", "both_ways"):
            row = f"memory/{way}_{sequence}"
            if wanted not in (row, "memory"):
                continue
            kind = "attention" if way == "forward" else "attention_both_ways"
            count = 3 if way == "forward" else 4

            def call(length):
                tensors = [torch.empty(1, HEADS, length, FEATURES) for _ in range(count)]
                for n, tensor in enumerate(tensors):
                    tensor.uniform_(-2, 2, generator=torch.Generator().manual_seed(n))
                with torch.set_grad_enabled(way != "forward"):
                    return getattr(peer, kind)(*tensors)
            call(64)  # libraries and threads
            before = status_bytes("VmRSS")
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            result = call(sequence)
            grown = status_bytes("VmHWM") - before
            del result
            print_line(row, peer.name, grown / (1 << 20), "MiB")


def print_line(row, what, value, unit, **more):
    name = row.replace("/", f"_{os.environ.get('OMP_NUM_THREADS', 'all')}t/")
    print(json.dumps({"row": name, "what": what, "value": value, "unit": unit, **more}), flush=True)


PEERS = {"eager": lambda: Torch(False), "compiled": lambda: Torch(True), "jax": Jax, "onednn": OneDnn}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in PEERS:
        sys.exit(__doc__)
    peer = PEERS[sys.argv[1]]()
    wanted = sys.argv[2]
    if wanted.split("/")[0] == "memory":
        report_memory(peer, wanted)
    for row, kind, draw in shapes():
        if row != wanted and not row.startswith(wanted + "/"):
            continue
        try:
            for variant, call in peer.variants(kind, draw()):
                begin = time.perf_counter()
                result = call()
                peer.finish(result)
                first = time.perf_counter() - begin
                magnitude = peer.magnitude(result)
                del result
                print_line(row, f"{peer.name} {variant}".strip(), milliseconds(call, peer.finish, first), "ms", mean_magnitude=magnitude)
        except Exception as error:  # a row that a peer cannot do is missing, the others are not
            print_line(row, peer.name, None, "ms", reason=(str(error).splitlines() or [type(error).__name__])[0])


if __name__ == "__main__":
    main()
