"""Profiles of msprof: its tables read (`tables`, `tasks`), idle time and its causes, the matrix units' use. Running
msprof is `targets/ascend/profiling`; showing a profile is `report`, which knows no vendor.
"""
