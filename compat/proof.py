"""Whether headrace stood in the original's place in every process of a run: read from what each process wrote down.

A run without this proof is worth nothing: it may have tested the original against itself.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path

OURS = ("headrace", "compat_")
"""Modules that are ours: the library, and the shims (protocols and private names that nobody answers for)."""


@dataclass(slots=True)
class Proof:
    processes: int = 0
    """Python processes that were started."""
    replaced: int = 0
    """Those that asked for a name of the original, and got ours."""
    used: int = 0
    """Those in which a loader or pipe of ours was iterated."""
    delegated: int = 0
    """Those in which torch's own DataPipes ran on torch's own workers, as docs/torch.md says."""
    wrong: list[str] = field(default_factory=list)

    def add(self, other: "Proof") -> None:
        """That of other processes."""
        self.processes += other.processes
        self.replaced += other.replaced
        self.used += other.used
        self.delegated += other.delegated
        self.wrong += other.wrong

    def plain(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if name != "wrong"}


def prove(folder: Path, replaced: tuple[str, ...]) -> Proof:
    """Read the witness's files; `replaced` are the names that must have been ours."""
    proof = Proof()
    seen: set[str] = set()
    for file in sorted(folder.iterdir()):
        lines = [line.split("\t", 1) for line in file.read_text().splitlines()]
        kinds = {kind for kind, _ in lines}
        proof.processes += 1
        proof.replaced += "name" in kinds
        proof.used += "used" in kinds
        proof.delegated += "delegated" in kinds
        for kind, said in lines:
            if kind == "name":
                path, home = said.split(" ")
                seen.add(path)
                if not home.startswith(OURS) and path in replaced:
                    proof.wrong.append(f"{path} was {home}'s in process {file.name}")
            elif kind in ("foreign", "unseen"):
                proof.wrong.append(f"{kind} in process {file.name}: {said}")
    proof.wrong += [f"{path} was never asked for" for path in replaced if path not in seen]
    if not proof.used:
        proof.wrong.append("nothing of headrace's was used")
    return proof
