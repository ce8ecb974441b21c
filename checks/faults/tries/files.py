"""File systems that lack something, are full, slow, read-only, or shared with others."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from checks.faults.mounts import mounted, unmount
from checks.faults.tries.attempt import Try
from runner.data import cache as data_cache
from runner.data.files import write_whole
from runner.records.files import claim
from runner.records.identity import identify, resolved
from runner.records.jobs import composed

RUN = (
    "experiment=tempered_sigmoid/mnist_tanh", "scale=smoke", "epochs=1", "tracking=disabled",
    "runtime.results_root={here}/results",
)  # fmt: skip
_UNTRAINED = r"^(?!.*run [0-9a-f]{12}:)"  # no run began
_REFUSED = _UNTRAINED + r".*cannot be (written|used).*runtime\.results_root="
_OTHER, _MINE = 4711, 4712  # users


def failing(module: Any, name: str, number: int) -> Callable[[], None]:
    """Return a function that makes a call of the operating system fail."""

    def call(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return partial(setattr, module, name, call)


def _each(*functions: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        for function in functions:
            function()

    return call


def _exfat(here: Path) -> None:
    (here / "results").mkdir()
    subprocess.run(["truncate", "-s", "16M", str(here / "image")], check=True)
    subprocess.run(["mkfs.exfat", str(here / "image")], check=True, capture_output=True)
    made = subprocess.run(["losetup", "-f", "--show", str(here / "image")], check=True, capture_output=True, text=True)
    (here / "loop").write_text(made.stdout.strip())
    subprocess.run(["mount.exfat-fuse", made.stdout.strip(), str(here / "results")], check=True, capture_output=True)


def _unmount_exfat(here: Path) -> None:
    unmount(here)
    subprocess.run(["losetup", "-d", (here / "loop").read_text()], check=False)


def _made_by_another(mode: int, umask: int) -> Callable[[Path], None]:
    """Have another user of this user's group make the results folder with a first run's folders and lock."""

    def make(here: Path) -> None:
        here.chmod(0o777)
        for name, access in (("results", mode), ("home", 0o777)):
            (here / name).mkdir()
            (here / name).chmod(access)
            os.chown(here / name, _OTHER, _OTHER)
        process = os.fork()
        if not process:
            _as_another(here / "results", umask)
        os.waitpid(process, 0)

    return make


def _as_another(root: Path, umask: int) -> NoReturn:
    """Write what a run of another user leaves, in this process, and end it."""
    try:
        os.setgroups([])
        os.setgid(_OTHER)
        os.setuid(_OTHER)
        os.umask(umask)
        for folder in ("smoke/runs", "smoke/failed", ".checkpoints"):
            write_whole(root / folder / "other.txt", "other", replace=True)
        with claim(root, _run_id()):
            os._exit(0)
    finally:
        os._exit(1)


def _run_id() -> str:
    return identify(resolved(composed(RUN[:3])))[0]


def _become(group: int = _OTHER) -> None:
    os.setgroups([])
    os.setgid(group)
    os.setuid(_MINE)
    os.umask(0o022)


def _lock(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def before(here: Path) -> None:
        path = here / "results" / ".locks" / _run_id()
        path.parent.mkdir(parents=True)
        make(path)

    return before


_HELD: list[Any] = []


def _hold(path: Path) -> None:
    _HELD.append(path.open("w", encoding="utf-8"))
    fcntl.flock(_HELD[-1], fcntl.LOCK_EX)


def _let_go(here: Path) -> None:
    _HELD.pop().close()


def _checkpoint(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def before(here: Path) -> None:
        path = here / "results" / ".checkpoints" / f"{_run_id()}.pt"
        path.parent.mkdir(parents=True)
        make(path)

    return before


def _slowly() -> None:
    for name in ("fsync", "link"):
        setattr(os, name, partial(_after_half_a_second, getattr(os, name)))


def _after_half_a_second(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    time.sleep(0.5)
    return call(*arguments, **named)


def _held_features() -> None:
    """Have the lock of the features stay held, as by a stopped process, and wait for it 5 seconds."""
    vars(data_cache)["_LONGEST"] = 5.0
    lock = fcntl.flock

    def call(descriptor: int, operation: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".lock"):
            raise BlockingIOError(errno.EWOULDBLOCK, "held")
        lock(descriptor, operation)

    vars(fcntl)["flock"] = call


def tries() -> list[Try]:
    """List the tries."""
    root = os.geteuid() == 0
    no = "" if root else "takes an administrator's rights"
    f = partial(Try, "file systems")
    lacking = [
        ("no hard links: EPERM", failing(os, "link", errno.EPERM)),
        ("no hard links: ENOTSUP", failing(os, "link", errno.ENOTSUP)),
        ("no flock: ENOLCK", failing(fcntl, "flock", errno.ENOLCK)),
        ("no flock: ENOSYS", failing(fcntl, "flock", errno.ENOSYS)),
        ("no flock and no hard links", _each(failing(fcntl, "flock", errno.ENOLCK), failing(os, "link", errno.EPERM))),
        ("no fsync: EINVAL", failing(os, "fsync", errno.EINVAL)),
        ("no chmod: EPERM", _each(failing(os, "chmod", errno.EPERM), failing(os, "fchmod", errno.EPERM))),
        ("half a second for each file", _slowly),
    ]
    found = [f(name, (*RUN, "save_model=yes"), records=1, inside=inside) for name, inside in lacking]
    no_fuse = no or ("" if Path("/usr/sbin/mount.exfat-fuse").exists() else "takes exfat-fuse")
    exfat = partial(f, records=1, before=_exfat, after=_unmount_exfat, why_not=no_fuse)
    found += [
        exfat("exFAT", (*RUN, "save_model=yes", "runtime.checkpoint_above=0")),
        exfat("exFAT, with W&B's files", (*RUN[:3], RUN[4], "tracking.directory={here}/results"), seconds=120.0),
        f("read-only", RUN, 2, _REFUSED, 0, mounted("ro"), unmount, why_not=no),
        f("full", RUN, 2, _REFUSED, 0, mounted("size=64k", 1 << 16), unmount, why_not=no),
        f("room for less than a record", RUN, 2, _REFUSED, 0, mounted("size=64k", 57000), unmount, why_not=no),
        f("no inode left", RUN, 2, _REFUSED, 0, mounted("nr_inodes=1"), unmount, why_not=no),
        f("a file in place of results", RUN, 2, r"results_root=|cannot be read",
          before=lambda here: (here / "results").touch()),
    ]  # fmt: skip
    env = {"HOME": "{here}/home", "XDG_CACHE_HOME": "{here}/home"}
    other = partial(f, inside=_become, environment=env, why_not=no)
    found += [
        other("shared with a group, made with umask 022", RUN, records=1, before=_made_by_another(0o2775, 0o022)),
        other("shared with a group, made with umask 002", RUN, records=1, before=_made_by_another(0o2775, 0o002)),
        other("shared with all (777), made with umask 022", RUN, records=1, before=_made_by_another(0o777, 0o022)),
        other("shared with all, sticky (1777)", RUN, 2, _REFUSED, 0, _made_by_another(0o1777, 0o022)),
        other("shared with a group, made with umask 077", RUN, before=_made_by_another(0o2775, 0o077), records=1),
        other("of another user", RUN, 2, _REFUSED, 0, _made_by_another(0o755, 0o022)),
        f("its lock is held", RUN, 0, "being computed by another process", 0, _lock(_hold), _let_go),
        f("its lock is a folder", RUN, records=1, before=_lock(lambda path: path.mkdir())),
        f("its lock is a pipe", RUN, records=1, before=_lock(os.mkfifo)),
        f("its lock is a link", RUN, records=1, before=_lock(lambda path: path.symlink_to("/dev/null"))),
        f("its lock is a link to itself", RUN, records=1, before=_lock(lambda path: path.symlink_to(path))),
        f("its checkpoint is a pipe", (*RUN, "runtime.checkpoint_above=0"), records=1, before=_checkpoint(os.mkfifo)),
        f("its checkpoint is a folder", (*RUN, "runtime.checkpoint_above=0"), records=1,
          before=_checkpoint(lambda path: path.mkdir())),
        f("its checkpoint is empty", (*RUN, "runtime.checkpoint_above=0"), records=1,
          before=_checkpoint(lambda path: path.touch())),
    ]  # fmt: skip
    scatter = (*RUN, "features=scatternet", "architecture=scatternet_mnist")
    cache = {"XDG_CACHE_HOME": "{here}/cache"}
    far = partial(f, environment=cache, records=1)
    found += [
        far(
            "features: no chmod", scatter, inside=lacking[6][1], before=lambda here: (here / "cache").mkdir(mode=0o777)
        ),
        far("features: a lock that stays held", scatter, inside=_held_features, seconds=150.0),
        far("features: no memory maps", scatter, inside=_no_maps),
        f("features: the cache is read-only", scatter, 2, "XDG_CACHE_HOME",
          environment={"XDG_CACHE_HOME": "/proc/none"}),
    ]  # fmt: skip
    return found


def _no_maps() -> None:
    import torch

    def call(*_: Any, **__: Any) -> None:
        raise RuntimeError("unable to mmap 1 bytes from file <x>: No such device (19)")

    vars(torch)["from_file"] = call
