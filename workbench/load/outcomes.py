"""What became of a request that has no HTTP status."""

from __future__ import annotations

CLOSED, TIMEOUT, GARBAGE, REFUSED, UNSENT = -1, -2, -3, -4, -5
BROKEN, CUT, NO_STREAM = -6, -7, -8
ERROR_KINDS = {
    CLOSED: "connection closed before the answer was whole",
    TIMEOUT: "no answer in time",
    GARBAGE: "no HTTP answer",
    REFUSED: "no connection",
    UNSENT: "not sent: too many outstanding",
    BROKEN: "an error in the middle of the stream",
    CUT: "the stream ended before it was complete",
    NO_STREAM: "an answer without a stream of events",
}
"""Outcomes that are no HTTP status; below zero in the recorded arrays."""
