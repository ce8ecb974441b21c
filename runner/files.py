"""Write whole files, and hold locks, on file systems of every kind; and find the user's cache folder.

Hard links, modes, locks and fsync are used where they exist. A file system without one of them loses no file.
"""

import errno
import fcntl
import hashlib
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
from typing import IO
from uuid import uuid4

_LOST = (errno.EIO, errno.ENOSPC, errno.EDQUOT)  # fsync lost the content; after other errors it is only unsupported
_PAUSE = 0.05  # seconds between two attempts at a lock
_MOMENT = 5.0  # seconds to wait for a lock that is held for an instant
_CHUNK = 16 << 20  # bytes read at a time
_TRIAL = 1 << 16  # bytes: more than a record has
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH

SEAL = hashlib.sha256().digest_size  # bytes that `sealed` appends
Content = str | bytes | Iterable[bytes | memoryview]


def write_whole(path: Path, content: Content, *, replace: bool, private: bool = False) -> bool:
    """Write a file under a temporary name, then rename it, so that no process sees half a file.

    If the process ends at any time, the file is as it was, or whole. At most a hidden `.part` file remains.

    Args:
        content: a text, bytes, or pieces that are written as they come.
        private: True if only the user may read and write the file.

    Returns:
        False if `path` exists and `replace` is not set; the file is then unchanged. Two machines that share a
        file system without hard links can both write in the same instant. The later of the two files then stays.

    Raises:
        OSError: the file cannot be written.
    """
    make_folder(path.parent)
    part = path.with_name(f".{path.name}.{uuid4().hex[:8]}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, 0o600 if private else 0o666)) as file:
            if not private:
                _share(file.fileno(), path.parent)
            _write(file, content)
        if replace:
            os.replace(part, path)
            return True
        try:
            os.link(part, path)  # unlike a rename, fails if the file exists
        except FileExistsError:
            return False
        except OSError:  # no hard links here; file systems raise different errors
            with locked(path.parent, wait=_MOMENT):
                if os.path.lexists(path):
                    return False
                os.replace(part, path)
        return True
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_or_rescue(path: Path, content: str | bytes, *, replace: bool) -> bool:
    """Write a file as `write_whole` does, or save its content in the temporary folder if that fails, else print it.

    Raises:
        OSError: the file is not in its place. The message states where its content is, and the command that moves it.
    """
    try:
        return write_whole(path, content, replace=replace)
    except OSError as error:
        try:
            saved = Path(tempfile.gettempdir(), f"{path.stem}-{uuid4().hex[:8]}{path.suffix}")  # raises if none
            write_whole(saved, content, replace=False, private=True)
            folder, source, place = (shlex.quote(str(name)) for name in (path.parent, saved, path))
            rescue = f"it is saved, and this puts it in its place: mkdir -p {folder} && mv {source} {place}"
        except OSError as again:
            rescue = f"nor can it be saved in the temporary folder ({again}), so it is "
            rescue += "printed: save it there" if isinstance(content, str) else "lost"
            if isinstance(content, str):
                print(content)
        raise OSError(f"{path} cannot be written ({error}); {rescue}") from error


def make_folder(folder: Path) -> None:
    """Make a folder and its parents. Whoever may write to the folder around a new one may write to it, too.

    So users with different umasks can share a folder of results.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _share(folder, folder.parent)


def _share(target: int | Path, folder: Path) -> None:
    """Open a new file or folder to those who may write to the folder around it, unless it is sticky, as /tmp is."""
    with suppress(OSError):  # another process made it, or there are no modes here
        around, mode = folder.stat().st_mode, os.stat(target).st_mode
        if around & stat.S_ISVTX:
            return
        shared = (stat.S_IRWXG if around & stat.S_IWGRP else 0) | (stat.S_IRWXO if around & stat.S_IWOTH else 0)
        wanted = mode | (shared if stat.S_ISDIR(mode) else shared & ~_EXECUTABLE)
        if wanted != mode:
            os.chmod(target, stat.S_IMODE(wanted))


def content_of(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, or is no file, but a folder, or a pipe, which would be waited for.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return path.read_bytes()


def check_writable(folder: Path) -> None:
    """Write and remove a file as large as a record in the folder, or in its nearest parent if it does not exist.

    Raises:
        OSError: no file can be written there.
    """
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    trial = folder / f".{uuid4().hex[:8]}.trial"
    try:
        write_whole(trial, bytes(_TRIAL), replace=False)
    finally:
        with suppress(OSError):
            trial.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait: float = 0.0, on_wait: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold the lock of a file or folder; yield False if another process still holds it after `wait` seconds.

    The operating system drops the lock when the process ends. A symbolic link is not followed, and the file is not
    emptied. If the file cannot be locked, one warning is printed and work goes on without a lock. Files are still
    whole, and each record is still written once.
    """
    descriptor, alone = None, True
    try:
        make_folder(path.parent)
        flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
            _share(descriptor, path.parent)
        except (PermissionError, IsADirectoryError):  # another user's file, or a folder
            descriptor = os.open(path, os.O_RDONLY | flags)
        alone = _flocked(descriptor, wait, on_wait)
    except OSError as error:
        _say_once(f"Locks in {path.parent} do not work ({error.strerror}), so another process may do the same work.")
    try:
        yield alone
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _write(file: IO[bytes], content: Content) -> None:
    for piece in [content] if isinstance(content, str | bytes) else content:
        file.write(piece.encode() if isinstance(piece, str) else piece)
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno in _LOST:
            raise


def _flocked(descriptor: int, wait: float, on_wait: Callable[[], None]) -> bool:
    """Try to lock until `wait` seconds have passed. Return True if the lock is held now."""
    until, waited = time.monotonic() + wait, False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until:
            return False
        if not waited:
            on_wait()
        waited = True
        time.sleep(_PAUSE)


@cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr)


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/dp-repro-bench, else ~/.cache/dp-repro-bench; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dp-repro-bench"


def safe_folder(folder: Path) -> Path:
    """Make a folder in the cache that only the user can write to, as its files are trusted and executed.

    Write permissions for the group and for others are removed.

    Raises:
        PermissionError: the folder or the cache belongs to another user.
    """
    for place in dict.fromkeys((cache_folder(), folder)):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = place.stat()
        if about.st_uid != os.geteuid():
            raise PermissionError(f"{place} belongs to another user")
        if about.st_mode & _BY_OTHERS:
            place.chmod(about.st_mode & ~_BY_OTHERS)
    return folder


def sealed(content: bytes) -> bytes:
    """Append the SHA-256 of a content to it."""
    return content + hashlib.sha256(content).digest()


def is_sealed(path: Path) -> bool:
    """Return True if there is a file that the user alone may write, and it ends in the SHA-256 of what comes before."""
    if not path.is_file():
        return False
    about = path.stat()
    if about.st_uid != os.geteuid() or about.st_mode & _BY_OTHERS:
        return False
    digest, left = hashlib.sha256(), about.st_size - SEAL
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
        return file.read() == digest.digest()
