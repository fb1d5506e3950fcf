"""Captures the model and plans it, once, in one process: `python plan.py [MESH CLUSTER]` writes the folder `plan`."""

import sys
from pathlib import Path

import shardwright
from llama import batch, loss, make

HERE = Path(__file__).parent

if __name__ == "__main__":
    mesh, cluster = sys.argv[1:3] if len(sys.argv) > 2 else ("dp=2,tp=2", HERE / "cluster.json")
    tokens, labels = batch(0)
    captured = shardwright.capture(make(), (tokens,), loss=loss, targets=(labels,), path="plan/llama.fx.txt")
    shardwright.plan(captured, mesh=mesh, cluster=str(cluster), out="plan")
