"""A vision transformer that learns from a frozen convolutional teacher: soft and hard labels, label smoothing, a cosine schedule."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class ViT(nn.Module):
    def __init__(self, width=24, heads=4, layers=2, classes=5):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 48, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
teacher = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
teacher.eval().requires_grad_(False)
student = ViT()
draws = torch.Generator().manual_seed(8)
images, labels = torch.randn(24, 3, 16, 16, generator=draws), torch.randint(0, 5, (24,), generator=draws)
student = shardwright.auto_parallelize(student, (images[:8],), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
teacher = shardwright.auto_parallelize(teacher, (images[:8],), "dp=-1", cluster="dgx-h100", folder="teacher")
optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3, betas=(0.9, 0.95))
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
curve = []
for _ in range(4):
    student.train()
    for k in range(0, 24, 8):
        x, y = images[k : k + 8], labels[k : k + 8]
        out = student(x)
        with torch.no_grad():
            soft = teacher(x)
        hard = F.cross_entropy(out, y, label_smoothing=0.1)
        kl = F.kl_div(F.log_softmax(out / 2, -1), F.log_softmax(soft / 2, -1), log_target=True, reduction="batchmean") * 4
        loss = 0.5 * hard + 0.5 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        curve.append(loss.item())
    student.eval()
    with torch.inference_mode():
        right = sum((student(images[k : k + 10]).argmax(-1) == labels[k : k + 10]).sum().item() for k in range(0, 24, 10))
    curve.append(right / 24)
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
