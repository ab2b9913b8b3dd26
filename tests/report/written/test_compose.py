"""What a written report says, in both languages, of everything there is and of next to nothing."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.evaluations import service
from tests.report.summaries import held_out
from tests.report.written.materials import (
    AGREEMENT,
    BAD,
    INT8,
    LOAD,
    VERDICT,
    compared,
    criterion,
    estimate,
    least,
    most,
)
from workbench.load.run import _doubts
from workbench.prediction.capacity import LimitedBy
from workbench.report.written import compose, performance
from workbench.report.written.compose import written_report
from workbench.report.written.document import (
    Bullets,
    Cell,
    Commands,
    Document,
    Figure,
    Heading,
    Language,
    Paragraph,
    Section,
    Table,
)
from workbench.report.written.wording import about_words, chinese, marked, note_words, speaking
from workbench.shipping.acceptance.baseline import LIMITED, of_load, read_baseline
from workbench.shipping.acceptance.criteria import evaluate
from workbench.values.measurement import Estimate
from workbench.values.metrics import METRICS
from workbench.values.sequential import Gate, decide
from workbench.values.service import ServiceLoad

ROOT = Path(__file__).parents[3]

BOTH = pytest.mark.parametrize("language", ["zh", "en"])


def tables(document: Document) -> Iterator[Table]:
    yield from (block for section in document.sections for block in section.blocks if isinstance(block, Table))


def words(document: Document) -> str:
    """Everything that is read in it, cells with their marks."""
    found: list[str] = [document.title, document.mark]
    for section in document.sections:
        found.append(section.title)
        for block in section.blocks:
            if isinstance(block, Table):
                found += [block.caption, *block.heads, block.note]
                with speaking(document.language):
                    found += [marked(cell) for row in block.rows for cell in row]
            elif isinstance(block, Paragraph | Heading):
                found.append(block.text)
            elif isinstance(block, Bullets):
                found += block.items
            elif isinstance(block, Figure):
                found.append(block.caption)
    return "\n".join(found)


def section(document: Document, name: str) -> Section:
    return next(s for s in document.sections if name in s.title)


def goal(document: Document, name: str) -> tuple[Cell, ...]:
    table = next(b for b in document.sections[0].blocks if isinstance(b, Table))
    return next(row for row in table.rows if row[0].text == name)


def conclusion(document: Document) -> Paragraph:
    first = document.sections[0].blocks[0]
    assert isinstance(first, Paragraph)
    return first


@BOTH
def test_it_has_the_parts_of_such_a_report_and_what_nobody_measured_is_no_empty_cell(language: Language) -> None:
    wanted = {
        "zh": "结论 判定依据 环境 转换 精度比对 INT8 性能 服务 容量与成本 风险 变更 复现",
        "en": "Conclusion How Environment Conversion Precision INT8 Performance Service Capacity Risks Record Commands",
    }[language].split()
    document, full = (written_report(material, language) for material in (least(), most()))
    for titles in ([s.title for s in one.sections] for one in (document, full)):
        assert [part for part, title in zip(wanted, titles, strict=True) if part in title] == wanted
    for table in tables(document):
        assert all(cell.text for row in table.rows for cell in row), table.caption
    compared = next(t for t in tables(document) if "执行路径" in t.caption or "each path" in t.caption)
    unmeasured = {"zh": "未测", "en": "not measured"}[language]
    assert all(row[1].text == unmeasured for row in compared.rows)
    assert all(option in words(document) for option in ("--verdict", "--load", "--capacity", "--layers"))
    (cards,) = [t for t in tables(full) if "卡（中位数" in t.caption or "Cards" in t.caption]
    assert [cell.text for cell in cards.rows[0]][1:5] == ["0", "1.500 / 1.600", "295 / 301", unmeasured]
    warned = written_report(replace(least(), none_fits=True), language).sections[0].blocks[1]
    assert isinstance(warned, Paragraph)
    assert warned.kind == "warning", "that no candidate fits is said first"
    assert all(metric.label and metric.label_zh for metric in METRICS.values())


@BOTH
def test_a_briefing_takes_eight_minutes_and_has_the_conclusion_first(language: Language) -> None:
    whole, brief = (written_report(most(), language, form) for form in ("full", "briefing"))

    minutes = [int(m[1]) for one in brief.sections if (m := re.search(r"[（(](\d) ", one.title))]
    assert sum(minutes) == 8
    assert len(minutes) == len(brief.sections)
    assert conclusion(brief) == conclusion(whole)
    assert next(tables(brief)).rows == next(tables(whole)).rows, "every goal is told"
    risks = Table(caption="Risks", heads=("no.",), rows=tuple((Cell(text=str(n)),) for n in range(12)), strong=(9,))
    with speaking(language):
        (cut,), (kept,) = (tuple(compose.shortened([risks], every_row=every)) for every in (False, True))
    assert isinstance(cut, Table)
    assert (len(cut.rows), cut.strong, kept) == (8, (), risks)
    assert re.search(r"4 (more rows|行)", cut.note), "what is left out is counted"
    assert len(words(brief)) < len(words(whole)) / 2


def test_a_chinese_report_says_nothing_in_english_but_names_and_what_others_wrote() -> None:
    sentence = re.compile(r"[A-Za-z]{2,}(?: [a-z]{2,}){3,}")
    own = ("workbench", VERDICT.source)

    for material in (least(), least(is_emulated=True), most()):
        for line in words(written_report(material, "zh")).splitlines():
            assert not sentence.search(line) or any(word in line for word in own), line


@BOTH
def test_a_missed_goal_fails_the_whole_and_is_named(language: Language) -> None:
    document = written_report(most(), language)
    missed, kept, open_ = (goal(document, n) for n in {
        "zh": ("P99 时延", "吞吐", "P50 时延"), "en": ("P99 latency", "throughput", "P50 latency")
    }[language])  # fmt: skip

    assert conclusion(document).state == "missed"
    assert missed[0].text in conclusion(document).text
    assert [missed[4].state, kept[4].state, open_[4].state] == ["missed", "met", "plain"]
    assert open_[2].text == {"zh": "未测", "en": "not measured"}[language]


def test_goals_that_are_all_kept_pass_and_one_that_is_not_provable_or_predicted_decides_nothing() -> None:
    kept = replace(VERDICT, criteria=(criterion("throughput", estimate(1659.0), 800.0, "passed"),))
    unsure = replace(VERDICT, criteria=(*kept.criteria, criterion("p99", estimate(12.0, 1.0), 12.0, "not provable")))
    confirmed = replace(most(), confirmed=held_out(INT8, service(700.0, measured_per_s=690.0)))

    passed = written_report(replace(confirmed, verdict=kept), "en")
    undecided = written_report(replace(confirmed, verdict=unsure), "en")
    predicted = goal(written_report(most(), "en"), "P99 of the service")

    assert (conclusion(passed).state, "PASSED" in conclusion(passed).text) == ("met", True)
    assert (conclusion(undecided).state, "P99 latency" in conclusion(undecided).text) == ("open", True)
    assert (predicted[2].evidence, predicted[4].text) == ("predicted", "not measured (predicted within)")
    doubtful = replace(most(), loads=(replace(LOAD, reliable=False, notes=("interrupted: shorter than asked",)),))
    said, doubted = (words(written_report(one, "en")) for one in (most(), doubtful))
    assert ("A load test is not to be relied on" in doubted, "not to be relied on" in said) == (True, False)


@BOTH
def test_an_emulated_report_carries_its_mark_and_so_does_every_figure_of_times(language: Language) -> None:
    document = written_report(least(is_emulated=True), language)
    mark = {"zh": "推算", "en": "modelled"}[language]

    assert "EMULATED" in document.mark
    assert {"zh": "仿真预演", "en": "rehearsal"}[language] in conclusion(document).text
    calls = next(t for t in tables(document) if "单次推理" in t.caption or "One call" in t.caption)
    with speaking(language):
        for row in calls.rows:
            assert all(mark in marked(cell) for cell in row[1:] if cell.state != "open"), row[0].text
    assert not any(
        cell.text == "达标" or cell.text == "met" for t in tables(document) for row in t.rows for cell in row
    )
    assert written_report(least(), language).mark == ""


@BOTH
def test_fp16s_own_loss_and_what_int8_adds_stand_apart(language: Language) -> None:
    loss = next(b for b in section(written_report(most(), language), "INT8").blocks[::-1] if isinstance(b, Table))
    shown = [row[1].text.split(" [")[0] for row in loss.rows]

    assert shown == ["+0.20", "+0.05", "+0.20", "+0.25"]


def test_capacity_tells_cards_and_cost_of_each_candidate() -> None:
    said = words(written_report(most(), "zh"))

    assert "需求：5,000 请求/s，P99 ≤ 100 ms，突发余量 30%。" in said
    assert "由 450 张卡降至 90 张卡（预测），月成本由 3,287,250 降至 657,450" in said
    assert "任何速率都不满足 P99 限值" in said
    assert "成本：每卡每小时 10，全天运行。" in said


@BOTH
def test_a_bundles_report_needs_no_sweep(language: Language) -> None:
    document = written_report(replace(most(), summary=None, is_bundle=True, source="bundle"), language)

    assert "bundle" in dict(document.facts).values().__str__()
    assert {"zh": "部署包不含搜索过程", "en": "A bundle does not hold the search"}[language] in words(document)


def test_every_text_has_its_chinese_with_the_same_values_in_it_and_none_is_left_over() -> None:
    constants: set[str] = set(get_args(LimitedBy))
    for file in (ROOT / "workbench" / "report" / "written").glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        constants |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
            said = call.args[
                : {"say": 1, "paragraph": 1, "heading": 1, "section": 1, "label": 1, "table": 2}.get(call.func.id, 0)
            ]
            assert {a.value for a in said if isinstance(a, ast.Constant)} <= chinese()["texts"].keys(), file.name
    assert {*performance._GROUPS.values()} <= chinese()["texts"].keys()
    for english, text in chinese()["texts"].items():
        assert english in constants
        assert set(re.findall(r"{\w+}", english)) >= set(re.findall(r"{\w+}", text)), english


@BOTH
def test_the_first_bad_operator_on_the_device_is_named_with_what_mends_it(language: Language) -> None:
    document = written_report(replace(most(), comparison=compared(BAD)), language)
    said = words(document)

    assert "layer_0/softmax (SoftmaxV2)" in said
    assert {"zh": "数值超出 float16 的表示范围", "en": "numbers that float16 cannot hold"}[language] in said
    kept = [b for s in document.sections for b in s.blocks if isinstance(b, Commands)]
    assert ("# compile.keep_dtype", "layer_0/softmax") in [one.lines for one in kept]
    assert {"zh": "设备上的首个异常算子：layer_0/softmax。", "en": "bad operator on the device is layer_0/softmax"}[
        language
    ] in said
    assert "softmax" not in words(written_report(replace(most(), comparison=compared(None)), language))


NOTED = {
    "every figure missing": {},
    "an emulated device": {"emulated": True},
    "another load": {"loads": [of_load(LOAD)]},
    "that load and an agreement": {"loads": [of_load(replace(LOAD, length=512))], "agreement": AGREEMENT, "int8": True},
    "few answers": {"loads": [of_load(replace(LOAD, load=ServiceLoad(concurrency=1), length=512, answered=90))]},
    "a drop that few samples cannot prove": {"accuracy_loss_pp": estimate(0.3, 0.9), "accuracy_samples": 400},
    "no INT8": {"int8": False, "agreement": replace(AGREEMENT, missing={}, paths=())},
}


def test_whatever_a_load_notes_is_said_in_chinese_and_an_unknown_note_is_quoted() -> None:
    assert note_words("1 client") == "1 client"
    with speaking("zh"):
        assert note_words("1 client, length 512") == "并发 1；长度 512"
        assert note_words("something new") == "“something new”"
    end = {"interrupted": True, "failed_connections": 3}
    few, failing = (_doubts(requests, 90, 0.95, end) for requests in (90, 5000))

    drop = Estimate(value=0.4, low=0.1, high=0.7)
    gates = (Gate.around(0.5), Gate.around(0.5, 0.1), Gate.around(0.4, 0.0), Gate.around(0.9, 0.3), Gate.around(-1))
    said = [str(decide(gate, drop, samples=900, unit="pp")) for gate in gates]
    assert {found.split(",")[0].rpartition(" ")[2] for found in said} == {"undecided", "passed", "failed"}

    for notes in (*few, *failing, said):
        assert notes
        with speaking("zh"):
            assert not [note for note in notes if "“" in note_words(note)]


def test_whatever_a_verdict_notes_is_said_in_chinese() -> None:
    baseline = read_baseline(ROOT / "experiments" / "baselines" / "a100-triton.yaml")
    limits = {known.limit: 50.0 for known in LIMITED.values()}
    for case, given in NOTED.items():
        verdict = evaluate(replace(baseline, limits=limits), **given)  # type: ignore[arg-type]  # as each case says
        with speaking("zh"):
            notes = [about_words(each) for each in verdict.criteria]
        assert any(notes), case
        assert not [note for note in notes if "“" in note], case


@BOTH
def test_words_about_times_that_a_model_gave_speak_of_no_measurement(language: Language) -> None:
    document = written_report(replace(least(is_emulated=True), loads=(LOAD,), loads_emulated=True), language)
    measured = {"zh": re.compile("实测|计时调用|仿真预测"), "en": re.compile(r"\bmeasured\b|timed calls|predicted")}[
        language
    ]

    for table in tables(document):
        modelled = [any(row[at].evidence == "modelled" for row in table.rows) for at in range(len(table.heads))]
        assert not any(measured.search(head) for head, of_model in zip(table.heads, modelled, strict=True) if of_model)
        for row in table.rows:
            assert not (measured.search(row[0].text) and any(c.evidence == "modelled" for c in row)), row[0].text
    calls = next(t for t in tables(document) if {"zh": "单次推理", "en": "One call"}[language] in t.caption)
    assert not re.search({"zh": "计时调用", "en": "timed calls"}[language], calls.note)
    loads = next(t for t in tables(document) if {"zh": "主机时钟", "en": "host's clock"}[language] in t.caption)
    assert all(cell.evidence != "modelled" for row in loads.rows for cell in row)  # by a clock on the wall


@BOTH
def test_commands_that_make_it_again_are_those_that_were_run(language: Language) -> None:
    ran = "workbench load bundle --concurrency 8 --duration 4s --workers 1 --baseline base.yaml --to load"
    others = (replace(LOAD, command=ran), replace(LOAD, load=ServiceLoad(concurrency=1), length=512, command=ran))
    material = replace(most(), loads=others, verdict=replace(VERDICT, command=ran))

    lines = printed(written_report(material, language))

    assert [line for line in lines if line.startswith("workbench load")] == [ran]
    assert lines[-1] == material.command


@BOTH
def test_what_a_switch_left_out_of_int8_is_told_apart_from_what_is_sensitive(language: Language) -> None:
    left, out = {
        "zh": ("保留浮点的敏感层", "按设置不量化"),
        "en": ("sensitive layers left in float", "left out by a setting"),
    }[language]
    rows = {row[0].text: row[1].text for table in tables(written_report(most(), language)) for row in table.rows}

    assert rows[left] == "/l0/MatMul\n/l1/MatMul"
    assert rows[out] == {"zh": "两个激活相乘的矩阵乘", "en": "products of two activations"}[language]


def printed(document: Document) -> tuple[str, ...]:
    return next(b for b in document.sections[-1].blocks if isinstance(b, Commands)).lines
