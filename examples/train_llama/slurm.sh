#!/usr/bin/env bash
# sbatch slurm.sh: two hosts of eight GPUs. Plan first, on any machine: python plan.py dp=2,tp=8 dgx-h100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
set -euo pipefail
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# One launcher a host, eight ranks each: ranks ascend host by host, as the mesh of the plan does.
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 8 \
  --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$head:29500" \
  train.py --device cuda
