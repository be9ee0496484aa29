import pytest

from spec_eval.cards.claims import drafts_vary, missing_facts, settings


@pytest.mark.parametrize(
    ("text", "k"),
    [
        ("""--speculative-config '{"method":"dflash","num_speculative_tokens":3}'""", 3),
        ("""--speculative-config "{\\"num_speculative_tokens\\":7,\\"method\\":\\"eagle3\\"}" """, 7),
        ("""--speculative-config '{\n  "method": "x",\n  "num_speculative_tokens": 5\n}'""", 5),
        ("--num-speculative-tokens 4", 4),
        ("--num_speculative_tokens=4", 4),
        ("with `num_speculative_tokens` = 6", 6),
        ("num\\_speculative\\_tokens: 6", 6),
        ("| num_speculative_tokens | 6 |", 6),
        ("--speculative-num-draft-tokens 8", 7),
        ("--speculative-algorithm DFLASH \\\n  --speculative-num-draft-tokens \\\n  8", 7),
        ("speculative_num_draft_tokens=4,", 3),
        ("--speculative-algorithm DSPARK --speculative-num-draft-tokens 9 --speculative-dspark-block-size 8", 8),
        ("--speculative-dspark-block-size 6", 6),
        ("--speculative-algorithm DSPARK --speculative-num-draft-tokens 9", 8),
        ("llama-server --spec-draft-n-max 5", 5),
        ("llama-server --draft-max 16 --draft-min 1", 16),
        ("llama-server --draft 12 -md draft.gguf", 12),
        ("speculative_config:\n  max_draft_len: 3", 3),
    ],
)
def test_settings_in_drafts(text: str, k: int) -> None:
    assert [setting.k for setting in settings(text)] == [k]


@pytest.mark.parametrize(
    "text",
    [
        "--speculative-num-draft-tokens is block size + 1.",
        "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16",
        "num_speculative_tokens is tuned",
        "--draft-min 2 --draft-p-min 0.8",
        "eight draft tokens",
    ],
)
def test_what_sets_no_chain_length(text: str) -> None:
    assert settings(text) == []


def test_a_setting_is_listed_once_where_it_first_stands() -> None:
    text = 'intro\n\n{"num_speculative_tokens": 8}\n\n--speculative-num-draft-tokens 8\n\nnum_speculative_tokens 8\n'
    assert [(s.line, s.text, s.k) for s in settings(text)] == [
        (3, "num_speculative_tokens 8", 8),
        (5, "--speculative-num-draft-tokens 8", 7),
    ]


def test_commands_of_two_engines_do_not_mix() -> None:
    chain = "sglang --speculative-num-draft-tokens 4"
    block = "sglang --speculative-algorithm DSPARK --speculative-dspark-block-size 4"
    assert [s.k for s in settings(f"{chain}\n\n{block}")] == [3, 4]


def test_drafters_that_vary() -> None:
    assert drafts_vary("""'{"method":"ngram","num_speculative_tokens":4}'""")
    assert drafts_vary("--spec-type ngram-simple")
    assert not drafts_vary("""'{"method":"eagle3"}' beside an n-gram baseline""")


EVERYTHING = """\
Draft revision: 0123abcd4567
Target revision: 89ab0123cdef
Engine: vLLM 0.32.0 on 8 x H200
Thinking enabled, temperature 0.7, at most: max_tokens 4096
80 prompts each; figures are pooled over requests.
"""
FACTS = {
    "draft revision": "Draft revision: 0123abcd4567",
    "target revision": "Target revision: 89ab0123cdef",
    "engine version": "vLLM 0.32.0",
    "hardware": "8 x H200",
    "thinking mode": "Thinking enabled",
    "max tokens": "max_tokens 4096",
    "temperature": "temperature 0.7",
    "prompts per row": "80 prompts each",
    "pooled or mean": "pooled over requests",
}


def test_a_card_that_states_everything() -> None:
    assert missing_facts(EVERYTHING) == []


def test_a_card_that_states_nothing() -> None:
    assert missing_facts(
        "A drafter for GLM-5.3 with vLLM or SGLang; Qwen3-235B-A22B is another. See revision notes."
    ) == [*FACTS]


@pytest.mark.parametrize("fact", FACTS)
def test_each_fact_by_itself(fact: str) -> None:
    assert missing_facts(EVERYTHING.replace(FACTS[fact], "")) == [fact]


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("draft revision", """--speculative-config '{"model": "a/b", "revision": "main"}'"""),
        ("draft revision", "| Draft weights SHA256 | 2d8c661655c4 |"),
        ("target revision", "vllm serve a/b --revision 30333038 "),
        ("target revision", "Verifier revision\t30333038ada1f1dacb29"),
        ("engine version", "image vllm/vllm-openai:v0.11.0"),
        ("engine version", "SGLang (v0.5.23)"),
        ("engine version", "| vLLM | 0.11.0 |"),
        ("engine version", "vllm==0.11.0"),
        ("engine version", "llama.cpp b10434"),
        ("hardware", "one RTX 4090"),
        ("thinking mode", "in non-thinking mode"),
        ("thinking mode", "reasoning effort: high"),
        ("thinking mode", """--default-chat-template-kwargs '{"enable_thinking": false}'"""),
        ("max tokens", "max generation 4096"),
        ("max tokens", "a maximum of 32,768 output tokens"),
        ("max tokens", "the output cap is 2048"),
        ("temperature", "T=0"),
        ("temperature", "greedy decoding"),
        ("temperature", "| Set | Temperature | AL |"),
        ("prompts per row", "50 randomly-drawn samples"),
        ("prompts per row", "| Set | Prompts | AL |"),
        ("prompts per row", "n = 164"),
        ("pooled or mean", "the per-request mean of both"),
        ("pooled or mean", "averaged over all prompts"),
    ],
)
def test_other_words_for_a_fact(fact: str, text: str) -> None:
    assert fact not in missing_facts(text)


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("thinking mode", "```python\nclient.chat.completions.create(enable_thinking=False)\n```"),
        ("max tokens", "resp = client.chat.completions.create(\n    max_tokens=1024,\n)"),
        ("max tokens", "--max-model-len 131072 --max-num-batched-tokens 8192"),
        ("temperature", "```sh\ncurl localhost -d '{\"temperature\": 0.2}'\n```"),
        ("prompts per row", "10 concurrent requests"),
        ("draft revision", "All rows use the same pinned draft. The revision is not given."),
        ("pooled or mean", "numbers are the mean of 3 runs"),
    ],
)
def test_what_states_no_fact(fact: str, text: str) -> None:
    assert fact in missing_facts(text)


def test_number_of_thousands_of_digits_is_no_setting() -> None:
    assert settings(f"num_speculative_tokens: {'9' * 5000}") == []
