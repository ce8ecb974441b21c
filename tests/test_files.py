"""Files on file systems that lack something, killed writers, and locks."""

import errno
import fcntl
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runner import files
from runner.files import check_writable, locked, write_or_rescue, write_whole

LACKING = [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK, errno.EINVAL]
CONTENT = "whole " * 20_000
EVENTS = ("open", "os.mkdir", "os.link", "os.rename", "os.remove", "fcntl.flock")  # of a writer, each before it happens


def failing(number: int) -> Any:
    def call(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_file_is_written_once_without_links_locks_or_modes(tmp_path, monkeypatch, number: int) -> None:
    for module, name in ((os, "link"), (os, "fsync"), (os, "fchmod"), (os, "chmod"), (fcntl, "flock")):
        monkeypatch.setattr(module, name, failing(number))
    path = tmp_path / "new" / "file"
    assert write_whole(path, "first", replace=False)
    assert not write_whole(path, "second", replace=False)
    assert path.read_text() == "first"
    assert write_whole(path, [b"th", memoryview(b"ird")], replace=True)
    assert path.read_text() == "third"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize(("call", "number"), [("fsync", errno.ENOSPC), ("replace", errno.EIO)])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, call: str, number: int) -> None:
    path = tmp_path / "file"
    write_whole(path, "before", replace=True)
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(OSError, match=os.strerror(number)):
        write_whole(path, "after", replace=True)
    assert (path.read_text(), os.listdir(tmp_path)) == ("before", ["file"])


def _written_until(kill: int, path: Path, replace: bool, links: bool) -> None:
    """Write a file, and kill this process before its `kill`-th call of the operating system that a file needs."""
    calls = 0

    def count(event: str = "", arguments: Any = ()) -> None:
        nonlocal calls
        calls += event in EVENTS
        if calls == kill:
            os.kill(os.getpid(), signal.SIGKILL)

    if not links:
        os.link = failing(errno.EPERM)
    synced = os.fsync
    os.fsync = lambda descriptor: (count("open"), synced(descriptor))[1]
    sys.addaudithook(count)
    write_whole(path, CONTENT, replace=replace)
    os._exit(0)


@pytest.mark.parametrize(("replace", "links"), [(True, True), (False, True), (False, False)])
def test_a_kill_between_any_two_calls_leaves_nothing_or_all(tmp_path: Path, replace: bool, links: bool) -> None:
    context, seen = multiprocessing.get_context("fork"), set()
    for kill in range(1, 50):
        path = tmp_path / str(kill) / "file"
        writer = context.Process(target=_written_until, args=(kill, path, replace, links))
        writer.start()
        writer.join()
        seen.add(exists := path.exists())
        assert not exists or path.read_text() == CONTENT
        assert write_whole(path, CONTENT, replace=False) != exists, "what a killed writer left is in nobody's way"
        assert path.read_text() == CONTENT
        if writer.exitcode == 0:
            break
    assert (writer.exitcode, seen) == (0, {True, False})
    assert kill > 4


@pytest.mark.parametrize("links", [True, False])
def test_of_several_writers_one_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
    start = threading.Barrier(6)

    def write(text: str, path: Path) -> str | None:
        start.wait()
        return text if write_whole(path, text, replace=False) else None

    with ThreadPoolExecutor(6) as writers:
        for attempt in range(8):
            path = tmp_path / str(attempt)
            first = [text for text in writers.map(write, "abcdef", [path] * 6) if text is not None]
            assert first == [path.read_text()]


@pytest.mark.parametrize(("content", "lost"), [(CONTENT, "printed"), (CONTENT.encode(), "lost")])
def test_what_cannot_be_saved_anywhere_is_printed(tmp_path, monkeypatch, capsys, content: Any, lost: str) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path / "file/temporary"))
    with pytest.raises(OSError, match=f"file/below cannot be written .* so it is {lost}"):
        write_or_rescue(tmp_path / "file" / "below", content, replace=True)
    assert capsys.readouterr().out == (CONTENT + "\n" if lost == "printed" else "")


def test_what_cannot_be_locked_stops_nothing_and_is_said_once(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    for name in ("one", "other"):
        with locked(tmp_path / "folder" / name, wait=60.0) as alone:
            assert alone
    (line,) = capsys.readouterr().err.splitlines()
    assert os.strerror(errno.ENOLCK) in line


def test_waiting_for_a_lock_is_announced_and_ends_at_its_limit(tmp_path: Path) -> None:
    told: list[str] = []
    with locked(tmp_path / "lock") as mine:
        with locked(tmp_path / "lock") as other:
            assert (mine, other) == (True, False)
        with locked(tmp_path / "lock", wait=0.1, on_wait=lambda: told.append("waits")) as other:
            assert (other, told) == (False, ["waits"])
    with locked(tmp_path / "lock") as other:
        assert other


@pytest.mark.parametrize("umask", [0o022, 0o077])
@pytest.mark.parametrize(
    ("around", "granted", "denied"),
    [(0o2775, 0o060, 0o002), (0o755, 0o000, 0o022), (0o1777, 0o000, 0o022)],
    ids=["a group's", "the user's", "like /tmp, in which each user's files are the user's own"],
)
def test_whoever_may_write_around_new_files_may_write_to_them(
    tmp_path: Path, umask: int, around: int, granted: int, denied: int
) -> None:
    """A user's umask does not keep others out of what they share. Private files are the user's alone."""
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(around)
    before = os.umask(umask)
    try:
        write_whole(place / "a" / "b" / "record", "whole", replace=False)
        write_whole(place / "a" / "private", "whole", replace=False, private=True)
        with locked(place / "locks" / "lock"):
            pass
    finally:
        os.umask(before)
    for name in ("a", "a/b", "locks", "a/b/record", "locks/lock"):
        mode = (place / name).stat().st_mode
        assert mode & granted == granted
        assert not mode & denied & umask, "what the umask takes stays taken"
    assert not (place / "a" / "private").stat().st_mode & 0o077


def test_another_users_lock_is_held_without_write_permission(tmp_path, monkeypatch) -> None:
    opened = os.open

    def refuses(path: Any, flags: int, *mode: int) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, *mode)

    (tmp_path / "lock").touch()
    monkeypatch.setattr(os, "open", refuses)
    with locked(tmp_path / "lock") as mine, locked(tmp_path / "lock") as other:
        assert (mine, other) == (True, False)


def test_a_disk_with_less_room_than_a_record_counts_as_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > 20_000:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", small)
    with pytest.raises(OSError, match="No space"):
        check_writable(tmp_path / "new")
    assert not list(tmp_path.iterdir())
