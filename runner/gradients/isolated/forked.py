"""A function called in a separate process for each example, so that its state ends with the process.

A server process gets the function once, before there is any data, and never calls it. For each example it forks a
child. The child calls the function on that example and returns the numbers. So anything that the function writes to
attributes, globals or closures is gone before the next example. The server reads an example only after the previous
result was taken, so no other example is in a variable of the child. Two channels remain. A child could leave data in a
file or in another process, or find memory that the server has freed. `runner.training.trust.rests_on` names the
function.

Each example costs some milliseconds, and the function runs on the CPU.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import struct
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_CODE = "import sys; sys.path[:] = {path!r}; from runner.gradients.isolated.forked import serve; serve({read}, {write})"
_HEAD = struct.Struct("<?q")  # whether the call succeeded, and how many bytes follow
_LONGEST_MESSAGE = 500


class ForkedError(RuntimeError):
    """The function failed in the process of an example; the message is its error."""


class Forks:
    """A server for one function.

    Args:
        function: `function(shared, *example)`, which can be pickled.
        result: tensors of the shapes and types that it returns, in lists or dicts; their numbers are ignored.

    Raises:
        ForkedError: the function cannot be pickled.
    """

    def __init__(self, function: Callable[..., Any], result: Any) -> None:
        self._leaves, self._structure = pytree.tree_flatten(result)
        try:
            content = pickle.dumps((function, [str(leaf.dtype) for leaf in self._leaves]))
        except Exception as error:
            raise ForkedError(f"it cannot be sent to another process ({error})") from error
        (ours_read, theirs_write), (theirs_read, ours_write) = os.pipe(), os.pipe()
        self._server = subprocess.Popen(
            [sys.executable, "-c", _CODE.format(path=sys.path, read=theirs_read, write=theirs_write)],
            pass_fds=(theirs_read, theirs_write),
            stdin=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )
        os.close(theirs_read)
        os.close(theirs_write)
        self._to, self._from = os.fdopen(ours_write, "wb"), os.fdopen(ours_read, "rb")
        weakref.finalize(self, _end, self._server, self._to, self._from)
        self._send(content)

    def __call__(self, shared: dict[str, Tensor], examples: Sequence[Tensor]) -> Iterator[Any]:
        """Yield the function's result for each example, on the device of the examples.

        Args:
            shared: arguments that all examples share, by name.
            examples: tensors [batch, ...].

        Raises:
            ForkedError: the function raised, returned other shapes or types, or its process ended.
        """
        seed, device = int(torch.randint(1 << 62, ())), examples[0].device
        self._send(pickle.dumps({name: each.cpu().numpy() for name, each in shared.items()}))
        for number, example in enumerate(zip(*examples, strict=True)):
            self._send(pickle.dumps((seed + number, [each.cpu().numpy() for each in example])))
            yield self._unpacked(self._received(), device)
        self._send(b"")

    def _send(self, content: bytes) -> None:
        try:
            _write(self._to, True, content)
        except OSError as error:
            raise ForkedError("its process ended") from error

    def _received(self) -> bytes:
        succeeded, content = _read(self._from)
        if not succeeded:
            raise ForkedError(content.decode(errors="replace") or "its process ended")
        return content

    def _unpacked(self, content: bytes, device: torch.device) -> Any:
        sizes = [leaf.numel() * leaf.element_size() for leaf in self._leaves]
        if len(content) != sum(sizes):
            raise ForkedError("it returns other shapes than it should")
        parts, begin = [], 0
        for leaf, size in zip(self._leaves, sizes, strict=True):
            part = torch.frombuffer(bytearray(content[begin : begin + size]), dtype=leaf.dtype)
            parts.append(part.view(leaf.shape).to(device))
            begin += size
        return pytree.tree_unflatten(parts, self._structure)


def serve(read: int, write: int) -> None:
    """Serve one function until the other side closes its pipe. `read` and `write` are file descriptors."""
    torch.set_num_threads(1)
    requests, answers = os.fdopen(read, "rb"), os.fdopen(write, "wb")
    function, dtypes = pickle.loads(_read(requests)[1])
    while content := _read(requests)[1]:
        shared = {name: torch.from_numpy(each) for name, each in pickle.loads(content).items()}
        while content := _read(requests)[1]:
            seed, example = pickle.loads(content)
            child = _in_child(lambda: function(shared, *map(_tensor, example)), seed, dtypes, (read, write))  # noqa: B023
            _write(answers, *child)


def _in_child(call: Callable[[], Any], seed: int, dtypes: list[str], closed: Sequence[int]) -> tuple[bool, bytes]:
    """Call in a forked process. Return True and its numbers if it succeeded, else False and its error.

    Args:
        closed: descriptors that the process does not get.
    """
    from_child, to_parent = os.pipe()
    if (child := os.fork()) == 0:
        status = 1
        try:
            for descriptor in closed:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            torch.manual_seed(seed)
            with os.fdopen(to_parent, "wb") as pipe:
                _write(pipe, *_answer(call, dtypes))
            status = 0
        finally:
            os._exit(status)
    os.close(to_parent)
    with os.fdopen(from_child, "rb") as pipe:
        answer = _read(pipe)
    os.waitpid(child, 0)
    return answer


def _answer(call: Callable[[], Any], dtypes: list[str]) -> tuple[bool, bytes]:
    try:
        leaves = pytree.tree_leaves(call())
        found = [str(leaf.dtype) for leaf in leaves]
        if found != dtypes:
            return False, f"it returns {', '.join(found)} and not {', '.join(dtypes)}".encode()
        return True, b"".join(leaf.detach().contiguous().numpy().tobytes() for leaf in leaves)
    except Exception as error:  # any error of a user's code
        return False, f"{type(error).__name__}: {error}".partition("\n")[0][:_LONGEST_MESSAGE].encode()


def _tensor(numbers: Any) -> Tensor:
    return torch.from_numpy(numpy.array(numbers))


def _write(pipe: BinaryIO, succeeded: bool, content: bytes) -> None:
    pipe.write(_HEAD.pack(succeeded, len(content)))
    pipe.write(content)
    pipe.flush()


def _read(pipe: BinaryIO) -> tuple[bool, bytes]:
    """Read one message; it is failed and empty if the other side has ended."""
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return False, b""
    succeeded, length = _HEAD.unpack(head)
    content = pipe.read(length)
    return (succeeded, content) if len(content) == length else (False, b"")


def _end(server: subprocess.Popen[bytes], *pipes: BinaryIO) -> None:
    for pipe in pipes:
        with contextlib.suppress(OSError):
            pipe.close()
    server.terminate()
    server.wait()
