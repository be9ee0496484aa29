"""A tokenizer of one word. AIPerf loads one although the server counts the tokens, and the target's may be far away."""

import json
from pathlib import Path
from typing import Any

_MODEL: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
}
_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "eos_token": "[UNK]"}


def write(folder: Path) -> Path:
    """The folder, with what the usual libraries load a tokenizer from."""
    folder.mkdir(exist_ok=True)
    for name, content in (("tokenizer.json", _MODEL), ("tokenizer_config.json", _CONFIG)):
        (folder / name).write_text(json.dumps(content), encoding="ascii")
    return folder.absolute()
