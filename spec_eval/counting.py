"""How a run's counters were counted: by request or server-wide, nominal, adaptive, in chains or in trees."""

from spec_eval import engines
from spec_eval.acceptance import Figures
from spec_eval.store import Manifest, Plan


def is_server_wide(plan: Plan) -> bool:
    """Whether there is nothing by request: the engine counts none, or the run was imported from totals."""
    return plan.server_wide or not engines.find(plan.target.engine).by_request


def counts_by_request(plan: Plan) -> bool:
    """Whether every answer is to carry counters."""
    return plan.target.drafts and not is_server_wide(plan)


def has_nominal_drafts(plan: Plan, figures: Figures) -> bool:
    """Whether the rate is over a nominal count."""
    return engines.find(plan.target.engine).nominal_drafted and bool(figures.drafted)


def is_tree(manifest: Manifest | None) -> bool:
    """As the server said."""
    return manifest is not None and bool(manifest.server.get("tree"))


def is_adaptive(plan: Plan, manifest: Manifest | None) -> bool:
    """As the run's settings say, which know the server's word too; before they exist, as the plan says."""
    if manifest is None:
        return bool(plan.target.adaptive)
    return any(settings.get("adaptive") for settings in manifest.settings.values())
