#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Writes the small checkpoints under tests/data/llama with `transformers`, and what it computes with them.

    build FOLDER && FOLDER/llama/bin/python write_checkpoints.py TARGET

TARGET/llama: two layers in bf16, in several files with an index, queries in groups, rotary embedding scaled as in
Llama 3.1, Llama 3's way of splitting text. TARGET/gpt2: two layers in f32, one file, GPT-2's way. In each
  expected.safetensors   tokens [n]: a prompt and its greedy continuation; logits [n - 1, vocabulary]: behind each
                         of these but the last; prompt [1]: how many of the tokens are the prompt
  expected.json          texts and their tokens; the prompt; the continuation as text
Weights are random and large enough that the best token leads the second by far more than rounding.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 320
CONTEXT = 64
SEED = 2
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
PROMPT = "The trees along the wall"
TEXTS = [
    PROMPT,
    "",
    "  two spaces,\ttabs\r\n\r\nand lines \n  end ",
    "I'll say it's 12345 o'clock; they'VE gone.",
    "Grüße aus 東京, ৪২ и Москва! ⅷ ² x²",
    "emoji 🌳🌲 and e\u0301 (decomposed)\u00a0\u2003.",
    "<|begin|>special<|end|> <|end",
    "a" * 40 + "    " + "!?" * 9,
]
CORPUS = [
    "The trees along the wall are trained flat. The tree is trained along the wall, and the wall warms the tree.",
    "They say that they will, and it's what they've said: the lines and the spaces between the lines.",
    "Grüße aus Москва, 東京. 12345 12 123.",
] * 4


def tokenizer(split, begin):
    made = Tokenizer(models.BPE(ignore_merges=split is not None))
    if split is None:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    special = ["<|begin|>", "<|end|>"]
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if made.get_vocab_size() != VOCABULARY:
        sys.exit(f"the corpus gives {made.get_vocab_size()} tokens, not {VOCABULARY}: make it longer")
    if begin:
        made.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1",
                                          special_tokens=[("<|begin|>", made.token_to_id("<|begin|>"))])])
    return made


def randomise(model):
    """Matrices of variance 1/inputs times a gain: activations keep their size, and logits spread widely."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                parameter.copy_(0.2 * noise + (1 if "weight" in name else 0))
            else:
                scale = 0.25 if "wte" in name or "embed" in name or "wpe" in name else parameter.shape[-1] ** -0.5
                parameter.copy_(1.2 * scale * noise)


def save(model, words, folder, **how):
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, **how)
    words.save(str(folder / "tokenizer.json"), pretty=False)
    reread = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    prompt = words.encode(PROMPT).ids
    tokens = torch.tensor([prompt])
    out = reread.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_length=CONTEXT - 8,
                          eos_token_id=None, pad_token_id=0)[0]
    with torch.no_grad():
        logits = reread(out[None, :-1]).logits[0]
    best = logits[len(prompt) - 1:].topk(2).values
    print(folder.name, "smallest lead of a greedy token", float((best[:, 0] - best[:, 1]).min()))
    save_file({"tokens": out.numpy().astype(np.int32), "logits": logits.numpy().astype(np.float32),
               "prompt": np.array([len(prompt)], np.int32)}, folder / "expected.safetensors")
    with open(folder / "expected.json", "w", encoding="utf-8") as file:
        json.dump({"texts": [[text, words.encode(text).ids] for text in TEXTS], "prompt": PROMPT,
                   "continuation": words.decode(out[len(prompt):].tolist())}, file, indent=1)
        file.write("\n")
    (folder / "generation_config.json").unlink(missing_ok=True)


def main(target):
    torch.manual_seed(1)
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=1,
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 32}))
    randomise(llama)
    save(llama.to(torch.bfloat16), tokenizer(LLAMA3, True), target / "llama", max_shard_size="24KB")
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4,
                                      bos_token_id=1, eos_token_id=1))
    randomise(gpt2)
    save(gpt2, tokenizer(None, False), target / "gpt2")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
