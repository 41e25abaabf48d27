# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The GPT of benchmarks/pipeline/gpt.cpp in PyTorch, as a pipeline over the ranks of mpirun (torch.distributed.pipelining, gloo).

    mpirun -n 2 PYTHON torch_pipeline.py --row NAME [--schedule 1f1b|gpipe] [--style eager|compiled] [--interface data --address 10.91.0.1]
"""
import argparse
import json
import math
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--row", required=True)
parser.add_argument("--schedule", choices=["1f1b", "gpipe"], default="1f1b")
parser.add_argument("--style", choices=["eager", "compiled"], default="eager")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--warmup", type=int, default=3)
parser.add_argument("--interface", help="network card that gloo uses")
parser.add_argument("--address", default="127.0.0.1", help="of rank 0")
args = parser.parse_args()

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
RANKS = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
# One port for all ranks, another one for each start: mpirun is every rank's parent on one machine, but not in the lab, where nobody else listens.
PORT = 29500 if args.interface else 20000 + os.getppid() % 20000
os.environ.update(MASTER_ADDR=args.address, MASTER_PORT=str(PORT), RANK=str(RANK), WORLD_SIZE=str(RANKS), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1",
                  TORCH_CPP_LOG_LEVEL="ERROR")
if args.interface:
    os.environ["GLOO_SOCKET_IFNAME"] = args.interface

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe  # noqa: E402

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT, BATCH, MICRO_BATCHES = 1024, 256, 8, 8, 128, 16, 8
STREAMS_PER_LAYER = 12


def draw(stream, count):
    """`count` numbers in [0, 1) from one stream, float64: as benchmarks/steps/torch_values.hpp."""
    with numpy.errstate(over="ignore"):
        z = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64((1 << 52) + (stream << 32))
        z = (z + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return (z >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-24


def weight(stream, *shape):
    values = (2.0 * draw(stream, math.prod(shape)) - 1.0) * (0.02 * math.sqrt(3.0))
    return torch.from_numpy(values.astype(numpy.float32).reshape(shape))


def linear(stream, width, columns, bias=True):
    made = torch.nn.Linear(width, columns, bias=bias)
    with torch.no_grad():
        made.weight.copy_(weight(stream, width, columns).t())
        if bias:
            made.bias.zero_()
    return made


class Block(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        first = STREAMS_PER_LAYER * layer
        self.norm1 = torch.nn.LayerNorm(WIDTH)
        self.qkv = linear(first + 4, WIDTH, 3 * WIDTH)
        self.project = linear(first + 6, WIDTH, WIDTH)
        self.norm2 = torch.nn.LayerNorm(WIDTH)
        self.up = linear(first + 10, WIDTH, 4 * WIDTH)
        self.down = linear(first + 12, 4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Stage(torch.nn.Module):
    """Blocks [first, last), the embedding before block 0, the head behind the last one."""

    def __init__(self, first, last):
        super().__init__()
        self.is_first, self.is_last = first == 0, last == LAYERS
        if self.is_first:
            self.token = torch.nn.Parameter(weight(0, VOCABULARY, WIDTH))
            self.position = torch.nn.Parameter(weight(1, CONTEXT, WIDTH))
        self.blocks = torch.nn.ModuleList(Block(k) for k in range(first, last))
        if self.is_last:
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.head = linear(4 + STREAMS_PER_LAYER * LAYERS, WIDTH, VOCABULARY, bias=False)

    def forward(self, x):
        if self.is_first:
            x = F.embedding(x, self.token) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.is_last else x


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(number):
    tokens = (draw(1000 + number, BATCH * (CONTEXT + 1)) * VOCABULARY).astype(numpy.int64)
    tokens = torch.from_numpy(tokens.reshape(BATCH, CONTEXT + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
module = Stage(LAYERS * RANK // RANKS, LAYERS * (RANK + 1) // RANKS)
if args.style == "compiled":
    module.compile()
stage = PipelineStage(module, RANK, RANKS, torch.device("cpu"))
schedule = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[args.schedule](stage, MICRO_BATCHES, loss_fn=loss_of)
optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
data = [batch(n) for n in range(8)]
losses, times = [], []
for s in range(args.warmup + args.steps):
    tokens, targets = data[s % 8]
    found = []
    torch.distributed.barrier()
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    if RANK == 0 and RANK + 1 == RANKS:
        schedule.step(tokens, target=targets, losses=found)
    elif RANK == 0:
        schedule.step(tokens)
    elif RANK + 1 == RANKS:
        schedule.step(target=targets, losses=found)
    else:
        schedule.step()
    optimizer.step()
    taken = torch.tensor(time.perf_counter() - begin)
    torch.distributed.all_reduce(taken, op=torch.distributed.ReduceOp.MAX)  # of the rank that took longest
    if s >= args.warmup:
        times.append(taken.item())
    if RANK + 1 == RANKS and s < 8:
        losses.append(round(torch.stack(found).detach().mean().item(), 6))
if RANK + 1 == RANKS:
    print(json.dumps({"row": args.row, "what": f"torch {torch.__version__.split('+')[0]} {args.schedule}", "value": round(statistics.median(times) * 1e3, 3),
                      "unit": "ms", "style": args.style, "losses": losses}), flush=True)
torch.distributed.destroy_process_group()
