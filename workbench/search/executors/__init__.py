"""Where evaluations run. The sweep asks an executor, and alone asks the sampler and writes evaluations.

with ChildProcess(experiment, bench) as executor:      # a candidate that takes its process down leaves ours alone
    evaluation = executor.evaluate(candidate)          # CrashError when it did
"""

from workbench.executors.base import Executor, InProcess
from workbench.executors.child import ChildProcess
from workbench.executors.messages import decode_error, encode_error

__all__ = ["ChildProcess", "Executor", "InProcess", "decode_error", "encode_error"]
