"""The emulated offline model compiler: `python -m workbench.cann_emulator.atc`, started by `<root>/bin/atc`.

What is wrong raises an `AtcFailure` with the code that stands at its place.
"""
