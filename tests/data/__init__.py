"""Recorded files that tests read; a README beside each set says what they are and where they come from."""

from pathlib import Path

AMCT = Path(__file__).parent / "amct"
"""What the vendor's AMCT wrote for small models, a folder for each case."""

AMCT_CASES = sorted(path.name for path in AMCT.iterdir() if path.is_dir())
