"""The promises of docs/design/gate.md, each at 4,000 simulated gates."""

import pytest

from benchmarks.gate_power import power


@pytest.mark.parametrize("n", [24, 160, 880])
def test_a_healthy_run_seldom_fails(n: int) -> None:
    assert power(n, 0.0).failed <= 0.03


@pytest.mark.parametrize(("n", "loss", "error"), [(710, 0.03, 0.010), (880, 0.03, 0.010), (160, 0.06, 0.021)])
def test_a_loss_is_found_in_eight_of_ten_gates(n: int, loss: float, error: float) -> None:
    found = power(n, loss)
    assert found.error <= error + 0.0005
    assert found.failed >= 0.80
    assert found.passed <= 0.02


def test_passing_takes_many_prompts_and_a_floor_fails_the_healthy_where_they_are_few() -> None:
    small, large = power(160, 0.0), power(1600, 0.0)
    assert small.passed < 0.25
    assert large.passed >= 0.80
    assert power(24, 0.0).floor > 0.10
