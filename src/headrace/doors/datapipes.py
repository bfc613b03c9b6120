"""The DataPipes door: the two classes that users extend, and the sources that graphs start with.

Importing this module puts every verb on the two classes; the parts are

    datapipes_nodes     IterDataPipe and MapDataPipe; a graph of them as plain pipes
    datapipes_user      objects of the user's classes, as ops
    datapipes_verbs     verbs whose arguments differ from those of Pipe
    datapipes_classes   how a class is made out of a verb
    datapipes_iter      the 86 classes of streams
    datapipes_map       the 9 classes of tables
    datapipes_graph     traverse, find, replace, remove, seed
    datapipes_drawing   a graph as text, or for graphviz
    datapipes_adapter   changes that DataLoader2 makes to a graph before it runs
"""

from headrace.doors.datapipes_iter import CLASSES as STREAMS
from headrace.doors.datapipes_iter import SHARDING_PRIORITIES as SHARDING_PRIORITIES
from headrace.doors.datapipes_map import CLASSES as TABLES
from headrace.doors.datapipes_nodes import DataPipe as DataPipe
from headrace.doors.datapipes_nodes import IterDataPipe as IterDataPipe
from headrace.doors.datapipes_nodes import MapDataPipe as MapDataPipe
from headrace.doors.datapipes_nodes import functional_datapipe as functional_datapipe
from headrace.doors.torch_datapipes import announce
from headrace.ops.chunk import DataChunk as DataChunk

IterableWrapper = STREAMS["IterableWrapper"]
SequenceWrapper = TABLES["SequenceWrapper"]
announce()
