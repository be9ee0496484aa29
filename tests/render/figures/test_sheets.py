import csv
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest

from spec_eval import __version__
from spec_eval.errors import UsageError
from spec_eval.render.figures import charts, sheets
from spec_eval.store import RunFolder
from tests.factories import answered, from_histogram
from tests.render.figures.samples import EASY, HALF, arms, easy, folder

STEMS = ("positions", "acceptance-by-category", "acceptance-by-length")
NAMES = [*(f"{stem}.{end}" for stem in STEMS for end in ("svg", "png", "csv")), "provenance.json"]


def written(where: Path, *folders: RunFolder) -> Path:
    found = charts.read(folders)
    drawn, notes = charts.all_of(found)
    paths = sheets.write(found, drawn, notes, where)
    assert all(path.is_file() for path in paths)
    return where


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def svg_texts(path: Path) -> list[str]:
    return ["".join(e.itertext()) for e in ElementTree.parse(path).iter() if e.tag.endswith("}text")]


def test_all_files_are_named_in_order(tmp_path: Path) -> None:
    found = arms(tmp_path)
    drawn, notes = charts.all_of(found)
    assert [path.name for path in sheets.write(found, drawn, notes, tmp_path / "new" / "plots")] == NAMES


def test_numbers_are_worked_out_by_hand_and_gaps_are_empty(tmp_path: Path) -> None:
    out = written(tmp_path / "plots", folder(tmp_path, synthetic="told"))
    easy_row, hard, never, overall = table(out / "acceptance-by-category.csv")
    assert [row["group"] for row in (easy_row, hard, never, overall)] == ["easy", "hard", "never", "overall, pooled"]
    assert float(easy_row["value"]) == 1.5
    assert float(easy_row["low"]) == pytest.approx(1.5 - HALF, abs=1e-6)
    assert float(easy_row["high"]) == pytest.approx(1.5 + HALF, abs=1e-6)
    assert (easy_row["conversations"], easy_row["empty"]) == ("20", "False")
    assert (float(hard["value"]), hard["low"], hard["high"]) == (1.2, "", "")
    assert hard["note"] == "no interval: under 20 conversations"
    assert (never["value"], never["low"], never["conversations"], never["empty"]) == ("", "", "", "True")
    assert (float(overall["value"]), overall["row"], overall["dataset"]) == (1 + 11 / 25, "overall", "")
    assert {(row["run_id"], row["labels"], row["synthetic"]) for row in (easy_row, never)} == {
        ("one", "synthetic", "told")
    }
    by_length = table(out / "acceptance-by-length.csv")
    assert [(row["prompt_length"], row["value"], row["empty"]) for row in by_length][:3] == [
        ("0-8192", "1.5", "False"),
        ("8193-16384", "1.2", "False"),
        ("16385-32768", "", "True"),
    ]
    assert [(row["group"], row["position"], row["value"]) for row in table(out / "positions.csv")] == [
        ("easy", "1", "0.5"),
        ("hard", "1", "0.2"),
        ("never", "", ""),
        ("overall, pooled", "1", "0.44"),
    ]
    assert "nan" not in "".join(path.read_text(encoding="utf-8").lower() for path in out.glob("*.csv"))


def test_two_processes_and_a_matplotlib_of_the_users_own_give_the_same_bytes(tmp_path: Path) -> None:
    run = folder(tmp_path)
    style = tmp_path / "matplotlibrc"
    style.write_text("font.size: 20\nsavefig.facecolor: red\nsvg.fonttype: path\n")
    for name, own in (("a", {}), ("b", {"MATPLOTLIBRC": str(style), "PYTHONHASHSEED": "7"})):
        argv = [sys.executable, "-m", "spec_eval", "plot", str(run.path), "-o", str(tmp_path / name)]
        subprocess.run(argv, check=True, capture_output=True, env={**os.environ, **own}, timeout=120)
    assert sorted(NAMES) == sorted(path.name for path in (tmp_path / "a").iterdir())
    for name in NAMES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_every_label_is_text_in_the_svg(tmp_path: Path) -> None:
    names = ["coding", "a$b$ c$", "<b>&amp;", "_lead", "数学", 'say "x"', "bell\x07and\ud800half"]
    units = [(f"p{i}", name, 1) for i, name in enumerate(names)]
    records = [answered(from_histogram((1, 1)), prompt_id=p, category=c) for p, c, _ in units]
    out = written(tmp_path / "plots", folder(tmp_path, units=units, records=records, drafter="_d$x$"))
    shown = {*names[:-1], "bell and half"}
    for stem in STEMS[:2]:
        assert shown | {"overall, pooled", "_d$x$"} <= set(svg_texts(out / f"{stem}.svg"))
    assert b"<dc:date>" not in (out / "positions.svg").read_bytes()


def test_eleven_categories_are_all_there(tmp_path: Path) -> None:
    names = [f"kind-{i}" for i in range(11)]
    units = [(f"p{i}", name, 1) for i, name in enumerate(names)]
    records = [answered(from_histogram((1, 1)), prompt_id=p, category=c) for p, c, _ in units]
    out = written(tmp_path / "plots", folder(tmp_path, units=units, records=records))
    for stem in STEMS[:2]:
        found = svg_texts(out / f"{stem}.svg")
        assert [name for name in found if name.startswith("kind-")] == names


def test_the_picture_has_its_own_opaque_paper(tmp_path: Path) -> None:
    from matplotlib.image import imread

    out = written(tmp_path / "plots", folder(tmp_path))
    for stem in STEMS:
        picture = imread(out / f"{stem}.png")
        assert picture.shape[1] == 1440
        assert picture[0, 0].tolist() == [1.0, 1.0, 1.0, 1.0]
        assert picture[..., 3].min() == 1.0


def test_provenance_tells_runs_settings_versions_and_files(tmp_path: Path) -> None:
    idle = folder(tmp_path, "idle", drafter="idle", records=[])
    out = written(tmp_path / "plots", folder(tmp_path, synthetic="told"), idle)
    document = json.loads((out / "provenance.json").read_text(encoding="utf-8"))
    versions = ("schema_version", "spec_eval_version", "renderer", "matplotlib_version")
    assert [document[name] for name in versions] == [1, __version__, "matplotlib", matplotlib.__version__]
    told = document["runs"][0]
    facts = {name: told[name] for name in ("run_id", "suite", "engine", "engine_version", "drafter", "k", "arm")}
    assert facts == {
        "run_id": "one",
        "suite": "chat",
        "engine": "vllm",
        "engine_version": "b1",
        "drafter": "eagle",
        "k": 1,
        "arm": "eagle",
    }
    assert (told["marks"], told["whole"], told["temperature"]) == (["synthetic"], True, 0.0)
    assert told["settings"] == {"chat.t0.c1": {"thinking": False}}
    assert {"synthetic", "failures", "few_conversations"} <= {warning["code"] for warning in told["warnings"]}
    assert [(f["name"], f["run_ids"]) for f in document["figures"]] == [(stem, ["one"]) for stem in STEMS]
    assert document["figures"][1]["title"] == "chat: acceptance length by category (synthetic)"
    for figure in document["figures"]:
        assert list(figure["files"]) == [f"{figure['name']}.{end}" for end in ("svg", "png", "csv")]
        for name, digest in figure["files"].items():
            assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert document["notes"] == [f"idle: no verification step was measured; not in {', '.join(STEMS)}"]


def test_figures_of_earlier_runs_do_not_stay_beside_this_provenance(tmp_path: Path) -> None:
    out = written(tmp_path / "plots", folder(tmp_path))
    (out / "mine.svg").write_text("kept")
    (out / "positions.csv").write_text("edited by hand")
    blind = folder(tmp_path, "blind", units=EASY, records=easy(prompt_tokens=None))
    (tmp_path / "one" / "keep").touch()
    written(out, blind)
    left = {path.name for path in out.iterdir()}
    assert left == {name for name in NAMES if "length" not in name} | {"mine.svg"}


@pytest.mark.parametrize(
    "content", ["", "[]", "[" * 5000, '{"figures": 3}', '{"figures": [{"files": {"../one/plan.json": "x"}}]}']
)
def test_a_provenance_that_is_none_harms_nothing(content: str, tmp_path: Path) -> None:
    out = tmp_path / "plots"
    out.mkdir()
    (out / "provenance.json").write_text(content)
    run = folder(tmp_path)
    written(out, run)
    assert sorted(NAMES) == sorted(path.name for path in out.iterdir())
    assert run.plan().run_id == "one"


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        written(tmp_path / "file", folder(tmp_path))
