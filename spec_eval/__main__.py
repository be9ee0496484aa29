"""`python -m spec_eval`, the same as `spec-eval`."""

from spec_eval.cli import main

if __name__ == "__main__":
    main()
