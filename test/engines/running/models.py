"""Models for the runs on real PyTorch: each with inputs, the loss, and the same weights in every process."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Sample:
    """A model with a batch; `targets` go to `loss`."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    loss: Any = None
    targets: tuple[Any, ...] = ()

    def reference(self, model: nn.Module) -> torch.Tensor:
        """The loss of one process."""
        return self.loss(model(*self.args, **self.kwargs), *self.targets)


class Mlp(nn.Module):
    def __init__(self, sizes: tuple[int, ...] = (16, 32, 8)) -> None:
        super().__init__()
        self.fc1 = nn.Linear(sizes[0], sizes[1])
        self.fc2 = nn.Linear(sizes[1], sizes[2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


class Dropped(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.dropout(torch.relu(self.fc1(x)), 0.5))


def mlp(dtype: torch.dtype) -> Sample:
    x, y = torch.randn(8, 16, dtype=dtype), torch.randn(8, 8, dtype=dtype)
    return Sample(Mlp().to(dtype), (x,), loss=F.mse_loss, targets=(y,))


def uneven(dtype: torch.dtype) -> Sample:
    x, y = torch.randn(10, 7, dtype=dtype), torch.randn(10, 5, dtype=dtype)
    return Sample(Mlp((7, 13, 5)).to(dtype), (x,), loss=F.mse_loss, targets=(y,))


def dropout(dtype: torch.dtype) -> Sample:
    x, y = torch.randn(8, 16, dtype=dtype), torch.randn(8, 8, dtype=dtype)
    return Sample(Dropped().to(dtype), (x,), loss=F.mse_loss, targets=(y,))


def next_token(output: Any, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy in the dtype of the logits; that of transformers is computed in float32."""
    logits = output.logits[:, :-1].flatten(0, 1)
    return F.cross_entropy(logits, labels[:, 1:].flatten())


def own_token(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.logits.flatten(0, 1), labels.flatten())


def own_class(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.logits, labels)


def _language(model: nn.Module, loss: Any, cached: bool = True, batch: int = 16, length: int = 32) -> Sample:
    """A batch of tokens; rows have different numbers of ignored labels, which a mean of means would count wrong."""
    ids = torch.randint(0, 512, (batch, length))
    labels = ids.clone()
    for row in range(batch):
        labels[row, : row % 5] = -100
    kwargs = {"input_ids": ids, "use_cache": False} if cached else {"input_ids": ids}
    return Sample(model, kwargs=kwargs, loss=loss, targets=(labels,))


def llama(dtype: torch.dtype, attention: str = "eager", tied: bool = False) -> Sample:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=512,
        max_position_embeddings=64,
        attn_implementation=attention,
        tie_word_embeddings=tied,
    )
    return _language(LlamaForCausalLM(config).to(dtype), next_token)


def gpt2(dtype: torch.dtype) -> Sample:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=512, n_positions=64, n_embd=64, n_layer=2, n_head=8, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    return _language(GPT2LMHeadModel(config).to(dtype), next_token)


def mixtral(dtype: torch.dtype) -> Sample:
    """All experts in batched products: the loop over experts that have tokens is not a single graph."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=512,
        max_position_embeddings=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        attn_implementation="eager",
        experts_implementation="batched_mm",
    )
    model = MixtralForCausalLM(config).to(dtype)
    for layer in model.model.layers:
        layer.mlp.gate.forward = MethodType(route, layer.mlp.gate)
    for module in model.modules():
        if type(module).__name__ == "MixtralRMSNorm":
            module.forward = MethodType(norm, module)
    return _language(model, next_token, batch=8, length=16)


class Experts(nn.Module):
    """Routed experts in grouped products, their rows sorted by expert; the router computes in float32 at least."""

    def __init__(self, experts: int, width: int, hidden: int, chosen: int) -> None:
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.gate = nn.Linear(width, experts, bias=False)
        self.up_proj = nn.Parameter(torch.randn(experts, width, 2 * hidden) * width**-0.5)
        self.down_proj = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        wide = torch.promote_types(x.dtype, torch.float32)
        weights, indices = F.linear(tokens.to(wide), self.gate.weight.to(wide)).softmax(-1).topk(self.chosen, dim=-1)
        expert, order = indices.flatten().sort(stable=True)
        ends = torch.histc(expert.float(), bins=self.experts, min=0, max=self.experts - 1).cumsum(0, dtype=torch.int32)
        source = order // self.chosen
        gate, up = grouped(tokens[source], self.up_proj, ends).chunk(2, -1)
        out = grouped(F.silu(gate) * up, self.down_proj, ends) * weights.flatten()[order].unsqueeze(-1).to(x.dtype)
        return torch.zeros_like(tokens).index_add(0, source, out).view_as(x)


def grouped(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Each group of rows times its matrix; PyTorch has no kernel in float64."""
    if rows.dtype != torch.float64:
        return F.grouped_mm(rows, weights, offs=ends)
    starts = [0, *ends.tolist()]
    return torch.cat([rows[a:b] @ w for a, b, w in zip(starts, starts[1:], weights, strict=False)])


class Moe(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.experts = Experts(4, 32, 64, 2)
        self.head = nn.Linear(32, 64, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        return self.head(x + self.experts(x))


def moe(dtype: torch.dtype) -> Sample:
    ids, labels = torch.randint(0, 64, (8, 16)), torch.randint(0, 64, (8, 16))
    return Sample(Moe().to(dtype), (ids,), loss=own_logits, targets=(labels,))


def own_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Recurrent(nn.Module):
    """As `recurrent` of `test/export/traced-models.ts`, trip by trip; every trip takes the branch that its own values decide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wx, self.wh, self.gate = (nn.Parameter(torch.randn(width, width) * width**-0.5) for _ in range(3))

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        h, ys, taken = torch.zeros_like(xs[0]), [], set()
        for x in xs:
            made = x @ self.wx + h @ self.wh
            taken.add(bool(made.mean() > 0))
            h = made.tanh() if made.mean() > 0 else (made @ self.gate).sigmoid()
            ys.append(h)
        assert taken == {True, False}
        return (h * h).mean() + (torch.stack(ys) ** 2).mean()


def recurrent(dtype: torch.dtype) -> Sample:
    return Sample(Recurrent(16).to(dtype), (torch.randn(6, 8, 16, dtype=dtype),), loss=lambda loss: loss)


class Looped(Recurrent):
    """As `looped` of `test/export/traced-models.ts`."""

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        h, ys = torch.zeros_like(xs[0]), []
        for x in xs:
            h = (x @ self.wx + h @ self.wh).tanh()
            ys.append(h)
        return (h * h).mean() + (torch.stack(ys) @ self.gate).sin().mean()


def looped(dtype: torch.dtype) -> Sample:
    return Sample(Looped(16).to(dtype), (torch.randn(6, 8, 16, dtype=dtype),), loss=lambda loss: loss)


class Controlled(Recurrent):
    """A condition, then a scan, as PyTorch captures them."""

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.scan import scan

        def step(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            h = (x @ self.wx + h @ self.wh).tanh()
            return h, h.clone()

        first = xs[0] @ self.gate
        start = torch.cond(first.mean() > 0, lambda x: x.tanh(), lambda x: (x @ self.gate).sigmoid(), (first,))
        h, ys = scan(step, start, xs)
        return (h * h).mean() + (ys * ys).mean()


def controlled(dtype: torch.dtype) -> Sample:
    return Sample(Controlled(16).to(dtype), (torch.randn(6, 8, 16, dtype=dtype),), loss=lambda loss: loss)


def norm(module: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """RMS norm in the dtype of the model; that of transformers takes its mean in float32, whose sums depend on their order."""
    return F.rms_norm(hidden, hidden.shape[-1:], module.weight, module.variance_epsilon)


def route(router: nn.Module, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As the router of Mixtral, in the dtype of the model: that of transformers takes its softmax in float32."""
    logits = F.linear(hidden.reshape(-1, router.hidden_dim), router.weight)
    weights, indices = torch.topk(logits.softmax(-1), router.top_k, dim=-1)
    return logits, weights / weights.sum(-1, keepdim=True), indices


def bert(dtype: torch.dtype) -> Sample:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=8,
        intermediate_size=128,
        max_position_embeddings=64,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    return _language(BertForMaskedLM(config).to(dtype), own_token, False)


def vit(dtype: torch.dtype) -> Sample:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=8,
        intermediate_size=128,
        image_size=32,
        patch_size=8,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
        num_labels=16,
    )
    images, labels = torch.randn(16, 3, 32, 32, dtype=dtype), torch.randint(0, 16, (16,))
    return Sample(ViTForImageClassification(config).to(dtype), kwargs={"pixel_values": images}, loss=own_class, targets=(labels,))


def resnet(dtype: torch.dtype) -> Sample:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=8
    )
    images, labels = torch.randn(8, 3, 32, 32, dtype=dtype), torch.randint(0, 8, (8,))
    return Sample(ResNetForImageClassification(config).to(dtype), kwargs={"pixel_values": images}, loss=own_class, targets=(labels,))


MODELS = {
    "mlp": mlp,
    "uneven": uneven,
    "dropout": dropout,
    "llama": llama,
    "llama-sdpa": lambda dtype: llama(dtype, "sdpa"),
    "llama-tied": lambda dtype: llama(dtype, "eager", True),
    "gpt2": gpt2,
    "mixtral": mixtral,
    "moe": moe,
    "looped": looped,
    "recurrent": recurrent,
    "controlled": controlled,
    "llama-bf16": lambda dtype: llama(dtype, "sdpa"),
    "bert": bert,
    "vit": vit,
    "resnet": resnet,
}


#: Models that do not compute in float64; PyTorch captures grouped products in bfloat16 only.
DTYPES = {"moe": torch.bfloat16, "llama-bf16": torch.bfloat16}


def sample(name: str) -> Sample:
    """The model of a name; equal calls give equal weights and inputs."""
    torch.manual_seed(7)
    return MODELS[name](DTYPES.get(name, torch.float64))
