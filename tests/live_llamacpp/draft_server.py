"""llama.cpp with a draft model, as a user would start it: `python draft_server.py TARGET DRAFTER K`.

It prints its address as one line, and ends with its standard input.
"""

import os
import sys
import threading


def main() -> None:
    import xllamacpp

    target, drafter, k = sys.argv[1:]
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    params = xllamacpp.CommonParams()
    params.model.path = target
    params.model_alias = {"target"}
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.endpoint_metrics, params.endpoint_slots, params.endpoint_props, params.ui = True, True, True, False
    params.n_parallel, params.n_ctx = 1, 2048
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    draft = params.speculative.draft
    draft.mparams.path = drafter
    draft.n_max = int(k)
    draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, file=announce, flush=True)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    threading.Event().wait()


def _die_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
