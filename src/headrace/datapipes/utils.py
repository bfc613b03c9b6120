"""Streams, pinned memory and drawings of graphs."""

from headrace.doors.datapipes.drawing import to_graph, to_text
from headrace.ops.shape.pin_memory import pin as pin_memory_fn
from headrace.sources.stream import StreamWrapper

janitor = StreamWrapper.close_streams

__all__ = ["StreamWrapper", "janitor", "pin_memory_fn", "to_graph", "to_text"]
