"""Fine-tunes a small BERT of Hugging Face, in the shape of its tutorial without a Trainer: frozen embeddings, a schedule, evaluation with
a smaller last batch, checkpoints. As it is for one process; under torchrun it trains by a plan of all its ranks.
"""

import os
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, get_scheduler

import shardwright

torch.manual_seed(42)
torch.set_default_dtype(torch.float64)
config = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, num_labels=3,
    max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
model = BertForSequenceClassification(config)
for parameter in model.bert.embeddings.parameters():
    parameter.requires_grad = False
draws = torch.Generator().manual_seed(3)


def batch(size):
    ids = torch.randint(0, 50, (size, 10), generator=draws)
    return {"input_ids": ids, "attention_mask": (ids > 4).long(), "labels": ids.sum(1) % 3}


train_data, eval_data = [batch(8) for _ in range(6)], [batch(8), batch(5)]
model = shardwright.auto_parallelize(model, (), "dp=-1", cluster="dgx-h100", example_kwargs=train_data[0], recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
schedule = get_scheduler("linear", optimizer=optimizer, num_warmup_steps=2, num_training_steps=12)

curve = []
for _ in range(2):
    model.train()
    for data in train_data:
        outputs = model(**data)
        loss = outputs.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        curve.append(loss.item())
    model.eval()
    right = 0
    for data in eval_data:
        with torch.no_grad():
            outputs = model(**data)
        right += int((outputs.logits.argmax(dim=-1) == data["labels"]).sum())
        curve.append(outputs.loss.item())
    curve.append(right / 13)
    # In the second epoch all is trained.
    for parameter in model.bert.embeddings.parameters():
        parameter.requires_grad = True
    optimizer.param_groups[0]["params"] += list(model.bert.embeddings.parameters())
model.save_pretrained("saved")
again = BertForSequenceClassification.from_pretrained("saved", dtype=torch.float64).eval()
curve.append(again(**eval_data[1]).loss.item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
