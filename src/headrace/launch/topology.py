"""The picture of a job: which host runs which instances, and which replicas each of them drives."""

from collections.abc import Sequence

_TITLE = "headrace topology"


def topology(hosts: Sequence[str], instances: int, replicas: int) -> str:
    """A table whose cells span the replicas below them; replicas and instances are spread evenly, in order."""
    widths = [len(f" {number} ") for number in range(replicas)]
    spans = {
        "hosts": [(name, replicas // len(hosts)) for name in hosts],
        "instances": [(str(number), replicas // instances) for number in range(instances)],
        "replicas": [(str(number), 1) for number in range(replicas)],
    }
    for cells in spans.values():  # a name wider than its replicas makes the last of them wider
        first = 0
        for name, count in cells:
            lack = len(name) + 2 - (sum(widths[first : first + count]) + count - 1)
            widths[first + count - 1] += max(0, lack)
            first += count
    label = max(map(len, spans)) + 2
    # title no wider than the table
    widths[-1] += max(0, len(_TITLE) + 2 - (label + 1 + sum(widths) + replicas - 1))
    inside = sum(widths) + replicas - 1
    whole = label + 1 + inside

    def row(name: str) -> str:
        texts, first = [], 0
        for text, count in spans[name]:
            texts.append(text.center(sum(widths[first : first + count]) + count - 1))
            first += count
        return f"|{f' {name}'.ljust(label)}|{'|'.join(texts)}|"

    line = f"|{'-' * label}|{'-' * inside}|"
    return "\n".join(
        [
            " " + "=" * whole,
            f"|{_TITLE.center(whole)}|",
            f"|{'=' * whole}|",
            row("hosts"),
            line,
            row("instances"),
            line,
            row("replicas"),
            " " + "-" * whole,
        ]
    )
