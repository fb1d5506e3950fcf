"""Runs `check.py` of exported folders on gloo, in forks of one process that has imported PyTorch.

stdin: a line of JSON a folder, {"folder", "processes"}. stdout: a line each, {"status", "out", "err"}: whether a rank failed, what rank 0 printed, and
what all ranks wrote as errors.
"""

import json
import multiprocessing
import os
import pathlib
import runpy
import socket
import sys
import tempfile
import traceback

import torch._dynamo
import torch.distributed.tensor  # noqa: F401

FORKS = multiprocessing.get_context("fork")


def rank_of(rank, world, port, folder, place):
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{place}/{name}{rank}", os.O_WRONLY | os.O_CREAT), stream)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="localhost", MASTER_PORT=port)
    torch.set_num_threads(1)
    sys.argv = [f"{folder}/check.py"]
    status = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by the interpreter: it aborts where a thread of gloo still holds a tensor when it ends.
    os._exit(status)


def answer(folder, processes):
    with socket.socket() as server:
        server.bind(("localhost", 0))
        port = str(server.getsockname()[1])
    with tempfile.TemporaryDirectory() as place:
        ranks = [FORKS.Process(target=rank_of, args=(rank, processes, port, folder, place)) for rank in range(processes)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        errors = "".join(pathlib.Path(f"{place}/err{rank}").read_text() for rank in range(processes))
        status = max(abs(rank.exitcode) for rank in ranks)
        return {"status": status, "out": pathlib.Path(f"{place}/out0").read_text(), "err": errors}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)
