"""Many comparisons on a Ray cluster: `python -m shardwright.sweep --address auto questions.yaml -o answers`.

It reads a file of questions as `shardwright compare --sweep` does, and writes the folder that this command writes on one machine, byte
for byte. A task is one whole comparison; when its node is lost, Ray asks it again elsewhere. Answers that are there are not asked again.
Shardwright and its Python package must be installed on every node; a folder that all nodes share is not needed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .command_line import run_command
from .errors import CommandError
from .planner import find_command

RETRIES = 3


def sweep(
    questions: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    address: str | None = None,
    threads: int = 1,
    command: Sequence[str] | None = None,
    flags: Sequence[str] = (),
    quiet: bool = False,
) -> str:
    """Asks every open question of a file on a Ray cluster, and gives what `compare --sweep` prints of all of them.

    Args:
        questions: the file; models and clusters that it names as JSON files are next to it.
        out: the folder of the answers.
        address: of the cluster, as `ray.init` takes it; default: one on this machine.
        threads: threads, and CPUs of Ray, of each comparison.
        command: how to call Shardwright; default as `plan` calls it.
        flags: further options of `shardwright compare`.
        quiet: no progress on stderr.

    Raises:
        CommandError: what the command refused; a question that a lost node left open for the fourth time; Ray that is not installed.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise CommandError("E_COMMAND", "Ray is not installed", hint="pip install 'ray>=2.9'") from error
    call = list(command) if command is not None else find_command()
    options = ["--threads", str(threads), *flags]
    here = ["compare", "--sweep", str(questions), "-o", str(out), *options]
    listed: list[dict[str, Any]] = json.loads(run_command(call, [*here, "--list", "--json"], quiet=True, kept=False))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    left = [i for i, question in enumerate(listed) if not question["answered"]]
    if left:
        started = not ray.is_initialized()
        if started:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            task = ray.remote(num_cpus=threads, max_retries=RETRIES)(ask)
            files = ray.put(named_files(Path(questions)))
            name = Path(questions).name
            pending = {task.remote(files, name, f"{i + 1}/{len(listed)}", call, options): i for i in left}
            while pending:
                for reference in ray.wait(list(pending), num_returns=1)[0]:
                    question = listed[pending.pop(reference)]["id"]
                    _keep(folder, _result(ray, reference, question))
                    if not quiet:
                        sys.stderr.write(f"{len(listed) - len(pending)} of {len(listed)}: {question}\n")
        finally:
            if started:
                ray.shutdown()
        listed = json.loads(run_command(call, [*here, "--list", "--json"], quiet=True, kept=False))
    # This reads the answers and puts them together; a question that its own time limit stopped is not asked again here.
    limit = [] if all(question["answered"] for question in listed) else ["--time-limit", "1"]
    return run_command(call, [*here, *limit], quiet, allowed=(0, 4), kept=False)


def named_files(questions: Path) -> dict[str, bytes]:
    """The file of questions, and the JSON files beside it that it names."""
    text = questions.read_text()
    found = {questions.name: text.encode()}
    for name in sorted(set(re.findall(r"[\w./+-]+\.json", text))):
        path = questions.parent / name
        if not Path(name).is_absolute() and ".." not in Path(name).parts and path.is_file():
            found[name] = path.read_bytes()
    return found


def ask(files: dict[str, bytes], name: str, part: str, call: Sequence[str], options: Sequence[str]) -> dict[str, bytes]:
    """One question, in a folder of its own, on whichever node; gives the files of its answer."""
    with tempfile.TemporaryDirectory(prefix="shardwright-sweep-") as at:
        for file, content in files.items():
            path = Path(at, "asked", file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        answers = Path(at, "answers")
        argv = ["compare", "--sweep", str(Path(at, "asked", name)), "-o", str(answers), "--slice", part, "--quiet", "--json", *options]
        run_command(call, argv, quiet=True, allowed=(0, 4), kept=False)
        return {p.name: p.read_bytes() for p in answers.glob("*.json") if not p.name.startswith("planning-")}


def _result(ray: Any, reference: Any, question: str) -> dict[str, bytes]:
    try:
        answers: dict[str, bytes] = ray.get(reference)
        return answers
    except ray.exceptions.RayTaskError as error:
        # The command would have said the same on this node.
        raise error.cause if isinstance(error.cause, CommandError) else error from None
    except ray.exceptions.RayError as error:
        what = f"{question} was lost with its node {RETRIES + 1} times: {error}"
        raise CommandError("E_COMMAND", what, hint="the same command goes on from the answers that are there.") from error


def _keep(folder: Path, answers: Mapping[str, bytes]) -> None:
    for name, content in answers.items():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as half:
            half.write(content)
        os.chmod(half.name, 0o644)
        os.replace(half.name, folder / name)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Options that it does not know go to `shardwright compare`."""
    parser = argparse.ArgumentParser(
        prog="python -m shardwright.sweep",
        description="Asks the questions of a file on a Ray cluster. Other options go to shardwright compare.",
        epilog="example: python -m shardwright.sweep --address auto questions.yaml -o answers --plans fsdp,fsdp+tp+sp",
    )
    parser.add_argument("questions", help="YAML, as shardwright compare --sweep reads it")
    parser.add_argument("-o", "--output", required=True, help="the folder of the answers; the same command goes on from those in it")
    parser.add_argument("--address", help="of the Ray cluster, such as auto; default: one on this machine")
    parser.add_argument("--threads", type=int, default=1, help="threads, and CPUs of Ray, of each comparison (default 1)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    own, flags = parser.parse_known_args(argv)
    try:
        text = sweep(own.questions, own.output, address=own.address, threads=own.threads, flags=flags, quiet=own.quiet)
    except CommandError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
