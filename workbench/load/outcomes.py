"""What became of a request that has no HTTP status."""

from __future__ import annotations

CLOSED, TIMEOUT, GARBAGE, REFUSED, UNSENT = -1, -2, -3, -4, -5
ERROR_KINDS = {
    CLOSED: "connection closed before the answer was whole",
    TIMEOUT: "no answer in time",
    GARBAGE: "no HTTP answer",
    REFUSED: "no connection",
    UNSENT: "not sent: too many outstanding",
}
"""Outcomes that are no HTTP status; below zero in the recorded arrays."""
