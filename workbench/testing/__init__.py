"""What every target must do, as tests: for whoever writes one, here and elsewhere. It needs pytest.

    from workbench.testing.conformance import TargetConformance

`conformance` holds the suites, which one subclasses; `encoder` the small model that they take through a target. Nothing
that a command runs imports this room, and no vendor is named in it.
"""

import pytest

pytest.register_assert_rewrite("workbench.testing.conformance")
