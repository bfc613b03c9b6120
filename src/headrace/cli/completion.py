"""`headrace completion bash|zsh|fish`: prints a script that completes verbs, options and file names.

    headrace completion bash >> ~/.bashrc
    headrace completion zsh > "${fpath[1]}/_headrace"
    headrace completion fish > ~/.config/fish/completions/headrace.fish

The words are those that each verb's --help shows at the time the script is printed.
"""

import argparse
import contextlib
import io
import re
import shlex

from headrace.cli import VERBS
from headrace.cli import main as headrace

SHELLS = ("bash", "zsh", "fish")
SUBVERBS = {"snapshot": ("show", "diff"), "completion": SHELLS}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="headrace completion", description="Print a script that completes the headrace command."
    )
    parser.add_argument("shell", choices=SHELLS)
    shell = parser.parse_args(argv).shell
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](words()), end="")
    return 0


Words = dict[str, dict[str, str]]
"""What may follow each verb: words and options, each with what it means."""


def words() -> Words:
    found: Words = {}
    for verb in VERBS:
        subverbs = SUBVERBS.get(verb, ())
        helps = [_help(verb), *(_help(verb, subverb) for subverb in subverbs)]
        found[verb] = dict.fromkeys(subverbs, "") | dict(pair for text in helps for pair in options(text))
    return found


def _help(*verb: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        headrace([*verb, "--help"])
    return out.getvalue()


def options(text: str) -> list[tuple[str, str]]:
    """The long options in a help text, with the first words of what it says about them."""
    found: dict[str, str] = {}
    for line in re.sub(r"\n {20,}", "  ", text).splitlines():
        match = re.match(r" {2}(-[^ ].*?)(?: {2,}(.*))?$", line)
        for option in re.findall(r"--[a-z][a-z-]+", match[1]) if match else ():
            found.setdefault(option, (match[2] or "").strip() if match else "")
    return list(found.items())


def bash(known: Words) -> str:
    cases = "\n".join(f"    {verb}) words={shlex.quote(' '.join(choices))} ;;" for verb, choices in known.items())
    return f"""_headrace() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {shlex.quote(" ".join(known))} -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
}}
complete -o filenames -F _headrace headrace
"""


def zsh(known: Words) -> str:
    verbs = "\n".join(f"    {_pair(verb, VERBS[verb])}" for verb in known)
    cases = "\n".join(
        f"    {verb}) choices=({' '.join(_pair(word, text) for word, text in choices.items())}) ;;"
        for verb, choices in known.items()
    )
    return f"""#compdef headrace
_headrace() {{
  local -a verbs choices
  verbs=(
{verbs}
  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
    return
  fi
  case $words[2] in
{cases}
  esac
  _describe 'option' choices
  _files
}}
_headrace "$@"
"""


def _pair(word: str, text: str) -> str:
    return shlex.quote(f"{word}:{text.replace(':', '.')}" if text else word)


def fish(known: Words) -> str:
    lines = [f"complete -c headrace -n __fish_use_subcommand -a {verb} -d {shlex.quote(VERBS[verb])}" for verb in known]
    for verb, choices in known.items():
        for word, text in choices.items():
            which = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            description = f" -d {shlex.quote(text)}" if text else ""
            lines.append(f"complete -c headrace -n '__fish_seen_subcommand_from {verb}' {which}{description}")
    return "\n".join(lines) + "\n"
