#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The peer of examples/llama: transformers on PyTorch, the same weights.

    transformers_decode.py write FOLDER        a Llama of 4 layers of width 512 with random weights (seed 1), 1,024 tokens
    transformers_decode.py compare FOLDER      FOLDER/expected.safetensors for `llama FOLDER --compare`, any checkpoint
    transformers_decode.py decode FOLDER       JSON lines: tokens/s of greedy generation with a cache, for each way that
                                               transformers has; the fastest is the peer

Each way generates TOKENS tokens behind a prompt of PROMPT, RUNS times on THREADS threads; the median counts.
"""
import json
import os
import pathlib
import statistics
import sys
import time

THREADS = int(os.environ.get("PEER_THREADS", "2"))
PROMPT, TOKENS, RUNS = 7, 120, 5


def write(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import write_checkpoints

    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=write_checkpoints.VOCABULARY, hidden_size=512, intermediate_size=2048, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=1024, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=1))
    model.save_pretrained(folder)
    write_checkpoints.tokenizer(write_checkpoints.LLAMA3, True).save(str(folder / "tokenizer.json"))


def load(folder):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(THREADS)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def generate(model, tokens, count, **how):
    import torch

    with torch.inference_mode():
        return model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                              max_new_tokens=count, min_new_tokens=count, pad_token_id=0, **how)[0]


def compare(folder):
    import numpy as np
    import torch
    from safetensors.numpy import save_file

    model = load(folder)
    prompt = torch.arange(2, 2 + PROMPT)[None]
    out = generate(model, prompt, 40)
    with torch.inference_mode():
        logits = model(out[None, :-1]).logits[0]
    save_file({"tokens": out.numpy().astype(np.int32), "logits": logits.numpy().astype(np.float32),
               "prompt": np.array([PROMPT], np.int32)}, folder / "expected.safetensors")


def decode(folder):
    import torch

    prompt = torch.arange(2, 2 + PROMPT)[None]

    def loop(model):
        """Without `generate`: the model's forward and the best token, nothing else."""
        from transformers import StaticCache

        cache = StaticCache(config=model.config, max_cache_len=1024)
        with torch.inference_mode():
            logits = model(prompt, past_key_values=cache, use_cache=True,
                           cache_position=torch.arange(PROMPT)).logits
            begin = time.perf_counter()
            for position in range(PROMPT, PROMPT + TOKENS - 1):
                token = logits[:, -1].argmax(-1, keepdim=True)
                logits = model(token, past_key_values=cache, use_cache=True,
                               cache_position=torch.tensor([position])).logits
            return (TOKENS - 1) / (time.perf_counter() - begin)

    def dynamic_loop(model):
        with torch.inference_mode():
            out = model(prompt, use_cache=True)
            begin = time.perf_counter()
            for _ in range(TOKENS - 1):
                token = out.logits[:, -1].argmax(-1, keepdim=True)
                out = model(token, past_key_values=out.past_key_values, use_cache=True)
            return (TOKENS - 1) / (time.perf_counter() - begin)

    def timed(**how):
        def run(model):
            begin = time.perf_counter()
            generate(model, prompt, 1, **how)
            first = time.perf_counter()
            generate(model, prompt, TOKENS, **how)
            return (TOKENS - 1) / ((time.perf_counter() - first) - (first - begin))
        return run

    ways = {"generate": timed(), "forward, growing cache": dynamic_loop, "forward, static cache of 1024": loop}
    for name, run in ways.items():
        for attention in ("sdpa", "eager"):
            model = load(folder)
            model.set_attn_implementation(attention)
            try:
                run(model)
                rates = [run(model) for _ in range(RUNS)]
            except Exception as mistake:  # pylint: disable=broad-except
                print(json.dumps({"row": "llama_decode", "what": f"transformers {name}, {attention}",
                                  "missing": str(mistake)[:200]}), flush=True)
                continue
            print(json.dumps({"row": "llama_decode", "what": f"transformers {name}, {attention}, {THREADS} threads",
                              "value": round(statistics.median(rates), 1), "unit": "tokens/s",
                              "runs": [round(r, 1) for r in rates]}), flush=True)


if __name__ == "__main__":
    commands = {"write": write, "compare": compare, "decode": decode}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](pathlib.Path(sys.argv[2]))
