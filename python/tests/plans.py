"""The plans that the tests run, written by the command once a session into a folder that git ignores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from models import Dropping, Views, encoder, mlp
from torch import nn
from torch.nn import functional as F

import shardwright

PLANS = Path(__file__).parent / ".plans"

WEIGHTS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")


def pinned(*placements: str) -> dict[str, Any]:
    """The flags that pin the four parameters of an `Mlp`."""
    return {"pin": [f"{name}={placement}" for name, placement in zip(WEIGHTS, placements, strict=True)]}


MEGATRON = ("S(0)[1]S(0)[0]", "S(0)[1]S(0)[0]", "S(0)S(1)", "S(0)R")
TENSOR_2X2 = ("S(0)S(0)", "S(0)S(0)", "S(1)S(1)", "RR")
FLAGS: dict[str, dict[str, Any]] = {
    "mlp-2-tensor": {"mesh": "dp=2", "inputs": "R", **pinned("S(0)", "S(0)", "S(1)", "R")},
    "mlp-2-fsdp": {"mesh": "dp=2", "inputs": "S(0)", **pinned(*["S(0)"] * 4)},
    "mlp-4-fsdp": {"mesh": "dp=4", "inputs": "S(0)", **pinned(*["S(0)"] * 4)},
    "mlp-2x2-tensor": {"mesh": "dp=2,tp=2", "inputs": "RR", **pinned(*TENSOR_2X2)},
    "mlp-2x2-fsdp-all": {"mesh": "dp=2,tp=2", "inputs": "S(0)S(0)", **pinned(*["S(0)S(0)"] * 4)},
    "mlp-2x2-megatron": {"mesh": "dp=2,tp=2", "inputs": "S(0)R", **pinned(*MEGATRON)},
    "mlp-2x2-columns": {"mesh": "dp=2,tp=2", "inputs": "S(0)R", **pinned("RS(0)", "RS(0)", "RS(1)", "RR")},
    "dropout-2x2": {"mesh": "dp=2,tp=2", "inputs": "RR", **pinned(*TENSOR_2X2)},
}

#: Placements of all parameters of three layers of attention, and of their inputs.
ENCODERS = {"encoder-all": ("S(0)S(0)", "S(0)S(0)"), "encoder-columns": ("RS(0)", "RR")}
#: The same with dropout.
DROPPED = {"encoder-dropped": ("S(0)S(0)", "S(0)S(0)")}


def captured(name: str, subject: nn.Module, x: torch.Tensor, *targets: torch.Tensor) -> shardwright.Captured:
    """Captures a model with the loss of its targets, or without any."""
    loss = F.mse_loss if targets else False
    return shardwright.capture(subject, (x,), loss=loss, targets=targets, path=PLANS / f"{name}.fx.txt")


def write_plan(name: str, model: shardwright.Captured, **flags: Any) -> None:
    """Plans a captured model, and puts its program into `PLANS / name`."""
    whole = PLANS / "whole" / name
    shardwright.plan(model, cluster="dgx-h100", out=whole, quiet=True, order="program", no_recipes=True, **flags)
    shutil.move(whole / "torch", PLANS / name)
    shutil.copy(whole / "capture.json", PLANS / name)


def write_plans() -> None:
    """Captures each model once, plans them and writes the program of each plan into `PLANS / NAME`."""
    shutil.rmtree(PLANS, ignore_errors=True)
    PLANS.mkdir()
    model, x, y = mlp()
    plain, dropping = captured("mlp", model, x, y), captured("dropping", Dropping().double(), x, y)
    for name, flags in FLAGS.items():
        write_plan(name, dropping if name.startswith("dropout") else plain, **flags)
    views = captured("views", Views().double(), x)
    write_plan("views", views, mesh="dp=2,tp=2", inputs="S(0)R", pin=["fc.weight=RS(0)", "fc.bias=RS(0)"])
    for dropout, placed in ((0.0, ENCODERS), (0.25, DROPPED)):
        subject, x, y = encoder(dropout)
        model_of = captured(f"encoder-{dropout}", subject, x, y)
        for name, (placement, inputs) in placed.items():
            pin = [f"{key}={placement}" for key, _ in subject.named_parameters()]
            write_plan(name, model_of, mesh="dp=2,tp=2", inputs=inputs, pin=pin)
