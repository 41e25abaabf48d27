#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The GPTs of the benchmarks in JAX on the CPU, as one jitted step whose state is donated: gpt_data.py says which.

JAX's threads are as many as the processors that the process may use; --threads only names them.
"""
import argparse
import os
import statistics
import sys
import time

# Activations of some MiB would be unmapped and faulted in again by every step.
ENVIRONMENT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30), "MALLOC_TOP_PAD_": str(64 << 20),
               "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "JAX_PLATFORMS": "cpu", "ESPALIER_PEER_READY": "1"}
if __name__ == "__main__" and "ESPALIER_PEER_READY" not in os.environ:
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})

import gpt_data  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def norm(x, gain, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + bias


def linear(p, name, x):
    y = x @ p[name + ".weight"]
    return y + p[name + ".bias"] if name + ".bias" in p else y


def loss(args, p, tokens, targets):
    b, t, d, h = args.batch, args.sequence, args.width, args.heads
    x = p["token"][tokens] + p["position"]
    for i in range(args.layers):
        y = norm(x, p[f"{i}.norm1.gain"], p[f"{i}.norm1.bias"])
        q, k, v = linear(p, f"{i}.qkv", y).reshape(b, t, 3, h, d // h).transpose(2, 0, 1, 3, 4)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d)
        x = x + linear(p, f"{i}.project", y)
        y = norm(x, p[f"{i}.norm2.gain"], p[f"{i}.norm2.bias"])
        x = x + linear(p, f"{i}.down", jax.nn.gelu(linear(p, f"{i}.up", y), approximate=True))
    x = norm(x, p["norm.gain"], p["norm.bias"])
    logarithms = jax.nn.log_softmax(x @ (p["token"].T if args.tied else p["head"]))
    return -jnp.take_along_axis(logarithms, targets[..., None], -1).mean()


def make_step(args, decayed):
    def step(state, tokens, targets):
        p, first, second, number = state
        value, gradient = jax.value_and_grad(lambda p: loss(args, p, tokens, targets))(p)
        number = number + 1
        first = {n: BETA1 * first[n] + (1 - BETA1) * gradient[n] for n in p}
        second = {n: BETA2 * second[n] + (1 - BETA2) * gradient[n] * gradient[n] for n in p}
        rate = args.rate / (1 - BETA1**number)
        root = jnp.sqrt(1 - BETA2**number)

        def update(n):
            kept = p[n] * (1 - args.rate * args.weight_decay) if n in decayed else p[n]
            return kept - rate * first[n] / (jnp.sqrt(second[n]) / root + EPSILON)
        return ({n: update(n) for n in p}, first, second, number), value
    return jax.jit(step, donate_argnums=0)


def main():
    args = gpt_data.parse(argparse.ArgumentParser(description=__doc__.split("\n")[0]))
    listed = list(gpt_data.parameters(args))
    parameters = {name: jnp.asarray(value) for name, _, value in listed}
    decayed = {name for name, kind, _ in listed if kind == "weight"}
    zeros = {name: jnp.zeros_like(value) for name, value in parameters.items()}
    state = (parameters, zeros, jax.tree.map(jnp.copy, zeros), jnp.float32(0))
    step = make_step(args, decayed)
    data = [[jnp.asarray(x.astype("int32")) for x in gpt_data.batch(args, n)] for n in range(8)]
    times, losses = [], []
    for s in range(args.warmup + args.steps):
        begin = time.perf_counter()
        state, value = step(state, *data[s % 8])
        value.block_until_ready()
        jax.block_until_ready(state)
        times.append((time.perf_counter() - begin) * 1e3)
        losses.append(float(value))
    measured = times[args.warmup:]
    count = sum(value.size for _, _, value in listed)
    gpt_data.report(args, "gpt", f"jax {jax.__version__}", "", statistics.median(measured), min(measured), count,
                    [round(x, 6) for x in losses[:max(1, args.losses)]])


if __name__ == "__main__":
    main()
