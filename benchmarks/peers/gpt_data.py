# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Options, parameters and tokens of the GPTs that torch_gpt.py and jax_gpt.py train: those of benchmarks/steps.

Parameters and tokens come from a counter-based generator, so that another program can repeat them bit for bit:
`draw(seed, stream, i)` is splitmix64 of `seed * 2^52 + stream * 2^32 + i`; its upper 24 bits are a number u in [0, 1).
Tensor number k (the order of `parameter_list`) is filled from stream k with (2u - 1) * 0.02 * sqrt(3), row-major in the
orientation [in, out]; biases are 0 and norm gains 1. Token (b, t) of batch n is floor(u * vocabulary), stream 1000 + n,
i = b * (sequence + 1) + t; the target of token t is token t + 1. Step s trains on batch s mod 8. The loss is the mean of
the cross entropy over all tokens, before the update.
"""
import json
import math

import numpy


LARGE = {"vocabulary": 256, "width": 512, "layers": 4, "sequence": 256, "batch": 8, "no_attention_bias": True, "weight_decay": 0.1,
         "warmup": 3, "steps": 7}


def parse(parser):
    """The options of a peer: its own, those of the small GPT, or with --size large of the large one."""
    add_arguments(parser)
    if parser.parse_known_args()[0].size == "large":
        parser.set_defaults(**LARGE)
    return parser.parse_args()


def add_arguments(parser):
    parser.add_argument("--size", choices=["small", "large"], default="small")
    parser.add_argument("--threads", type=int, default=1, help="threads of the one process (ddp: of each rank)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--losses", type=int, default=8, help="how many losses to print")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=16, help="global batch")
    parser.add_argument("--no-attention-bias", action="store_true", help="as the large GPT of benchmarks/steps")
    parser.add_argument("--tied", action="store_true", help="the output projection is the token embedding")
    parser.add_argument("--weight-decay", type=float, default=0.0, help="0: Adam, more: AdamW")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--row", help="name of the row in the line that is printed")


def draw(seed, stream, count):
    """`count` numbers in [0, 1) from one stream, float64."""
    with numpy.errstate(over="ignore"):
        z = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64((seed << 52) + (stream << 32))
        z = (z + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return (z >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-24


def parameter_list(args):
    """Name, shape [in, out] and kind of every parameter, in the order of their streams; those of kind None do not exist."""
    d = args.width
    attention_bias = None if args.no_attention_bias else "zero"
    yield "token", (args.vocabulary, d), "weight"
    yield "position", (args.sequence, d), "weight"
    for i in range(args.layers):
        yield f"{i}.norm1.gain", (d,), "one"
        yield f"{i}.norm1.bias", (d,), "zero"
        yield f"{i}.qkv.weight", (d, 3 * d), "weight"
        yield f"{i}.qkv.bias", (3 * d,), attention_bias
        yield f"{i}.project.weight", (d, d), "weight"
        yield f"{i}.project.bias", (d,), attention_bias
        yield f"{i}.norm2.gain", (d,), "one"
        yield f"{i}.norm2.bias", (d,), "zero"
        yield f"{i}.up.weight", (d, 4 * d), "weight"
        yield f"{i}.up.bias", (4 * d,), "zero"
        yield f"{i}.down.weight", (4 * d, d), "weight"
        yield f"{i}.down.bias", (d,), "zero"
    yield "norm.gain", (d,), "one"
    yield "norm.bias", (d,), "zero"
    if not args.tied:
        yield "head", (d, args.vocabulary), "weight"


def parameters(args):
    """Name, kind and initial value of every parameter that exists."""
    for stream, (name, shape, kind) in enumerate(parameter_list(args)):
        if kind == "weight":
            values = (2.0 * draw(args.seed, stream, math.prod(shape)) - 1.0) * (0.02 * math.sqrt(3.0))
            yield name, kind, values.astype(numpy.float32).reshape(shape)
        elif kind is not None:
            yield name, kind, numpy.full(shape, 1 if kind == "one" else 0, numpy.float32)


def batch(args, number, rank=0, ranks=1):
    """Tokens and targets of this rank's share of a batch, each [samples, sequence]."""
    length = args.sequence + 1
    tokens = (draw(args.seed, 1000 + number, args.batch * length) * args.vocabulary).astype(numpy.int64)
    share = args.batch // ranks
    tokens = tokens.reshape(args.batch, length)[rank * share:(rank + 1) * share]
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def report(args, row, what, style, median, best, count, losses):
    print(json.dumps({
        "row": args.row or row, "what": what, "value": round(median, 3), "unit": "ms", "best": round(best, 3),
        "tokens_per_second": round(args.batch * args.sequence / median * 1e3), "parameters": count, "style": style, "losses": losses,
    }), flush=True)
