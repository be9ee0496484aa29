"""How often the gate fails, passes or cannot tell, by the number of prompts and the true loss; a plain floor beside it.

    python benchmarks/gate_power.py [--gates 4000]

Two runs of the same prompts are drawn again and again: capped lognormal lengths and an acceptance that depends on the
prompt, both partly new in every run. The noise is set so that 160 prompts give a standard error of about 2.1%.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import expm1

import numpy as np
import numpy.typing as npt

from spec_eval import gate, stats
from spec_eval.gate import Verdict

Floats = npt.NDArray[np.float64]
K = 4
ALLOWED = 0.02
FLOOR = 0.95  # of the baseline's length: the plain rule beside ours
NOISE = 0.4
SIZES = (24, 80, 160, 320, 710, 880, 1600)
LOSSES = (0.0, 0.03, 0.06, 0.10)


@dataclass(frozen=True)
class Power:
    """Shares of gates. error: mean standard error of the change. floor: gates that the plain rule would fail."""

    error: float
    failed: float
    passed: float
    floor: float


def _prompts(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """What a prompt brings to both runs: (to its length and acceptance, to its acceptance alone)."""
    return rng.standard_normal(shape), rng.standard_normal(shape)


def _run(rng: np.random.Generator, prompts: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """(steps, acceptance of a draft) of every prompt in one run."""
    length, taste = prompts
    steps = np.minimum(np.ceil(np.exp(4.0 + 0.5 * length + 0.6 * rng.standard_normal(length.shape))), 256.0)
    logit = -0.2 + 0.5 * length + 0.4 * taste + NOISE * rng.standard_normal(length.shape)
    return steps, 1 / (1 + np.exp(-logit))


@lru_cache
def true_acceptance() -> float:
    """Accepted drafts a step, divided by k, in the long run."""
    rng = np.random.default_rng(20300107)
    steps, acceptance = _run(rng, _prompts(rng, (4_000_000,)))
    return float((steps * acceptance).sum() / steps.sum())


def changes(n: int, loss: float, gates: int, seed: int) -> Iterator[stats.Change]:
    """Of pairs of runs of n prompts; the second has an acceptance length that is truly lower by `loss`."""
    mean = K * true_acceptance()
    weaker = ((1 - loss) * (1 + mean) - 1) / mean
    rng = np.random.default_rng(seed)
    for _ in range(gates):
        prompts = _prompts(rng, (n,))
        sides = []
        for factor in (1.0, weaker):
            steps, acceptance = _run(rng, prompts)
            accepted = rng.binomial((K * steps).astype(np.int64), factor * acceptance)
            sides.append((steps + accepted, steps))
        found = stats.change(sides[0], sides[1], log=True)
        assert found is not None
        yield found


def power(n: int, loss: float, gates: int = 4000) -> Power:
    """Of the rule `acceptance_length:-2%`."""
    verdicts = []
    floors = 0
    errors = 0.0
    for found in changes(n, loss, gates, seed=n):
        low, chance = found.low(gate.CONFIDENCE), found.chance()
        assert low is not None
        assert chance is not None
        assert found.se is not None
        verdicts.append(gate.decide(expm1(found.value), expm1(low), chance, ALLOWED))
        floors += expm1(found.value) < FLOOR - 1
        errors += found.se
    return Power(
        error=errors / gates,
        failed=verdicts.count(Verdict.FAIL) / gates,
        passed=verdicts.count(Verdict.PASS) / gates,
        floor=floors / gates,
    )


def main() -> None:
    """A table, for docs/design/gate.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=4000)
    gates = parser.parse_args().gates
    print("| pairs | SE | loss | fails | passes | cannot tell | a floor of -5% fails |")
    print("| --: | --: | --: | --: | --: | --: | --: |")
    for n in SIZES:
        for loss in LOSSES:
            p = power(n, loss, gates)
            rest = 1 - p.failed - p.passed
            cells = [f"{p.error:.1%}", f"{loss:.0%}", *(f"{x:.1%}" for x in (p.failed, p.passed, rest, p.floor))]
            print(f"| {n} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
