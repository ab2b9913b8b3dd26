"""The vendor's AMCT, run in its own interpreter: installation, process, settings, files.

Its texts are read and written by `quantization.amct`.
"""
