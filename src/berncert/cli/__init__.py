"""The command line: parse, call, print. Each command is a module, imported only when it is asked for."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

COMMANDS = {"train": "train a model by a recipe, or go on with a training that was cut off"}
"""Command -> what it does. Its module has `add_arguments(parser)` and `run(arguments)`."""

EXAMPLES = """\
examples:
  berncert train digits                       half a minute, on data that comes along
  berncert train mnist --out runs/mnist --radius 1.58
  berncert train --help                       all recipes and settings
"""


def main(words: list[str] | None = None) -> int:
    """Run one command; 0 if all is well, 1 if it could not be done, 2 for wrong use."""
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(
        prog="berncert",
        description="Smooth a classifier with Bernstein polynomials and prove how far its predictions hold.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for name, about in COMMANDS.items():
        commands.add_parser(name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    try:
        asked = next((word for word in words if word in COMMANDS), None)
        if asked is not None:
            import_module(f"berncert.cli.{asked}").add_arguments(commands.choices[asked])
        arguments = parser.parse_args(words)
        import_module(f"berncert.cli.{arguments.command}").run(arguments)
    except ValueError as error:  # a wrong name, setting or file
        return _fail(error, 2)
    except (OSError, RuntimeError, FloatingPointError, MemoryError) as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return _fail("stopped; the same command goes on from the last epoch that was done", 1)
    return 0


def _fail(message: object, code: int) -> int:
    print(f"berncert: {message}", file=sys.stderr)
    return code
