"""Captures Llama-3 8B with two layers, and GPT-2, for a CUDA device: the graphs whose plans `bench/local-programs.py` times.

    python bench/local-models.py FOLDER

Needs PyTorch with the device that the graph is for, whose attention kernel it then has; `--device cpu --tiny` tries it elsewhere.
Nothing is computed. `FOLDER/llama.fx.txt` is what `shardwright plan` reads.
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))


class Attention(nn.Module):
    """Causal attention; queries and keys are turned by rotary embedding where `cos` is given."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, bias: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        self.q_proj = nn.Linear(hidden, hidden, bias=bias)
        self.k_proj = nn.Linear(hidden, kv_heads * self.width, bias=bias)
        self.v_proj = nn.Linear(hidden, kv_heads * self.width, bias=bias)
        self.o_proj = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, x: torch.Tensor, cos: "torch.Tensor | None", sin: "torch.Tensor | None") -> torch.Tensor:
        batch, rows, _ = x.shape
        q = self.q_proj(x).view(batch, rows, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(x).view(batch, rows, self.kv_heads, self.width).transpose(1, 2)
        v = self.v_proj(x).view(batch, rows, self.kv_heads, self.width).transpose(1, 2)
        if cos is not None:
            q, k = turned(q, cos, sin), turned(k, cos, sin)
        if self.kv_heads < self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, 1)
            v = v.repeat_interleave(self.heads // self.kv_heads, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, rows, -1))


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads, kv_heads, False)
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.attention_norm, self.mlp_norm = nn.RMSNorm(hidden, 1e-5), nn.RMSNorm(hidden, 1e-5)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        h = self.mlp_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, kv_heads: int, inner: int, vocabulary: int, rows: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(LlamaLayer(hidden, heads, kv_heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, 1e-5)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.register_buffer("cos", torch.ones(rows, hidden // heads))
        self.register_buffer("sin", torch.zeros(rows, hidden // heads))

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.lm_head(self.norm(x)).float().flatten(0, 1), labels.flatten())


class GptLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads, heads, True)
        self.fc_in, self.fc_out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.ln_1(x), None, None)
        return x + self.fc_out(F.gelu(self.fc_in(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int, rows: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, hidden), nn.Embedding(rows, hidden)
        self.layers = nn.ModuleList(GptLayer(hidden, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.lm_head(self.ln_f(x)).float().flatten(0, 1), labels.flatten())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the road")
    args = parser.parse_args()
    import shardwright

    args.folder.mkdir(parents=True, exist_ok=True)
    with torch.device("meta"):
        if args.tiny:
            models = {"llama": (Llama(2, 64, 8, 8, 128, 1024, 32), 8, 32), "gpt2": (Gpt(2, 64, 8, 1024, 32), 8, 32)}
        else:
            models = {
                "llama": (Llama(2, 4096, 32, 8, 14336, 128256, 4096), 32, 4096),
                "gpt2": (Gpt(12, 768, 12, 50304, 1024), 64, 1024),
            }
        for name, (model, batch, rows) in models.items():
            inputs = tuple(torch.zeros(batch, rows, dtype=torch.long) for _ in range(2))
            found = shardwright.capture(model.to(torch.bfloat16), inputs, path=args.folder / f"{name}.fx.txt", device=args.device)
            print(found.path, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
