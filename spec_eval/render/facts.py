"""Facts of a run that its figures do not show: what a card tells of models, server and sources.

They come from the plan, the manifest and the recipe in the plan. Nothing is guessed: what none of them holds is
"not stated" where a person had to say it, and "not known" where a machine had to.
"""

import tomllib
from collections.abc import Iterator
from typing import Any

from spec_eval.render import weights
from spec_eval.store import Cell, Manifest, Plan, PromptRef

NOT_STATED = "not stated"
NOT_KNOWN = "not known"
Fact = tuple[str, str]


def hardware(plan: Plan, given: str | None = None) -> str:
    """As the user states it for this report, else as the run or its recipe does."""
    told = given or plan.target.model_dump().get("hardware") or _recipe(plan, "hardware")
    if isinstance(told, dict):
        told = told.get("description") or told.get("name")
    return str(told) if told else NOT_STATED


def specification(plan: Plan, manifest: Manifest | None, given: str | None = None) -> list[Fact]:
    """The model pair, and how it was served."""
    server = manifest.server if manifest else {}
    target = plan.target
    algorithm = _recipe(plan, "drafter", "algorithm") or server.get("method")
    k_flag = f" (server flag: {server['k_flag']})" if server.get("k_flag") else ""
    k = setting(manifest, "k")
    return [
        ("Verifier", str(server.get("model") or target.model or "not named")),
        ("Draft", target.drafter or "not named"),
        ("Draft algorithm", str(algorithm or NOT_KNOWN)),
        ("Draft format / precision", _pair(_recipe(plan, "drafter", "format"), _recipe(plan, "drafter", "precision"))),
        ("Verifier precision", _verifier_precision(plan)),
        ("Chat template sha256", setting(manifest, "chat_template_sha256")),
        ("Draft tokens a step", f"{target.k if k == NOT_KNOWN and target.k else k}{k_flag}"),
        ("Draft sampling", setting(manifest, "draft_sampling")),
        ("Adaptive verification", setting(manifest, "adaptive")),
        ("Prefix caching", setting(manifest, "prefix_caching")),
        ("Serving context", f"{server['context']:,} tokens" if server.get("context") else NOT_KNOWN),
        ("Tensor parallelism", setting(manifest, "tensor_parallelism")),
        ("Hardware", hardware(plan, given)),
    ]


def reproducibility(plan: Plan, manifest: Manifest | None) -> list[Fact]:
    """Identities by which another person can repeat the run."""
    verifier_sha256 = (manifest.server if manifest else {}).get("model_file_sha256")
    engine_version = manifest.engine_version if manifest else None
    return [
        ("Run", f"{plan.run_id}, begun {(manifest and manifest.started) or plan.created}"),
        ("Draft revision", _revision(plan, "drafter", "draft_file")),
        ("Draft weights sha256", _draft_weights(plan)),
        ("Verifier revision", _revision(plan, "target", "model_file")),
        *([("Verifier weights sha256", f"{verifier_sha256} (hashed)")] if verifier_sha256 else []),
        ("Engine", f"{plan.target.engine} {engine_version or '(version not known)'}"),
        ("spec-eval", f"{plan.spec_eval_version}, commit {plan.spec_eval_commit or NOT_KNOWN}"),
        ("AIPerf", _aiperf(plan)),
        ("Suite", f"{plan.suite_name}, sha256 {plan.suite_sha256 or NOT_KNOWN}"),
        *dict.fromkeys(fact for cell in plan.cells for fact in _data(plan, cell)),
    ]


def setting(manifest: Manifest | None, key: str) -> str:
    """What the cells' settings say, each value once."""
    told = [cell.get(key) for cell in manifest.settings.values()] if manifest else []
    return ", ".join(dict.fromkeys(shown(value) for value in told)) or NOT_KNOWN


def shown(value: object) -> str:
    """A value of a setting, for people."""
    words = {None: NOT_KNOWN, True: "on", False: "off"}
    if value is None or isinstance(value, bool):
        return words[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_mrcr(plan: Plan, cell: Cell) -> bool:
    """Whether the cell's prompts are MRCR's, stand-ins too."""
    return _adapter(plan, cell) == "mrcr"


def _adapter(plan: Plan, cell: Cell) -> str | None:
    member = plan.members.get(str(cell.member))
    return tomllib.loads(member.text).get("prompt", {}).get("adapter") if member else None


def _data(plan: Plan, cell: Cell) -> Iterator[Fact]:
    """Where the rows of a cell come from, and their hashes."""
    reference, adapter = cell.prompts, _adapter(plan, cell)
    standin = " (stand-in)" if reference.standin else ""
    if adapter == "speed-bench":
        yield "SPEED-Bench preparation", f"{_preparation(reference)}{standin}"
    name = {"speed-bench": cell.dataset, "mrcr": "MRCR"}.get(adapter or "", cell.dataset)
    revision = f" revision {reference.revision}" if reference.revision else ""
    files = [] if reference.files else _hub_files(plan, cell)
    named = f"; {', '.join(files)}" if files else ""
    yield f"{name} source", f"{reference.source}{revision}{named}; {reference.rows} rows{standin}"
    for file, digest in reference.files.items():
        yield f"{name} file sha256", f"{digest} ({file})"
    yield f"{name} prompts sha256", reference.sha256 or NOT_KNOWN


def _hub_files(plan: Plan, cell: Cell) -> list[str]:
    member = plan.members.get(str(cell.member))
    data = tomllib.loads(member.text).get("data", {}) if member else {}
    return list(data.get("hub_files", ()))


def _preparation(reference: PromptRef) -> str:
    if reference.preparation is None:
        return "not known: the rows came without a word on who prepared them"
    tool = reference.preparation.get("tool") or {}
    identity = f"commit {tool['commit']}" if tool.get("commit") else str(tool.get("version") or "version not known")
    changed = ", changed since" if tool.get("changed") else ""
    by = f", run by {tool['run_by']}" if tool.get("run_by") else ""
    return f"{tool.get('name') or 'tool not named'} {identity}{changed}{by}"


def _aiperf(plan: Plan) -> str:
    tool = plan.model_dump().get("tool")
    if tool and "aiperf" in str(tool).lower():
        return str(tool)
    return "not known: imported" if plan.origin == "imported" else "not used: spec-eval sent the requests itself"


def _draft_weights(plan: Plan) -> str:
    own = plan.target.model_dump().get("draft_file")
    named = _recipe(plan, "drafter", "model") or plan.target.drafter
    return weights.told(own, None) if own else weights.told(named, _recipe(plan, "drafter"))


def _revision(plan: Plan, part: str, own: str) -> str:
    """As the recipe records it, which need not be what its command pins; of no account for the user's own files."""
    another = plan.target.model_dump().get(own) or (part == "target" and not _is_default(plan))
    recorded = None if another else _recipe(plan, part, "revision")
    return f"{recorded} (from recipe, unverified)" if recorded else NOT_STATED


def _verifier_precision(plan: Plan) -> str:
    """In the recipe's words, and what its command asks of the engine."""
    target = plan.target.model_dump()
    flags = _recipe(plan, "engines", plan.target.engine, "flags") or {}
    told = {
        "precision": _recipe(plan, "target", "precision") if _is_default(plan) else None,
        "recipe's variant": target.get("variant"),
        "dtype": flags.get("dtype"),
        "KV cache dtype": flags.get("kv-cache-dtype"),
    }
    return ", ".join(f"{name} {value}" for name, value in told.items() if value) or NOT_STATED


def _is_default(plan: Plan) -> bool:
    """Whether the target is the recipe's default variant, of which alone the recipe tells."""
    variants = _recipe(plan, "target", "variants") or {}
    return plan.target.model_file is None and plan.target.variant in (None, next(iter(variants), None))


def _pair(first: object, second: object) -> str:
    return NOT_STATED if first is None and second is None else f"{_text(first)} / {_text(second)}"


def _text(value: object) -> str:
    return str(value) if value else NOT_STATED


def _recipe(plan: Plan, *path: str) -> Any:
    """What the recipe holds at `path`, or None."""
    found: Any = plan.target.recipe
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
