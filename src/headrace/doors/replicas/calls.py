"""Calls of option setters written as text: JSON, or a file with one call a line.

Nothing is evaluated: a line is parsed, its arguments are literals (or names of an enumeration), and only setters that
are listed here can be called.
"""

import ast
import json
from pathlib import Path
from typing import Any, NamedTuple

from headrace.errors import BadOption, meant

SETTERS = (
    "Distributed.configureProcessId",
    "Distributed.disable",
    "Distributed.setEnvVarNames",
    "Training.gradientAccumulation",
    "deviceIterations",
    "enableSyntheticData",
    "inputReplicaGrouping",
    "randomSeed",
    "replicationFactor",
)


class Call(NamedTuple):
    setter: str
    arguments: tuple[Any, ...]
    where: str


def from_json(text: str, where: str) -> list[Call]:
    """An object of setters and their values; a list gives several arguments."""
    try:
        options = json.loads(text)
    except json.JSONDecodeError as wrong:
        raise BadOption(f"{where}: this is not JSON: {wrong}") from None
    if not isinstance(options, dict):
        raise BadOption(f'{where}: write an object such as {{"deviceIterations": 4}}, not {type(options).__name__}')
    return [
        Call(_known(name, where), tuple(value) if isinstance(value, list) else (value,), f"{where}, {name}")
        for name, value in options.items()
    ]


def from_file(path: Path) -> list[Call]:
    calls: list[Call] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path}:{number}"
        try:
            body = ast.parse(line.strip()).body
        except SyntaxError:
            raise _not_a_call(where, line) from None
        if not body:
            continue  # an empty line, or a comment
        call = body[0].value if isinstance(body[0], ast.Expr) else None
        if len(body) != 1 or not isinstance(call, ast.Call) or call.keywords:
            raise _not_a_call(where, line)
        arguments = tuple(_argument(argument, where, line) for argument in call.args)
        calls.append(Call(_known(ast.unparse(call.func), where), arguments, where))
    return calls


def _argument(node: ast.expr, where: str, line: str) -> Any:
    if isinstance(node, ast.Attribute):
        return node.attr  # poptorch.CommGroupType.Consecutive
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _not_a_call(where, line) from None


def _known(name: str, where: str) -> str:
    if name not in SETTERS:
        hint = meant(name, SETTERS, f"known: {', '.join(SETTERS)}")
        raise BadOption(f"{where}: there is no option {name!r}{hint}")
    return name


def _not_a_call(where: str, line: str) -> BadOption:
    return BadOption(f"{where}: write one call a line, such as deviceIterations(4), not {line.strip()!r}")
