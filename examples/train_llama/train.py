"""Trains by the plan, one process a device (`torchrun train.py`), or without a plan in one process (`python train.py --single`)."""

import argparse

import torch
import torch.distributed as dist

import shardwright
from llama import STEPS, batch, loss, make


def train(module, call, show) -> None:
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        value = call(*batch(step))
        value.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        show(step, shardwright.gather_outputs(value).item())


def by_plan(show, folder: str = "plan", device: str = "cpu") -> None:
    """One process of a group that exists: `torchrun`, `srun` and Ray Train make it."""
    plan = shardwright.load(folder)
    module = shardwright.parallelize(make(), plan, plan.init_device_mesh(device))
    train(module, module, show if dist.get_rank() == 0 else lambda *_: None)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--single", action="store_true")
    arguments.add_argument("--device", default="cpu", help="cpu or cuda")
    given = arguments.parse_args()
    if given.single:
        model = make()
        train(model, lambda tokens, labels: loss(model(tokens), labels), print)
    else:
        dist.init_process_group()
        by_plan(print, device=given.device)
        dist.destroy_process_group()
