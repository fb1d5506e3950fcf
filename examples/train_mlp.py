import shardwright, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
x, y = torch.randn(1024, 1024), torch.randn(1024, 1024)
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
model = shardwright.auto_parallelize(model, (x,), mesh, cluster="dgx-h100", loss=nn.functional.mse_loss, targets=(y,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(5):
    optimizer.zero_grad()
    loss = model(x, y)
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(step, loss.item())
dist.destroy_process_group()
