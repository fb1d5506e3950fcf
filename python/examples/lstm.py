"""A language model of LSTMs in the shape of PyTorch's word_language_model: states that go on from batch to batch, SGD by hand."""

import math
import os
import sys

import torch
from torch import nn

import shardwright


class RNNModel(nn.Module):
    def __init__(self, tokens=30, width=24, layers=2):
        super().__init__()
        self.tokens, self.width, self.layers = tokens, width, layers
        self.drop = nn.Dropout(0.2)
        self.encoder, self.rnn, self.decoder = nn.Embedding(tokens, width), nn.LSTM(width, width, layers), nn.Linear(width, tokens)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.tokens)
        return torch.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, size):
        weight = next(self.parameters())
        return weight.new_zeros(self.layers, size, self.width), weight.new_zeros(self.layers, size, self.width)


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
data = torch.randint(0, 30, (41, 8), generator=torch.Generator().manual_seed(6))
model = RNNModel()
criterion = nn.NLLLoss()
example = (data[:5], model.init_hidden(8))
model = shardwright.auto_parallelize(model, example, "dp=-1", cluster="dgx-h100", batch_dim=1, recipe=os.environ.get("RECIPE"))
curve, lr = [], 0.5
for epoch in range(2):
    model.train()
    hidden = model.init_hidden(8)
    for i in range(0, 40, 5):
        hidden = repackage_hidden(hidden)
        model.zero_grad()
        output, hidden = model(data[i : i + 5], hidden)
        loss = criterion(output, data[i + 1 : i + 6].view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        curve.append(loss.item())
    model.eval()
    with torch.no_grad():
        hidden = model.init_hidden(8)
        output, hidden = model(data[:7], hidden)
        curve.append(math.exp(criterion(output, data[1:8].view(-1)).item()))
    lr /= 4.0
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
