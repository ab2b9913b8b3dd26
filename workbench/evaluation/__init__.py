"""What a candidate's measurement is made of: build, accuracy, time, memory, checks, and where results are kept.

Which steps are taken, and in which order, is decided by `search`.
"""
