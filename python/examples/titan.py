"""A language model in the shape of torchtitan's trainer: meta weights, a parallelize function, init_weights, a loss of all tokens."""

import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.parallel_dims import ParallelDims
from torchtitan.protocols.model import BaseModel
from torchtitan.protocols.model_spec import ModelSpec

import shardwright.integrations.torchtitan


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.RMSNorm(dim), nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.norm2, self.up, self.down = nn.RMSNorm(dim), nn.Linear(dim, 2 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(BaseModel):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseModel.Config):
        dim: int = 16
        vocab_size: int = 24

        def update_from_config(self, *, config, **kwargs):
            pass

        def get_nparams_and_flops(self, model, seq_len):
            return sum(p.numel() for p in model.parameters()), 0

    def __init__(self, config):
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.place = nn.Embedding(12, config.dim)
        self.layers = nn.ModuleDict({str(k): Block(config.dim) for k in range(2)})
        self.norm, self.lm_head = nn.RMSNorm(config.dim), nn.Linear(config.dim, config.vocab_size, bias=False)

    def init_states(self, *, buffer_device=None):
        torch.manual_seed(61)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.trunc_normal_(parameter, std=0.1)
            else:
                nn.init.ones_(parameter)

    def forward(self, tokens, positions=None):
        x = self.tok_embeddings(tokens) + self.place(positions)
        for layer in self.layers.values():
            x = layer(x)
        return self.lm_head(self.norm(x))


torch.set_default_dtype(torch.float64)
world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
if world > 1 and not dist.is_initialized():
    dist.init_process_group("gloo")
spec = ModelSpec(
    name="decoder", flavor="tiny", model=Decoder.Config(), parallelize_fn=lambda model, **_: model, pipelining_fn=None,
    post_optimizer_build_fn=None, state_dict_adapter=None,
)  # fmt: skip
spec = shardwright.integrations.torchtitan.planned(spec, cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
training = TrainingConfig(local_batch_size=8 // world, seq_len=12, mixed_precision_param="float32")
parallelism = ParallelismConfig(data_parallel_shard_degree=-1)
with torch.device("meta"):
    model = spec.model.build()
model = spec.parallelize_fn(
    model, parallel_dims=ParallelDims.from_config(parallelism, world), training=training, parallelism=parallelism,
    compile_config=CompileConfig(), ac_config=None, dump_folder="out",
)  # fmt: skip
model.to_empty(device="cpu")
with torch.no_grad():
    model.init_weights(buffer_device=None)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
draws = torch.Generator().manual_seed(62)
positions = torch.arange(12).expand(training.local_batch_size, 12).contiguous()
curve = []
for _ in range(12):
    data = torch.randint(0, 24, (8, 13), generator=draws).chunk(world)[rank]
    loss = F.cross_entropy(model(data[:, :-1].contiguous(), positions=positions).flatten(0, 1), data[:, 1:].flatten(), reduction="sum")
    loss = loss / (8 * 12)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    told = loss.detach().clone()
    if world > 1:
        dist.all_reduce(told)
    curve += [told.item(), norm.item()]
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
