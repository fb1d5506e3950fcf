"""A GAN with two optimizers, in the shape of PyTorch's DCGAN example: the discriminator takes the generator's output, with and without a
gradient. As it is for one process; under torchrun it trains by a plan of all its ranks.
"""

import os
import sys

import torch
from torch import nn

import shardwright


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh())

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, image):
        return self.main(image).view(-1)


def weights_init(module):
    if type(module) is nn.Linear:
        nn.init.normal_(module.weight, 0.0, 0.2)


torch.manual_seed(999)
torch.set_default_dtype(torch.float64)
netG, netD = Generator(), Discriminator()
real = torch.randn(8, 16).tanh()
netG = shardwright.auto_parallelize(netG, (torch.randn(8, 8),), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
netD = shardwright.auto_parallelize(netD, (real,), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
torch.manual_seed(1)
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=0.01, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=0.01, betas=(0.5, 0.999))

curve = []
for _ in range(10):
    netD.zero_grad()
    label = torch.full((8,), 1.0)
    errD_real = criterion(netD(real), label)
    errD_real.backward()
    fake = netG(torch.randn(8, 8))
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()), label)
    errD_fake.backward()
    optimizerD.step()

    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake), label)
    errG.backward()
    optimizerG.step()
    curve += [errD_real.item() + errD_fake.item(), errG.item()]
netG.eval()
with torch.no_grad():
    curve.append(netG(torch.ones(3, 8)).square().mean().item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
