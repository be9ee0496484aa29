import json
from pathlib import Path

import pytest

from spec_eval import cli
from tests.prompts.prepare.made_up import HLE, MMLU, OURS, PLAIN, fill_sources, publish
from tests.prompts.prepare.test_tool import checkout


def outcome(argv: list[object], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        cli.main(["prepare", "speed-bench", *map(str, argv)])
    captured = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return int(left.value.code), captured.out, captured.err


def test_what_is_ready_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up, published = fill_sources(tmp_path / "sources"), publish(tmp_path / "published", OURS)
    out = tmp_path / "out"
    code, said, err = outcome(
        ["--config", "qualitative", "--published", published, "-o", out, "--sources", made_up], capsys
    )
    assert (code, said) == (0, f"{out / 'qualitative.jsonl'}\n")
    assert err == "spec-eval: qualitative: 7 rows, the suite pins 880 and will refuse them\n"
    assert json.loads((out / "qualitative.prepared.json").read_text())["rows"] == 7


def test_rows_that_remain_are_exit_4_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published, out = publish(tmp_path / "published", [HLE, MMLU, PLAIN]), tmp_path / "out"
    code, said, err = outcome(["--config", "qualitative", "--published", published, "-o", out], capsys)
    assert (code, said, err.count("\n")) == (4, "", 1)
    assert "2 of 3 rows wait for their texts" in err
    assert "gated: accept its terms on the hub and set HF_TOKEN" in err
    assert list(out.iterdir()) == []


def test_all_configs_that_can_be_are_written_and_the_others_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up, published, out = fill_sources(tmp_path / "sources"), tmp_path / "published", tmp_path / "out"
    for size in (1, 2, 8, 16, 32):
        publish(published, [PLAIN, HLE] if size == 8 else [PLAIN], f"throughput_{size}k")
    publish(published, [HLE], "qualitative")
    code, said, err = outcome(["--config", "all", "--published", published, "-o", out, "--sources", made_up], capsys)
    assert code == 4
    assert [Path(line).name for line in said.splitlines()] == [
        f"{name}.jsonl"
        for name in ("qualitative", "throughput_1k", "throughput_2k", "throughput_16k", "throughput_32k")
    ]
    assert "throughput_8k: nothing written, 1 of 2 rows" in err
    assert not (out / "throughput_8k.jsonl").exists()


def test_config_that_is_not_published_ends_it_with_what_was_missing_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = publish(tmp_path / "published", [MMLU])
    code, _, err = outcome(["--config", "all", "--published", published, "-o", tmp_path / "out"], capsys)
    assert code == 4
    assert "TIGER-Lab/MMLU-Pro" in err
    assert "throughput_1k.jsonl there" in err
    assert "throughput_2k.jsonl there" not in err


def test_dry_run_counts_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published, out = publish(tmp_path / "published", [*OURS, MMLU]), tmp_path / "out"
    code, said, err = outcome(["--config", "qualitative", "--published", published, "-o", out, "--dry-run"], capsys)
    assert (code, err) == (0, "")
    first, *others = said.splitlines()
    assert first == "qualitative: 8 rows, 7 placeholders"
    assert "  1 of cais/hle (spec-eval sets its text in; gated: accept its terms on the hub and set HF_TOKEN)" in others
    assert "  1 of TIGER-Lab/MMLU-Pro (needs --tool)" in others
    assert len(others) == 7
    assert not out.exists()


def test_prepared_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published, out = publish(tmp_path / "published", [PLAIN]), tmp_path / "out"
    argv: list[object] = ["--config", "qualitative", "--published", published, "-o", out]
    assert outcome(argv, capsys)[0] == 0
    code, _, err = outcome(argv, capsys)
    assert code == 2
    assert "give --force" in err
    assert outcome([*argv, "--force"], capsys)[0] == 0


def test_tool_is_run_only_when_asked_and_sources_are_not_read_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published, out = publish(tmp_path / "published", [HLE]), tmp_path / "out"
    tool = checkout(tmp_path / "tool", [{**HLE, "turns": ["By the tool."]}])
    argv: list[object] = ["--config", "qualitative", "--published", published, "-o", out, "--tool", tool]
    code, said, err = outcome([*argv, "--sources", tmp_path], capsys)
    assert (code, said) == (0, f"{out / 'qualitative.jsonl'}\n")
    assert "--sources is not read" in err
    assert "no git checkout" in err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--config", "quantitative", "-o", "x"], "quantitative"),
        (["--config", "qualitative"], "--out"),
        (["--config", "qualitative", "-o", "x", "--sources", "nowhere"], "--sources nowhere: no such folder"),
        (["--config", "qualitative", "-o", "x", "--tool", "nowhere"], "--tool nowhere"),
    ],
)
def test_wrong_arguments_are_one_line_with_exit_2(
    argv: list[object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, err = outcome(argv, capsys)
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_left_stops_no_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(_text: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("spec_eval.cli.prepare.say", left)
    published, out = tmp_path / "published", tmp_path / "out"
    for size in (1, 2, 8, 16, 32):
        publish(published, [PLAIN], f"throughput_{size}k")
    publish(published, [PLAIN], "qualitative")
    assert outcome(["--config", "all", "--published", published, "-o", out], capsys)[:2] == (0, "")
    assert len(list(out.glob("*.jsonl"))) == 6
