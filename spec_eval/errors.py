"""The exception tree and the exit codes that it maps to.

SpecEvalError
├── CheckFailed        1  a gate, an impossible card row or a doctor check failed
├── UsageError         2  wrong arguments, or a file that cannot be read
├── NoVerdict          3  inconclusive, not comparable, or no rows
├── EnvironmentFault   4  the server, the data or an extra is missing
└── RunNotWhole        5  too many failures, or too little coverage
    └── Interrupted    5  somebody ended the run

Every message is one line: what, where, and the remedy.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line; a contract with CI scripts."""

    DONE = 0
    CHECK_FAILED = 1
    USAGE = 2
    NO_VERDICT = 3
    ENVIRONMENT = 4
    NOT_WHOLE = 5


class SpecEvalError(Exception):
    """Base of every error that spec-eval raises on purpose."""

    exit_code = ExitCode.CHECK_FAILED


class CheckFailed(SpecEvalError):
    """A check gave a definite no."""


class UsageError(SpecEvalError):
    """The arguments or a file they name cannot be used."""

    exit_code = ExitCode.USAGE


class NoVerdict(SpecEvalError):
    """There is not enough, or nothing comparable, to answer from."""

    exit_code = ExitCode.NO_VERDICT


class EnvironmentFault(SpecEvalError):
    """Something outside of spec-eval is missing or broken: server, data, extra."""

    exit_code = ExitCode.ENVIRONMENT


class RunNotWhole(SpecEvalError):
    """Something was measured, but not all that was planned."""

    exit_code = ExitCode.NOT_WHOLE


class Interrupted(RunNotWhole):
    """Somebody ended the run: what comes after it is not wanted either."""
