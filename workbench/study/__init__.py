"""One model rather than a sweep: inspection, calibration by an AMCT configuration, comparison layer by layer.

Nothing here proposes candidates or writes a journal.
"""
