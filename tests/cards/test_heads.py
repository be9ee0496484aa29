import pytest

from spec_eval.cards.heads import Kind, columns, is_header


def kinds(*heads: str) -> list[tuple[int, str, int]]:
    return [(c.index, c.kind.name, c.position) for c in columns(heads)]


@pytest.mark.parametrize(
    "head",
    [
        "AL",
        "Mean acceptance length",
        "Accept length",
        "accept_length",
        "Acceptance Length (AL)",
        "Acc. len",
        "AL ↑",
        "τ",
        "$\\tau$",
        "Tokens/step",
        "tokens per verification step",
        "MAL",
    ],
)
def test_heads_of_an_acceptance_length(head: str) -> None:
    assert kinds("Set", head) == [(1, "LENGTH", 0)]


@pytest.mark.parametrize("head", ["Acceptance rate", "Accept rate (%)", "Draft acceptance rate", "acceptance_rate_pct"])
def test_heads_of_a_rate(head: str) -> None:
    assert kinds("Set", head) == [(1, "RATE", 0)]


@pytest.mark.parametrize(
    "form",
    [
        "Pos {}",
        "Pos. {}",
        "position {}",
        "Position-{}",
        "P{}",
        "p<sub>{}</sub>",
        "pos_{}",
        "pos{}",
        "pos[{}]",
        "Acceptance @{}",
        "Acceptance rate @ pos {}",
        "Acceptance rate (position {})",
        "Draft token {}",
        "acceptance_rate_{}",
    ],
)
@pytest.mark.parametrize("base", [0, 1])
def test_heads_of_positions_are_counted_from_one(form: str, base: int) -> None:
    heads = [form.format(base + i) for i in range(3)]
    assert kinds("Set", *heads) == [(1, "POSITION", 1), (2, "POSITION", 2), (3, "POSITION", 3)]


def test_ordinals() -> None:
    assert kinds("1st token", "2nd token") == [(0, "POSITION", 1), (1, "POSITION", 2)]


def test_numbers_alone_are_positions_only_beside_a_length_or_a_rate() -> None:
    assert kinds("Set", "AL", "1", "2", "3") == [
        (1, "LENGTH", 0),
        (2, "POSITION", 1),
        (3, "POSITION", 2),
        (4, "POSITION", 3),
    ]
    assert kinds("Set", "tok/s", "1", "2", "3") == []
    # Concurrencies
    assert kinds("Set", "AL", "1", "4", "8") == [(1, "LENGTH", 0)]


@pytest.mark.parametrize(
    "heads",
    [
        ("Concurrency", "tok/s", "TTFT", "P50", "P90", "P99"),
        ("Quantile", "P1", "P50", "P99"),
        ("Set", "TTFT P50", "TTFT P90"),
        ("Set", "AL std", "Δ AL", "AL gain", "AL 95% CI", "Max acceptance length"),
        ("Set", "Conditional pos 1", "Conditional pos 2"),
        ("Set", "Pos 1-4"),
        ("Set", "Acceptance", "Accuracy", "Acc@1", "pass@1", "AR"),
        ("Set", "Speedup", "Output tokens/s", "Step time"),
    ],
)
def test_other_columns_mean_nothing_here(heads: tuple[str, ...]) -> None:
    assert columns(heads) == []


def test_a_percent_sign_in_the_head_is_seen() -> None:
    found = columns(["Set", "Acceptance rate (%)", "Pos 1 [%]", "Pos 2"])
    assert [(c.kind, c.percent) for c in found] == [
        (Kind.RATE, True),
        (Kind.POSITION, True),
        (Kind.POSITION, False),
    ]


@pytest.mark.parametrize(
    ("row", "header"),
    [
        (["Set", "AL"], True),
        (["Set", "Pos 1", "Pos 2"], True),
        (["Acceptance length", "3.1", "2.9"], False),
        (["Acceptance length", "", ""], False),
        (["Set", "Pos 1"], False),
        (["HumanEval", "3.1"], False),
    ],
)
def test_which_rows_are_heads(row: list[str], header: bool) -> None:
    assert is_header(row, columns(row)) is header


def test_head_of_thousands_of_digits_is_no_position() -> None:
    assert [column.kind for column in columns(["Data", "AL", f"Pos {'1' * 5000}"])] == [Kind.LENGTH]
