"""Write whole files, and hold locks, on file systems of every kind; and find the user's cache folder.

Hard links, modes, locks and fsync are used where they exist. A file system without one of them loses no file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

_LOST = (errno.EIO, errno.ENOSPC, errno.EDQUOT)  # of fsync: the content is lost; any other: it does not work here
_PAUSE = 0.05  # seconds between two looks at a lock
_MOMENT = 5.0  # seconds to wait for a lock that is held for an instant

_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

Content = str | bytes | Iterable[bytes | memoryview]


def write_whole(path: Path, content: Content, *, replace: bool, private: bool = False) -> bool:
    """Write a file under a temporary name, then give it its own: nobody ever sees half of it.

    Whatever ends the process leaves the file as it was, or whole. At most a hidden `.part` file remains.

    Args:
        content: a text, bytes, or pieces that are written as they come.
        private: whether only the user may read and write the file.

    Returns:
        False, and leaves the file as it is, where `path` exists and `replace` is not set. Two machines that share a
        file system without hard links can both write in the same instant. The later of the two files then stays.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid4().hex[:8]}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, 0o600 if private else 0o666)) as file:
            _write(file, content)
        if replace:
            os.replace(part, path)
            return True
        return _placed(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_or_rescue(path: Path, content: str | bytes, *, replace: bool) -> bool:
    """Do as `write_whole`, but save what cannot be written there elsewhere.

    Raises:
        OSError: the file is not in its place. The message says where it is instead, and how to put it there.
    """
    try:
        return write_whole(path, content, replace=replace)
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error}); {_rescued(path, content)}") from error


def check_writable(folder: Path) -> None:
    """Write a small file as records are written, and remove it: in the folder, or where it would be made.

    Raises:
        OSError: no file can be written there.
    """
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    trial = folder / f".{uuid4().hex[:8]}.trial"
    try:
        write_whole(trial, "trial", replace=False)
    finally:
        with suppress(OSError):
            trial.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait: float = 0.0, on_wait: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold the lock of a file: yields False where another process still has it after `wait` seconds.

    The operating system drops the lock when the process ends, however it ends. The file is neither followed, where it
    is a symbolic link, nor emptied. Where it cannot be locked at all, one line says so and work goes on without a
    lock: files are whole and records are written once all the same.
    """
    descriptor, alone = None, True
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        alone = _flocked(descriptor, wait, on_wait)
    except OSError as error:
        _say_once(f"Locks in {path.parent} do not work ({error.strerror}), so another process may do the same work.")
    try:
        yield alone
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _write(file: BinaryIO, content: Content) -> None:
    pieces = [content] if isinstance(content, str | bytes) else content
    for piece in pieces:
        file.write(piece.encode() if isinstance(piece, str) else piece)
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno in _LOST:
            raise


def _placed(part: Path, path: Path) -> bool:
    """Give a whole file its name, unless that is taken."""
    try:
        os.link(part, path)  # unlike a rename, fails where the file exists
    except FileExistsError:
        return False
    except OSError:  # no hard links here, each file system says so in another way
        with _alone_in(path.parent):
            if os.path.lexists(path):
                return False
            os.replace(part, path)
    return True


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder itself for an instant, where folders can be locked."""
    descriptor = None
    try:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            _flocked(descriptor, _MOMENT, lambda: None)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _flocked(descriptor: int, wait: float, on_wait: Callable[[], None]) -> bool:
    """Whether the lock is held now; OSError where there are no locks."""
    until, told = time.monotonic() + wait, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
        if not told:
            on_wait()
            told = True
        time.sleep(_PAUSE)


def _rescued(path: Path, content: str | bytes) -> str:
    """Save what belongs at `path` in the system's temporary folder, else print it. Returns where it is, in words."""
    name = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{path.stem}-", suffix=path.suffix)
        with open(descriptor, "wb") as file:
            _write(file, content)
        folder, place = shlex.quote(str(path.parent)), shlex.quote(str(path))
        return f"it is saved, and this puts it in its place: mkdir -p {folder} && mv {shlex.quote(name)} {place}"
    except OSError as error:
        with suppress(OSError):
            if name is not None:
                os.unlink(name)
        if isinstance(content, bytes):
            return f"nor can it be saved in the temporary folder ({error}), so it is lost"
        print(content)
        return f"nor can it be saved in the temporary folder ({error}), so it is printed: save it there"


@cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr)


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/dp-repro-bench, else ~/.cache/dp-repro-bench; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dp-repro-bench"


def safe_folder(folder: Path) -> Path:
    """Make a folder in the cache into which nobody else can put files: what is in it is used, and run.

    Where the group or all may write into one of the user's own, they no longer may.

    Raises:
        PermissionError: the folder or the cache is another user's.
    """
    for place in dict.fromkeys((cache_folder(), folder)):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = place.stat()
        if about.st_uid != os.geteuid():
            raise PermissionError(f"{place} belongs to another user")
        if about.st_mode & _BY_OTHERS:
            place.chmod(about.st_mode & ~_BY_OTHERS)
    return folder


def of_the_user_alone(path: Path) -> bool:
    """Whether a file is the user's and nobody else can have written to it, before its folder was closed either."""
    about = path.stat()
    return about.st_uid == os.geteuid() and not about.st_mode & _BY_OTHERS
