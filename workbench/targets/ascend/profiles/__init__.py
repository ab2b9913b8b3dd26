"""Profiles of msprof: its tables read (`tasks`), what they come to (`read`). Running msprof is
`targets/ascend/profiling`; showing a profile is `report`, which knows no vendor.
"""
