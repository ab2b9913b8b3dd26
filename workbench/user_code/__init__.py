"""The user's own Python: a loader of samples, a metric; each file in a child process of its own.

    code = read_code(manifest_folder / "metric.py", "score", key="metric")     # digested with what it imports
    process_of(code).call({"outputs": outputs, "targets": targets})

`source` reads without running, `process` starts and asks, `runner` is the program in the child, `wire` is how the two
speak: JSON and raw array bytes, no pickle. The code runs with the user's rights; the process is for what may go wrong
in it (a crash, a call without end, a printed line, a changed global), and is no sandbox.
"""

from workbench.user_code.process import UserCodeError, UserProcess, process_of
from workbench.user_code.source import UserCode, named_code, read_code
from workbench.user_code.wire import Opaque

__all__ = ["Opaque", "UserCode", "UserCodeError", "UserProcess", "named_code", "process_of", "read_code"]
