"""A made-up CUDA device for machines without one: the CPU computes its values, by the rules of CUDA.

Tensors of two devices in one operation raise an error. A captured graph refuses to wait for the device, and to copy
from the CPU. A replay repeats the recorded calls on the same memory, without any Python. Launches, waits, uploads and
living graphs are counted. Nothing is compiled, so each operation is a launch: see `compiled` for the kernels of a
compiled step. Kernels, their rounding and atomics, streams, real memory, and the isolated engine are not rehearsed.
"""

from checks.rehearsal.device import made_up_cuda, parsed
from checks.rehearsal.gpu import Gpu

__all__ = ["Gpu", "made_up_cuda", "parsed"]
