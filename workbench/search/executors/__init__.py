"""Where evaluations run. The sweep asks workers, and alone asks for candidates and writes evaluations.

with ChildProcess(experiment, bench) as worker:      # a candidate that takes its process down leaves ours alone
    evaluation = worker.evaluate(Task(candidate=candidate))      # CrashError when it did
"""
