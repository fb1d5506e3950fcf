"""Writes test/fixtures/trace/layers.json.gz: what real PyTorch gives for the tensor methods and layers of src/trace.

Inputs are drawn by formula, the same as in test/trace/nn/numbers.test.ts, in float64. Layers that PyTorch lacks (rotary
positions by complex numbers, a mixture of experts token by token) are written out here from their definitions.

Run: python3 scripts/engines/run_layers.py
"""

import gzip
import json
import math
import os

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def wave(k, *shape):
    n = math.prod(shape)
    return torch.tensor([math.sin(0.7 * i + 1.3 * k + 0.3) for i in range(n)]).reshape(shape)


def ints(k, bound, *shape):
    n = math.prod(shape)
    return torch.tensor([(7 * i + 3 * k) % bound for i in range(n)]).reshape(shape)


x, y, q = wave(0, 3, 4), wave(1, 3, 4), wave(2, 3, 4).abs() + 0.1
m, b3, c3 = wave(3, 4, 5), wave(4, 2, 3, 4), wave(5, 2, 4, 5)
i, j = ints(6, 4, 3, 4), ints(7, 3, 3)
img, ker, kb = wave(8, 2, 3, 6, 6), wave(9, 4, 3, 3, 3), wave(10, 4)
seq, k1 = wave(11, 2, 3, 8), wave(12, 4, 3, 3)
w4, v4 = wave(13, 4), wave(14, 4)

methods = {
    "add": x + y, "add number": x + 2.5, "sub": x - y, "rsub": 2 - x, "mul": x * y, "div": x / q, "floordiv": torch.div(x, q, rounding_mode="floor"),
    "remainder": torch.remainder(x, 0.3), "pow": q ** 2.5, "pow tensor": q ** y, "maximum": torch.maximum(x, y), "maximum number": x.clamp(min=0.1),
    "minimum": torch.minimum(x, y), "minimum number": x.clamp(max=0.1), "clamp": x.clamp(-0.2, 0.3), "atan2": torch.atan2(x, y), "lerp": torch.lerp(x, y, 0.3),
    "neg": -x, "abs": x.abs(), "sign": x.sign(), "exp": x.exp(), "expm1": x.expm1(), "log": q.log(), "log2": q.log2(), "log1p": q.log1p(),
    "sqrt": q.sqrt(), "rsqrt": q.rsqrt(), "square": x.square(), "reciprocal": q.reciprocal(), "sin": x.sin(), "cos": x.cos(), "tan": x.tan(),
    "tanh": x.tanh(), "erf": x.erf(), "floor": x.floor(), "ceil": x.ceil(), "round": (3 * x).round(), "trunc": (3 * x).trunc(),
    "relu": x.relu(), "leakyRelu": F.leaky_relu(x, 0.2), "elu": F.elu(x, 0.7), "gelu": F.gelu(x), "gelu tanh": F.gelu(x, approximate="tanh"),
    "silu": F.silu(x), "sigmoid": x.sigmoid(), "softplus": F.softplus(x), "hardtanh": F.hardtanh(x, -0.5, 0.5),
    "eq": x == y, "ne": x != 0, "lt": x < y, "le": x <= 0.1, "gt": x > y, "ge": x >= 0.1,
    "logicalAnd": (x > 0) & (y > 0), "logicalOr": (x > 0) | (y > 0), "logicalXor": (x > 0) ^ (y > 0), "logicalNot": ~(x > 0),
    "bitwiseAnd": i & 2, "bitwiseOr": i | 1, "isnan": x.isnan(), "isfinite": x.isfinite(),
    "where": torch.where(x > 0, x, y), "where number": torch.where(x > 0, x, 0.5), "where numbers": torch.where(x > 0, 1.0, 0.5), "maskedFill": x.masked_fill(x > 0, -7.0),
    "to": (3 * x).to(torch.int64), "detach": x,
    "sum": x.sum(), "sum dims": x.sum([0], keepdim=True), "mean": x.mean(), "mean dims": x.mean([-1]), "prod": x.prod(1), "amax": x.amax([0, 1]), "amin": x.amin(1, keepdim=True),
    "max values": x.max(1).values, "max indices": x.max(1).indices, "min values": x.min(0).values, "argmax": x.argmax(1), "argmin": x.argmin(0),
    "any": (x > 0.9).any(), "all dim": (x > -0.9).all(1), "var": x.var([1]), "var of all": x.var(correction=0), "std": x.std([0], correction=1, keepdim=True),
    "logsumexp": x.logsumexp([1]), "norm": torch.linalg.vector_norm(x, 3, [1]), "softmax": x.softmax(-1), "logSoftmax": x.log_softmax(0),
    "cumsum": x.cumsum(1), "cumprod": x.cumprod(0), "sort": x.sort(1, descending=True).values, "sort indices": x.sort(0).indices, "argsort": x.argsort(1),
    "topk": x.topk(2, 1).values, "topk smallest": x.topk(2, 1, largest=False).indices,
    "view": x.view(2, 6), "reshape": x.t().reshape(-1), "flatten": b3.flatten(1), "unflatten": x.unflatten(1, [2, 2]), "permute": b3.permute(2, 0, 1), "transpose": b3.transpose(-1, 0), "t": x.t(),
    "expand": w4.expand(3, -1), "unsqueeze": x.unsqueeze(1), "squeeze": x.unsqueeze(0).squeeze(0), "contiguous": x.t(), "repeat": x.repeat(2, 1), "repeatInterleave": x.repeat_interleave(2, 0),
    "flip": x.flip([1]), "roll": x.roll(1, 0), "pad": F.pad(x, [1, 2], value=0.5), "tril": x.tril(), "triu": x.triu(1),
    "select": x.select(0, -1), "slice": x[:, 1:3], "slice open": x[1:], "slice step": x[:, ::2], "narrow": x.narrow(1, 1, 2),
    "split": x.split(3, 1)[1], "split sizes": x.split([1, 3], 1)[1], "chunk": x.chunk(2, 1)[0], "unbind": x.unbind(1)[2],
    "gather": x.gather(1, i), "scatter": x.scatter(1, i, y), "scatter number": x.scatter(1, i, 2.0), "scatterAdd": x.scatter_add(1, i, y), "indexSelect": x.index_select(0, j),
    "index": b3[:, j], "indexPut": x.index_put((j,), y, accumulate=True), "oneHot": F.one_hot(i, 4),
    "matmul": x @ m, "matmul batched": b3 @ m, "bmm": torch.bmm(b3, c3), "linear": F.linear(x, y, w4[:3]),
    "layerNorm": F.layer_norm(x, [4], w4, v4), "rmsNorm": F.rms_norm(x, [4], w4, 1e-6), "groupNorm": F.group_norm(img, 3),
    "conv2d": F.conv2d(img, ker, kb, stride=2, padding=1), "conv1d": F.conv1d(seq, k1, None), "maxPool2d": F.max_pool2d(img, 2), "avgPool2d": F.avg_pool2d(img, 3, 1, 1), "adaptiveAvgPool2d": F.adaptive_avg_pool2d(img, (2, 3)),
    "cat": torch.cat([x, y], 1), "stack": torch.stack([x, y], 1), "embedding": F.embedding(i, m), "crossEntropy": F.cross_entropy(x, j), "crossEntropy sum": F.cross_entropy(x, j, reduction="sum"),
    "crossEntropy smoothed": F.cross_entropy(x, j, label_smoothing=0.1), "mseLoss": F.mse_loss(x, y), "arange": torch.arange(2, 7), "segmentSum": torch.zeros(3, 4).index_add(0, j, x),
    "attention": F.scaled_dot_product_attention(b3, b3, b3, is_causal=True),
    "attention masked": F.scaled_dot_product_attention(b3, b3, b3, attn_mask=b3[0] @ b3[1].T, scale=0.3),
}

A, B, C = wave(20, 2, 3, 4), wave(21, 4, 5), wave(22, 2, 4, 5)
for equation, operands in {
    "ij,jk->ik": (x, m), "bij,jk->bik": (A, B), "bij,bjk->bki": (A, C), "bij->ji": (A,), "i,j->ij": (w4, v4), "ij,ij->": (x, y),
    "bij,jk,bjk->bi": (A, B, C), "bij,bjk->j": (A, C), "ij,kj->ki": (x, y), "ab,cd->acbd": (x, m), "ij,jk": (x, m),
}.items():
    methods[f"einsum {equation}"] = torch.einsum(equation, *operands)

layers = {}


def parameters(first, shapes):
    return {name: wave(first + k, *shape) / math.sqrt(shape[-1]) for k, (name, shape) in enumerate(shapes.items())}


# Recurrent cells.
xs, hs, cs = wave(30, 2, 3), wave(31, 2, 5), wave(32, 2, 5)
for name, gates, cell in (("lstm", 4, torch.nn.LSTMCell(3, 5)), ("gru", 3, torch.nn.GRUCell(3, 5))):
    p = parameters(33, {"weight_ih": (5 * gates, 3), "bias_ih": (5 * gates,), "weight_hh": (5 * gates, 5), "bias_hh": (5 * gates,)})
    cell.load_state_dict(p)
    with torch.no_grad():
        out = cell(xs, (hs, cs)) if name == "lstm" else (cell(xs, hs),)
    layers[name] = list(out)

# Attention with grouped queries and rotary positions: the rotation as a product of complex numbers.
width, heads, key_heads, length = 16, 4, 2, 6
z = wave(40, 2, length, width)
p = parameters(41, {"q": (16, 16), "k": (8, 16), "v": (8, 16), "o": (16, 16)})
frequencies = 1 / 10000 ** (torch.arange(0, 4, 2) / 4)


def turned(t):
    angles = torch.outer(torch.arange(length).double(), frequencies)
    pairs = torch.complex(t[..., :2], t[..., 2:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pairs.real, pairs.imag], -1)


def heads_of(weight, n):
    return (z @ weight.T).view(2, length, n, 4).transpose(1, 2)


qh, kh, vh = turned(heads_of(p["q"], heads)), turned(heads_of(p["k"], key_heads)), heads_of(p["v"], key_heads)
out = torch.zeros(2, heads, length, 4)
for h in range(heads):
    g = h // (heads // key_heads)
    for t in range(length):
        scores = (kh[:, g, : t + 1] @ qh[:, h, t].unsqueeze(-1)).squeeze(-1) / 2
        out[:, h, t] = (scores.softmax(-1).unsqueeze(1) @ vh[:, g, : t + 1]).squeeze(1)
layers["attention"] = [out.transpose(1, 2).reshape(2, length, width) @ p["o"].T]
layers["frequencies"] = [frequencies]

# A mixture of experts, token by token: first choices of all tokens take their places before second ones do.
tokens, experts, active, hidden = 6, 3, 2, 5
t = wave(50, 2, tokens, 4)
gate, up1, up2, down = wave(51, experts, 4) * 2, wave(52, experts, 4, hidden), wave(53, experts, 4, hidden), wave(54, experts, hidden, 4)
for name, factor in (("moe roomy", 2.0), ("moe tight", 0.5)):
    places = math.ceil(factor * active * tokens / experts)
    result = torch.zeros_like(t)
    for g in range(2):
        odds = (t[g] @ gate.T).softmax(-1)
        top = odds.topk(active, -1)
        used = [0] * experts
        for choice in range(active):
            for s in range(tokens):
                e = int(top.indices[s, choice])
                used[e] += 1
                if used[e] > places:
                    continue
                share = top.values[s, choice] / top.values[s].sum()
                result[g, s] += share * ((F.silu(t[g, s] @ up1[e]) * (t[g, s] @ up2[e])) @ down[e])
    layers[name] = [result]


def plain(value):
    return {"shape": list(value.shape), "values": [float(v) for v in value.detach().double().reshape(-1)]}


record = {
    "torch": torch.__version__,
    "methods": {name: plain(value) for name, value in methods.items()},
    "layers": {name: [plain(v) for v in values] for name, values in layers.items()},
}
path = os.path.join(os.path.dirname(__file__), "../../test/fixtures/trace/layers.json.gz")
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path, "wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as out:
    out.write(json.dumps(record).encode())
print(len(methods), "methods,", len(layers), "layers")
