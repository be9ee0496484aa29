"""The two files of a prepared config. The rows are moved into place last: where they lie, they are whole."""

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts.prepare.published import Published, data_of, waits

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """A config made ready."""

    path: Path
    sha256: str
    rows: int
    notes: tuple[str, ...]


def check_target(out: Path, config: str, *, force: bool) -> None:
    """Refuse before any work where the config could not be written to `out`, or would not be read from it."""
    target = out / f"{config}.jsonl"
    if target.exists() and not force:
        raise UsageError(f"{target}: prepared already; give --force to replace it, or another folder with -o")
    for pattern in data_of(config).local:
        if pattern == target.name:
            break
        if other := next((path for path in sorted(out.glob(pattern)) if path.is_file()), None):
            raise UsageError(f"{other}: a run would read it before {target.name}; give another folder with -o")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise _unwritable(out, error) from error


def write(
    published: Published, turns: list[list[str]], out: Path, *, sources: list[dict[str, Any]], tool: dict[str, Any]
) -> tuple[Path, str]:
    """Rows and sidecar; gives the rows' path and SHA-256."""
    target, sidecar = out / f"{published.config}.jsonl", out / f"{published.config}.prepared.json"
    if any(map(waits, turns)):
        raise EnvironmentFault(f"{target}: a placeholder is left, nothing is written; report it")
    partial, partial_sidecar = (path.with_name(f"{path.name}.partial") for path in (target, sidecar))
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as stream:
            for row, resolved in zip(published.rows, turns, strict=True):
                line = (json.dumps({**row, "turns": resolved}, ensure_ascii=False) + "\n").encode()
                digest.update(line)
                stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        about = {
            "schema_version": SCHEMA_VERSION,
            "config": published.config,
            "file": target.name,
            "sha256": digest.hexdigest(),
            "rows": len(published.rows),
            "resolved_rows": len(published.waiting),
            "published": {
                "source": published.source,
                "revision": published.revision,
                "files": published.files,
                "standin": published.standin,
            },
            "sources": sources,
            "tool": tool,
        }
        with partial_sidecar.open("w", encoding="utf-8") as text:
            json.dump(about, text, indent=2, ensure_ascii=False)
            text.write("\n")
            text.flush()
            os.fsync(text.fileno())
        target.unlink(missing_ok=True)
        partial_sidecar.replace(sidecar)
        partial.replace(target)
    except UnicodeEncodeError as error:
        raise UsageError(f"{target}: a published row holds text that UTF-8 cannot carry; mend it") from error
    except OSError as error:
        raise _unwritable(out, error) from error
    finally:
        partial.unlink(missing_ok=True)
        partial_sidecar.unlink(missing_ok=True)
    return target, digest.hexdigest()


def _unwritable(out: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"{out}: cannot be written ({error.strerror}); give another folder with -o")
