#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The programs of benchmarks/partitioners.cpp in JAX, compiled by both of its partitioners for eight CPU devices.

Prints, as JSON lines, the bytes that a device sends in what XLA compiles each to, all collectives together. An
all-reduce of which only slices are read counts as the reduce-scatter that other backends make of it.
jax_programs.py [--show NAME] [name ...]
"""
import argparse
import json
import math
import os
import re
import sys

DEVICES = 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

MESH = Mesh(__import__("numpy").array(jax.devices()[:DEVICES]).reshape(2, 4), ("data", "model"))
D, M, DM, MD = "data", "model", ("data", "model"), ("model", "data")


def laid(x, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(MESH, P(*spec)))


class Of:
    """An argument: shape, and one axis, several or none for each dimension; without a spec it is not annotated."""

    def __init__(self, *shape, at=None, dtype=jnp.float32):
        self.shape, self.at, self.dtype = shape, at, dtype


def product(x, w):
    return jnp.einsum("mk,kn->mn", x, w)


def mlp(x, w_in, w_out):
    h = laid(jax.nn.relu(jnp.einsum("bm,mh->bh", x, w_in)), D, M)
    return jnp.einsum("bh,hm->bm", h, w_out)


def mlp_unhinted(x, w_in, w_out):
    return jnp.einsum("bh,hm->bm", jax.nn.relu(jnp.einsum("bm,mh->bh", x, w_in)), w_out)


def attention(x, q, k, v, o):
    query, key, value = (jnp.einsum("bsm,mhd->bhsd", x, one) for one in (q, k, v))
    weights = jax.nn.softmax(jnp.einsum("bhsd,bhtd->bhst", query, key))
    return jnp.einsum("bhsd,hdm->bsm", jnp.einsum("bhst,bhtd->bhsd", weights, value), o)


def normalised(x):
    centred = x - x.mean(1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(1, keepdims=True) + 1e-5)


def cross_entropy(x, targets):
    return -(jax.nn.one_hot(targets, 1024) * jax.nn.log_softmax(x)).sum(1).mean()


def squared_loss(w, x):
    y = product(x, w)
    return (y * y).mean()


def lookup_loss(table, indices):
    rows = table[indices]
    return (rows * rows).sum()


def mlp_loss(w, w_out, x):
    y = mlp_unhinted(x, w, w_out)
    return (y * y).mean()


def descent(w, x):
    loss, gradient = jax.value_and_grad(squared_loss)(w, x)
    return laid(w - 0.1 * gradient, D, None), loss


def neighbours(x):
    wide = jnp.pad(x, (1, 1))
    return laid(wide[2:] + wide[:1024], M)


def relu_at(*spec):
    return lambda x: laid(jax.nn.relu(x), *spec)


X = dict(at=(D, M))
PROGRAMS = {
    "product_2d": (product, Of(64, 128, at=(D, None)), Of(128, 256, at=(None, M))),
    "product_contracted": (product, Of(64, 128, **X), Of(128, 256, at=(M, None))),
    "product_scattered": (lambda x, w: laid(product(x, w), D, M), Of(64, 128, **X), Of(128, 256, at=(M, None))),
    "product_2d_weights": (lambda x, w: laid(product(x, w), D, M), Of(64, 128, **X), Of(128, 256, **X)),
    "product_of_stored_weights": (lambda x, w: laid(product(x, w), D, None), Of(64, 128, at=(D, None)), Of(128, 256, at=(M, None))),
    "product_data_parallel": (product, Of(64, 128, at=(D, None)), Of(128, 256)),
    "gram": (lambda x: jnp.einsum("mk,nk->mn", x, x), Of(64, 128, **X)),
    "batched": (lambda x, w: jnp.einsum("bmk,bkn->bmn", x, w), Of(8, 64, 32, at=(D, None, None)), Of(8, 32, 64, at=(D, None, M))),
    "batched_conflict": (lambda x, w: jnp.einsum("bmk,bkn->bmn", x, w), Of(8, 64, 32, at=(D, M, None)), Of(8, 32, 64, at=(D, None, M))),
    "mlp_one_hint": (mlp, Of(64, 256), Of(256, 1024), Of(1024, 256)),
    "mlp_two_hints": (mlp_unhinted, Of(64, 256, at=(D, None)), Of(256, 1024, at=(None, M)), Of(1024, 256)),
    "mlp_residual": (lambda x, a, b: laid(x + mlp_unhinted(x, a, b), D, M), Of(64, 256, **X), Of(256, 1024, at=(None, M)), Of(1024, 256, at=(M, None))),
    "attention_heads": (attention, Of(8, 32, 64, at=(D, None, None)), Of(64, 4, 16, at=(None, M, None)), Of(64, 4, 16), Of(64, 4, 16), Of(4, 16, 64)),
    "axes_swapped": (relu_at(M, D), Of(64, 256, **X)),
    "axis_moved": (relu_at(None, D), Of(64, 256, at=(D, None))),
    "axis_dropped": (relu_at(D, None), Of(64, 256, **X)),
    "axis_added": (relu_at(D, M), Of(64, 256, at=(D, None))),
    "axes_reordered": (relu_at(MD, None), Of(64, 256, at=(DM, None))),
    "axes_to_columns": (relu_at(None, DM), Of(64, 256, at=(DM, None))),
    "axes_pushed_on": (relu_at(None, D, M), Of(16, 32, 64, at=(D, M, None))),
    "transposed": (lambda x: laid(x.T, D, M), Of(256, 128, **X)),
    "added_to_transpose": (lambda x: laid(x + x.T, D, M), Of(128, 128, **X)),
    "neighbours": (neighbours, Of(1024, at=(M,))),
    "differences": (lambda x: x[1:] - x[:-1], Of(1024, at=(M,))),
    "rolled": (lambda x: laid(jnp.roll(x, 1, 0), M, None), Of(64, 128, at=(M, None))),
    "rolled_by_a_part": (lambda x: laid(jnp.roll(x, 16, 0), M, None), Of(64, 128, at=(M, None))),
    "padded": (lambda x: laid(jnp.pad(x, ((2, 2), (0, 0))), M, None), Of(60, 128, at=(M, None))),
    "half": (lambda x: laid(x[:32], M, None), Of(64, 128, at=(M, None))),
    "every_second": (lambda x: laid(x[::2], M, None), Of(64, 128, at=(M, None))),
    "reversed": (lambda x: laid(x[::-1], M, None), Of(64, 128, at=(M, None))),
    "joined": (lambda x, y: laid(jnp.concatenate([x, y]), M, None), Of(32, 128, at=(M, None)), Of(32, 128, at=(M, None))),
    "joined_across": (lambda x, y: laid(jnp.concatenate([x, y], 1), M, None), Of(32, 128, at=(M, None)), Of(32, 64, at=(M, None))),
    "merged": (lambda x: x.reshape(2048), Of(64, 32, at=(D, None))),
    "divided": (lambda x: x.reshape(2, 1024, 16), Of(2048, 16, at=(DM, None))),
    "divided_in_four": (lambda x: x.reshape(4, 512, 16), Of(2048, 16, at=(DM, None))),
    "heads": (lambda x: x.reshape(16, 128, 8, 32), Of(16, 128, 256, at=(D, None, M))),
    "heads_joined": (lambda x: x.reshape(16, 128, 256), Of(16, 128, 8, 32, at=(D, None, M, None))),
    "summed_rows": (lambda x: x.sum(0), Of(64, 128, **X)),
    "summed": (lambda x: x.sum(), Of(64, 128, **X)),
    "normalised": (normalised, Of(64, 128, **X)),
    "softmax": (lambda x: jax.nn.softmax(x), Of(64, 128, **X)),
    "largest": (lambda x: x.max(), Of(64, 128, **X)),
    "cross_entropy": (cross_entropy, Of(64, 1024, **X), Of(64, at=(D,), dtype=jnp.int32)),
    "lookup_rows": (lambda t, i: t[i], Of(1024, 64, at=(M, None)), Of(64, at=(D,), dtype=jnp.int32)),
    "lookup_columns": (lambda t, i: t[i], Of(1024, 64, at=(None, M)), Of(64, at=(D,), dtype=jnp.int32)),
    "lookup_gradient": (jax.grad(lookup_loss), Of(1024, 64, at=(None, M)), Of(64, at=(D,), dtype=jnp.int32)),
    "gradient_data_parallel": (jax.grad(squared_loss), Of(128, 256), Of(64, 128, at=(D, None))),
    "gradient_tensor_parallel": (jax.grad(squared_loss), Of(128, 256, at=(None, M)), Of(64, 128, at=(D, None))),
    "descent_of_stored_weights": (descent, Of(128, 256, at=(D, None)), Of(64, 128, at=(D, None))),
    "gradient_of_mlp": (jax.value_and_grad(mlp_loss), Of(256, 1024, at=(None, M)), Of(1024, 256, at=(M, None)), Of(64, 256, at=(D, None))),
}

WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<op>[\w\-]+)\((?P<operands>.*)")


def tensors_of(text):
    """(elements, bytes of one) of each tensor of a type or a tuple of types."""
    return [(math.prod(int(n) for n in dims.split(",") if n), WIDTHS[kind]) for kind, dims in re.findall(r"\b(\w+)\[([\d,]*)\]", text) if kind in WIDTHS]


def bytes_of(text):
    return sum(elements * width for elements, width in tensors_of(text))


def group_size(line):
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if listed:
        return len(listed.group(1).split(","))
    counted = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if counted:
        return int(counted.group(2))
    named = re.search(r"replica_groups=mesh\[(.*?)\](?:, device_ids=\(.*?\))? \{(.*?)\}", line)
    if named:  # axes of a mesh, or parts of them: 'axis_1':(2)4 is four of a longer one
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", named.group(1))}
        return math.prod(int(part) if part else sizes[name] for name, part in re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", named.group(2)))
    if "replica_groups=" in line and "replica_groups={}" not in line:
        raise RuntimeError(f"which devices? {line}")
    return DEVICES


def only_sliced(name, lines, found):
    """Whether all that reads an all-reduce takes one device's part of it."""
    readers = [l for l in lines if re.search(rf"[(,] ?(?:\w+\[[\d,]*\]\S* )?%?{re.escape(name)}[,)]", l["line"])]
    return bool(readers) and all("dynamic-slice" in r["name"] or r["op"] == "dynamic-slice" for r in readers) and all(
        bytes_of(r["type"]) * found["group"] <= bytes_of(found["type"]) for r in readers)


def moved(text):
    """(bytes that a device sends, number of collectives) of a compiled module."""
    lines = []
    for line in text.splitlines():
        match = INSTRUCTION.match(line)
        if match:
            lines.append({**match.groupdict(), "line": line, "group": group_size(line)})
    total, count = 0, 0
    for one in lines:
        kind = one["op"].removesuffix("-start")
        if kind not in KINDS:
            continue
        count += 1
        size, n = bytes_of(one["type"]), one["group"]
        if kind == "all-reduce":
            # Scattered, then gathered, by whole elements: of one element a single device hands out the sum.
            both = not only_sliced(one["name"], lines, one)
            for elements, width in tensors_of(one["type"]):
                share = -(-elements // n)
                total += width * (elements - share + (share * (n - 1) if both else 0))
        elif kind == "reduce-scatter":
            total += size * (n - 1)
        elif kind == "collective-permute":
            total += size
        else:
            total += size * (n - 1) // n
    if " while(" in text:
        raise RuntimeError("a loop: its collectives would be counted once")
    return total, count


def compiled(name):
    function, *arguments = PROGRAMS[name]
    placed = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(MESH, P(*a.at))) if a.at else jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments]
    with jax.set_mesh(MESH) if hasattr(jax, "set_mesh") else MESH:
        return jax.jit(function).lower(*placed).compile().as_text()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--show", help="print what one program is compiled to")
    args = parser.parse_args()
    for name in [args.show] if args.show else args.names or PROGRAMS:
        for shardy in (True, False):
            jax.config.update("jax_use_shardy_partitioner", shardy)
            jax.clear_caches()
            what = f"jax {jax.__version__} {'shardy' if shardy else 'gspmd'}"
            try:
                text = compiled(name)
            except Exception as error:  # noqa: BLE001  (of any kind: what one partitioner cannot do the other may)
                print(f"{name}: {what}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
                continue
            if args.show:
                print(f"--- {what}\n{text}")
            total, count = moved(text)
            print(json.dumps({"row": f"moved/{name}", "what": what, "value": total, "unit": "B", "collectives": count}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
