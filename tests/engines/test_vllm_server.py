"""What a vLLM server says of itself, and its totals."""

import json
from collections.abc import Iterator

import pytest

from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.scrape import Totals, delta, parse
from spec_eval.engines.vllm import Vllm
from tests.engines.vllm_answers import RECORDED
from tests.llamacpp_server import LlamaCppServer


def test_recorded_metrics_are_the_servers_totals() -> None:
    text = (RECORDED / "metrics.txt").read_text(encoding="utf-8")
    totals = parse(text, "vllm:")
    assert totals == Totals(steps=147, drafted=588, accepted=473, positions=(119, 118, 118, 118))
    assert totals.consistent


def test_metrics_of_two_engines_are_summed() -> None:
    first = (RECORDED / "metrics.txt").read_text(encoding="utf-8")
    samples = [line for line in first.splitlines() if not line.startswith("#")]
    second = [line.replace('engine="0"', 'engine="1"') for line in samples]
    both = parse(first + "\n".join(second) + "\n", "vllm:")
    assert both == Totals(steps=294, drafted=1176, accepted=946, positions=(238, 236, 236, 236))


def exposition(*engines: tuple[int, int, int, tuple[int, ...]]) -> str:
    lines = []
    for number, (steps, drafted, accepted, positions) in enumerate(engines):
        label = f'engine="{number}",model_name="org/model"'
        for name, value in (("drafts", steps), ("draft_tokens", drafted), ("accepted_tokens", accepted)):
            lines.append(f"vllm:spec_decode_num_{name}_total{{{label}}} {value}.0")
            lines.append(f"vllm:spec_decode_num_{name}_created{{{label}}} 1.788e+09")
        for place, value in enumerate(positions):
            name = "vllm:spec_decode_num_accepted_tokens_per_pos"
            lines.append(f'{name}_total{{{label},position="{place}"}} {value}.0')
            lines.append(f'{name}_created{{{label},position="{place}"}} 1.788e+09')
    return "\n".join(lines) + "\n"


def test_label_zero_is_position_one_and_engines_are_summed_before_the_difference() -> None:
    before, after = (
        parse(exposition((10, 30, 12, (7, 4, 1)), (20, 60, 30, (15, 9, 6))), "vllm:"),
        parse(exposition((50, 150, 72, (37, 24, 11)), (80, 240, 130, (65, 39, 26))), "vllm:"),
    )
    assert before is not None
    assert after is not None
    found = delta(before, after)
    # 40 + 60 steps, 120 + 180 drafts; positions 30 + 50, 20 + 30, 10 + 20
    assert found == Totals(steps=100, drafted=300, accepted=160, positions=(80, 50, 30))
    assert found.consistent
    assert 1 + found.accepted / found.steps == pytest.approx(1 + sum(found.positions) / found.steps)


@pytest.fixture
def server() -> Iterator[LlamaCppServer]:
    pages = {
        "/v1/models": (200, "application/json", (RECORDED / "models.json").read_text(encoding="utf-8")),
        "/version": (200, "application/json", '{"version":"0.32.0"}'),
        "/server_info": (200, "application/json", (RECORDED / "server-info.json").read_text(encoding="utf-8")),
    }
    with LlamaCppServer(pages=pages) as running:
        yield running


def test_server_in_development_mode_tells_everything(server: LlamaCppServer) -> None:
    found = Vllm().identify(Endpoint(server.root))
    assert (found.models, found.version, found.context) == (("smol",), "0.32.0", 2048)
    assert (found.speculative, found.k, found.adaptive, found.draft_sampling) == (True, 4, False, "greedy")
    assert (found.prefix_caching, found.tensor_parallelism) == (True, 1)
    assert found.details == {"model_root": "/models/SmolLM2-135M-Instruct", "method": "draft_model"}


@pytest.mark.parametrize("info", [(404, "application/json", '{"detail":"Not Found"}'), (200, "text/html", "<html>")])
def test_server_outside_of_it_leaves_the_rest_open(server: LlamaCppServer, info: tuple[int, str, str]) -> None:
    server.pages["/server_info"] = info
    found = Vllm().identify(Endpoint(server.root))
    assert (found.models, found.version, found.context) == (("smol",), "0.32.0", 2048)
    assert (found.speculative, found.k, found.adaptive, found.prefix_caching) == (None, None, None, None)


def test_server_without_a_drafter_says_so(server: LlamaCppServer) -> None:
    info = json.loads(server.pages["/server_info"][2])
    info["vllm_config"]["speculative_config"] = None
    server.pages["/server_info"] = (200, "application/json", json.dumps(info))
    found = Vllm().identify(Endpoint(server.root))
    assert (found.speculative, found.k) == (False, None)


def test_prompt_is_counted_by_the_server(server: LlamaCppServer) -> None:
    messages = [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]
    assert Vllm().count_prompt(Endpoint(server.root), "smol", messages) == 3
    server.tokenizer = False
    assert Vllm().count_prompt(Endpoint(server.root), "smol", messages) is None
