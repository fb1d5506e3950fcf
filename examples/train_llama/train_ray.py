"""The same training under Ray Train: `python train_ray.py`, four workers, one device each."""

import os
from pathlib import Path

import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

HERE = str(Path(__file__).parent)


def loop(config) -> None:
    """What each worker runs; Ray has made the process group."""
    import sys

    sys.path.insert(0, HERE)
    from train import by_plan

    by_plan(lambda step, loss: print(step, loss, flush=True), folder=config["plan"])


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        loop,
        train_loop_config={"plan": os.path.abspath("plan")},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=4, resources_per_worker={"CPU": 1}),
    )
    trainer.fit()
    ray.shutdown()
