"""The command line: every file here with a `command` or `COMMANDS` is a verb, and what goes wrong becomes one line."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from errno import EACCES, EDQUOT, EISDIR, ENAMETOOLONG, ENOSPC, ENOTDIR, EPERM, EROFS
from functools import wraps
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any, TextIO

import typer

from speedbench import __version__
from speedbench.errors import UserError

HELPERS = frozenset({"compared", "decisions", "document", "ending", "pages", "parse", "places", "progress", "tables"})
"""Files here that are no verb; they may import what `--help` must not wait for."""

USER, OURS, INTERRUPTED, UNREAD = 2, 70, 130, 141
"""Exit codes: the user's input, our fault, Ctrl-C, nobody reads what is printed."""

DISK = {EACCES, EDQUOT, EISDIR, ENAMETOOLONG, ENOSPC, ENOTDIR, EPERM, EROFS}
"""What a disk refuses; whose file it was, only the user can mend it."""


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character gets `?`, not an exception
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning
    sys.exit(_exit_code(sys.argv[1:] or ["--help"]))


def _exit_code(words: list[str]) -> int:
    """Runs the command line; what typer finds wrong with it becomes one line, as everything else that is wrong."""
    try:
        code = _app()(words, prog_name="speedbench", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:  # the class is click's or typer's own copy of it, by version; neither is imported here
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        _complain(f"error: {error.format_message()} (see: {context.command_path if context else 'speedbench'} -h)")
        return USER
    return code if isinstance(code, int) else 0


def _app() -> typer.Typer:
    app = typer.Typer(
        name="speedbench",
        add_completion=False,
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in sorted({module.name for module in iter_modules(__path__)} - HELPERS):
        module, verb = import_module(f"{__name__}.{name}"), name.rstrip("_")
        if hasattr(module, "COMMANDS"):
            app.add_typer(_group(module.COMMANDS, (module.__doc__ or "").partition(": ")[2]), name=verb)
        else:
            app.command(verb)(_guarded(module.command))
    return app


def _group(commands: Iterable[Any], said: str) -> typer.Typer:
    """A verb with verbs below it."""
    group = typer.Typer(help=said)
    for command in commands:
        group.command(command.__name__)(_guarded(command))
    return group


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"speedbench {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure speculative decoding: acceptance length, what it costs, and the speedup that comes out.

    `speedbench run` measures the built-in demo on a real model, on any CPU.
    """


def _guarded(command: Any) -> Any:
    """The verb, with exceptions turned into a message and an exit code before typer sees them."""

    @wraps(command)
    def verb(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except UserError as error:
            _complain(f"error: {error}")
            raise typer.Exit(USER) from None
        except KeyboardInterrupt:
            _complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort):
            raise
        except (BrokenPipeError, SystemExit) as error:  # rich makes the latter, with status 1, of the former
            if getattr(error, "code", 1) != 1:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
            raise typer.Exit(UNREAD) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK:
                _complain(f"error: {error.filename or 'the disk'}: {error.strerror}")
                raise typer.Exit(USER) from None
            _complain(f"internal error: {type(error).__name__}: {error}. The traceback is in {_keep_traceback()}")
            raise typer.Exit(OURS) from None

    return verb


def _complain(words: str) -> None:
    """One line on stderr, without secrets and without a character that a terminal would obey."""
    from speedbench.environment import redact

    line = redact(" ".join(words.split()))
    typer.echo("".join(each if each.isprintable() else ascii(each)[1:-1] for each in line), err=True)


def _keep_traceback() -> str:
    """The path of a file with the exception being handled, without secrets."""
    from speedbench.environment import redact

    with tempfile.NamedTemporaryFile("w", prefix="speedbench-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.write(redact(traceback.format_exc()))
    return file.name


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own warnings are sentences for the user; where in the code they arose is no help."""
    said = str(message) if category is UserWarning else f"{category.__name__}: {message}"
    _complain(f"warning: {said}")
