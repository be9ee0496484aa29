"""Options into the target of a run: a server that is there already, or a recipe to serve."""

import os
from pathlib import Path

from spec_eval import engines, profiles, recipe
from spec_eval.engines.endpoint import Endpoint
from spec_eval.errors import UsageError
from spec_eval.run.options import RunOptions
from spec_eval.serve.embedded import MODEL_VARIABLE
from spec_eval.store import Target

EMBEDDED = "embedded"
SYNTHETIC = "synthetic"


def choose(options: RunOptions) -> Target:
    """UsageError where the options name no server, or two."""
    if options.engine == EMBEDDED or options.serve is not None:
        return _served(options)
    if options.known_answer is not None:
        raise UsageError("--known-answer needs a server that spec-eval starts itself; give --engine embedded")
    if options.engine is None or options.base_url is None:
        if options.engine is not None:
            engines.find(options.engine)  # a misspelt name is the likelier fault
        raise UsageError("no server: give --engine embedded, or --engine NAME with --base-url URL, or --serve RECIPE")
    engine = engines.find(options.engine)
    url = Endpoint.at(options.base_url).base_url
    return Target(
        engine=engine.name,
        model=options.model,
        drafter=options.drafter,
        k=options.k,
        base_url=url,
        adaptive=options.adaptive,
    )


def _served(options: RunOptions) -> Target:
    if options.base_url is not None:
        raise UsageError("--base-url does not go with a server that spec-eval starts itself; drop one of the two")
    chosen = recipe.find(options.serve or recipe.EMBEDDED_RECIPE)
    if options.engine not in (None, EMBEDDED, chosen.engine):
        raise UsageError(f"recipe {chosen.name!r} is for engine {chosen.engine}, not {options.engine}; drop --engine")
    profile = profiles.find(options.known_answer) if options.known_answer else None
    if profile is not None and options.k not in (None, profile.k):
        raise UsageError(f"--k {options.k} against --known-answer {profile.name}, which has k {profile.k}; drop --k")
    if options.adaptive is not None:
        raise UsageError("--adaptive does not go with a server that spec-eval starts itself; drop it")
    named = options.model or os.environ.get(MODEL_VARIABLE)
    own_name = f"{SYNTHETIC}-{profile.name}" if profile else chosen.drafter.name
    return Target(
        engine=chosen.engine,
        # Another file is another model: it must not be reported under the recipe's name.
        model=Path(named).name if named else chosen.target.name,
        model_file=str(Path(named).resolve()) if named else None,
        drafter=options.drafter or own_name,
        k=profile.k if profile else options.k or chosen.drafter.k,
        synthetic_rates=profile.positions if profile else (),
        recipe=chosen.model_dump(mode="json"),
        adaptive=False,
        draft_sampling=SYNTHETIC if profile else "none",
        tensor_parallelism=1,
    )


def synthetic(options: RunOptions) -> str | None:
    """Why the run's acceptance is not real, or None."""
    if options.known_answer is None:
        return None
    profile = profiles.find(options.known_answer)
    return f"llama.cpp accepted at the rates of {profile.name} ({profile.source}), not by comparing tokens"
