import io
import json

from rich.console import Console

from workbench.commands.doctor import Finding, exit_code, findings_json, findings_table

MADE = (
    Finding(group="machine", name="CPU", status="ok", value="a [bold]bracketed[/bold] CPU"),
    Finding(group="packages", name="export", status="warn", value="missing: torch", remedy="pip install 'a[export]'"),
    Finding(group="workspace [x]", name="disk", status="fail", value="0.1 GB free", remedy="Free some space."),
)


def test_one_failure_decides_the_exit_code() -> None:
    assert (exit_code(MADE[:2]), exit_code(MADE)) == (0, 1)


def test_the_json_form_says_whether_the_machine_is_usable() -> None:
    data = json.loads(json.dumps(findings_json(MADE)))

    assert (data["version"], data["usable"], len(data["findings"])) == (1, False, 3)
    assert data["findings"][2] == {
        "group": "workspace [x]",
        "name": "disk",
        "status": "fail",
        "value": "0.1 GB free",
        "remedy": "Free some space.",
    }
    assert findings_json(MADE[:2])["usable"] is True


def test_the_table_shows_groups_values_and_remedies_as_they_are() -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(findings_table(MADE))
    text = console.export_text()

    assert "a [bold]bracketed[/bold] CPU" in text
    assert "→ pip install 'a[export]'" in text
    assert text.index("machine") < text.index("workspace [x]") < text.index("0.1 GB free")
