"""What was typed, as the verbs need it."""

import typer


def command_line(context: typer.Context) -> tuple[str, ...]:
    """The whole command, for the plan."""
    return ("spec-eval", *(context.obj or ()))


def options_given(context: typer.Context) -> list[str]:
    """Names of the options that stand on the command line, as they may be written there."""
    names = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.param_type_name == "option" and source is not None and source.name == "COMMANDLINE":
            off = context.params.get(parameter.name or "") is False and parameter.secondary_opts
            names.append((parameter.secondary_opts if off else parameter.opts)[0])
    return names
