"""A made-up CUDA device for a whole process, and for the processes that are forked from it.

The server of the processes of runs imports this module in a rehearsal, before it imports anything else.
"""

import atexit
from contextlib import ExitStack

from checks.rehearsal import made_up_cuda

_stack = ExitStack()
_stack.enter_context(made_up_cuda())
atexit.register(_stack.close)
