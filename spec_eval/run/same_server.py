"""Whether a run that is taken up again still measures what it measured before.

What the server says of itself is kept when a session starts. A run holds one model at one k: another one is refused.
Other differences are named, and stay in the session lines.
"""

from typing import Any

from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.probe import Probe
from spec_eval.run import serving
from spec_eval.store import Plan
from spec_eval.store.windows import WindowPlan

_MUST_MATCH = ("model", "k")


def facts(server: serving.Server, found: Probe) -> dict[str, Any]:
    """What is kept of the server; null is "not known". k is in drafts a step, as the user or the server names it."""
    identity = found.identity
    return {
        "model": found.model,
        "k": found.k if found.k is not None else found.told_k,
        "engine_version": server.version or identity.version,
        "prefix_caching": identity.prefix_caching,
        "chat_template_sha256": identity.chat_template_sha256,
        "adaptive": identity.adaptive,
        "tensor_parallelism": identity.tensor_parallelism,
        "speculative": identity.speculative,
    }


def refuse_other_stamp(plan: Plan | WindowPlan, found: Probe, where: str) -> None:
    """UsageError where the server is not the real one, or not the emulator, that the plan was made for.

    Real answers and played ones, or those of two emulators, never go into one run. A server that we start is no
    emulator, and a plan for it may be synthetic for another reason.
    """
    if plan.target.recipe is not None or found.identity.synthetic == plan.synthetic:
        return
    was, now = plan.synthetic or "a real server", found.identity.synthetic or "a real server"
    raise UsageError(
        f"{where}: planned for {was}; {plan.target.base_url} is {now}; "
        "start that server again with the same options, or start a new run"
    )


def changes(first: dict[str, Any] | None, now: dict[str, Any], where: str) -> tuple[str, ...]:
    """What is other than in the run's first session, in words; EnvironmentFault where it is the model or k.

    first: null for a run that kept no facts. A fact that was not known then, or is not now, is no difference.
    """
    known = {name: value for name, value in (first or {}).items() if value is not None and now.get(name) is not None}
    differing = {name: value for name, value in known.items() if value != now[name]}
    for name in _MUST_MATCH:
        if name in differing:
            raise EnvironmentFault(
                f"{where}: was measured with {name} {differing[name]}, this server has {name} {now[name]}; "
                "start the first server again, or start a new run"
            )
    return tuple(f"{name.replace('_', ' ')} {value}, now {now[name]}" for name, value in differing.items())
