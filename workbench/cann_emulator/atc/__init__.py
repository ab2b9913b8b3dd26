"""The emulated offline model compiler: `python -m workbench.cann_emulator.atc`, started by `<root>/bin/atc`."""
