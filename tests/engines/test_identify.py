"""What servers may say of themselves, and what engines make of it: an Identity of the promised types, or one fault."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec_eval.engines import ENGINES
from spec_eval.engines.base import Identity
from spec_eval.engines.endpoint import Endpoint, Reply
from spec_eval.errors import EnvironmentFault

MODELS = {"data": [{"id": "tiny"}]}
ODD_VERSIONS: list[Any] = [None, 3, 1.5, True, [], ["1"], {}, {"version": "1"}]


class Told(Endpoint):
    """A server whose pages hold these values; everything else is not found."""

    pages: dict[str, Any]

    def _ask(self, path: str, body: bytes | None, timeout_s: float) -> Reply:
        path = path.partition("?")[0]
        return Reply(200, json.dumps(self.pages[path])) if path in self.pages else Reply(404, "")


def told(pages: dict[str, Any]) -> Told:
    server = Told("http://127.0.0.1:1")
    object.__setattr__(server, "pages", pages)  # frozen, as every endpoint
    return server


def is_of_the_promised_types(found: Identity) -> bool:
    texts = (found.version, found.k_flag, found.draft_sampling, found.chat_template_sha256)
    counts = (found.context, found.k, found.tensor_parallelism)
    answers = (found.speculative, found.tree, found.adaptive, found.prefix_caching)
    return (
        all(isinstance(name, str) for name in found.models)
        and all(value is None or isinstance(value, str) for value in texts)
        and all(value is None or (type(value) is int and value >= 0) for value in counts)
        and all(value is None or isinstance(value, bool) for value in answers)
        and isinstance(json.dumps(found.details), str)
    )


@pytest.mark.parametrize("version", ODD_VERSIONS)
@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_a_version_that_is_no_text_is_not_known(engine: Any, version: Any) -> None:
    pages = {
        "/v1/models": MODELS,
        "/version": {"version": version},
        "/props": {"build_info": version},
        "/server_info": {"version": version},
    }
    found = engine.identify(told(pages))
    assert (found.models, found.version) == (("tiny",), None)
    del pages["/props"], pages["/server_info"]
    assert engine.identify(told({**pages, "/version": version})).version is (
        "1" if version == {"version": "1"} and engine.name in ("vllm", "trtllm", "scrape") else None
    )


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=3) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
# The names that engines look for, so that junk stands where they look.
NAMES = st.sampled_from(
    [
        *(
            "id",
            "meta",
            "n_ctx",
            "max_model_len",
            "root",
            "data",
            "version",
            "build_info",
            "chat_template",
            "speculative",
        ),
        *(
            "total_slots",
            "model_ftype",
            "vllm_config",
            "speculative_config",
            "cache_config",
            "parallel_config",
            "method",
        ),
        *("num_speculative_tokens", "enable_adaptive_verification", "draft_sample_method", "enable_prefix_caching"),
        *("tensor_parallel_size", "speculative_algorithm", "speculative_eagle_topk", "speculative_num_draft_tokens"),
        *("speculative_dspark_block_size", "disable_radix_cache", "tp_size", "context_length"),
    ]
)
SHAPED = st.recursive(
    JUNK | st.dictionaries(NAMES, JUNK, max_size=6),
    lambda inner: st.dictionaries(NAMES, inner, max_size=6) | st.lists(inner, max_size=2),
    max_leaves=12,
)
ENTRIES = st.lists(st.dictionaries(NAMES, SHAPED, max_size=3).map(lambda entry: {"id": "tiny", **entry}), max_size=2)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    models=SHAPED | ENTRIES.map(lambda entries: {"data": entries}),
    pages=st.dictionaries(
        st.sampled_from(["/version", "/props", "/slots", "/server_info", "/get_server_info"]), SHAPED, max_size=5
    ),
)
def test_junk_is_an_identity_or_one_fault(engine: Any, models: Any, pages: dict[str, Any]) -> None:
    try:
        found = engine.identify(told({**pages, "/v1/models": models}))
    except EnvironmentFault:
        return
    assert is_of_the_promised_types(found), found
