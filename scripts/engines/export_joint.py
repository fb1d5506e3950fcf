"""Writes joint forward+backward graphs of the models that tests plan, as text, with PyTorch 2.13 on fake tensors.

Usage: python export_joint.py OUTPUT_FOLDER [NAME ...]

Models (f32; the block's input wants a gradient, the others' do not):
  ffn-BS             x[BS, 1024] -> 4096 -> relu -> 1024, no bias
  uneven-BS          x[BS, 1024] -> 280 -> relu -> 1024, first layer with bias
  block-B            one transformer block, x[B, 256, 6144], 48 heads, MLP 24576, relu, residuals, no mask, no bias
"""

import gzip
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensorMode
from contextlib import ExitStack


class Ffn(nn.Module):
    def __init__(self, width, hidden, bias):
        super().__init__()
        self.linear1 = nn.Linear(width, hidden, bias=bias)
        self.linear2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.linear2(F.relu(self.linear1(x)))


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, width, bias=False)
        self.wv = nn.Linear(width, width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        self.w1 = nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape

        def split(y):
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.wq(x)), split(self.wk(x)), split(self.wv(x))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=False)
        o = o.transpose(1, 2).contiguous().view(batch, length, width)
        h = x + self.wo(o)
        return h + self.w2(F.relu(self.w1(h)))


def build(name):
    kind, _, size = name.partition("-")
    if kind == "ffn":
        return Ffn(1024, 4096, False), [(int(size), 1024)]
    if kind == "uneven":
        return Ffn(1024, 280, True), [(int(size), 1024)]
    if kind == "block":
        return Block(6144, 48, 24576), [(int(size), 256, 6144)]
    raise SystemExit(f"unknown model {name}")


def export(name):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, shapes = build(name)
        wants_gradient = isinstance(model, Block)
        inputs = tuple(torch.empty(shape, requires_grad=wants_gradient) for shape in shapes)
        with ExitStack() as stack:
            joint = aot_export_joint_with_descriptors(stack, model, inputs)
            return joint.graph_module.print_readable(
                print_output=False, include_stride=True, include_device=True, expanded_def=True
            )


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or ["ffn-65536", "ffn-524288", "uneven-65536", "block-256", "block-2048"]:
        text = export(name)
        with gzip.GzipFile(folder / f"{name}.txt.gz", "wb", mtime=0) as out:
            out.write(text.encode())
        print(name, text.count("\n"), "lines")


if __name__ == "__main__":
    main()
