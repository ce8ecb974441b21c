"""The command line in a forked process, which has imported everything already: a tenth of a new process's time."""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

# The processes are forked from one that only imports: PyTorch computes no gradient in a fork of a process that had
# threads for a device, as the made-up CUDA device of other tests has.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["runner.cli.run"])


def run_in_fork(arguments: list[str], folder: Path, prepare: Callable[[], None] | None = None) -> tuple[int, str, str]:
    """Run `python -m runner` with these arguments in a fork (Hydra keeps hold of the streams of the one it ran in).

    Args:
        folder: for the files that stdout and stderr are written to.
        prepare: called in the fork before the command; a function of a module, or a partial of one.

    Returns:
        The exit code, and what was written to stdout and stderr.
    """
    process = _SERVER.Process(target=_command, args=(arguments, folder, dict(os.environ), os.getcwd(), prepare))
    process.start()
    process.join()
    assert process.exitcode is not None
    written = ((folder / name).read_text() for name in ("stdout", "stderr"))
    return (process.exitcode, *written)


def _command(
    arguments: list[str], folder: Path, variables: dict[str, str], directory: str, prepare: Callable[[], None] | None
) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        setattr(sys, name, os.fdopen(number, "w", closefd=False))
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    code = 0
    try:
        from runner.cli import run as command

        sys.argv = ["runner", *arguments]
        if prepare is not None:
            prepare()
        command.main()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
