import json
from typing import Any

import pytest

from spec_eval.acceptance import figures
from spec_eval.engines.base import Reading
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.trtllm import TrtLlm
from spec_eval.probe import probe
from spec_eval.reconcile import reconcile
from spec_eval.records import SpecCounters, breach
from spec_eval.stats import value, values
from tests.factories import DATA, answered
from tests.llamacpp_server import LlamaCppServer, Reply

TRTLLM = TrtLlm()
BUILT = DATA / "trtllm"


def built(name: str) -> Any:
    return json.loads((BUILT / name).read_text(encoding="utf-8"))


def read(body: dict[str, Any], k: int | None = None, **options: Any) -> Reading:
    reader = TRTLLM.reader(k, **options)
    reader.event(body)
    return reader.reading()


def choice(usage: object = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"content": "x"}, **fields}], "usage": usage}


def test_counters_stand_on_the_choice() -> None:
    reading = read(built("chat.json"))
    # 3 x 1 + 2 x 2 + 2 x 3 + 2 x 4 = 21 in 12 steps
    expected = SpecCounters(steps=12, accepted=21, drafted=44, histogram=(3, 3, 2, 2, 2), k=4)
    assert reading.counters == expected
    got = figures([answered(expected, completion_tokens=34)])
    assert got.acceptance_length is not None
    assert got.acceptance_length.value == pytest.approx(2.75)
    assert value(got.acceptance_rate) == pytest.approx(21 / 44)
    assert values(got.positions) == pytest.approx([9 / 12, 6 / 12, 4 / 12, 2 / 12])
    assert not got.inferred


def test_average_alone_is_inferred_and_says_so() -> None:
    reading = read(built("chat-average-only.json"), k=4)
    # 40 tokens at 2.5 each: 16 iterations, 24 tokens beyond one each
    expected = SpecCounters(steps=16, accepted=24, drafted=None, histogram=None, k=4, source="inferred")
    assert reading.counters == expected
    assert breach(expected, 40) is None
    got = figures([answered(expected, completion_tokens=40)])
    assert (got.inferred, got.acceptance_rate, got.positions, got.delivered_per_step) == (True, None, None, None)
    assert got.acceptance_length is not None
    assert got.acceptance_length.value == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("body", "k", "reason"),
    [
        (built("chat-not-populated.json"), None, "counters not populated"),
        (built("chat-n2.json"), None, "null, n=2"),
        (built("chat-average-only.json"), None, "k not in the answer, give --k"),
        (
            choice(avg_decoded_tokens_per_iter=2.0),
            4,
            "avg_decoded_tokens_per_iter without a count of completion tokens",
        ),
        (choice({"completion_tokens": 9}, avg_decoded_tokens_per_iter=0.0), 4, "counters not populated"),
        (
            choice({"completion_tokens": 9}, avg_decoded_tokens_per_iter="2"),
            4,
            "avg_decoded_tokens_per_iter is no number",
        ),
        (choice(speculative_decoding={"num_spec_steps": 3}), 4, "no total_accepted_draft_tokens in the answer"),
        (choice(), 4, "no speculative_decoding on the choice, and no avg_decoded_tokens_per_iter"),
    ],
)
def test_counters_that_are_not_there_have_a_reason(body: dict[str, Any], k: int | None, reason: str) -> None:
    assert (read(body, k).counters, read(body, k).reason) == (None, reason)


def test_object_of_vllm_at_the_root_is_not_read() -> None:
    body = choice({"completion_tokens": 34}) | {
        "metrics": {"speculative_decoding": built("chat.json")["choices"][0]["speculative_decoding"]}
    }
    assert read(body, 4).counters is None


@pytest.mark.parametrize("histogram", [7, "0000", {"0": 3}, True])
def test_histogram_that_is_no_list_is_not_reported(histogram: object) -> None:
    fields = {"num_spec_steps": 3, "total_accepted_draft_tokens": 2, "total_draft_tokens": 12, "num_spec_tokens": 4}
    got = read(choice(speculative_decoding=fields | {"acceptance_histogram": histogram})).counters
    assert got == SpecCounters(steps=3, accepted=2, drafted=12, histogram=None, k=4)
    zeros = dict.fromkeys(fields, 0) | {"num_spec_tokens": 4, "acceptance_histogram": histogram}
    assert read(choice(speculative_decoding=zeros)).reason == "counters not populated"


def test_short_histogram_is_padded_and_k_may_come_from_elsewhere() -> None:
    fields = {"num_spec_steps": 3, "total_accepted_draft_tokens": 2, "total_draft_tokens": 12}
    short = choice(speculative_decoding=fields | {"acceptance_histogram": [1, 2], "num_spec_tokens": 4})
    got = read(short).counters
    assert got is not None
    assert got.histogram == (1, 2, 0, 0, 0)
    bare = read(choice(speculative_decoding=fields), k=4).counters
    assert bare is not None
    assert (bare.k, bare.histogram) == (4, None)
    assert read(choice(speculative_decoding=fields)).reason == "k not in the answer, give --k"
    nominal = read(short, nominal_drafts=True).counters
    assert nominal is not None
    assert nominal.drafted is None


def test_prometheus_gives_a_rate_and_never_a_length() -> None:
    after = (BUILT / "prometheus.txt").read_text(encoding="utf-8")
    before = after.replace("800.0", "200.0").replace("300.0", "30.0")
    got = reconcile(before, after, TRTLLM, [], aborted=0)
    # 600 drafted and 270 accepted in between
    assert (got.status, got.server) == ("not available", None)
    assert str(got.reason).endswith("drafted 600, accepted 270, rate 45.00%")
    assert "2.9" not in str(got.reason)
    assert "restarted" in str(reconcile(after, before, TRTLLM, [], aborted=0).reason)
    assert "rate" not in str(reconcile(after, after, TRTLLM, [], aborted=0).reason)


def test_page_that_drains_when_read_is_never_asked_for() -> None:
    stream = (BUILT / "chat.stream.txt").read_bytes()
    with LlamaCppServer(lambda _: Reply(stream=stream)) as server:
        assert probe(Endpoint(server.root), TRTLLM, model=None, k=None).k is None
        assert server.scrapes == 0
        assert TRTLLM.metrics_path != "/metrics"
