"""The workflow that the documentation offers: valid, and made of commands that our command line knows."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from spec_eval.cli import app
from spec_eval.suite import find

WORKFLOW = Path(__file__).parent.parent / "docs" / "ci" / "acceptance.yml"


@pytest.fixture
def workflow() -> dict[Any, Any]:
    loaded = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def commands(workflow: dict[Any, Any]) -> list[list[str]]:
    """Every call of spec-eval in it, its variables filled in as a shell would."""
    values = {name: str(value) for name, value in workflow["env"].items()} | {"RUN": "results/a-run"}
    scripts = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    scripts += [line.removeprefix("#").strip() for line in WORKFLOW.read_text().splitlines() if line.startswith("#  ")]
    found = []
    for written in "\n".join(scripts).splitlines():
        line = written
        while inner := re.search(r'"?\$\((spec-eval [^()]*)\)"?', line):
            found.append(inner[1])
            line = line.replace(inner[0], values["RUN"])
        if line.startswith("spec-eval "):
            found.append(line)
    return [shlex.split(re.sub(r"\$(\w+)", lambda m: values[m[1]], one))[1:] for one in found]


def test_it_is_a_workflow(workflow: dict[Any, Any]) -> None:
    # YAML 1.1 reads the key "on" as true
    assert set(workflow) == {"name", True, "permissions", "env", "jobs"}
    (job,) = workflow["jobs"].values()
    assert job["runs-on"] == "ubuntu-latest"
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)


def test_its_commands_are_ours(workflow: dict[Any, Any]) -> None:
    group: Any = typer.main.get_command(app)
    found = commands(workflow)
    assert [one[0] for one in found] == ["run", "gate", "run", "baseline"]
    with group.make_context("spec-eval", ["list"]) as context:
        for name, *arguments in found:
            verb = group.get_command(context, name)
            assert verb.make_context(name, arguments, parent=context).params
    with pytest.raises(typer.TyperException):
        verb.make_context(name, ["--no-such-option"])
    assert find(workflow["env"]["SUITE"]).is_shipped
