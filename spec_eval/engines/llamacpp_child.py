"""The child process that runs llama.cpp: `python -m spec_eval.engines.llamacpp_child JSON`.

It announces its address as one line on its standard output and lives as long as its standard input is open: the
pipe closes with the parent, however the parent ends, so no server is left behind.
"""

import json
import os
import sys
import threading
from typing import Any


def main() -> None:
    """Serve until standard input ends."""
    config: dict[str, Any] = json.loads(sys.argv[1])
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever llama.cpp prints goes to the log, not between our announcement
    threading.Thread(target=_die_with_parent, daemon=True).start()
    server = _start(config)
    print(json.dumps({"root": server.listening_address}), file=announce, flush=True)
    threading.Event().wait()


def _die_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _start(config: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = config["model_path"]
    params.model_alias = {config["model_name"]}
    params.hostnames, params.port = [config["host"]], config["port"]
    params.endpoint_metrics, params.endpoint_slots, params.endpoint_props, params.ui = True, True, True, False
    params.n_parallel = config["slots"]
    params.n_ctx = config["slots"] * config["slot_context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config["threads"]
    kinds = xllamacpp.common_speculative_type
    if rates := config["synthetic_rates"]:
        # The target drafts for itself, and llama.cpp accepts by these rates instead of by comparing tokens.
        print(f"synthetic acceptance, rates by position: {rates}", file=sys.stderr, flush=True)
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        params.speculative.draft.mparams.path = config["model_path"]
        params.speculative.draft.n_max = len(rates)
        params.speculative.synth_rates = rates
    elif config["algorithm"] == "ngram-simple":
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        params.speculative.ngram_simple.size_n = config["match"]
        params.speculative.ngram_simple.size_m = config["k"]
    elif config["algorithm"] == "draft-simple":
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        params.speculative.draft.mparams.path = config["draft_path"]
        params.speculative.draft.n_max = config["k"]
    elif config["algorithm"] != "none":
        raise ValueError(f"no such drafter: {config['algorithm']}")
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
