"""Small models of the tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


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


class Views(nn.Module):
    """Returns one tensor several times, views of it, of another, of a parameter and of the input, and its values without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.fc(x)
        z = (y * 2).relu()
        return y, y.view(-1), y.t(), y, y[:, 4:], z[:4], z[4:], z.view(-1), self.fc.weight, self.fc.bias.view(2, 4), x.view(-1), y.detach()


def mlp() -> tuple[Mlp, torch.Tensor, torch.Tensor]:
    """The model that `plans.py` plans, with a batch; equal in every process."""
    torch.manual_seed(7)
    return Mlp().double(), torch.randn(8, 16, dtype=torch.float64), torch.randn(8, 8, dtype=torch.float64)


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), y)


def encoder(dropout: float = 0.0) -> tuple[nn.TransformerEncoder, torch.Tensor, torch.Tensor]:
    """Three layers of attention with a batch; equal in every process."""
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=dropout, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).double()
    return model, torch.randn(4, 8, 16, dtype=torch.float64), torch.randn(4, 8, 16, dtype=torch.float64)


def refused(call: Any) -> str:
    """The message of a refusal."""
    try:
        call()
    except shardwright.ShardwrightError as error:
        return str(error)
    return "nothing was refused"
