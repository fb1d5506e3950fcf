#!/usr/bin/env bash
# sbatch slurm.sh: two hosts of eight GPUs. Plan first, on any machine: python plan.py dp=2,tp=8 dgx-h100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
set -euo pipefail
# Another cluster: these, the options above (sbatch takes them as arguments too), and the mesh of the plan.
devices_per_host=${DEVICES_PER_HOST:-8}
device=${DEVICE:-cuda}
port=${PORT:-29500}
train=${TRAIN:-train.py}

# Not `head`, which ends before scontrol does: pipefail would call that an error.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
# One launcher a host, a rank for each device: ranks ascend host by host, as the mesh of the plan does.
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$devices_per_host" \
  --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$head:$port" \
  "$train" --device "$device"
