"""The Ascend target on the waist's conformance suite: on the emulated CANN, and on a device where one is there."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment, switched_on
from workbench.targets.ascend.acl import process as acl_process
from workbench.targets.ascend.installation import find_installation
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.targets.ascend.toolchain import ascend_toolchain
from workbench.testing.conformance import BATCH, LENGTH, TargetConformance
from workbench.testing.encoder import save, tiny_encoder
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import ToolchainError

FLOAT = Candidate(
    target=ASCEND,
    precision=Precision(mode="force_fp16"),
    compile=AscendCompile(batches=(BATCH,), sequence_bins=(LENGTH,)),
)


class AscendConformance(TargetConformance):
    """What both places share. A float output is FP16 arithmetic, so it is compared as halves are."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, place: None) -> AscendTarget:
        return AscendTarget()

    @pytest.fixture(scope="class")
    @classmethod
    def model_path(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return save(tiny_encoder(), tmp_path_factory.mktemp("encoder") / "model.onnx")

    @pytest.fixture(scope="class")
    @classmethod
    def float_candidate(cls) -> Candidate:
        return FLOAT

    @pytest.fixture(scope="class")
    @classmethod
    def rows_candidate(cls, static_candidate: Candidate) -> Candidate:
        return replace(static_candidate, compile=AscendCompile(batches=(BATCH,)))


class TestAscendOnTheEmulator(AscendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        from workbench.cann_emulator.acl import handles

        with switched_on(emulated_environment(tmp_path_factory.mktemp("cann"))):
            assert ascend_toolchain().emulated
            yield
        assert handles.left_behind() == []


class TestAscendOnADevice(AscendConformance):
    """The same file on the real thing."""

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls) -> Iterator[None]:
        try:
            installation = find_installation(os.environ)
            if installation.emulator is not None:
                pytest.skip("CANN is emulated here; the class above covers that")
            ascend_toolchain()
        except ToolchainError as error:
            fact, _, _ = str(error).partition(". ")
            pytest.skip(f"no Ascend device: {fact}")
        yield
        acl_process.shut_down()
