"""The target OpenVINO: the form it reads INT8 from best, its compiler and its session.

Nothing outside of this package imports its modules; `targets` finds it by name.
"""
