"""Hands exported configurations to the packages that read them.

argv: the folder with one folder a target, then the packages to ask (default all). stdout: what each package made of its file, as JSON; "missing" with the name of a
package that is not installed. Nothing here needs a GPU; what needs one is not asked.
"""

import importlib.metadata
import importlib.util
import json
import pathlib
import sys

FOLDER = pathlib.Path(sys.argv[1])


def module(path):
    spec = importlib.util.spec_from_file_location("exported", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def torchtitan():
    from torchtitan.distributed import ParallelDims

    own = module(FOLDER / "torchtitan" / "torchtitan_config.py").parallelism()
    world = int((FOLDER / "world").read_text())
    dims = ParallelDims(
        dp_replicate=own.data_parallel_replicate_degree,
        dp_shard=own.data_parallel_shard_degree,
        cp=own.context_parallel_degree,
        tp=own.tensor_parallel_degree,
        pp=own.pipeline_parallel_degree,
        ep=own.expert_parallel_degree,
        world_size=world,
    )
    return {"tp": dims.tp, "dp_replicate": dims.dp_replicate, "dp_shard": dims.dp_shard, "world": dims.world_size}


def megatron():
    """megatron-core ships the configuration classes, but not the argument parser of Megatron-LM."""
    from megatron.core.parallel_state import RankGenerator
    from megatron.core.transformer import TransformerConfig

    given = {}
    for line in (FOLDER / "megatron" / "megatron.args").read_text().splitlines():
        if line.startswith("--"):
            name, _, value = line[2:].partition(" ")
            given[name.replace("-", "_")] = value
    fields = TransformerConfig.__dataclass_fields__
    config = {name: int(value) for name, value in given.items() if name in fields and value.isdigit()}
    if config.get("pipeline_model_parallel_size", 1) > 1:
        import torch

        config["pipeline_dtype"] = torch.bfloat16  # the argument parser takes it from --bf16
    config["sequence_parallel"] = "sequence_parallel" in given
    if "hidden_size" in given and "ffn_hidden_size" in given:
        config["ffn_hidden_size"] = int(given["ffn_hidden_size"])
    made = TransformerConfig(**config)
    world = int((FOLDER / "world").read_text())
    tp, cp, pp = made.tensor_model_parallel_size, made.context_parallel_size, made.pipeline_model_parallel_size
    ranks = RankGenerator(tp=tp, ep=1, dp=world // (tp * cp * pp), pp=pp, cp=cp, order="tp-cp-ep-dp-pp")
    return {"tp": made.tensor_model_parallel_size, "layers": made.num_layers, "groups": ranks.get_ranks("tp")}


def deepspeed():
    from deepspeed.runtime.config import DeepSpeedConfig

    class Mpu:
        def get_data_parallel_world_size(self):
            return 1

    made = DeepSpeedConfig(str(FOLDER / "deepspeed" / "ds_config.json"), mpu=Mpu())
    return {
        "batch": made.train_micro_batch_size_per_gpu,
        "stage": int(made.zero_config.stage),
        "autotp": made.tensor_parallel_config.autotp_size,
    }


def accelerate():
    from accelerate.commands.config.config_args import load_config_from_file

    made = load_config_from_file(str(FOLDER / "hf" / "accelerate.yaml"))
    return {"type": str(made.distributed_type), "processes": made.num_processes, "parallelism": made.parallelism_config}


def main():
    answers = {}
    readers = {"torchtitan": torchtitan, "megatron-core": megatron, "deepspeed": deepspeed, "accelerate": accelerate}
    for package in sys.argv[2:] or readers:
        read = readers[package]
        try:
            answers[package] = {"version": importlib.metadata.version(package), "made": read()}
        except ModuleNotFoundError as error:
            answers[package] = {"missing": error.name}
        except importlib.metadata.PackageNotFoundError:
            answers[package] = {"missing": package}
        except Exception as error:  # what the package says is the answer
            answers[package] = {"error": f"{type(error).__name__}: {str(error)[:800]}"}
    json.dump(answers, sys.stdout)


main()
