"""The whole way of a throughput suite, with a stand-in for AIPerf."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval.drivers import aiperf
from spec_eval.render.progress import Progress
from spec_eval.run import windows
from tests.cli.throughput import SERVER, Face, X, Y, calls, cells, only, start, suite
from tests.llamacpp_server import LlamaCppServer


def test_figures_are_those_of_aiperf_to_the_last_digit(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path
) -> None:
    code, out, err = start(face, tmp_path, server)
    assert code == 0
    cell = cells(out)["c4-r1"]
    assert cell["native"]["output_token_throughput_per_user"]["avg"] == X
    assert cell["native"]["output_token_throughput"]["avg"] == Y
    # completed counts answers and errors; none failed here
    assert cell["requests"] == {"dispatched": 91, "completed": 87, "failed": 0, "dropped": 4}
    assert cell["server_window"]["tokens"] == 1840
    assert cell["server_window"]["tokens_per_second"] == pytest.approx(SERVER, rel=1e-12)
    assert cell["dropped"] == {"share": pytest.approx(1 - Y / SERVER), "basis": "tokens"}
    run = only(out.strip(), face)
    assert [point["concurrency"] for point in run["points"]] == [1, 4]  # measured as 4, 1
    assert [point["x"]["mean"] for point in run["points"]] == [X, X]
    assert "| 4 | 100.00 | 337.19 | 377.08 | 10.6% of tokens | 87 of 91 | 0 | 2.2947 | 1 |" in (
        Path(out.strip()) / "report.md"
    ).read_text(encoding="utf-8")
    assert "1/2 c4-r1: 337.19 tok/s, 100.00 tok/s/user, 87 of 91 requests" in err


def test_drafts_are_joined_to_prompts(face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path) -> None:
    _, out, _ = start(face, tmp_path, server)
    drafts = cells(out)["c1-r1"]["drafts"]
    # steps 17 + 36 + 67 + 70, accepted 25 + 43 + 88 + 90; p0 and p4 are even
    assert (drafts["answers"], drafts["requests"], drafts["prompts"], drafts["unknown_prompts"]) == (4, 4, 4, 0)
    assert (drafts["steps"], drafts["accepted"], drafts["drafted"]) == (190, 246, 570)
    assert drafts["histogram"] == [58, 55, 40, 37]
    assert drafts["by_category"] == {
        "even": {"requests": 2, "steps": 84, "accepted": 113},
        "odd": {"requests": 2, "steps": 106, "accepted": 133},
    }
    assert only(out.strip(), face)["points"][0]["window_acceptance_length"] == pytest.approx(1 + 246 / 190)


def test_the_command_is_the_published_one(face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path) -> None:
    _, out, _ = start(face, tmp_path, server, "--thinking", "off", "--max-tokens", "99", levels="[4]")
    [call] = calls(seen)
    argv = call["argv"]
    values = {word: argv[i + 1] for i, word in enumerate(argv[:-1]) if word.startswith("--")}
    assert (values["--concurrency"], values["--url"], values["--export-level"]) == ("4", server.url[:-3], "raw")
    assert (values["--warmup-duration"], values["--warmup-grace-period"]) == ("2", "0")
    assert (values["--benchmark-duration"], values["--benchmark-grace-period"]) == ("5", "0")
    assert json.loads(values["--extra-inputs"]) == {
        "chat_template_kwargs": {"enable_thinking": False},
        "max_completion_tokens": 99,
        "temperature": 0.0,
    }
    assert {"--use-server-token-count", "--per-chunk-usage", "--streaming"} <= set(argv)
    assert Path(values["--output-artifact-dir"]) == (Path(out.strip()) / "cells" / "c4-r1").absolute()
    lines = Path(values["--input-file"]).read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    # first 31 bits of sha256("0|p0|0|0")
    seed = int.from_bytes(hashlib.sha256(b"0|p0|0|0").digest()[:4], "big") >> 1
    assert first == {"session_id": "p0", "text": "Answer: Question number 0?", "extra": {"seed": seed}}
    assert len(lines) == 6


def test_llamacpp_gets_its_switch_and_no_connection_twice(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path
) -> None:
    path = suite(tmp_path / "suite", levels="[2]")
    face("run", path, "--engine", "llamacpp", "--base-url", server.url, "--drafter", "d", "--out", tmp_path / "runs")
    argv = calls(seen)[0]["argv"]
    assert argv[argv.index("--connection-reuse-strategy") + 1] == "never"
    extra = json.loads(argv[argv.index("--extra-inputs") + 1])
    assert (extra["timings_per_token"], extra["cache_prompt"]) == (True, False)


@pytest.mark.parametrize(
    ("mode", "outcome", "detail"),
    [
        ("zero", "zero completions", "4 requests were cut off by the end of the window"),
        ("failed", "all failed", "1398 requests"),
        ("killed", "killed", "by signal 9"),
        ("broken", "AIPerf failed", "no tokenizer of that name; exit code 1"),
    ],
)
def test_every_outcome_has_a_name_and_is_a_hole(
    face: Face,
    tmp_path: Path,
    server: LlamaCppServer,
    seen: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    outcome: str,
    detail: str,
) -> None:
    monkeypatch.setenv("FAKE_AIPERF", json.dumps({"c1": mode}))
    code, out, err = start(face, tmp_path, server)
    assert code == 5
    assert f"1 of 2 cells have no figures (c1-r1 {outcome})" in err.splitlines()[-1]
    cell = cells(out)["c1-r1"]
    assert (cell["outcome"], cell["detail"], cell["native"]) == (outcome, detail, {})
    point = only(out.strip(), face)["points"][0]
    assert (point["x"], point["y"], point["holes"]) == (None, None, [f"repeat 1: {outcome}"])
    assert face("report", out.strip())[0] == 5
    assert (Path(out.strip()) / "cells" / "c1-r1.out").read_text(encoding="utf-8") or mode == "killed"


def test_a_cell_that_does_not_end_is_given_up(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_AIPERF", json.dumps({"c1": "hang"}))
    monkeypatch.setattr(aiperf, "ALLOWANCE_S", -6.0)  # 2 s of warm-up and 5 s of window leave 1 s
    code, out, err = start(face, tmp_path, server, levels="[1]")
    assert (code, cells(out)["c1-r1"]["outcome"]) == (3, "timed out")
    assert "1 of 1 cells have no figures (c1-r1 timed out)" in err


def test_a_cell_lost_to_an_interruption_is_measured_again_and_no_other(
    tmp_path: Path, face: Face, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = aiperf.run
    done = []

    def run(*argv: Any, **more: Any) -> aiperf.Ended:
        done.append(argv)
        if len(done) == 2:
            raise KeyboardInterrupt
        return real(*argv, **more)

    monkeypatch.setattr(aiperf, "run", run)
    code, out, err = start(face, tmp_path, server, levels="[4, 1, 2]")
    assert code == 5
    assert f"go on with `spec-eval run --resume {out.strip()}`" in err
    assert list(cells(out)) == ["c4-r1"]
    assert face("report", out.strip())[0] == 5
    monkeypatch.setattr(aiperf, "run", real)
    assert face("run", "--resume", out.strip())[0] == 0
    assert list(cells(out)) == ["c4-r1", "c1-r1", "c2-r1"]
    assert [call["level"] for call in calls(seen)] == ["4", "1", "2"]
    assert "nothing to do" in face("run", "--resume", out.strip())[2]


def test_holes_are_tried_again_in_a_folder_of_their_own(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_AIPERF", json.dumps({"c1#1": "zero"}))
    _, out, _ = start(face, tmp_path, server)
    assert face("run", "--resume", out.strip())[0] == 0
    assert cells(out)["c1-r1"]["folder"] == "cells/c1-r1.2"
    assert [call["level"] for call in calls(seen)] == ["4", "1", "1"]
    assert only(out.strip(), face)["points"][0]["x"]["mean"] == X


def test_an_aiperf_of_another_version_is_refused(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_AIPERF_VERSION", "0.14.1")
    code, _, err = start(face, tmp_path, server)
    assert code == 4
    assert "AIPerf 0.14.1 (SPEC_EVAL_AIPERF), and its files are read as 0.13 writes them" in err
    assert not (tmp_path / "runs").exists()
    code, out, _ = start(face, tmp_path, server, "--any-aiperf")
    assert (code, cells(out)["c1-r1"]["aiperf_version"]) == (0, "0.14.1")


def test_an_aiperf_that_is_nowhere_is_told_with_the_remedy(
    face: Face, tmp_path: Path, server: LlamaCppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPEC_EVAL_AIPERF", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    code, _, err = start(face, tmp_path, server)
    assert (code, "AIPerf is missing: `pip install 'spec-eval[aiperf]'`" in err) == (4, True)
    code, _, err = start(face, tmp_path, server, "--aiperf", tmp_path / "no")
    assert (code, f"--aiperf {tmp_path / 'no'}: no program there" in err) == (4, True)


def test_the_key_is_in_the_environment_alone(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-hush-0123456789"
    monkeypatch.setenv("OTHER_KEY", secret)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    code, out, err = start(face, tmp_path, server, "--api-key-env", "OTHER_KEY", levels="[4]")
    assert code == 0
    [call] = calls(seen)
    assert call["key"] == hashlib.sha256(secret.encode()).hexdigest()
    files = [path for path in Path(out.strip()).rglob("*") if path.is_file()]
    texts = [out, err, json.dumps(call["argv"]), *(path.read_text(encoding="utf-8") for path in files)]
    assert len(files) > 10
    assert not any(secret in text or "sk-of-somebody-else" in text for text in texts)


def test_a_local_tokenizer_is_not_looked_for_on_the_hub(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    start(face, tmp_path, server, levels="[4]")
    start(face, tmp_path, server, "--tokenizer", "someone/model", levels="[4]")
    assert [call["offline"] for call in calls(seen)] == [[None, None], ["1", "1"]]


def test_a_lone_request_that_cannot_end_is_told_before(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path
) -> None:
    need = "c1-r1: an answer of 1000 tokens needs more than 200 tokens/s to end in 5 s"
    assert (
        f"{need}, and no speed is known yet" in start(face, tmp_path, server, "--max-tokens", "1000", levels="[1]")[2]
    )
    assert f"{need}, and 100 were seen so far" in start(face, tmp_path, server, "--max-tokens", "1000")[2]
    assert "were seen so far" not in start(face, tmp_path, server, "--max-tokens", "400")[2]


def test_cells_go_by_repeat_and_repeats_weigh_the_same(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path
) -> None:
    _, out, _ = start(face, tmp_path, server, "--repeats", "2")
    assert [call["level"] for call in calls(seen)] == ["4", "1", "4", "1"]
    point = only(out.strip(), face)["points"][1]
    assert (point["concurrency"], point["x"]["repeats"], point["dispatched"]) == (4, 2, 182)


def test_other_verbs_and_options_refuse_what_they_cannot_use(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path
) -> None:
    _, out, _ = start(face, tmp_path, server, levels="[4]")
    run = out.strip()
    pair = tmp_path / "suite" / "pair.toml"
    common = ("--engine", "llamacpp", "--base-url", server.url, "--out", tmp_path / "runs")
    code, _, err = face("run", pair, *common, "--duration", "3")
    assert (code, "--duration: for throughput suites" in err) == (2, True)
    _, other, _ = face("run", pair, *common)
    code, _, err = face("report", run, other.strip())
    assert (code, "a throughput run among runs of requests" in err) == (2, True)
    code, _, err = face("compare", run, other.strip())
    assert (code, "a throughput run" in err) == (2, True)
    code, _, err = face("report", run, "--by", "turn")
    assert (code, "--by: for runs of requests" in err) == (2, True)
    code, _, err = face("plot", other.strip(), "--baseline", run)
    assert (code, "--baseline: for throughput runs" in err) == (2, True)


def test_a_dry_run_sends_nothing(face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path) -> None:
    code, out, _ = start(face, tmp_path, server, "--dry-run")
    assert (code, calls(seen)) == (0, [])
    assert "2 cells of AIPerf 0.13.0" in out
    assert not (tmp_path / "runs").exists()


def test_an_unknown_prefix_cache_is_warned_of(face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path) -> None:
    assert "warning: whether prefix caching is on is not known" in start(face, tmp_path, server, levels="[4]")[2]


def test_resume_says_what_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"schema_version": 1}', encoding="utf-8")
    with pytest.raises(Exception, match="no throughput run"):
        windows.resume(tmp_path, Progress())
