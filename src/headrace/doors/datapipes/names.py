"""The DataPipes door: the two classes that users extend, and the sources that graphs start with.

Importing this module puts every verb on the two classes; the parts are

    nodes       IterDataPipe and MapDataPipe; a graph of them as plain pipes
    user        objects of the user's classes, as ops
    verbs       verbs whose arguments differ from those of Pipe
    classes     how a class is made out of a verb
    iter        the 86 classes of streams
    map         the 9 classes of tables
    graph       traverse, find, replace, remove, seed
    drawing     a graph as text, or for graphviz
    adapter     changes that DataLoader2 makes to a graph before it runs
"""

from headrace.doors.datapipes.iter import SHARDING_PRIORITIES as SHARDING_PRIORITIES
from headrace.doors.datapipes.iter import IterableWrapper as IterableWrapper
from headrace.doors.datapipes.map import SequenceWrapper as SequenceWrapper
from headrace.doors.datapipes.nodes import DataPipe as DataPipe
from headrace.doors.datapipes.nodes import IterDataPipe as IterDataPipe
from headrace.doors.datapipes.nodes import MapDataPipe as MapDataPipe
from headrace.doors.datapipes.nodes import functional_datapipe as functional_datapipe
from headrace.doors.torch.datapipes import announce
from headrace.ops.shape.batch import DataChunk as DataChunk

announce(IterDataPipe, MapDataPipe)
