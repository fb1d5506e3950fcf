"""CLIP on rows of each rank: features gathered over ranks with their gradients, a learned temperature that is held in bounds."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from torch import nn
from torch.nn import functional as F

import shardwright


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 8))
        self.text = nn.Sequential(nn.Embedding(20, 16), nn.Flatten(), nn.Linear(64, 8))
        self.logit_scale = nn.Parameter(torch.tensor(2.659))

    def forward(self, image, text):
        return F.normalize(self.image(image), dim=-1), F.normalize(self.text(text), dim=-1), self.logit_scale.exp()


def gathered(features):
    return torch.cat(dist.nn.functional.all_gather(features)) if world > 1 else features


torch.set_default_dtype(torch.float64)
torch.manual_seed(74)
world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
if world > 1 and not dist.is_initialized():
    dist.init_process_group("gloo")
images, texts = torch.randn(12, 8, 12), torch.randint(0, 20, (12, 8, 4))
images, texts = images.chunk(world, 1)[rank].contiguous(), texts.chunk(world, 1)[rank].contiguous()
model = CLIP()
model = shardwright.auto_parallelize(
    model, (images[0], texts[0]), "dp=-1", cluster="dgx-h100", inputs="local", recipe=os.environ.get("RECIPE")
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
curve = []
for image, text in zip(images, texts, strict=True):
    image, text, scale = model(image, text)
    logits = scale * gathered(image) @ gathered(text).T
    pairs = torch.arange(8)
    loss = (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, 4.6052)
    curve += [loss.item(), model.logit_scale.item()]
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
