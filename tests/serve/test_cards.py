"""The commands of the cards, and ours: the same flags with the same values, the allowed differences apart."""

import json
import shlex

import pytest

from spec_eval import cli

CARDS = {
    ("glm-5.3-dflash2", "sglang", "8xh200"): """\
export SGLANG_ENABLE_SPEC_V2=1
sglang serve --model-path zai-org/GLM-5.3-FP8 --trust-remote-code --tp-size 8 --reasoning-parser glm45
 --tool-call-parser glm47 --context-length 202752 --mem-fraction-static 0.83 --cuda-graph-max-bs 256
 --max-running-requests 128 --disable-shared-experts-fusion --host 0.0.0.0 --port 8100
 --speculative-algorithm DFLASH --speculative-draft-model-path AlayaNeW/GLM-5.3-DFlash2
 --speculative-num-draft-tokens 8""",
    ("glm-5.3-dflash2", "vllm", "8xh200"): """\
export VLLM_USE_V2_MODEL_RUNNER=1
vllm serve zai-org/GLM-5.3-FP8 --trust-remote-code --kv-cache-dtype fp8 --tensor-parallel-size 8
 --enable-expert-parallel --tool-call-parser glm47 --enable-auto-tool-choice --reasoning-parser glm45
 --enable-prefix-caching --max-model-len 202752 --max-num-seqs 256 --gpu-memory-utilization 0.90
 --max-cudagraph-capture-size 256 --host 0.0.0.0 --port 8100 --served-model-name GLM-5.3
 --speculative-config '{"method": "dflash", "model": "AlayaNeW/GLM-5.3-DFlash2", "num_speculative_tokens": 8,
 "kv_cache_dtype": "auto"}'""",
    ("glm-5.3-dspark", "sglang", "8xh200"): """\
export SGLANG_ENABLE_SPEC_V2=1
sglang serve --model-path zai-org/GLM-5.3-FP8 --trust-remote-code --tp-size 8 --reasoning-parser glm45
 --tool-call-parser glm47 --context-length 202752 --mem-fraction-static 0.83 --cuda-graph-max-bs 256
 --max-running-requests 128 --disable-shared-experts-fusion --host 0.0.0.0 --port 8100
 --speculative-algorithm DSPARK --speculative-draft-model-path AlayaNeW/GLM-5.3-DSpark
 --speculative-num-draft-tokens 9 --speculative-dspark-block-size 8""",
    ("glm-5.3-dspark", "vllm", "8xh200"): """\
export VLLM_USE_V2_MODEL_RUNNER=1
vllm serve zai-org/GLM-5.3-FP8 --trust-remote-code --kv-cache-dtype fp8 --tensor-parallel-size 8
 --enable-expert-parallel --tool-call-parser glm47 --enable-auto-tool-choice --reasoning-parser glm45
 --enable-prefix-caching --max-model-len 202752 --max-num-seqs 256 --gpu-memory-utilization 0.90
 --max-cudagraph-capture-size 256 --host 0.0.0.0 --port 8100 --served-model-name GLM-5.3
 --speculative-config '{"method": "dspark", "model": "AlayaNeW/GLM-5.3-DSpark", "num_speculative_tokens": 8,
 "draft_sample_method": "probabilistic", "kv_cache_dtype": "auto"}'""",
    ("glm-5.3-dflash2-preview-adaptive", "vllm", "4xb300"): """\
vllm serve zai-org/GLM-5.3 --served-model-name zai-org/GLM-5.3 --host 127.0.0.1 --port 9155
 --tensor-parallel-size 4 --dtype bfloat16 --kv-cache-dtype bfloat16 --max-model-len 131072 --max-num-seqs 128
 --max-num-batched-tokens 16384 --gpu-memory-utilization 0.9 --no-enable-prefix-caching
 --speculative-config "{\\"method\\":\\"dflash\\",\\"model\\":\\"RedHatAI/GLM-5.3-speculator.dflash2-preview\\",\
\\"num_speculative_tokens\\":7,\\"enable_adaptive_verification\\":true}"
 --per-request-spec-decode-metrics summary""",
}
# Where ours listens, how much its counters tell, and that code of the model's own is only run when asked for.
ALLOWED = {"--host", "--port", "--trust-remote-code", "--per-request-spec-decode-metrics", "--enable-metrics"}


def parsed(text: str) -> tuple[dict[str, str], list[str], dict[str, object]]:
    """(exports, words before the first flag, value by flag); JSON values parsed, flags without a value are True."""
    words = shlex.split(text)
    exports: dict[str, str] = {}
    while words[0] == "export":
        name, _, setting = words[1].partition("=")
        exports[name] = setting
        words = words[2:]
    first = next(i for i, word in enumerate(words) if word.startswith("--"))
    flags: dict[str, object] = {}
    for i, word in enumerate(words):
        if not word.startswith("--"):
            continue
        assert word not in flags, f"{word} twice"
        value: str | bool = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith("--") else True
        flags[word] = json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    return exports, words[:first], flags


def printed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    with pytest.raises(SystemExit) as left:
        cli.main(["serve", *argv, "--dry-run"])
    captured = capsys.readouterr()
    assert left.value.code == 0, captured.err
    return captured.out, captured.err


@pytest.fixture(autouse=True)
def _usual_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for name in ("SPEC_EVAL_VLLM_PYTHON", "SPEC_EVAL_SGLANG_PYTHON"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("case", CARDS, ids="-".join)
def test_a_recipe_makes_the_cards_command(case: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    recipe, engine, hardware = case
    out, err = printed([recipe, "--engine", engine, "--hardware", hardware], capsys)
    card_exports, card_command, card_flags = parsed(CARDS[case])
    exports, command, flags = parsed(out)
    assert (exports, command) == (card_exports, card_command)
    assert {f: v for f, v in flags.items() if f not in ALLOWED} == {
        f: v for f, v in card_flags.items() if f not in ALLOWED
    }
    assert (flags["--host"], "--trust-remote-code" in flags) == ("127.0.0.1", False)
    assert "the command of model card" in err
    trusting, _ = printed([recipe, "--engine", engine, "--trust-remote-code"], capsys)
    assert parsed(trusting)[2] == {**flags, "--trust-remote-code": True}


def test_the_tables_of_the_preview_card_have_its_command_with_8_drafts_always(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The card: "eight draft tokens with adaptive verification disabled"; its temperature 1 on eight B200, TP8."""
    _, command, published = parsed(CARDS["glm-5.3-dflash2-preview-adaptive", "vllm", "4xb300"])
    config = published["--speculative-config"]
    assert isinstance(config, dict)
    fixed = {name: value for name, value in config.items() if name != "enable_adaptive_verification"}
    for hardware, parallelism in (("4xb300", "4"), ("8xb200", "8")):
        out, err = printed(["glm-5.3-dflash2-preview", "--engine", "vllm", "--hardware", hardware], capsys)
        exports, words, flags = parsed(out)
        assert (exports, words) == ({}, command)
        assert {f: v for f, v in flags.items() if f not in ALLOWED} == {
            f: v
            for f, v in (
                published
                | {
                    "--speculative-config": fixed | {"num_speculative_tokens": 8},
                    "--tensor-parallel-size": parallelism,
                }
            ).items()
            if f not in ALLOWED
        }
        assert "no published command: made from" in err
        assert "not stated there: the command of the tables" in err


def test_mtp_and_the_baseline_differ_from_the_drafter_in_the_drafter_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    drafting = {"--speculative-config", "--per-request-spec-decode-metrics"}
    for hardware, recipe in (("4xb300", "glm-5.3-dflash2-preview"), ("8xh200", "glm-5.3-dflash2")):
        compared = parsed(printed([recipe, "--engine", "vllm", "--hardware", hardware], capsys)[0])
        for other, config in (
            ("glm-5.3-mtp", {"method": "mtp", "num_speculative_tokens": 3}),
            ("glm-5.3-none", None),
        ):
            own = parsed(printed([other, "--engine", "vllm", "--hardware", hardware], capsys)[0])
            assert own[:2] == compared[:2]
            assert {f: v for f, v in own[2].items() if f not in drafting} == {
                f: v for f, v in compared[2].items() if f not in drafting
            }
            assert own[2].get("--speculative-config") == config
            assert ("--per-request-spec-decode-metrics" in own[2]) == (config is not None)


def test_k_reaches_every_number_that_an_engine_derives_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(["glm-5.3-dspark", "--engine", "sglang", "--k", "5"], capsys)
    flags = parsed(out)[2]
    assert (flags["--speculative-num-draft-tokens"], flags["--speculative-dspark-block-size"]) == ("6", "5")
    config = parsed(printed(["glm-5.3-dspark", "--engine", "vllm", "--k", "5"], capsys)[0])[2]["--speculative-config"]
    assert isinstance(config, dict)
    assert config["num_speculative_tokens"] == 5
