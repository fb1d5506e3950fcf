"""Captures a training step of a small Llama with LoRA, for the program at the path that is given."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright

HEADS, WIDTH, RANK, VOCABULARY = 3, 24, 4, 32


class Lora(nn.Module):
    """A frozen projection, and the product of two small ones that are trained."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.base = nn.Linear(given, made, bias=False).requires_grad_(False)
        self.down = nn.Linear(given, RANK, bias=False)
        self.up = nn.Linear(RANK, made, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2 * self.up(self.down(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (Lora(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.wide, self.narrow = Lora(WIDTH, 40), Lora(WIDTH, 40), Lora(40, WIDTH)
        self.first, self.second = (nn.RMSNorm(WIDTH).requires_grad_(False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = self.first(x)
        q, k, v = (p(n).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.o(y)
        n = self.second(x)
        return x + self.narrow(F.silu(self.gate(n)) * self.wide(n))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH).requires_grad_(False)
        self.layers = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False).requires_grad_(False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(ids)))


torch.manual_seed(7)
model = Model().double()
ids = torch.randint(VOCABULARY, (4, 8))
targets = torch.randint(VOCABULARY, (4, 8))
shardwright.capture(
    model,
    (ids,),
    loss=lambda logits, wanted: F.cross_entropy(logits.flatten(0, 1), wanted.flatten()),
    targets=(targets,),
    path=sys.argv[1],
)
print("\n".join(name for name, _ in model.named_parameters()))
