"""Fine-tunes a small language model with Hugging Face's Trainer: accumulation, evaluation, checkpoints, resuming, a best model."""

import os
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

import shardwright
from shardwright.integrations.transformers import Trainer

torch.manual_seed(31)
torch.set_default_dtype(torch.float64)
config = LlamaConfig(
    vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
    max_position_embeddings=16,
)  # fmt: skip
draws = torch.Generator().manual_seed(32)
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 40, (32, 10), generator=draws)]
world = int(os.environ.get("WORLD_SIZE", "1"))
args = TrainingArguments(
    "out", use_cpu=True, per_device_train_batch_size=8 // world, per_device_eval_batch_size=8 // world,
    gradient_accumulation_steps=2, num_train_epochs=2, learning_rate=1e-2, logging_steps=1, eval_strategy="epoch", save_strategy="epoch",
    report_to=[], disable_tqdm=True,
)  # fmt: skip
model = LlamaForCausalLM(config)
rows = torch.stack([row["input_ids"] for row in data[: 8 // world]])
example = {"input_ids": rows, "labels": rows, "num_items_in_batch": torch.tensor(144)}
model = shardwright.auto_parallelize(
    model, (), "dp=-1", cluster="dgx-h100", example_kwargs=example, inputs="local", recipe=os.environ.get("RECIPE")
)
trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data[:16])
trainer.train()
curve = [row.get("loss", row.get("eval_loss")) for row in trainer.state.log_history if "loss" in row or "eval_loss" in row]
trainer.train(resume_from_checkpoint="out/checkpoint-2")
curve += [row.get("loss", row.get("eval_loss")) for row in trainer.state.log_history if "loss" in row or "eval_loss" in row]
curve.append(trainer.evaluate()["eval_loss"])
trainer.save_model("saved")
again = LlamaForCausalLM.from_pretrained("saved", dtype=torch.float64).eval()
curve.append(again(rows[:1], labels=rows[:1]).loss.item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
