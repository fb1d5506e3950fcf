"""Small models of the tests."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(16, 32)
        self.fc2 = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


class Dropping(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.dropout(torch.relu(self.fc1(x)), 0.5))


def mlp() -> tuple[Mlp, torch.Tensor, torch.Tensor]:
    """The model that `plans.py` plans, with a batch; equal in every process."""
    torch.manual_seed(7)
    return Mlp().double(), torch.randn(8, 16, dtype=torch.float64), torch.randn(8, 8, dtype=torch.float64)


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), y)
