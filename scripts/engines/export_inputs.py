"""Joint graphs of models whose batch is not dim 0 of every input: DLRM and a graph network, as fixtures.

Writes test/fixtures/torch/<name>/joint.readable.txt.gz. Run with PyTorch 2.13: python scripts/engines/export_inputs.py
"""

import gzip
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

FIXTURES = Path(__file__).resolve().parents[2] / "test" / "fixtures" / "torch"


class Dlrm(nn.Module):
    """As published: 13 dense features, 26 tables whose indices come as [table, sample], pairwise interaction, one logit."""

    def __init__(self, tables=26, dense=13, rows=100, width=8):
        super().__init__()
        self.emb_l = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bot_l = nn.Sequential(nn.Linear(dense, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top_l = nn.Sequential(nn.Linear(width + pairs, 32), nn.ReLU(), nn.Linear(32, 1))
        lower = [(i, j) for i in range(tables + 1) for j in range(i)]
        self.register_buffer("rows", torch.tensor([i for i, _ in lower]))
        self.register_buffer("columns", torch.tensor([j for _, j in lower]))

    def forward(self, dense, sparse, target):
        x = self.bot_l(dense)
        features = torch.stack([x] + [table(sparse[k]) for k, table in enumerate(self.emb_l)], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        crossed = torch.cat([x, products[:, self.rows, self.columns]], dim=1)
        return F.binary_cross_entropy_with_logits(self.top_l(crossed), target)


class Gcn(nn.Module):
    """Two graph convolutions with the weights w1 and w2: nodes are mixed along the edges, the loss is a mean over nodes."""

    def __init__(self, features=16, hidden=32, classes=8):
        super().__init__()
        self.w1 = nn.Linear(features, hidden, bias=False)
        self.w2 = nn.Linear(hidden, classes, bias=False)

    def forward(self, x, edge_index, labels):
        def gather(h):
            return torch.zeros_like(h).index_add(0, edge_index[1], h.index_select(0, edge_index[0]))

        return F.cross_entropy(self.w2(gather(F.relu(self.w1(gather(x))))), labels)


def main():
    torch.manual_seed(0)
    batch, nodes, edges = 64, 48, 96
    cases = {
        "dlrm": (Dlrm(), (torch.randn(batch, 13), torch.randint(0, 100, (26, batch)), torch.rand(batch, 1))),
        "gcn": (Gcn(), (torch.randn(nodes, 16), torch.randint(0, nodes, (2, edges)), torch.randint(0, 8, (nodes,)))),
    }
    for name, (model, inputs) in cases.items():
        with ExitStack() as stack:
            joint = aot_export_joint_with_descriptors(stack, model, inputs)
            text = joint.graph_module.print_readable(
                print_output=False, include_stride=True, include_device=True, expanded_def=True
            )
        path = FIXTURES / name / "joint.expanded.txt.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


main()
