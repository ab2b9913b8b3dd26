"""What a user subclasses for accuracy_based_auto_calibration (amct.md §1.5)."""

from __future__ import annotations

from typing import Any


class AutoCalibrationEvaluatorBase:
    """Calibrates and judges models for the search; all three methods are the user's."""

    def calibration(self, model_file: str) -> None:
        """Run at least batch_num forwards of a modified model, in one session that has AMCT_SO."""
        raise NotImplementedError

    def evaluate(self, model_file: str) -> Any:
        """The metric of a float or fake-quant model."""
        raise NotImplementedError

    def metric_eval(self, original_metric: Any, new_metric: Any) -> tuple[bool, float]:
        """Whether the loss is acceptable, and the loss."""
        raise NotImplementedError
