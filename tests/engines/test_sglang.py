import json
from typing import Any

import pytest

from spec_eval.acceptance import figures
from spec_eval.engines.base import Identity, Reading
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.sglang import Sglang, drafts_a_step
from spec_eval.errors import EnvironmentFault
from spec_eval.probe import probe
from spec_eval.reconcile import reconcile
from spec_eval.records import SpecCounters, breach
from spec_eval.stats import value, values
from tests.factories import DATA, answered
from tests.llamacpp_server import LlamaCppServer, Reply

SGLANG = Sglang()
BUILT = DATA / "sglang"
JSON = "application/json"


def built(name: str) -> Any:
    return json.loads((BUILT / name).read_text(encoding="utf-8"))


def read(body: dict[str, Any], k: int | None = None, **options: Any) -> Reading:
    reader = SGLANG.reader(k, **options)
    reader.event(SGLANG.normalised(body))
    return reader.reading()


def details(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0}], "sglext": {"spec_tokens_details": fields}}


def counters(body: dict[str, Any], k: int | None = None, **options: Any) -> SpecCounters:
    found = read(body, k, **options).counters
    assert found is not None
    return found


def test_native_and_chat_bodies_tell_the_same() -> None:
    # S = 5 + 4 + 3 + 2, A = 4 + 2 x 3 + 3 x 2, D = 14 x 4; the histogram lacks j = 4
    expected = SpecCounters(steps=14, accepted=16, drafted=56, histogram=(5, 4, 3, 2, 0), k=4)
    assert counters(built("chat.json")) == counters(built("generate.json")) == expected
    got = figures([answered(expected, completion_tokens=31)])
    assert got.acceptance_length is not None
    assert got.acceptance_length.value == pytest.approx(1 + 16 / 14)  # not its spec_accept_length, 31 / 14
    assert value(got.acceptance_rate) == pytest.approx(2 / 7)
    assert values(got.positions) == pytest.approx([9 / 14, 5 / 14, 2 / 14, 0])


def test_native_body_becomes_a_chat_answer() -> None:
    body = SGLANG.normalised(built("generate.json"))
    assert body["choices"] == [{"index": 0, "message": {"content": "A short answer."}, "finish_reason": "stop"}]
    assert (body["usage"]["completion_tokens"], body["usage"]["prompt_tokens_details"]) == (31, {"cached_tokens": 4})
    assert read(built("generate-plain.json")).reason == "spec_tokens_details null"
    chat = built("chat.json")
    assert SGLANG.normalised(chat) is chat


def test_older_names_without_a_histogram_have_no_positions_rather_than_zeros() -> None:
    reading = read(built("generate-legacy.json"))
    assert reading.counters == SpecCounters(steps=20, accepted=13, drafted=60, histogram=None, k=3)
    assert reading.raw["spec_accept_length"] == 1.7  # 34 / 20, one token from prefill in it
    got = figures([answered(reading.counters)])
    assert got.acceptance_length is not None
    assert got.acceptance_length.value == pytest.approx(1.65)
    assert got.positions is None


@pytest.mark.parametrize("accepted", ["spec_accept_token_num", "spec_accepted_drafts", "spec_accepted_tokens"])
@pytest.mark.parametrize("drafted", ["spec_draft_token_num", "spec_draft_tokens"])
def test_every_older_name_is_known(accepted: str, drafted: str) -> None:
    fields = {"spec_verify_ct": 4, accepted: 5, drafted: 8, "spec_accept_histogram": [1, 1, 2]}
    assert counters(details(**fields)) == SpecCounters(steps=4, accepted=5, drafted=8, histogram=(1, 1, 2), k=2)


def test_k_given_wins_and_a_share_that_is_not_whole_gives_none() -> None:
    assert counters(built("chat.json"), 6).histogram == (5, 4, 3, 2, 0, 0, 0)
    uneven = details(spec_verify_ct=4, spec_num_correct_drafts=5, spec_num_proposed_drafts=9)
    assert read(uneven).reason == "k not known, give --k"
    assert counters(uneven, 3).k == 3
    assert read(details(spec_verify_ct=4, spec_num_correct_drafts=5)).reason == "k not known, give --k"


def test_no_step_is_a_true_zero() -> None:
    found = counters(built("chat-zero-steps.json"))
    assert (found.steps, found.accepted, found.histogram) == (0, 0, (0,))
    assert breach(found, 1) is None


def test_empty_histogram_beside_steps_stands_for_none() -> None:
    fields = {"spec_verify_ct": 4, "spec_num_correct_drafts": 5, "spec_num_proposed_drafts": 8}
    assert counters(details(**fields, spec_correct_drafts_histogram=[])).histogram is None


def test_caps_of_dspark_stay_with_the_raw_counters() -> None:
    reading = read(built("chat-dspark.json"))
    assert reading.counters == counters(built("chat.json"))
    assert (reading.raw["spec_cap_length"], reading.raw["spec_cap_lens_histogram"]) == (3.5, [0, 0, 3, 1, 10])
    assert counters(built("chat-dspark.json"), nominal_drafts=True).drafted is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (built("chat-n2.json"), "null, n=2"),
        ({"choices": [{"index": 0}], "sglext": {"spec_tokens_details": None}}, "spec_tokens_details null"),
        ({"choices": [{"index": 0}], "sglext": {}}, "no sglext.spec_tokens_details"),
        (details(spec_num_correct_drafts=5), "no spec_verify_ct in the answer"),
        (details(spec_verify_ct=5), "no spec_num_correct_drafts in the answer"),
    ],
)
def test_counters_that_are_not_there_have_a_reason(body: dict[str, Any], reason: str) -> None:
    assert (read(body).counters, read(body).reason) == (None, reason)


@pytest.mark.parametrize("bad", [True, 2.0, "2", -1])
def test_values_that_are_no_counts_are_left_to_the_identities(bad: object) -> None:
    reading = read(details(spec_verify_ct=bad, spec_num_correct_drafts=0, spec_num_proposed_drafts=8), k=4)
    assert reading.counters is not None
    assert breach(reading.counters, None) == "not an integer count"


def test_positions_of_a_tree_are_not_kept() -> None:
    reading = read(built("chat.json")).without_positions()
    assert reading.counters == SpecCounters(steps=14, accepted=16, drafted=56, histogram=None, k=4)
    assert read({}).without_positions().counters is None


def identity(info: str | None, path: str = "/server_info") -> Identity:
    pages = {path: (200, JSON, (BUILT / info).read_text(encoding="utf-8"))} if info else {}
    with LlamaCppServer(pages=pages) as server:
        return SGLANG.identify(Endpoint(server.root))


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_server_tells_its_settings(path: str) -> None:
    got = identity("server-info.json", path)
    # five draft tokens, one of them the root
    assert (got.k, got.k_flag, got.tree) == (4, "speculative_num_draft_tokens 5", False)
    assert (got.version, got.context, got.tensor_parallelism, got.prefix_caching) == ("0.5.23", 4096, 2, True)
    assert got.speculative is True


def test_block_of_dspark_is_k_and_a_tree_has_none() -> None:
    assert identity("server-info-dspark.json").k == 6
    tree = identity("server-info-tree.json")
    assert (tree.k, tree.tree) == (None, True)
    assert tree.k_flag == "speculative_num_draft_tokens 16, speculative_eagle_topk 4"


def test_server_that_tells_nothing_is_not_known() -> None:
    got = identity(None)
    assert (got.k, got.tree, got.speculative, got.prefix_caching) == (None, None, None, None)
    assert drafts_a_step({"speculative_num_draft_tokens": 8, "speculative_eagle_topk": 1})[0] == 7
    assert drafts_a_step({"speculative_num_draft_tokens": "8"}) == (None, None)


def test_k_of_the_user_is_held_against_the_server() -> None:
    stream = (BUILT / "chat.stream.txt").read_bytes()
    pages = {"/server_info": (200, JSON, (BUILT / "server-info.json").read_text(encoding="utf-8"))}
    with LlamaCppServer(lambda _: Reply(stream=stream), pages=pages) as server:
        assert probe(Endpoint(server.root), SGLANG, model=None, k=None).k == 4
        with pytest.raises(EnvironmentFault, match="drafts 4 tokens a step, not 5"):
            probe(Endpoint(server.root), SGLANG, model=None, k=5)


def test_running_averages_are_no_totals() -> None:
    text = (BUILT / "metrics.txt").read_text(encoding="utf-8")
    got = reconcile(text, text, SGLANG, [answered(counters(built("chat.json")))], aborted=0)
    assert (got.status, got.server) == ("not available", None)
    assert "running averages" in str(got.reason)


def test_request_asks_for_counters_and_for_a_cold_cache() -> None:
    one, other = SGLANG.extra_body(), SGLANG.extra_body()
    assert one["return_spec_tokens_details"] is True
    assert one["cache_salt"] != other["cache_salt"]
    assert SGLANG.extra_body(cold_cache=False) == {"return_spec_tokens_details": True}
