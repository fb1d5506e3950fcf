"""Writes joint forward+backward graphs of the models that tests plan, as text, with PyTorch 2.13 on fake tensors.

Usage: python export_joint.py OUTPUT_FOLDER [NAME ...]

Models (f32; the block's input wants a gradient, the others' do not):
  ffn-BS             x[BS, 1024] -> 4096 -> relu -> 1024, no bias
  uneven-BS          x[BS, 1024] -> 280 -> relu -> 1024, first layer with bias
  block-B            one transformer block, x[B, 256, 6144], 48 heads, MLP 24576, relu, residuals, no mask, no bias
  gpt-B              one GPT block in float16, x[B, 2048, 6144], 64 heads, MLP 24576, norms with bias, gelu, plain attention,
                     dropout as one kernel with a mask of one byte an element: what Korthikanti et al. (2022) count
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


class GptBlock(nn.Module):
    def __init__(self, width, heads, hidden, dtype):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, dtype=dtype)
        self.norm2 = nn.LayerNorm(width, dtype=dtype)
        self.wq = nn.Linear(width, width, dtype=dtype)
        self.wk = nn.Linear(width, width, dtype=dtype)
        self.wv = nn.Linear(width, width, dtype=dtype)
        self.wo = nn.Linear(width, width, dtype=dtype)
        self.w1 = nn.Linear(width, hidden, dtype=dtype)
        self.w2 = nn.Linear(hidden, width, dtype=dtype)

    def forward(self, x):
        batch, length, width = x.shape

        def split(y):
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        def dropout(y):
            return torch.native_dropout(y, 0.1, True)[0]

        y = self.norm1(x)
        q, k, v = split(self.wq(y)), split(self.wk(y)), split(self.wv(y))
        scores = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        o = (dropout(scores) @ v).transpose(1, 2).reshape(batch, length, width)
        h = x + dropout(self.wo(o))
        return h + dropout(self.w2(F.gelu(self.w1(self.norm2(h)))))


def build(name):
    kind, _, size = name.partition("-")
    if kind == "ffn":
        return Ffn(1024, 4096, False), [(int(size), 1024)]
    if kind == "uneven":
        return Ffn(1024, 280, True), [(int(size), 1024)]
    if kind == "block":
        return Block(6144, 48, 24576), [(int(size), 256, 6144)]
    if kind == "gpt":
        return GptBlock(6144, 64, 24576, torch.float16), [(int(size), 2048, 6144)]
    raise SystemExit(f"unknown model {name}")


def export(name):
    # On a CPU a norm of 16-bit values makes 16-bit statistics, which no GPU does; `meta` behaves as a GPU.
    device = "meta" if name.startswith("gpt") else "cpu"
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device(device):
        model, shapes = build(name)
        wants_gradient = isinstance(model, (Block, GptBlock))
        dtype = list(model.parameters())[-1].dtype
        inputs = tuple(torch.empty(shape, dtype=dtype, requires_grad=wants_gradient) for shape in shapes)
        with ExitStack() as stack:
            joint = aot_export_joint_with_descriptors(stack, model, inputs)
            return joint.graph_module.print_readable(
                print_output=False, include_stride=True, include_device=True, expanded_def=True
            )


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or ["ffn-65536", "ffn-524288", "uneven-65536", "block-256", "block-2048", "gpt-1"]:
        text = export(name)
        with gzip.GzipFile(folder / f"{name}.txt.gz", "wb", mtime=0) as out:
            out.write(text.encode())
        print(name, text.count("\n"), "lines")


if __name__ == "__main__":
    main()
