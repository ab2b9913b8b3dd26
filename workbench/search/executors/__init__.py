"""Where evaluations run. The sweep asks an executor, and alone asks for candidates and writes evaluations.

with ChildProcess(experiment, bench) as executor:      # a candidate that takes its process down leaves ours alone
    evaluation = executor.evaluate(Task(candidate=candidate))      # CrashError when it did
"""
