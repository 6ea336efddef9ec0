# SPDX-License-Identifier: MIT
"""Trains the models of examples/torch/transformers in float64 beside the whole model: microbatch by microbatch where each
step has one update, and as the paper of 2BW defines it. models.py prints the worst relative difference of a loss or a weight."""
import copy
import sys

import torch

sys.path.insert(0, sys.argv[1])
import train

GROUP = 4  # microbatches of an update of 2BW
STEPS = 2


def step(model, optimizer, parts, read, versions):
    """An update by the mean gradient of some microbatches at version `read` of the weights; their losses."""
    model.load_state_dict(versions[read])
    optimizer.zero_grad()
    losses = []
    for x, target in parts:
        loss = train.loss_fn(model(x).logits, target)
        loss.backward()
        losses.append(float(loss.detach()))
    for p in model.parameters():
        p.grad /= len(parts)
    model.load_state_dict(versions[-1])
    optimizer.step()
    versions.append(copy.deepcopy(model.state_dict()))
    return losses


def off(mine, other):
    return float((mine - other).abs().max() / other.abs().max())


def worst(name, schedule):
    whole = train.build(name, **({} if name == "gpt2" else {"experts_implementation": "eager"}))
    stages, optimizer = train.cut(copy.deepcopy(whole)), train.adamw(whole)
    draw = torch.Generator().manual_seed(3)
    differ = []
    with train.Run(train.compiled(schedule, name == "gpt2"), stages, train.loss_fn,
                   torch.zeros(train.ROWS, train.LENGTH, dtype=torch.int64), train.adamw) as run:
        for _ in range(STEPS):
            words = torch.randint(train.WORDS, (train.ROWS * train.MICROBATCHES, train.LENGTH + 1), generator=draw)
            x, target = words[:, :-1], words[:, 1:]
            parts = list(zip(x.chunk(train.MICROBATCHES), target.chunk(train.MICROBATCHES)))
            versions, losses = [copy.deepcopy(whole.state_dict())], []
            each = GROUP if schedule == "pipedream_2bw" else len(parts)
            for group in range(len(parts) // each):
                losses += step(whole, optimizer, parts[group * each :][:each], max(group - 1, 0), versions)
            mean = sum(losses) / len(losses)
            differ.append(abs(run.step(x, target) - mean) / mean)
        for number, stage in enumerate(train.cut(whole)):
            mine = run.state_dict(number)
            assert mine.keys() == stage.state_dict().keys()
            differ += [off(mine[key], t) for key, t in stage.state_dict().items()]
    return max(differ)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    train.MICROBATCHES = 12
    for name in "gpt2", "qwen3_moe":
        for schedule in "1f1b", "zb_v", "dualpipe", "pipedream_2bw":
            by = worst(name, schedule)
            print(name, schedule, "same bits" if by == 0 else "equal" if by < 1e-6 else "wrong", f"{by:.1e}")
