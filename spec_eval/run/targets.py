"""Options into the target of a run: a server that is there already, or a recipe to serve."""

import os
from pathlib import Path

from pydantic import ValidationError

from spec_eval import engines, profiles, recipe
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.launch import local_name
from spec_eval.errors import UsageError
from spec_eval.hardware import Hardware
from spec_eval.recipe import Recipe
from spec_eval.run.options import RunOptions
from spec_eval.serve import Choice, Wish
from spec_eval.serve import choose as choose_served
from spec_eval.serve.choosing import EMBEDDED_ENGINE
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
    for name in ("hardware", "draft", "variant"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} is for a server that spec-eval starts itself; drop it, or give --serve RECIPE")
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
    if options.adaptive is not None:
        raise UsageError("--adaptive does not go with a server that spec-eval starts itself; drop it")
    profile = profiles.find(options.known_answer) if options.known_answer else None
    if profile is not None and options.k not in (None, profile.k):
        raise UsageError(f"--k {options.k} against --known-answer {profile.name}, which has k {profile.k}; drop --k")
    chosen_recipe = recipe.find(options.serve or recipe.EMBEDDED_RECIPE)
    engine = EMBEDDED_ENGINE if options.engine == EMBEDDED else options.engine
    named = options.model
    if (engine or next(iter(chosen_recipe.engines))) == EMBEDDED_ENGINE:
        named = named or _model_by_variable()
    wish = Wish(
        engine=engine,
        hardware=options.hardware,
        model=named,
        draft=options.draft,
        k=options.k,
        variant=options.variant,
        trust_remote_code=options.trust_remote_code,
    )
    choice = choose_served(chosen_recipe, wish)
    if profile is not None and choice.engine.name != EMBEDDED_ENGINE:
        raise UsageError(f"--known-answer: {choice.engine.name} cannot play one; give --engine embedded")
    launch = choice.launch
    own_name = f"{SYNTHETIC}-{profile.name}" if profile else choice.drafter
    return Target(
        engine=choice.engine.name,
        model=_model_name(choice, named),
        model_file=launch.model if named else None,
        draft_file=launch.draft if options.draft else None,
        variant=choice.variant,
        drafter=options.drafter or own_name,
        k=profile.k if profile else launch.k,
        synthetic_rates=profile.positions if profile else (),
        recipe=chosen_recipe.model_dump(mode="json"),
        hardware=choice.hardware.model_dump(mode="json"),
        adaptive=launch.adaptive,
        draft_sampling=_draft_sampling(choice, synthetic=profile is not None),
        tensor_parallelism=launch.tensor_parallelism or 1,
    )


def _model_by_variable() -> str | None:
    named = os.environ.get(MODEL_VARIABLE)
    if named and not Path(named).is_file():
        raise UsageError(f"{MODEL_VARIABLE} {named}: no such file; give the path of a .gguf file")
    return named or None


def _model_name(choice: Choice, named: str | None) -> str | None:
    """Another file is another model: it must not be reported under the recipe's name."""
    if named is not None:
        return Path(named).name if choice.engine.name == EMBEDDED_ENGINE else local_name(named)
    if choice.engine.name == EMBEDDED_ENGINE:
        return choice.recipe.target.name if choice.recipe.target else None
    return choice.launch.model


def _draft_sampling(choice: Choice, *, synthetic: bool) -> str | None:
    """As configured; "none" where drafts are no samples; null is the engine's own default."""
    if synthetic:
        return SYNTHETIC
    if choice.launch.algorithm in ("ngram", "suffix"):
        return "none"
    configured = choice.launch.speculative.get("draft_sample_method")
    return str(configured) if configured is not None else None


def served(target: Target, *, trust_remote_code: bool) -> Choice:
    """What a plan starts; UsageError where this spec-eval cannot read its recipe any more."""
    try:
        chosen_recipe = Recipe.model_validate(target.recipe)
        place = Hardware.model_validate(target.hardware) if target.hardware is not None else None
    except ValidationError as error:
        raise UsageError(
            "the recipe of this run was written by another version of spec-eval; start a new run"
        ) from error
    wish = Wish(
        engine=target.engine,
        hardware=place,
        model=target.model_file,
        draft=target.draft_file,
        k=target.k,
        variant=target.variant,
        trust_remote_code=trust_remote_code,
    )
    return choose_served(chosen_recipe, wish)


def synthetic(options: RunOptions) -> str | None:
    """Why the run's acceptance is not real, or None."""
    if options.known_answer is None:
        return None
    profile = profiles.find(options.known_answer)
    return f"llama.cpp accepted at the rates of {profile.name} ({profile.source}), not by comparing tokens"
