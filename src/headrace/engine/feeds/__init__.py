"""Feeds: where the tickets of a stage come from, one file a kind, each with the place that it stands at.

    positions   arithmetic: positions of the head, in batches of this rank or in blocks
    listed      an iterator that runs in the consumer, one ticket per item
    strands     streams, read side by side
    regrouped   samples of the stage before, cut into groups
    counted     positions whose numbers of outputs ranks tell each other, and the batches that follow from these
    counter     positions that ranks take from a counter, block by block

    balanced    positions too, in steps that are divided among ranks by cost; it stands at a `Position`
    dealt       what counter and balanced share: tickets from an iterator of positions

The contract of a feed and of its place is in `place`, the samples that one ticket made are in `block`. A new kind of
place is a new file and a line here; a feed that only deals positions in another way is a file and stands at a
`Position` (docs/design.md says how a pipe comes to use either).
"""

from headrace.engine.feeds.counted import Counted
from headrace.engine.feeds.counter import Finished
from headrace.engine.feeds.listed import Item
from headrace.engine.feeds.place import KINDS, STARTS
from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.feeds.strands import InStrands

KINDS.update({kind.kind: kind for kind in (Position, Item, InStrands, Regrouped, Counted, Finished)})
STARTS.update({kind.feed: kind for kind in (Position, Item, InStrands, Regrouped)})
