# SPDX-License-Identifier: MIT
"""Trains a model of the package transformers in four stages: train.py [gpt2|qwen3_moe SCHEDULE]"""

import sys

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

import pipec
from pipec.engine import Run

STAGES, MICROBATCHES, ROWS, LENGTH, WORDS = 4, 8, 2, 16, 64
SIZES = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 8, "num_attention_heads": 4}


class GPT2Stage(torch.nn.Module):
    def __init__(self, model, layers, first, last):
        super().__init__()
        net = model.transformer
        self.layers = net.h[layers]
        self.wte, self.wpe = (net.wte, net.wpe) if first else (None, None)
        self.head = torch.nn.Sequential(net.ln_f, model.lm_head) if last else None

    def forward(self, x):
        if self.wte:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for layer in self.layers:  # causal without a mask
            x = layer(x)
        return self.head(x) if self.head else x


class Qwen3MoeStage(torch.nn.Module):
    def __init__(self, model, layers, first, last):
        super().__init__()
        net = model.model
        self.layers, self.rotary = net.layers[layers], net.rotary_emb
        self.embed = net.embed_tokens if first else None
        self.head = torch.nn.Sequential(net.norm, model.lm_head) if last else None

    def forward(self, x):
        x = self.embed(x) if self.embed else x
        angles = self.rotary(x, torch.arange(x.shape[1])[None])
        for layer in self.layers:
            x = layer(x, position_embeddings=angles)
        return self.head(x) if self.head else x


def build(name, **more):
    """A model with random weights."""
    torch.manual_seed(0)
    if name == "gpt2":
        plain = {"embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0}
        return GPT2LMHeadModel(GPT2Config(**SIZES, **plain, bos_token_id=0, eos_token_id=0))
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(**SIZES, **experts, num_key_value_heads=2, head_dim=8, **more)
    )


def cut(model):
    """Its stages, which have its own layers."""
    kind = GPT2Stage if isinstance(model, GPT2LMHeadModel) else Qwen3MoeStage
    each = SIZES["num_hidden_layers"] // STAGES
    parts = [slice(s * each, (s + 1) * each) for s in range(STAGES)]
    return [kind(model, part, part is parts[0], part is parts[-1]) for part in parts]


def compiled(schedule, tied):
    """A schedule of the library for four stages; tied: the first and the last share weights."""
    sizes = {"P": STAGES // 2 if schedule == "zb_v" else STAGES, "M": MICROBATCHES}
    if not tied:
        return pipec.compile(schedule, **sizes)
    name = {"1f1b": "onef1b"}.get(schedule, schedule)
    body = f"schedule tied(P = 4, M = 8) extends {name}(P, M) {{ tie 0, {STAGES - 1} }}"
    return pipec.compile(text=f'import "{schedule}.pipe"\n{body}', **sizes)


def loss_fn(logits, words):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())


def adamw(stage):
    return torch.optim.AdamW(stage.parameters(), lr=1e-3)


if __name__ == "__main__":
    name, schedule = sys.argv[1:] or ("gpt2", "dualpipe")
    engine, rank = "threads", 0
    if dist.is_torchelastic_launched():  # by torchrun
        dist.init_process_group("gloo")
        engine, rank = "dist", dist.get_rank()
    stages = cut(build(name))
    words = torch.randint(WORDS, (ROWS * MICROBATCHES, LENGTH + 1))
    x, target = words[:, :-1], words[:, 1:]
    order = compiled(schedule, tied=name == "gpt2")
    with Run(order, stages, loss_fn, x[:ROWS], adamw, engine=engine) as run:
        for step in range(5):
            loss = run.step(x, target)
            if rank == 0:
                print(f"step {step}: loss {loss:.4f}")
