"""What a card's text says beside its tables: draft tokens in its commands, and facts that a reader needs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spec_eval.engines.sglang import drafts_a_step

_GAP = r"[\\\"'`*\s:=|,]{1,12}"
# One pattern an engine's own word; k is the number itself. docs/design/cards.md lists them.
_PLAIN_SETTINGS = {
    "num_speculative_tokens": re.compile(rf"num[_-]speculative[_-]tokens{_GAP}([0-9]{{1,6}})\b", re.IGNORECASE),
    "--spec-draft-n-max": re.compile(r"(?<![\w-])--spec-draft-n-max[\s\\=]{1,8}([0-9]{1,6})\b"),
    "--draft-max": re.compile(r"(?<![\w-])--(?:draft-max|draft-n|draft)[\s\\=]{1,8}([0-9]{1,6})\b"),
    "max_draft_len": re.compile(rf"max_draft_len{_GAP}([0-9]{{1,6}})\b", re.IGNORECASE),
    "num_nextn_predict_layers": re.compile(rf"num_nextn_predict_layers{_GAP}([0-9]{{1,6}})\b", re.IGNORECASE),
}
# SGLang's depend on each other, so they are read together, from one paragraph.
_SGLANG_SETTINGS = {
    name: re.compile(rf"{name.replace('_', '[_-]')}{_GAP}([0-9]{{1,6}})\b", re.IGNORECASE)
    for name in ("speculative_num_draft_tokens", "speculative_dspark_block_size", "speculative_eagle_topk")
}
_VARYING = re.compile(
    r"(?:method|spec-type|speculative-algorithm|speculative_algorithm)[\\\"'`\s:=]{1,8}(?:ngram|suffix)", re.IGNORECASE
)

_ENGINE = r"(?:vllm|sglang|llama\.cpp|tensorrt[- ]llm|trt-?llm|lmdeploy|tgi)"
_HARDWARE = (
    r"\b(?:A10G?|A30|A40|A100|A800|H20|H100|H200|H800|B100|B200|B300|GB200|GB300|L4|L40S?|T4|V100|MI[0-9]{3}X?"
    r"|RTX[ -]?\w+|TPU|Gaudi ?[0-9]?|Ascend|DGX|Xeon|EPYC|Apple M[0-9])\b"
)
_OUTPUT = r"(?:new|output|generation|generated|completion|response|gen)"
_REVISION = r"[^\n]{0,40}?(?:revision|commit|sha(?:-?256)?|hash)[^\n]{0,24}?\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,64}\b"
# Found in any part of the text.
_ANYWHERE = {
    "draft revision": rf"\b(?:draft(?:er)?|speculator){_REVISION}|[\"']revision\\?[\"']"
    r"|--speculative-draft-model-revision",
    "target revision": rf"\b(?:target|verifier|base model){_REVISION}|(?<![\w-])--revision\s",
    "engine version": rf"{_ENGINE}(?:[ \t|*`(:=@/_-]|version|release|build|commit|openai|nightly){{0,12}}"
    r"(?:v?[0-9]+\.[0-9]+|b[0-9]{4,}|[0-9a-f]{7,40}\b)|engine version[ \t|:*`]{1,8}\S",
    "hardware": rf"(?-i:{_HARDWARE})",
}
# Found outside of example requests, which say nothing of the evaluation.
_OF_THE_EVALUATION = {
    "thinking mode": r"\b(?:thinking|reasoning)[ \t|:*`(=]*(?:mode|is|was)?[ \t|:*`(=]*(?:enabled|disabled|on|off)\b"
    r"|\b(?:with|without|no|non)[ -](?:thinking|reasoning)\b|\benable_thinking[\\\"'` \t:=|]{1,8}(?:true|false)"
    r"|(?:thinking|reasoning)[ -]effort",
    "max tokens": rf"\bmax(?:imum)?[ _-]{_OUTPUT}(?:[ _-](?:tokens?|length|len))?\W{{0,8}}[0-9]"
    r"|\bmax[ _-]?tokens\W{0,8}[0-9]"
    rf"|\b(?:maximum|limit|cap) of [0-9][0-9,.]*k? (?:{_OUTPUT} )?tokens"
    rf"|\b{_OUTPUT}[ -](?:tokens? )?(?:cap|limit|budget|length|maximum)\b[^\n]{{0,16}}[0-9]"
    rf"|\bup to [0-9][0-9,.]*k? {_OUTPUT} tokens",
    "temperature": r"\btemp(?:erature)?\b[\W_]{0,10}[0-9]|\bT ?= ?[0-9]|\bgreedy (?:decoding|sampling)"
    r"|[|\t] *temp(?:erature)? *(?:[|\t]|$)",
    "prompts per row": r"\b[0-9][0-9,]*\W{1,3}(?!concurrent|parallel)(?:[\w-]+ )?"
    r"(?:prompts|samples|questions|problems|conversations|requests)\b"
    r"|\b(?:num[ _]prompts|num[ _]samples|prompts|samples|requests|n)\W{0,4}[=:|]\W{0,4}[0-9]"
    r"|[|\t] *(?:#|num|number of)? *(?:prompts|samples|requests|questions|n) *(?:[|\t]|$)",
    "pooled or mean": r"\bpooled\b|\bper[ -](?:request|prompt|sample)\b[^\n]{0,12}\b(?:mean|average)"
    r"|\b(?:mean|averaged?|averages)\b[^\n]{0,20}\b(?:over|across|per) (?:all |the )*(?:requests?|prompts?|samples?)"
    r"|\b(?:micro|macro|weighted)[ -](?:mean|average)|\bweighted by\b|\bsum(?:med|s) over\b"
    r"|divided by (?:the )?\w* ?steps",
}
_EXAMPLE = re.compile(r"chat\.completions|\bmessages\b\W{0,3}[=:]|\bcurl\b|\bclient\.|\.generate\(|SamplingParams")
_FENCE = re.compile(r"^[ >]*(```+|~~~+)[^\n]*\n.*?(?:^[ >]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Setting:
    """A number of draft tokens in the text. line: from 1. text: the setting as it is written there. k: in drafts."""

    line: int
    text: str
    k: int


def settings(text: str) -> list[Setting]:
    """Every setting of draft tokens, each wording once, in the order of the text."""
    text = text.replace("\\_", "_")
    found = [
        Setting(_line(text, match.start()), f"{name} {match[1]}", int(match[1]))
        for name, pattern in _PLAIN_SETTINGS.items()
        for match in pattern.finditer(text)
    ]
    found += _of_sglang(text)
    once = {setting.text: setting for setting in sorted(found, key=lambda s: -s.line)}
    return sorted(once.values(), key=lambda s: (s.line, s.text))


def _of_sglang(text: str) -> Iterator[Setting]:
    """Its draft tokens count the token that a chain starts from; a DSpark block does not, a tree has no k."""
    for start, paragraph in _paragraphs(text):
        matches = {name: pattern.search(paragraph) for name, pattern in _SGLANG_SETTINGS.items()}
        there = {name: match for name, match in matches.items() if match}
        args: dict[str, object] = {name: int(match[1]) for name, match in there.items()}
        if "speculative_dspark_block_size" in args:
            args["speculative_algorithm"] = "DSPARK"
        k, flag = drafts_a_step(args)
        if k and flag:
            match = there[flag.split()[0]]
            yield Setting(_line(text, start + match.start()), f"--{flag.replace('_', '-')}", k)


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for gap in re.finditer(r"\n[ \t]*\n", text):
        yield start, text[start : gap.start()]
        start = gap.end()
    yield start, text[start:]


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def drafts_vary(text: str) -> bool:
    """Whether a command names a drafter that proposes as many tokens as it finds."""
    return bool(_VARYING.search(text))


def missing_facts(text: str) -> list[str]:
    """The facts that no part of the text states, by their words; a fact in other words is listed too."""
    unfenced = _FENCE.sub(lambda fence: "" if _EXAMPLE.search(fence[0]) else fence[0], text)
    evaluation = "\n\n".join(part for _, part in _paragraphs(unfenced) if not _EXAMPLE.search(part))
    places = [(text, _ANYWHERE), (evaluation, _OF_THE_EVALUATION)]
    return [
        fact
        for where, facts in places
        for fact, pattern in facts.items()
        if not re.search(pattern, where, re.IGNORECASE | re.MULTILINE)
    ]
