"""One measurement, alone in its process: `python -m benchmarks.measure CASE SUBJECT OUT SECONDS SCALE`.

The figures go to the file OUT, so that nothing a loader prints can be taken for them. This module is the `__main__` of
the measured process, and a spawned worker may import it again: it imports nothing heavy and does nothing on import.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    from benchmarks import cases, roster, subjects
    from benchmarks.case import Effort

    name, subject, out, seconds, scale = sys.argv[1:]
    effort = Effort(seconds=float(seconds), scale=float(scale))
    case = cases.load(name)
    figures = case.measure(subjects.find(subject), effort)
    others = set(roster.ROSTER) - {"headrace"}  # may lack a part of what is asked
    if subject not in others and (missing := {target.figure for target in case.CASE.targets} - set(figures)):
        raise AssertionError(f"the case {name} has targets for {sorted(missing)} but does not measure them")
    part = Path(f"{out}.part")
    part.write_text(json.dumps(figures))
    part.rename(out)  # whole or not at all: the deadline may pass while it is written


if __name__ == "__main__":
    main()
