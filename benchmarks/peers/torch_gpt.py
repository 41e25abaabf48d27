#!/usr/bin/python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The GPTs of the benchmarks in PyTorch on the CPU: the peer of `small_gpt`, `large_gpt` and `small_gpt_ddp`.

Prints JSON lines: {"row": "small_gpt", "what": "torch 2 threads", "value": ..., "unit": "ms", ...} with the median
milliseconds of a training step, tokens per second, the number of parameters and the losses of the first steps.
What is trained, on which numbers: gpt_data.py.

Four styles. `eager` is current PyTorch as an expert writes it: fused query-key-value, functional calls,
scaled_dot_product_attention, gradients written and never zeroed, a fused optimizer; `compiled` adds torch.compile.
`idiomatic` and `tuned` (the default) also run with PyTorch 1.13: attention by two products and one precomputed mask;
`tuned` has hand-written autograd functions that work on pieces of the size of the L2 cache and in place. All use the
environment below: glibc keeps its pages (no page faults in a step), OpenBLAS with OpenMP instead of Debian's default, AVX-512 kernels.
Tried and left out, no faster here: tcmalloc, jemalloc (slower), torch.jit.trace (Debian's build has no LLVM, so nothing
is fused on the CPU), weights stored [in, out], foreach optimizers, smaller buckets for DDP. The piecewise Adam and
torch.optim's are equal within the noise.
"""
import argparse
import math
import os
import socket
import statistics
import sys
import time

OPENBLAS = "/usr/lib/x86_64-linux-gnu/openblas-openmp"


def best_blas_kernels():
    """OpenBLAS 0.3.21 does not know newer Xeons (model 207) and falls to SSE3 kernels there, five times slower."""
    with open("/proc/cpuinfo") as file:
        flags = file.read()
    return "SkylakeX" if "avx512vl" in flags else "Haswell" if "avx2" in flags else None


def environment(threads):
    """The variables that only count when the process starts."""
    path = OPENBLAS + (":" + os.environ["LD_LIBRARY_PATH"] if os.environ.get("LD_LIBRARY_PATH") else "")
    core = os.environ.get("OPENBLAS_CORETYPE") or best_blas_kernels()
    return {
        **({"OPENBLAS_CORETYPE": core} if core else {}),
        "LD_LIBRARY_PATH": path,
        "ATEN_CPU_CAPABILITY": "avx512",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        # Activations of 8 MiB would be unmapped and faulted in again on every step; tcmalloc is no faster than this.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
        "MALLOC_TOP_PAD_": str(64 << 20),
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "ESPALIER_PEER_READY": "1",
    }


if __name__ == "__main__" and os.environ.get("ESPALIER_PEER_READY") is None:
    # Before NumPy is there, whose libraries would read their variables.
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--variant", default="")
    known = options.parse_known_args()[0]
    if "noenv" not in known.variant:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **environment(known.threads)})

import gpt_data  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mode", choices=["single", "ddp"], default="single")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of ddp")
    parser.add_argument("--style", choices=["tuned", "idiomatic", "eager", "compiled"], default="tuned")
    parser.add_argument("--variant", default="", help="comma-separated experiments: trace (idiomatic only), adam, foreach, nn, la, bucket=MiB, dynamic, noenv")
    parser.add_argument("--profile", action="store_true")
    return gpt_data.parse(parser)


args = arguments()
variants = set(args.variant.split(","))
is_current = args.style in ("eager", "compiled")


def batch(number, rank, ranks):
    """Tokens and targets of this rank's share of a batch."""
    tokens, targets = gpt_data.batch(args, number, rank, ranks)
    return torch.from_numpy(tokens), torch.from_numpy(targets.reshape(-1))


class Gpt(torch.nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share
        for name, kind, numbers in gpt_data.parameters(args):
            value = torch.from_numpy(numbers)
            if kind == "weight" and name not in ("token", "position") and "nn" not in variants:
                value = value.t().contiguous()  # torch.nn.functional.linear multiplies by the transpose
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(value))
        hidden = torch.full((args.sequence, args.sequence), float("-inf")).triu(1)
        self.register_buffer("hidden", hidden, persistent=False)
        tuned = args.style == "tuned"
        # With more than one thread a sample is too little work to share.
        local = tuned and (args.threads == 1 or "la" in variants)
        self.attention = fused_attention if is_current else LocalAttention.apply if local else attention
        self.gelu = LocalGelu.apply if tuned else gelu
        self.loss = LocalLoss.apply if tuned else F.cross_entropy

    def linear(self, x, weight, bias):
        if "nn" in variants:
            return torch.addmm(bias, x, weight) if bias is not None else x @ weight
        return F.linear(x, weight, bias)

    def forward(self, tokens, targets):
        b, t, d = self.share, args.sequence, args.width
        p = self._parameters
        x = F.embedding(tokens, p["token"]) + p["position"]
        x = x.view(b * t, d)
        for i in range(args.layers):
            y = F.layer_norm(x, (d,), p[f"{i}_norm1_gain"], p[f"{i}_norm1_bias"])
            y = self.linear(y, p[f"{i}_qkv_weight"], p.get(f"{i}_qkv_bias"))
            y = self.attention(y, self.hidden, b)
            x = x + self.linear(y, p[f"{i}_project_weight"], p.get(f"{i}_project_bias"))
            y = F.layer_norm(x, (d,), p[f"{i}_norm2_gain"], p[f"{i}_norm2_bias"])
            y = self.linear(y, p[f"{i}_up_weight"], p[f"{i}_up_bias"])
            y = self.gelu(y)
            x = x + self.linear(y, p[f"{i}_down_weight"], p[f"{i}_down_bias"])
        x = F.layer_norm(x, (d,), p["norm_gain"], p["norm_bias"])
        logits = F.linear(x, p["token"]) if args.tied else self.linear(x, p["head"], None)
        return self.loss(logits, targets)


def attention(qkv, hidden, b):
    t, d, h = args.sequence, args.width, args.heads
    e = d // h
    q, k, v = qkv.view(b, t, 3, h, e).permute(2, 0, 3, 1, 4).reshape(3, b * h, t, e).unbind(0)
    scores = torch.bmm(q * (1.0 / math.sqrt(e)), k.transpose(1, 2)).add_(hidden)
    return torch.bmm(scores.softmax(-1), v).view(b, h, t, e).transpose(1, 2).reshape(b * t, d)


def fused_attention(qkv, hidden, b):
    t, d, h = args.sequence, args.width, args.heads
    q, k, v = qkv.view(b, t, 3, h, d // h).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b * t, d)


def gelu(x):
    return F.gelu(x, approximate="tanh")


class LocalAttention(torch.autograd.Function):
    """Attention, one sample at a time: scores of 512 KiB stay in the L2 cache and no operand is copied."""

    @staticmethod
    def forward(ctx, qkv, hidden, b):
        t, d, h = args.sequence, args.width, args.heads
        heads = qkv.view(b, t, 3, h, d // h)
        y, weights = torch.empty(b * t, d), torch.empty(b, h, t, t)
        out = y.view(b, t, h, d // h)
        for i in range(b):
            q, k, v = heads[i].permute(1, 2, 0, 3).unbind(0)
            w = weights[i]
            torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=1.0 / math.sqrt(d // h), out=w)
            torch.softmax(w, -1, out=w)
            out[i].copy_(torch.bmm(w, v).transpose(0, 1))
        ctx.save_for_backward(qkv, weights)
        return y

    @staticmethod
    def backward(ctx, dy):
        qkv, weights = ctx.saved_tensors
        b, h, t, _ = weights.shape
        d = args.width
        heads, dy = qkv.view(b, t, 3, h, d // h), dy.view(b, t, h, d // h)
        gradient = torch.empty_like(qkv)
        out = gradient.view(b, t, 3, h, d // h)
        for i in range(b):
            q, k, v = heads[i].permute(1, 2, 0, 3).unbind(0)
            dq, dk, dv = out[i].permute(1, 2, 0, 3).unbind(0)
            w, do = weights[i], dy[i].transpose(0, 1)
            dv.copy_(torch.bmm(w.transpose(1, 2), do))
            ds = torch._softmax_backward_data(torch.bmm(do, v.transpose(1, 2)), w, -1, torch.float32)
            ds.mul_(1.0 / math.sqrt(d // h))
            dq.copy_(torch.bmm(ds, k))
            dk.copy_(torch.bmm(ds.transpose(1, 2), q))
        return gradient, None, None


class LocalGelu(torch.autograd.Function):
    """x * sigmoid(c (x + 0.044715 x^3)), the same function as gelu(tanh), in pieces of the L2 cache: tanh is slow here."""

    rows = 128
    c = 2.0 * math.sqrt(2.0 / math.pi)

    @staticmethod
    def forward(ctx, x):
        y, s = torch.empty_like(x), torch.empty_like(x)
        c, n = LocalGelu.c, LocalGelu.rows * args.threads
        for xi, si, yi in zip(x.split(n), s.split(n), y.split(n)):
            torch.mul(xi, xi, out=si).mul_(0.044715 * c).add_(c).mul_(xi)
            torch.mul(xi, torch.sigmoid(si, out=si), out=yi)
        ctx.save_for_backward(x, s)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, s = ctx.saved_tensors
        gradient = torch.empty_like(x)
        c, n = LocalGelu.c, LocalGelu.rows * args.threads
        for xi, si, gi, di in zip(x.split(n), s.split(n), gradient.split(n), dy.split(n)):
            torch.mul(xi, xi, out=gi).mul_(3.0 * 0.044715 * c).add_(c).mul_(xi)
            torch.ops.aten.sigmoid_backward(gi, si, grad_input=gi)
            gi.add_(si).mul_(di)
        return gradient


class LocalLoss(torch.autograd.Function):
    """Mean cross entropy whose gradient is the softmax of the forward pass, changed in place."""

    @staticmethod
    def forward(ctx, logits, targets):
        rows = torch.softmax(logits, -1)
        targets = targets.unsqueeze(1)
        loss = rows.gather(1, targets).log_().mean().neg_()
        ctx.save_for_backward(rows, targets)
        return loss

    @staticmethod
    def backward(ctx, scale):
        rows, targets = ctx.saved_tensors
        rows.scatter_add_(1, targets, torch.full(targets.shape, -1.0))
        return rows.mul_(scale / rows.shape[0]), None


class LocalAdam:
    """Adam (AdamW with a weight decay) in pieces of the L2 cache; the bias corrections are folded into scalars."""

    piece = 1 << 16

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.decayed = {id(p) for n, p in model.named_parameters() if not n.endswith(("gain", "bias"))}
        self.states = [[torch.zeros(p.numel()) for _ in range(2)] for p in self.parameters]
        self.work = torch.empty(self.piece)
        self.steps = 0

    def zero_grad(self, set_to_none=True):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.steps += 1
        root = math.sqrt(1.0 - beta2**self.steps)
        rate = -args.rate * root / (1.0 - beta1**self.steps)
        n = self.piece
        for p, (first, second) in zip(self.parameters, self.states):
            for x, g, m, v in zip(p.view(-1).split(n), p.grad.reshape(-1).split(n), first.split(n), second.split(n)):
                if args.weight_decay and id(p) in self.decayed:
                    x.mul_(1.0 - args.rate * args.weight_decay)
                m.lerp_(g, 1.0 - beta1)
                v.mul_(beta2).addcmul_(g, g, value=1.0 - beta2)
                work = torch.sqrt(v, out=self.work[: v.numel()]).add_(epsilon * root)
                x.addcdiv_(m, work, value=rate)


def make_optimizer(model):
    if args.style == "tuned" and "adam" not in variants:
        return LocalAdam(model)
    settings = dict(lr=args.rate, **({"fused": True} if is_current else {"foreach": "foreach" in variants}))
    if args.weight_decay > 0:
        decayed = [p for n, p in model.named_parameters() if not n.endswith(("gain", "bias"))]
        others = [p for n, p in model.named_parameters() if n.endswith(("gain", "bias"))]
        return torch.optim.AdamW([{"params": decayed, "weight_decay": args.weight_decay}, {"params": others, "weight_decay": 0.0}], **settings)
    return torch.optim.Adam(model.parameters(), **settings)


def train(rank, ranks):
    torch.set_num_threads(args.threads)
    model = Gpt(args.batch // ranks)
    count = sum(p.numel() for p in model.parameters())
    run = model
    if ranks > 1:
        from torch.nn.parallel import DistributedDataParallel
        bucket = next((float(v[7:]) for v in variants if v.startswith("bucket=")), 25.0)
        run = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph="dynamic" not in variants,
                                      broadcast_buffers=False, bucket_cap_mb=bucket)
    optimizer = make_optimizer(model)
    data = [batch(n, rank, ranks) for n in range(8)]
    if "trace" in variants:
        run = torch.jit.trace(model, data[0])
    if args.style == "compiled":
        run = torch.compile(model, dynamic=False)
    losses, times = [], []

    def step(s):
        begin = time.perf_counter()
        loss = run(*data[s % 8])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
        losses.append(loss.detach())

    for s in range(args.warmup):
        step(s)
    times.clear()
    if args.profile:
        with torch.profiler.profile() as profile:
            for s in range(args.steps):
                step(args.warmup + s)
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=40, max_name_column_width=40), file=sys.stderr)
    else:
        for s in range(args.steps):
            step(args.warmup + s)
    shown = torch.stack(losses[:max(1, args.losses)])
    if ranks > 1:
        torch.distributed.all_reduce(shown)
        shown /= ranks
    return statistics.median(times) * 1e3, min(times) * 1e3, count, [round(x, 6) for x in shown.tolist()]


def report(row, what, result):
    median, best, count, losses = result
    gpt_data.report(args, row, what, args.style, median, best, count, losses)


def rank_main(rank, ranks, port):
    if hasattr(os, "sched_setaffinity") and ranks * args.threads <= os.cpu_count():
        os.sched_setaffinity(0, set(range(rank * args.threads, (rank + 1) * args.threads)))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    result = train(rank, ranks)
    if rank == 0:
        report("small_gpt_ddp", f"torch ddp {ranks} ranks", result)
    torch.distributed.destroy_process_group()


def main():
    if args.mode == "single":
        version = torch.__version__.split("+")[0] + " " if is_current else ""
        report("small_gpt", f"torch {version}{args.threads} thread" + "s" * (args.threads > 1), train(0, 1))
        return
    from torch import multiprocessing
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(rank_main, (args.ranks, port), nprocs=args.ranks)


if __name__ == "__main__":
    main()
