"""Where evaluations run. The sweep asks an executor, and alone asks the sampler and writes evaluations.

with ChildProcess(experiment, bench) as executor:      # a candidate that takes its process down leaves ours alone
    evaluation = executor.evaluate(Task(candidate=candidate))      # CrashError when it did
"""

from workbench.search.executors.base import Executor, InProcess, TimeUp, Worker
from workbench.search.executors.child import ChildProcess
from workbench.search.executors.messages import decode_error, encode_error
from workbench.search.executors.worker_pool import WorkerPool, survived
from workbench.search.executors.workers import Workers, cards_of, local_workers
from workbench.search.stages.request import Task

__all__ = [
    "ChildProcess",
    "Executor",
    "InProcess",
    "Task",
    "TimeUp",
    "Worker",
    "WorkerPool",
    "Workers",
    "cards_of",
    "decode_error",
    "encode_error",
    "local_workers",
    "survived",
]
