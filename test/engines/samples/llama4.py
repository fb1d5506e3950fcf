"""Prints ids, weights and logits of small Llamas 4 of transformers, in float64: a line of JSON for each config of the arguments."""

import json
import sys

import torch
from transformers import Llama4ForCausalLM, Llama4TextConfig


def told(text):
    config = Llama4TextConfig(**json.loads(text), attn_implementation="eager")
    torch.manual_seed(0)
    model = Llama4ForCausalLM(config).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ids = torch.randint(0, config.vocab_size, (2, 16))
    weights = {}
    for name, parameter in model.named_parameters():
        # Experts are [in, out] there, and [out, in] here.
        value = parameter.transpose(1, 2) if ".experts." in name else parameter
        weights[name] = [list(value.shape), value.flatten().tolist()]
    weights["model.rotary_emb.inv_freq"] = [
        list(model.model.rotary_emb.inv_freq.shape),
        model.model.rotary_emb.inv_freq.tolist(),
    ]
    with torch.no_grad():
        logits = model(ids).logits
    return {"ids": ids.tolist(), "weights": weights, "logits": logits.flatten().tolist()}


for text in sys.argv[1:]:
    print(json.dumps(told(text)))
