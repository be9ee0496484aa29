"""A recipe, and what the user says beside it, into one server to start; what cannot be is told before it runs."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_eval import engines, hardware, toml
from spec_eval.engines import Engine
from spec_eval.engines.launch import Launch, Launcher, local_name
from spec_eval.errors import UsageError
from spec_eval.hardware import Hardware, OnHardware
from spec_eval.recipe import WITH_DRAFT, EngineSpec, Placement, Recipe, TargetSpec

EMBEDDED_ENGINE = "llamacpp"


@dataclass(frozen=True)
class Wish:
    """What the user says; null leaves it to the recipe. model, draft: a hub name, a folder or a file."""

    engine: str | None = None
    hardware: str | Hardware | None = None
    model: str | None = None
    draft: str | None = None
    k: int | None = None
    variant: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Choice:
    """What will be started. drafter: its name for the report. notes: what a person should know before.

    variant: of the recipe's target; null where the target is another, or has none.

    For the embedded engine `launch.model` is empty where the recipe's own file is meant: it is looked for at the start.
    """

    recipe: Recipe
    engine: Engine
    launcher: Launcher
    hardware: Hardware
    launch: Launch
    drafter: str | None
    variant: str | None
    notes: tuple[str, ...]


def choose(recipe: Recipe, wish: Wish) -> Choice:
    """UsageError where recipe, engine, hardware and options do not go together."""
    engine, launcher, spec = _engine(recipe, wish.engine)
    place = _hardware(recipe, engine.name, spec, wish.hardware)
    on = spec.hardware.get(place.name, Placement())
    k = wish.k or spec.k or recipe.drafter.k
    if k is not None and recipe.drafter.algorithm == "none":
        raise UsageError(f"--k {k}: recipe {recipe.name} has no drafter; drop --k or take another recipe")
    if recipe.drafter.adaptive and not launcher.adaptive:
        raise UsageError(f"recipe {recipe.name}: {engine.name} has no adaptive verification; take another engine")
    model, variant = _model(recipe, engine.name, on.variant, wish)
    draft = _draft(recipe, model, wish.draft)
    general = place.engines.get(engine.name, OnHardware())
    flags = {**general.flags, **spec.flags, **on.flags}
    _check_numbers(recipe, engine.name, launcher, k, {**flags, **spec.speculative})
    launch = Launch(
        engine=engine.name,
        model=model,
        algorithm=recipe.drafter.algorithm,
        k=k,
        # Another model must not be served, nor reported, under the recipe's name.
        served_name=local_name(wish.model) if wish.model else None,
        draft=draft,
        adaptive=recipe.drafter.adaptive,
        tensor_parallelism=_parallelism(recipe, on, place),
        memory=on.memory,
        flags=flags,
        env={**general.env, **spec.env, **on.env},
        speculative=spec.speculative,
        trust_remote_code=wish.trust_remote_code,
    )
    return Choice(
        recipe=recipe,
        engine=engine,
        launcher=launcher,
        hardware=place,
        launch=launch,
        drafter=_drafter_name(recipe, launcher, wish.draft),
        variant=variant,
        notes=(*_block_notes(recipe, k), *_card_notes(recipe, on, wish)),
    )


def _engine(recipe: Recipe, wanted: str | None) -> tuple[Engine, Launcher, EngineSpec]:
    name = wanted or next(iter(recipe.engines))
    engine = engines.find(name)
    if engine.launcher is None:
        raise UsageError(f"spec-eval cannot start {name}; it starts {_and(startable())}")
    word = engine.launcher.words.get(recipe.drafter.algorithm)
    if word is None:
        raise UsageError(
            f"{name} has no drafter of the kind {recipe.drafter.algorithm}, which recipe {recipe.name} needs; "
            f"take {_or(n for n in recipe.engines if n != name)}"
        )
    if name not in recipe.engines:
        raise UsageError(f"recipe {recipe.name} is for {_and(recipe.engines)}, not for {name}; take one of these")
    return engine, engine.launcher, recipe.engines[name]


def startable() -> list[str]:
    """Engines that spec-eval can start."""
    return [name for name, engine in engines.ENGINES.items() if engine.launcher is not None]


def _hardware(recipe: Recipe, engine: str, spec: EngineSpec, wanted: str | Hardware | None) -> Hardware:
    launcher = engines.find(engine).launcher
    if wanted is None and engine == EMBEDDED_ENGINE:
        wanted = "cpu"
    if wanted is None and not spec.hardware:
        known = ", ".join(one.name for one in hardware.shipped_hardware())
        raise UsageError(f"recipe {recipe.name} is for any hardware: say which with --hardware; known: {known}")
    chosen = wanted if isinstance(wanted, Hardware) else hardware.find(wanted or next(iter(spec.hardware)))
    if spec.hardware and chosen.name not in spec.hardware:
        raise UsageError(
            f"recipe {recipe.name} is not for {chosen.name} with {engine}; --hardware {_or(spec.hardware)}"
        )
    if chosen.gpus == 0 and launcher is not None and not launcher.on_cpu:
        raise UsageError(f"{engine} needs GPUs, and {chosen.name} has none; take other hardware or another engine")
    if chosen.gpus and engine == EMBEDDED_ENGINE:
        raise UsageError(f"the llama.cpp that spec-eval starts uses no GPU; --hardware cpu, not {chosen.name}")
    return chosen


def _parallelism(recipe: Recipe, on: Placement, place: Hardware) -> int | None:
    """As the recipe says, else every GPU of the hardware; None for one GPU or none, which is the engines' default."""
    wanted = on.tensor_parallelism or place.gpus
    if wanted > max(1, place.gpus):
        raise UsageError(
            f"recipe {recipe.name} wants {wanted} GPUs, and {place.name} has {place.gpus}; take other hardware"
        )
    return wanted if wanted > 1 else None


def _model(recipe: Recipe, engine: str, default: str | None, wish: Wish) -> tuple[str, str | None]:
    """Where the target is, and which of the recipe's variants that is."""
    if wish.model is not None:
        if wish.variant is not None:
            raise UsageError("--variant and --model name the target twice; drop one of the two")
        return _where(wish.model, "--model"), None
    target = recipe.target or TargetSpec(name="")
    if wish.variant is not None and wish.variant not in target.variants:
        known = f"it has {_and(target.variants)}" if target.variants else "it has none"
        raise UsageError(f"--variant {wish.variant}: not a variant of recipe {recipe.name}; {known}")
    if engine == EMBEDDED_ENGINE and target.file is not None:
        return "", None
    if engine == EMBEDDED_ENGINE or not target.variants:
        what = "a .gguf file" if engine == EMBEDDED_ENGINE else "a hub name or a folder"
        raise UsageError(f"recipe {recipe.name} names no target for {engine}; give {what} with --model")
    named: dict[str, str] = {str(name): where for name, where in target.variants.items()}
    variant = wish.variant or default or next(iter(named))
    return named[variant], variant


def _draft(recipe: Recipe, model: str, wanted: str | None) -> str | None:
    drafter = recipe.drafter
    if drafter.algorithm not in WITH_DRAFT:
        if wanted is not None:
            raise UsageError(
                f"--draft {wanted}: the drafter of recipe {recipe.name} ({drafter.algorithm}) is no model; drop --draft"
            )
        return None
    if wanted is not None:
        return _where(wanted, "--draft")
    if drafter.itself:
        return model
    if drafter.model is None:
        raise UsageError(f"recipe {recipe.name} names no draft model; give one with --draft")
    return drafter.model


def _where(model: str, option: str) -> str:
    """A path that is here becomes whole, so that a run can be resumed from elsewhere; else it is a name on the hub."""
    path = Path(model)
    if path.exists():
        return str(path.resolve())
    if path.is_absolute() or model.startswith((".", "~")) or path.suffix == ".gguf":
        raise UsageError(f"{option} {model}: no such file or folder; mend the path")
    return model


def _drafter_name(recipe: Recipe, launcher: Launcher, draft: str | None) -> str | None:
    if recipe.drafter.algorithm == "none":
        return None
    word = launcher.words[recipe.drafter.algorithm]
    return (local_name(draft) if draft else None) or recipe.drafter.name or word


def _check_numbers(recipe: Recipe, engine: str, launcher: Launcher, k: int | None, settings: dict[str, Any]) -> None:
    """The engine's own number is derived from k: a second one, in the recipe, could only contradict it."""
    for name, value in settings.items():
        if launcher.known is not None and name not in launcher.known:
            raise UsageError(
                f"recipe {recipe.name}: {engine} has no flag {name!r}{toml.nearest(name, sorted(launcher.known))}"
            )
        if name in launcher.owned:
            raise UsageError(
                f"recipe {recipe.name}: {engine}'s {name} is written by spec-eval; drop it from the recipe, "
                "a key or an option says it"
            )
        if name not in launcher.counts:
            continue
        more = launcher.counts[name]
        right = None if k is None else k + more
        told = (
            f"{engine}'s {name} {value} does not agree with k {k}, which is {right} there"
            if value != right
            else f"{engine}'s {name} {value} says k {k} a second time"
        )
        raise UsageError(f"recipe {recipe.name}: {told}; drop it from the recipe, it is derived from k")


def _block_notes(recipe: Recipe, k: int | None) -> tuple[str, ...]:
    """A block holds its root beside the drafts, so block - 1 drafts are what was trained."""
    block = recipe.drafter.block
    if block is None or k is None or k < block:
        return ()
    if k > block:
        raise UsageError(
            f"k {k} is beyond the block of recipe {recipe.name}: its drafter was trained with block size {block}; "
            f"give --k {block - 1} or less"
        )
    return (
        f"warning: k {k} is all of the block size {block} that the drafter was trained with, root included; "
        f"up to {block - 1} was trained",
    )


def _card_notes(recipe: Recipe, on: Placement, wish: Wish) -> tuple[str, ...]:
    if recipe.source is None:
        return ()
    changed = [f"--{name}" for name in ("model", "draft", "k", "variant") if getattr(wish, name) is not None]
    whose = f"the command of {recipe.source}" if on.from_card else f"no published command: made from {recipe.source}"
    pinned = (
        f"recorded there, but not pinned by its command: {what} revision {value}"
        for what, value in (("target", recipe.target and recipe.target.revision), ("drafter", recipe.drafter.revision))
        if value
    )
    return (
        f"{whose}{f', changed by {_and(changed)}' if changed else ''}",
        *pinned,
        *(f"not stated there: {fact}" for fact in recipe.not_stated),
        *(f"our choice of {name}: {text}" for name, text in recipe.choices.items()),
    )


def _and(names: Iterable[str]) -> str:
    return ", ".join(names)


def _or(names: Iterable[str]) -> str:
    return " or ".join(names) or "another recipe"
