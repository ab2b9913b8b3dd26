"""Which outputs a bundle keeps for a replay."""

import numpy as np

from workbench.shipping.handover import comparable
from workbench.values.interface import OutputUse


def test_texts_and_what_is_ignored_and_infinite_are_not_kept() -> None:
    outputs = {
        "label": np.array(["a", "b"], dtype=object),
        "masked": np.array([-np.inf, 0.0]),
        "beside": np.array([1.0, 2.0]),
        "found": np.zeros((1, 0), dtype=np.int64),
    }
    uses = [OutputUse(name=name, meaning="ignored") for name in ("label", "masked", "beside")]

    assert comparable([outputs], uses) == ("beside", "found")
    assert comparable([outputs], ()) == ("masked", "beside", "found")  # refused later: it is compared
