"""Which cards `--devices` names, and a service that goes on when one of them hangs."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.emulated_cann import emulated_environment, switched_on
from tests.serve.making import make_bundle
from workbench.bundle.opened import read_bundle
from workbench.serve.dispatch import Dispatch
from workbench.serve.metrics import Metrics
from workbench.serve.service import Service
from workbench.serve.settings import Limits, ServeSettings
from workbench.serve.workers import Place, places_of
from workbench.targets.ascend.settings import ASCEND
from workbench.values.errors import ToolchainError, WorkbenchError
from workbench.values.service import ServiceSettings


def test_cards_are_taken_all_by_number_or_by_name_and_others_are_refused(tmp_path: Path) -> None:
    with switched_on(emulated_environment(tmp_path, CANN_EMULATOR_DEVICES="4")):
        for wanted, cards in (
            (None, "0123"),
            ("all", "0123"),
            ("2", "01"),
            ("0,1,3", "013"),
            ("3,", "3"),
            ("3, 1", "13"),
        ):
            places = places_of(ASCEND, wanted)
            assert [place.card for place in places] == list(cards)
            assert {place.device for place in places} == {0}, "each worker sees its own card alone"
            assert [place.environment["ASCEND_RT_VISIBLE_DEVICES"] for place in places] == list(cards)
        with pytest.raises(ToolchainError, match=r"no card 5, 7 of target \S+, only 0, 1, 2, 3\. .*npu-smi"):
            places_of(ASCEND, "0,5,7")


def test_a_card_that_hangs_is_taken_out_its_batch_runs_on_another_and_it_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        bundle = read_bundle(make_bundle(tmp_path))
        service = ServiceSettings(max_batch_size=2, batch_timeout_ms=0.0, workers=1)
        settings = ServeSettings(service=service, limits=Limits(batch_timeout_s=3.0), policy="warn")
        places = [Place(card=name, environment={}) for name in ("first", "second")]
        given_up: list[WorkbenchError] = []
        queue = Dispatch(bundle, settings, Metrics(), places, given_up.append)
        queue.start()
        while not queue.proved:
            await asyncio.sleep(0.02)
        assert (queue.health()[0], queue.health()[1]["status"]) == (200, "ok")

        process = queue.all[0].process
        assert process is not None
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        front = Service(bundle, settings, Metrics(), queue)
        asked = [front.predict(b'{"text": "anna paid"}', time.perf_counter()) for _ in range(12)]
        answers, said = asyncio.gather(*asked), list[tuple[int, dict[str, Any]]]()
        while not answers.done() or queue.ready < 2:
            said.append(queue.health())
            await asyncio.sleep(0.02)

        assert ({json.loads(answer)["label"] for answer in answers.result()}, given_up) == ({"no"}, [])
        assert {status for status, _ in said} == {200}, "the other card serves"
        assert ["first"] in [about.get("cards_out") for _, about in said]
        assert [about["card"] for about in queue.health()[1]["workers"]] == ["first", "second"]
        assert [about["restarts"] for about in queue.health()[1]["workers"]] == [1, 0]
        front.stop()
        await queue.end()

    asyncio.run(asyncio.wait_for(story(), 60))
