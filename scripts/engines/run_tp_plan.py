"""Runs exported `distributed_config.json` files: transformers' own loader, four processes on gloo.

argv: folders that hold such a file, of a Llama of the sizes below. stdout: one JSON object a folder with `error`, the largest relative
difference of logits and gradients from one process in float64, and `parts`, the devices that each parameter is cut over.
"""

import json
import logging
import os
import pathlib
import socket
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.distributed import DistributedConfig

WORLD = 4
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def compared(saved, ids, config):
    ready = {"dtype": torch.float64, "attn_implementation": "eager"}
    model = LlamaForCausalLM.from_pretrained(saved, distributed_config=DistributedConfig.from_dict(config), **ready)
    reference = LlamaForCausalLM.from_pretrained(saved, **ready)
    # Ranks of one replica read one batch.
    replicas = config["dp_replicate_size"] * config["fsdp_size"]
    own = ids.chunk(replicas)[dist.get_rank() // config["tp_size"]]
    logits, expected = model(own, use_cache=False).logits, reference(ids, use_cache=False).logits
    part = expected.chunk(replicas)[dist.get_rank() // config["tp_size"]]
    errors = [(whole(logits) - part).abs().max() / part.abs().max()]
    whole(logits).square().mean().backward()
    expected.square().mean().backward()
    parts = {}
    for (name, own), other in zip(model.named_parameters(), reference.parameters(), strict=True):
        parts[name] = own.numel() // (own.to_local() if hasattr(own, "to_local") else own).numel()
        gradient = whole(own.grad)
        errors.append((gradient - other.grad).abs().max() / other.grad.abs().max())
    worst = torch.stack(errors).max()
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return {"error": worst.item(), "parts": parts}


def work(rank, port, saved, folders):
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(WORLD),
        LOCAL_WORLD_SIZE=str(WORLD),
        MASTER_ADDR="localhost",
        MASTER_PORT=port,
    )
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    dist.init_process_group("gloo")
    ids = torch.randint(0, SIZES["vocab_size"], (4, 16), generator=torch.Generator().manual_seed(1))
    answers = [
        compared(saved, ids, json.loads((pathlib.Path(folder) / "distributed_config.json").read_text())) for folder in folders
    ]
    if rank == 0:
        (pathlib.Path(saved) / "answers.json").write_text(json.dumps({"version": transformers.__version__, "made": answers}))
    dist.barrier()
    dist.destroy_process_group()
    # Not by the interpreter: it aborts where a thread of gloo still holds a tensor when it ends.
    os._exit(0)


def main():
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    with socket.socket() as server:
        server.bind(("localhost", 0))
        port = str(server.getsockname()[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as saved:
        LlamaForCausalLM(LlamaConfig(**SIZES)).double().save_pretrained(saved)
        # Forked, so that PyTorch and transformers are imported once; no thread has been started yet.
        mp.start_processes(work, (port, saved, sys.argv[1:]), nprocs=WORLD, start_method="fork")
        print((pathlib.Path(saved) / "answers.json").read_text())


if __name__ == "__main__":
    main()
