"""A graph of pipes drawn: as text, or as a graphviz Digraph."""

from typing import Any

from headrace.doors.datapipes.classes import InnerStep
from headrace.doors.datapipes.graph import list_dps, traverse_dps
from headrace.doors.datapipes.lowering import op_of
from headrace.doors.datapipes.nodes import DataPipe, is_user_object, sources_of
from headrace.errors import MissingExtra


def to_text(datapipe: object) -> str:
    """One line per pipe, sources below what they feed; a pipe that was drawn already is only named."""
    nodes = list_dps(traverse_dps(datapipe))
    numbers = {id(node): i for i, node in enumerate(nodes)}
    lines: list[str] = []
    drawn: set[int] = set()

    def draw(node: object, first: str, rest: str) -> None:
        again = id(node) in drawn
        drawn.add(id(node))
        lines.append(f"{first}{_label(node)} [{numbers[id(node)]}]{' (above)' if again else ''}")
        if again:
            return
        below = sources_of(node)
        for i, source in enumerate(below):
            last = i == len(below) - 1
            draw(source, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))

    draw(datapipe, "", "")
    return "\n".join(lines)


def to_graph(dp: object, *, debug: bool = False) -> Any:
    """The graph for graphviz; without `debug` the branches of a fork and the like are one node."""
    try:
        import graphviz  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError:
        raise MissingExtra(
            "graphviz is not installed; it comes with: pip install graphviz. headrace.datapipes.utils.to_text() draws "
            "the same graph as text"
        ) from None
    drawing = graphviz.Digraph(graph_attr={"rankdir": "TB"}, node_attr={"shape": "box", "style": "filled"})
    nodes = list_dps(traverse_dps(dp))
    names = {id(node): _group(node) if not debug else str(i) for i, node in enumerate(nodes)}
    fed = {id(source) for node in nodes for source in sources_of(node)}
    for node in nodes:
        color = "lightblue" if not sources_of(node) else "darkolivegreen1" if id(node) not in fed else "white"
        drawing.node(names[id(node)], _label(node), fillcolor=color)
    edges = {
        (names[id(s)], names[id(node)]) for node in nodes for s in sources_of(node) if names[id(s)] != names[id(node)]
    }
    for tail, head in sorted(edges):
        drawing.edge(tail, head)
    return drawing


def _group(node: object) -> str:
    """The name of a node in the drawing: one for all branches of a fork."""
    is_branch = isinstance(node, DataPipe) and not is_user_object(node) and "instance_id" in node._constructor_args
    return f"{type(node).__name__} of {id(sources_of(node)[0])}" if is_branch else str(id(node))


def _label(node: Any) -> str:
    name = type(node).__name__
    if is_user_object(node):
        return name
    if not isinstance(node, DataPipe):
        return str(node.op.describe())
    described = op_of(node).describe()
    _, bracket, arguments = described.partition("(")
    return described if isinstance(node, InnerStep) else name + bracket + arguments
