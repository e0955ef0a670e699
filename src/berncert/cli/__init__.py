"""The command line: parse, call, print. Each command is a module, imported only when it is asked for."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NoReturn

import berncert
from berncert.foundation.arguments import guess

COMMANDS = {
    "demo": "the main job on shipped data: certify, attack, table, picture, report",
    "table": "any scikit-learn model on a table: proven radii, nearest counterfactuals, a report",
    "train": "train a model by a recipe, or resume a training that was cut off",
    "certify": "prove a radius for each image of a data set; or the paper's estimate, or randomized smoothing",
    "attack": "look for images that change the class: no certificate can be better than what is left",
    "curve": "certified accuracy over radii: tables and pictures of any runs, published ones too",
    "report": "one HTML file with all there is to see of some runs",
    "inspect": "what a model is made of, and what is proven of it",
    "explain": "one image: its class, its radius, and what the proof is made of",
}
"""Command -> what it does. Its module has EXAMPLES, `add_arguments(parser)` and `run(arguments)`."""

WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Torch's threads sleep while they wait for each other. By themselves they keep their cores busy, and where others use
these as well, two threads are many times slower than one."""

RESUMABLE = ("demo", "table", "train", "certify", "attack")
"""Commands that resume from where they were stopped."""

EXAMPLES = """\
examples:
  berncert demo                               a minute, on shipped data
  berncert table loans.csv --target approved  any model on a table, and its nearest counterfactuals
  berncert certify mnist                      the shipped model, on MNIST's test images
  berncert curve runs/mnist-exact-l2          its certified accuracy over radii
  berncert explain digits --index 3           one image, and a picture of the proof
  berncert COMMAND --help                     what a command takes, with examples
"""


class Parser(argparse.ArgumentParser):
    """Guesses what was meant by a word that it does not know."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"unrecognized arguments: (--[^ =]+)|invalid choice: '([^']+)'", message)
        known = [*self._option_string_actions, *COMMANDS]
        super().error(
            f"{message}{guess(wrong[1] or wrong[2], known) if wrong else ''}\n{self.prog} --help shows all there is"
        )


def main(words: list[str] | None = None) -> int:
    """Run one command; 0 if all is well, 1 if it could not be done, 2 for wrong use."""
    for name, value in WAITING.items():  # before torch is loaded; what the user chose counts
        os.environ.setdefault(name, value)
    words = sys.argv[1:] if words is None else words
    parser = Parser(
        prog="berncert",
        description="Smooth a classifier with Bernstein polynomials and prove how far its predictions hold.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {berncert.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for name, about in COMMANDS.items():
        commands.add_parser(name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    asked = next((word for word in words if word in COMMANDS), None)

    def fail(message: str, code: int) -> int:
        from berncert.cli.flags import with_flags  # not for --help

        print(f"berncert: {with_flags(message, commands.choices[asked]) if asked else message}", file=sys.stderr)
        return code

    try:
        if asked is not None:
            module = import_module(f"berncert.cli.{asked}")
            commands.choices[asked].epilog = module.EXAMPLES
            module.add_arguments(commands.choices[asked])
        arguments, unknown = parser.parse_known_args(words)
        if unknown:
            commands.choices[arguments.command].error(f"unrecognized arguments: {' '.join(unknown)}")
        with _short_warnings():
            import_module(f"berncert.cli.{arguments.command}").run(arguments)
    except (ValueError, FileNotFoundError) as error:  # a wrong name, setting or file
        return fail(_sentence(error), 2)
    except BrokenPipeError:  # who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, RuntimeError, FloatingPointError, MemoryError, ImportError) as error:  # of an extra, too
        return fail(_sentence(error), 1)
    except KeyboardInterrupt:
        hint = "; the same command resumes from where this one was" if asked in RESUMABLE else ""
        return fail(f"stopped{hint}", 1)
    return 0


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Warnings as one line, without the place in the code."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *place, **more: f"berncert: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _sentence(error: Exception) -> str:
    """What the error says; of one of the system what came of it, without its number."""
    if isinstance(error, OSError) and len(error.args) == 2:
        return f"{error.args[1]}{f': {error.filename}' if error.filename else ''}"
    return str(error)
