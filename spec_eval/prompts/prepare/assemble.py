"""One config from published to prepared: every placeholder resolved, or a count of those that are not."""

import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spec_eval import __version__
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import rows
from spec_eval.prompts.load import STANDIN_WORDS
from spec_eval.prompts.prepare import ready, recipes, sources
from spec_eval.prompts.prepare.published import Published, data_of
from spec_eval.prompts.prepare.ready import Prepared
from spec_eval.prompts.prepare.recipes import Group, Key
from spec_eval.prompts.prepare.tool import Tool
from spec_eval.prompts.speed_bench import GATED, source_name

Why = Literal["ours", "tool", "gated", "out of reach", "held back"]
_TERMS = "accept its terms on the hub and set HF_TOKEN"


class StillMasked(EnvironmentFault):
    """Rows of a config wait for their texts, so nothing of it is written."""


@dataclass(frozen=True, slots=True)
class Left:
    """Rows of one source that wait. ours: we could; tool: only NVIDIA's preparer can; held back: not even tried."""

    name: str
    rows: int
    why: Why
    reason: str = ""

    @property
    def words(self) -> str:
        """For people."""
        said = {
            "ours": "spec-eval sets its text in" + (f"; gated: {_TERMS}" if self.name in GATED else ""),
            "tool": "needs --tool" + (f", and is gated: {_TERMS}" if self.name in GATED else ""),
            "gated": f"gated: {_TERMS}" + (f"; {self.reason}" if self.reason else ""),
            "out of reach": f"not to be had: {self.reason}",
            "held back": "not fetched yet" + (f"; gated: {_TERMS}" if self.name in GATED else ""),
        }[self.why]
        return f"{self.rows} of {self.name} ({said})"


def outlook(published: Published) -> list[Left]:
    """The sources of the waiting rows, and who can resolve them; nothing is fetched."""
    counts: Counter[tuple[str, Why]] = Counter()
    for number in published.waiting:
        row = published.rows[number]
        counts[source_name(row["source"]), "ours" if recipes.recipe_for(row, published.config) else "tool"] += 1
    return [Left(name, n, why) for (name, why), n in counts.most_common()]


def prepare(published: Published, out: Path, *, sources_dir: Path | None = None, tool: Tool | None = None) -> Prepared:
    """Write the config to `out`. With `tool` it comes from there as a whole, else from our recipes.

    StillMasked where a text is missing; UsageError where a source has no such record.
    """
    if published.standin and not any(word in out.resolve().name.lower() for word in STANDIN_WORDS):
        raise UsageError(f"{out}: the published rows are a stand-in; give an -o whose name says standin")
    notes = _notes(published)
    about: dict[str, Any] = {"name": "spec-eval", "version": __version__}
    if tool is not None and published.waiting:
        turns = tool.turns(published, out / f"{published.config}.tool.log")
        used = [_used(left.name, left.rows, None, "tool", {}) for left in _by_source(outlook(published))]
        about = {
            "name": tool.name,
            "commit": tool.commit,
            "changed": tool.changed,
            "run_by": f"spec-eval {__version__}",
        }
        if tool.commit is None:
            notes.append(f"{tool.name}: no git checkout, so that its commit is not recorded")
    else:
        turns, used = _resolve(published, sources_dir)
    path, sha256 = ready.write(published, turns, out, sources=used, tool=about)
    return Prepared(path, sha256, len(published.rows), tuple(notes))


def _resolve(published: Published, sources_dir: Path | None) -> tuple[list[list[str]], list[dict[str, Any]]]:
    turns: list[list[str]] = [row["turns"] for row in published.rows]
    groups: defaultdict[Group, dict[int, Key]] = defaultdict(dict)
    foreign: Counter[str] = Counter()
    problems: list[str] = []
    for number in published.waiting:
        row = published.rows[number]
        recipe = recipes.recipe_for(row, published.config)
        if recipe is None:
            foreign[source_name(row["source"])] += 1
            continue
        try:
            group, key = recipes.wanted(row, recipe)
        except ValueError as error:
            problems.append(_problem(published, number, error))
            continue
        groups[group][number] = key
    left = [Left(name, n, "tool") for name, n in foreign.items()]
    used: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="spec-eval-") as scratch:
        for group, keys in groups.items():
            if foreign and sources_dir is None:
                # Gigabytes that would not complete the config.
                left.append(Left(group.name, len(keys), "held back"))
                continue
            try:
                files = sources.find(group, sources_dir, Path(scratch))
            except sources.OutOfReach as error:
                why: Why = "gated" if error.gated or group.name in GATED else "out of reach"
                left.append(Left(group.name, len(keys), why, "" if error.gated else error.reason))
                continue
            found = recipes.take(group, files.paths, set(keys.values()))
            for number, key in keys.items():
                try:
                    if key not in found:
                        raise ValueError(f"no record {key!r} in {', '.join(path.name for path in files.paths)}")
                    turns[number] = recipes.texts(published.rows[number], group.recipe, found[key])
                except ValueError as error:
                    problems.append(_problem(published, number, error))
            hashes = {path.relative_to(files.folder).as_posix(): rows.sha256(path) for path in files.paths}
            used.append(_used(group.name, len(keys), files.revision, files.origin, hashes))
    rows.refuse(published.config, problems, "check that the sources are of the revisions that the rows name")
    if left:
        raise StillMasked(_missing(published, _by_source(left)))
    return turns, _merged(used)


def _missing(published: Published, left: list[Left]) -> str:
    count = sum(one.rows for one in left)
    remedies = []
    if any(one.why == "tool" for one in left):
        remedies.append("give a checkout of NVIDIA Model-Optimizer with --tool")
    if any(one.why in ("out of reach", "gated") for one in left):
        remedies.append("run it where they can be fetched, or give their files with --sources")
    return (
        f"{published.config}: nothing written, {count} of {len(published.rows)} rows wait for their texts: "
        f"{', '.join(one.words for one in left)}; {', and '.join(remedies)}"
    )


def _problem(published: Published, number: int, error: ValueError) -> str:
    row = published.rows[number]
    return f"row {number + 1} ({row['question_id']}, {source_name(row['source'])}): {error}"


def _by_source(left: list[Left]) -> list[Left]:
    """One a source and cause, the largest first."""
    counts: Counter[tuple[str, Why, str]] = Counter()
    for one in left:
        counts[one.name, one.why, one.reason] += one.rows
    return [Left(name, n, why, reason) for (name, why, reason), n in counts.most_common()]


def _used(name: str, count: int, revision: str | None, origin: str, files: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "rows": count, "revision": revision, "from": origin, "files": files}


def _merged(used: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One a source and revision."""
    merged: dict[tuple[str, str | None], dict[str, Any]] = {}
    for one in used:
        there = merged.setdefault((one["name"], one["revision"]), {**one, "rows": 0, "files": {}})
        there["rows"] += one["rows"]
        there["files"] |= one["files"]
    return list(merged.values())


def _notes(published: Published) -> list[str]:
    pinned = data_of(published.config).rows
    if published.standin or pinned is None or len(published.rows) == pinned:
        return []
    return [f"{published.config}: {len(published.rows)} rows, the suite pins {pinned} and will refuse them"]
