"""Datasets, transforms, collate functions and samplers with memory: what they give depends on what they gave before.

Each is a `Kind`: arguments for a DataLoader, made anew for each run. Some samples take a few milliseconds, other ones
in each run, so that a loader which lets a worker that is free do another one's work gives other values than torch.
"""

import contextvars
import copy
import ctypes
import decimal
import enum
import functools
import hashlib
import heapq
import io
import itertools
import locale
import os
import queue
import random
import sqlite3
import struct
import tempfile
import threading
import time
import types
import warnings
import weakref
import zlib
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    default_collate,
    get_worker_info,
)

N = 45
"""Samples of a map-style dataset: enough that a loop that is left leaves some that nobody has asked for."""
SIZE = 3
LARGE = 1200
"""Numbers of 8 bytes: more than 4 kB."""

Arguments = dict[str, Any]
Make = Callable[[Any], Arguments]
"""The class of the loader -> the arguments of one."""


class Kind(NamedTuple):
    make: Make
    workers: tuple[int, ...] = (0, 1, 2, 3)
    """Numbers of workers for which torch itself gives the same in each run."""


KINDS: dict[str, Kind] = {}


def kind(name: str, workers: tuple[int, ...] = (0, 1, 2, 3), **more: Any) -> Callable[[Any], Any]:
    """Enters a class of datasets, or a function from the loader's class to arguments."""

    def enter(made: Any) -> Any:
        make = (lambda loader: {"dataset": made(), **more}) if isinstance(made, type) else made
        assert name not in KINDS
        KINDS[name] = Kind(make, workers)
        return made

    return enter


def pause() -> None:
    """Some samples take long; which ones differs from run to run and touches no random generator."""
    if os.urandom(1)[0] < 24:
        time.sleep(0.003)


class Remembering(Dataset[Any]):
    """Map-style; `sample` uses and changes the memory."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        pause()
        return index, self.sample(index)

    def sample(self, index: int) -> Any:
        raise NotImplementedError


# --- containers -------------------------------------------------------------------------------------------------------


@kind("a dict of cached values")
class CachedValues(Remembering):
    def __init__(self) -> None:
        self.cache: dict[int, int] = {}

    def sample(self, index: int) -> int:
        return self.cache.setdefault(index % 5, index)


@kind("the last good sample")
class LastGood(Remembering):
    def __init__(self) -> None:
        self.good = -1

    def sample(self, index: int) -> int:
        if index % 3:
            self.good = index
        return self.good


@kind("a list of the last three")
class LastThree(Remembering):
    def __init__(self) -> None:
        self.last = [0, 0, 0]

    def sample(self, index: int) -> Any:
        self.last = [*self.last[1:], index]
        return torch.tensor(self.last)


@kind("a set of seen keys")
class SeenKeys(Remembering):
    def __init__(self) -> None:
        self.seen: set[int] = set()

    def sample(self, index: int) -> Any:
        again = index % 10 in self.seen
        self.seen.add(index % 10)
        return again, len(self.seen)


@kind("a counter in a list")
class InList(Remembering):
    def __init__(self) -> None:
        self.count = [0]

    def sample(self, index: int) -> int:
        self.count[0] += 1
        return self.count[0]


@kind("a counter in an attribute")
class InAttribute(Remembering):
    count = 0

    def sample(self, index: int) -> int:
        self.count += 1
        return self.count


@kind("a counter in an attribute of the class")
class InClass(Remembering):
    count: ClassVar[int] = 0

    def sample(self, index: int) -> int:
        type(self).count += 1
        return self.count


COUNT = 0


@kind("a counter in a global of the module")
class InModule(Remembering):
    def sample(self, index: int) -> int:
        global COUNT
        COUNT += 1
        return COUNT


@kind("a counter in a closure")
class InClosure(Remembering):
    def __init__(self) -> None:
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return count

        self.step = step

    def sample(self, index: int) -> int:
        return self.step()


def _appending(index: int, last: list[int] = []) -> int:  # noqa: B006 - what is tested
    last.append(index)
    return sum(last[-3:])


@kind("a default argument")
class InDefault(Remembering):
    def sample(self, index: int) -> int:
        return _appending(index)


@kind("an attribute of a function")
class InFunction(Remembering):
    def sample(self, index: int) -> int:
        of_function: Any = _appending
        of_function.total = getattr(of_function, "total", 0) + index
        return int(of_function.total)


@kind("slots and a property")
class InSlot(Remembering):
    __slots__ = ("_sum",)

    def __init__(self) -> None:
        self._sum = 0

    @property
    def total(self) -> int:
        self._sum += 1
        return self._sum

    def sample(self, index: int) -> int:
        return self.total


@kind("a deque of fixed length")
class InDeque(Remembering):
    def __init__(self) -> None:
        self.last: deque[int] = deque(maxlen=4)

    def sample(self, index: int) -> int:
        self.last.append(index)
        return sum(self.last)


@kind("a heap")
class InHeap(Remembering):
    def __init__(self) -> None:
        self.heap: list[int] = [100, 200]

    def sample(self, index: int) -> int:
        return heapq.heappushpop(self.heap, index * 7 % 31)


@kind("a cache that drops the oldest")
class Dropping(Remembering):
    def __init__(self) -> None:
        self.kept: OrderedDict[int, int] = OrderedDict()

    def sample(self, index: int) -> int:
        self.kept.setdefault(index % 7, index)
        self.kept.move_to_end(index % 7)
        if len(self.kept) > 3:
            self.kept.popitem(last=False)
        return sum(self.kept.values())


@kind("Counter and defaultdict")
class InCounter(Remembering):
    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.lists: defaultdict[int, list[int]] = defaultdict(list)

    def sample(self, index: int) -> Any:
        self.counts[index % 4] += 1
        self.lists[index % 4].append(index)
        return self.counts[index % 4], sum(self.lists[index % 4])


@kind("a queue")
class InQueue(Remembering):
    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[int] | None = None

    def sample(self, index: int) -> int:
        if self.queue is None:
            self.queue = queue.SimpleQueue()
            self.queue.put(-1)
        self.queue.put(index)
        return self.queue.get()


# --- memory as bytes, arrays and tensors ------------------------------------------------------------------------------


@kind("a bytearray")
class InBytes(Remembering):
    def __init__(self) -> None:
        self.bytes = bytearray(8)

    def sample(self, index: int) -> int:
        self.bytes[index % 8] += 1
        return zlib.crc32(self.bytes)


@kind("a memoryview")
class InView(Remembering):
    def __init__(self) -> None:
        self.view = memoryview(bytearray(8 * LARGE)).cast("q")

    def sample(self, index: int) -> int:
        self.view[index] += index
        self.view[-1] += 1
        return sum(self.view)


@kind("array.array")
class InArray(Remembering):
    def __init__(self) -> None:
        self.array = array("q", [0] * 4)

    def sample(self, index: int) -> int:
        self.array[index % 4] += index
        return sum(self.array[:2])


class Pair(ctypes.Structure):
    _fields_: ClassVar[Any] = [("count", ctypes.c_int32), ("total", ctypes.c_double)]


@kind("a structure of ctypes")
class InStructure(Remembering):
    def __init__(self) -> None:
        self.pair = Pair()

    def sample(self, index: int) -> Any:
        self.pair.count += 1
        self.pair.total += index / 2
        return self.pair.count, self.pair.total


@kind("struct.pack_into a buffer")
class InBuffer(Remembering):
    def __init__(self) -> None:
        self.buffer = bytearray(16)

    def sample(self, index: int) -> int:
        (before,) = struct.unpack_from("q", self.buffer, 8)
        struct.pack_into("q", self.buffer, 8, before + index)
        return int(before)


@kind("a small tensor changed in place")
class SmallTensor(Remembering):
    def __init__(self) -> None:
        self.kept = torch.zeros(4)

    def sample(self, index: int) -> Any:
        self.kept[index % 4] += index
        return self.kept.clone()


@kind("a large tensor changed in place")
class LargeTensor(Remembering):
    def __init__(self) -> None:
        self.kept = torch.zeros(LARGE, dtype=torch.float64)

    def sample(self, index: int) -> Any:
        self.kept.mul_(0.5).add_(index)
        return self.kept.clone()


@kind("a kept tensor that is the sample itself")
class SameTensor(Remembering):
    """All samples of a batch are one object, with the value that it had last."""

    def __init__(self) -> None:
        self.kept = torch.zeros(LARGE)

    def sample(self, index: int) -> Any:
        self.kept[0] += index
        return self.kept


@kind("a tensor through .data")
class ThroughData(Remembering):
    def __init__(self) -> None:
        self.kept = torch.zeros(3, requires_grad=True)

    def sample(self, index: int) -> Any:
        self.kept.data[index % 3] = index
        return self.kept.detach().clone()


@kind("a tensor through a numpy view")
class ThroughNumpy(Remembering):
    def __init__(self) -> None:
        self.kept = torch.zeros(LARGE)
        self.view = self.kept.numpy()

    def sample(self, index: int) -> float:
        self.view[index % 5] += index
        return float(self.kept[:5].sum())


@kind("an array through a tensor")
class ThroughTensor(Remembering):
    def __init__(self) -> None:
        self.kept = np.zeros(5)
        self.view = torch.from_numpy(self.kept)

    def sample(self, index: int) -> Any:
        self.view[index % 5] += index
        return self.kept.copy()


@kind("a small array changed in place")
class SmallArray(Remembering):
    def __init__(self) -> None:
        self.kept = np.zeros(4, np.int16)

    def sample(self, index: int) -> Any:
        self.kept[:] = np.roll(self.kept, 1)
        self.kept[0] = index
        return self.kept


@kind("a large array changed in place")
class LargeArray(Remembering):
    def __init__(self) -> None:
        self.kept = np.zeros(LARGE)

    def sample(self, index: int) -> Any:
        self.kept += index
        return self.kept.copy()


@kind("a running mean")
class RunningMean(Remembering):
    def __init__(self) -> None:
        self.mean = 0.0

    def sample(self, index: int) -> float:
        self.mean += 0.1 * (index - self.mean)
        return index - self.mean


@kind("a memory map that is private")
class Mapped(Remembering):
    def __init__(self) -> None:
        self.map: Any = None

    def sample(self, index: int) -> Any:
        if self.map is None:
            path = Path(tempfile.mkdtemp(), "numbers")
            path.write_bytes(bytes(8 * LARGE))
            self.map = np.memmap(path, np.int64, "c")
        self.map[index % 9] += index
        return np.array(self.map[:9])


# --- random generators ------------------------------------------------------------------------------------------------


@kind("an own generator of numpy's")
class OwnNumpy(Remembering):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def sample(self, index: int) -> float:
        return float(self.rng.normal())


@kind("an own RandomState")
class OwnState(Remembering):
    def __init__(self) -> None:
        self.rng = np.random.RandomState(3)

    def sample(self, index: int) -> Any:
        return self.rng.rand(2)


@kind("an own random.Random")
class OwnPython(Remembering):
    def __init__(self) -> None:
        self.rng = random.Random(3)

    def sample(self, index: int) -> float:
        return self.rng.gauss(0, 1)  # (keeps every second value)


@kind("an own generator of torch's")
class OwnTorch(Remembering):
    def __init__(self) -> None:
        self.rng = torch.Generator().manual_seed(3)

    def sample(self, index: int) -> Any:
        return torch.randn(3, generator=self.rng)


@kind("the global generator of random")
class GlobalPython(Remembering):
    def sample(self, index: int) -> float:
        return sum(random.random() for _ in range(index % 3 + 1))


@kind("the global generator of numpy")
class GlobalNumpy(Remembering):
    def sample(self, index: int) -> Any:
        return np.random.rand(index % 3 + 1).sum(), np.random.randn()


@kind("the global generator of torch")
class GlobalTorch(Remembering):
    def sample(self, index: int) -> Any:
        return torch.randn(index % 3 + 1).sum()


@kind("global generators that some samples seed")
class Reseeding(Remembering):
    def sample(self, index: int) -> Any:
        if index % 4 == 0:
            random.seed(index)
            np.random.seed(index)
            torch.manual_seed(index)
        return random.random(), np.random.rand(), torch.rand(())


def global_states() -> int:
    """A number for the states of all global generators."""
    name, keys, *rest = cast(tuple[Any, ...], np.random.get_state())
    told = (random.getstate(), name, bytes(keys), rest, bytes(torch.get_rng_state().numpy()))
    return zlib.crc32(repr(told).encode())


@kind("the states of the global generators")
class States(Remembering):
    """Nobody but samples draws: neither the loader nor a collate function."""

    def sample(self, index: int) -> int:
        if index % 5 == 0:
            random.random(), np.random.rand(), torch.rand(())
        return global_states()


@kind("global generators that are set back")
class SettingBack(Remembering):
    def __init__(self) -> None:
        self.states: Any = None

    def sample(self, index: int) -> Any:
        if self.states is None or index % 6 == 0:
            self.states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        elif index % 6 == 3:
            random.setstate(self.states[0])
            np.random.set_state(self.states[1])
            torch.set_rng_state(self.states[2])
        with torch.random.fork_rng([]):
            torch.rand(5)
        return random.random(), np.random.rand(), torch.rand(())


@kind("dropout as a transform")
class Dropout(Remembering):
    def __init__(self) -> None:
        self.transform = torch.nn.Dropout(0.5)

    def sample(self, index: int) -> Any:
        return self.transform(torch.ones(6))


# --- things that go on ------------------------------------------------------------------------------------------------


@kind("itertools.count")
class Counting(Remembering):
    def __init__(self) -> None:
        self.count = itertools.count(5)

    def sample(self, index: int) -> int:
        return next(self.count)


@kind("itertools.cycle")
class Cycling(Remembering):
    def __init__(self) -> None:
        self.cycle = itertools.cycle("abc")

    def sample(self, index: int) -> str:
        return next(self.cycle)


def _fibonacci() -> Iterator[int]:
    a, b = 0, 1
    while True:
        yield a
        a, b = b, (a + b) % 1009


@kind("a Python generator")
class Generating(Remembering):
    def __init__(self) -> None:
        self.numbers = _fibonacci()

    def sample(self, index: int) -> int:
        return next(self.numbers)


@kind("a hash that is fed")
class Hashing(Remembering):
    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def sample(self, index: int) -> str:
        self.hash.update(bytes([index]))
        return self.hash.hexdigest()[:8]


@kind("a compressor that is fed")
class Compressing(Remembering):
    def __init__(self) -> None:
        self.compressor = zlib.compressobj()

    def sample(self, index: int) -> int:
        return len(self.compressor.compress(b"%d" % index) + self.compressor.flush(zlib.Z_SYNC_FLUSH))


@kind("a file that is read on")
class ReadingOn(Remembering):
    """Opened at the first sample: an open file that is forked has one place for all processes, and torch its race."""

    def __init__(self) -> None:
        self.file: Any = None

    def sample(self, index: int) -> str:
        if self.file is None:
            self.file = open(__file__)  # noqa: SIM115 - stays open
        self.file.readline()
        return str(self.file.read(4))

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()


@kind("BytesIO")
class InBytesIO(Remembering):
    def __init__(self) -> None:
        self.io = io.BytesIO(bytes(range(256)))

    def sample(self, index: int) -> int:
        return sum(self.io.read(3))


@kind("sqlite in memory")
class InSqlite(Remembering):
    def __init__(self) -> None:
        self.base: Any = None

    def sample(self, index: int) -> Any:
        if self.base is None:
            self.base = sqlite3.connect(":memory:")
            self.base.execute("create table seen (number int)")
        self.base.execute("insert into seen values (?)", (index,))
        return self.base.execute("select count(*), sum(number) from seen").fetchone()

    def __del__(self) -> None:
        if self.base is not None:
            self.base.close()


# --- code that remembers ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def _squared(number: int) -> int:
    return number * number


@kind("lru_cache")
class Cached(Remembering):
    def sample(self, index: int) -> Any:
        return _squared(index % 7), _squared.cache_info().hits


class Once:
    def __init__(self) -> None:
        self.time = next(_TIMES)

    @functools.cached_property
    def place(self) -> int:
        return next(_TIMES)


_TIMES = itertools.count()


@kind("cached_property")
class CachedProperty(Remembering):
    def __init__(self) -> None:
        self.once = Once()

    def sample(self, index: int) -> int:
        if index % 5 == 0:
            self.once = Once()
        return self.once.place


@kind("an attribute that was None")
class WasNone(Remembering):
    first = None

    def sample(self, index: int) -> int:
        if self.first is None:
            self.first = index
        return index - self.first


@kind("a method that is replaced")
class Replaced(Remembering):
    def sample(self, index: int) -> int:
        if index % 3 == 0:
            self.sample = types.MethodType(lambda self, other: index + other, self)  # type: ignore[method-assign]
        return -1


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@kind("a member of an Enum")
class InEnum(Remembering):
    def sample(self, index: int) -> int:
        member: Any = (Colour.RED, Colour.BLUE)[index % 2]
        member.seen = getattr(member, "seen", 0) + 1
        return int(member.seen)


class Thing:
    """Something that can be referred to weakly."""


@kind("weak references")
class Weak(Remembering):
    def __init__(self) -> None:
        self.kept: deque[Thing] = deque(maxlen=3)
        self.alive: weakref.WeakSet[Thing] = weakref.WeakSet()
        self.named: weakref.WeakValueDictionary[int, Thing] = weakref.WeakValueDictionary()

    def sample(self, index: int) -> Any:
        thing = Thing()
        self.kept.append(thing)
        self.alive.add(thing)
        self.named[index] = thing
        return len(self.alive), sum(self.named)


class Dying:
    """A sample that counts when it goes away."""

    gone: ClassVar[int] = 0

    def __init__(self, index: int) -> None:
        self.index = index
        self.before = Dying.gone

    def __del__(self) -> None:
        Dying.gone += 1


def _of_dying(samples: Any) -> Any:
    return [(sample.index, sample.before) for _, sample in samples]


@kind("samples that count when they go away", collate_fn=_of_dying)
class GoingAway(Remembering):
    def sample(self, index: int) -> Any:
        return Dying(index)


@kind("a copy of itself")
class Copying(Remembering):
    def __init__(self) -> None:
        self.values: list[int] = []
        self.copied: Copying | None = None

    def sample(self, index: int) -> Any:
        self.values.append(index)
        if index % 5 == 0:
            self.copied = None
            self.copied = copy.deepcopy(self)
        return len(self.values), 0 if self.copied is None else len(self.copied.values)


# --- what belongs to a process or a thread ----------------------------------------------------------------------------

THREAD = threading.local()
CONTEXT: contextvars.ContextVar[int] = contextvars.ContextVar("context", default=0)


@kind("thread-local")
class InThread(Remembering):
    """Also what the thread of the program has set before."""

    def __init__(self) -> None:
        THREAD.count = 10

    def sample(self, index: int) -> int:
        THREAD.count = getattr(THREAD, "count", 0) + 1
        return int(THREAD.count)


@kind("a context variable")
class InContext(Remembering):
    def __init__(self) -> None:
        CONTEXT.set(10)

    def sample(self, index: int) -> int:
        CONTEXT.set(CONTEXT.get() + 1)
        return CONTEXT.get()


@kind("filters of warnings")
class Filtering(Remembering):
    """A filter that a sample has set stays, and `once` remembers what was said."""

    def sample(self, index: int) -> int:
        if index % 9 == 0:
            warnings.simplefilter("once")
        with warnings.catch_warnings(record=True) as caught:
            warnings.warn(f"number {index % 4}", UserWarning, stacklevel=1)
        return len(caught)


@kind("the decimal context and numpy's errors")
class InDecimal(Remembering):
    def sample(self, index: int) -> Any:
        decimal.getcontext().prec = (decimal.getcontext().prec + index) % 20 + 1
        before = np.seterr(divide="raise" if index % 2 else "ignore")["divide"]
        return str(decimal.Decimal(1) / 7), before


@kind("settings of torch")
class TorchSettings(Remembering):
    def sample(self, index: int) -> Any:
        told = (torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.get_num_threads() == 1)
        torch.set_grad_enabled(index % 3 != 0)
        torch.set_default_dtype(torch.float64 if index % 4 == 1 else torch.float32)
        return told, index / 7, torch.ones(1) / 7


@kind("settings of the process")
class ProcessSettings(Remembering):
    def sample(self, index: int) -> Any:
        told = (os.environ.get("HR_SEEN", ""), time.tzname[0], locale.setlocale(locale.LC_COLLATE))
        os.environ["HR_SEEN"] = str(index)
        return told


@kind("numbers by process")
class ByProcess(Remembering):
    """Not the number of the process itself, but what is kept under it."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {os.getpid(): 100}

    def sample(self, index: int) -> int:
        self.seen[os.getpid()] = self.seen.get(os.getpid(), 0) + 1
        return self.seen[os.getpid()]


@kind("the worker info")
class Info(Remembering):
    count = 0

    def sample(self, index: int) -> Any:
        info = get_worker_info()
        if info is None:
            return -1, -1, True
        assert isinstance(info.dataset, Info)
        info.dataset.count += 1
        return info.id, info.seed, self.count


@kind("torch.initial_seed")
class InitialSeed(Remembering):
    def __init__(self) -> None:
        self.rng: random.Random | None = None

    def sample(self, index: int) -> Any:
        if self.rng is None:
            self.rng = random.Random(torch.initial_seed())
        return torch.initial_seed() % 2**40, self.rng.random()


# --- torch's modules --------------------------------------------------------------------------------------------------


@kind("BatchNorm in a transform")
class Normed(Remembering):
    def __init__(self) -> None:
        self.norm = torch.nn.BatchNorm1d(2)

    def sample(self, index: int) -> Any:
        with torch.no_grad():
            self.norm(torch.tensor([[index, 1.0], [2.0, index / 3]]))
        return self.norm.running_mean, self.norm.num_batches_tracked


class Buffered(torch.nn.Module):
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(LARGE))

    def forward(self, x: Any) -> Any:
        self.seen = self.seen * 0.5 + x
        return self.seen


@kind("a buffer that is replaced")
class Buffer(Remembering):
    def __init__(self) -> None:
        self.transform = Buffered()

    def sample(self, index: int) -> Any:
        return self.transform(float(index))


@kind("a model that is trained")
class Trained(Remembering):
    def __init__(self) -> None:
        self.model = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(self.model.weight, 0.5)
        torch.nn.init.constant_(self.model.bias, 0.0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def sample(self, index: int) -> Any:
        x = torch.tensor([[index / N]])
        loss = (self.model(x) - x * x).square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@kind("a dataset that is a module")
class IsModule(torch.nn.Module):
    """It has a `state_dict`, so the loader keeps states of it."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        pause()
        self.seen[index % 3] += index
        return self.seen.clone()


# --- forms of datasets ------------------------------------------------------------------------------------------------


@kind("whole batches")
class ByBatch(Remembering):
    def __init__(self) -> None:
        self.batches = 0

    def __getitems__(self, indices: list[int]) -> Any:
        pause()
        self.batches += 1
        indices.reverse()
        return [(index, self.batches) for index in indices]


@kind("a state that is asked for and set")
class WithState(Remembering):
    """(Its `state_dict` is called after each batch, which torch never does: it must not change what it tells of.)"""

    def __init__(self) -> None:
        self.count = 0

    def sample(self, index: int) -> int:
        self.count += 1
        return self.count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


@kind("a state that can be neither packed nor copied")
class OddState(WithState):
    def state_dict(self) -> dict[str, Any]:
        return {"lock": threading.Lock(), "code": lambda: self.count, "set": {1, 2}, "complex": 1j}


@kind("a state that cannot be told")
class NoState(WithState):
    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError("this dataset has no state")


@kind("errors in between")
class Failing(Remembering):
    def __init__(self) -> None:
        self.count = 0

    def sample(self, index: int) -> int:
        self.count += 1
        if index % 7 == 3:
            raise LookupError(f"sample {index} is the {self.count}th")
        return self.count


@kind("errors that stop after a while")
class FailingFirst(Remembering):
    def __init__(self) -> None:
        self.failed = 0

    def sample(self, index: int) -> int:
        if self.failed < 2 and index % 2:
            self.failed += 1
            raise OSError("not yet")
        return self.failed


@kind("samples of datasets inside")
def _inside(loader: Any) -> Arguments:
    return {"dataset": ConcatDataset([Subset(CachedValues(), range(3, 23)), InList(), Subset(InBytesIO(), [4, 5])])}


@kind("samples as they are", batch_size=None)
class AsTheyAre(Remembering):
    def __init__(self) -> None:
        self.count = 0

    def sample(self, index: int) -> Any:
        self.count += 1
        return {"count": self.count, "array": np.arange(self.count % 4)}


@kind("a kept array as it is", workers=(0,), batch_size=None)
class KeptAsItIs(Remembering):
    """With workers torch moves the kept memory into shared memory, where the loop sees it change: its race."""

    def __init__(self) -> None:
        self.kept = np.zeros(3)

    def __getitem__(self, index: int) -> Any:
        self.kept[0] += index
        return self.kept


class Shared(Remembering):
    """Its memory is in the collate function, and the other way round."""

    def __init__(self) -> None:
        self.batches = 0
        self.samples = 0

    def sample(self, index: int) -> Any:
        self.samples += 1
        return self.batches

    def collate(self, samples: Any) -> Any:
        self.batches += 1
        return default_collate(samples), self.samples

    def begin(self, worker: int) -> None:
        self.samples = 1000 * (worker + 1)
        random.seed(worker)
        self.first = torch.initial_seed()


@kind("a collate function that is a method of the dataset")
def _method(loader: Any) -> Arguments:
    dataset = Shared()
    return {"dataset": dataset, "collate_fn": dataset.collate, "worker_init_fn": dataset.begin}


class Collating:
    """Pads to the longest that it has ever seen."""

    def __init__(self) -> None:
        self.longest = 0

    def __call__(self, samples: Any) -> Any:
        self.longest = max(self.longest, *(index % 11 for index, _ in samples))
        return torch.zeros(self.longest), default_collate(samples)


@kind("a collate function with memory")
def _collating(loader: Any) -> Arguments:
    return {"dataset": GlobalPython(), "collate_fn": Collating()}


def _mixup(samples: Any) -> Any:
    batch = torch.tensor([float(index) for index, _ in samples])
    return batch + np.random.beta(0.4, 0.4) * batch[torch.randperm(len(samples))], random.random()


@kind("a collate function that draws")
def _mixing(loader: Any) -> Arguments:
    return {"dataset": GlobalNumpy(), "collate_fn": _mixup}


def _failing_collate(samples: Any, seen: list[int] = []) -> Any:  # noqa: B006 - what is tested
    seen.append(len(samples))
    if len(seen) % 4 == 2:
        raise ArithmeticError(f"batch {len(seen)}")
    return len(seen), default_collate(samples)


@kind("a collate function with memory that fails")
def _collate_fails(loader: Any) -> Arguments:
    return {"dataset": InList(), "collate_fn": _failing_collate}


BEGUN: dict[str, Any] = {}


def _begin(worker: int) -> None:
    BEGUN["worker"] = worker
    BEGUN["calls"] = BEGUN.get("calls", 0) + 1
    BEGUN["rng"] = np.random.default_rng(torch.initial_seed() % 2**32)
    THREAD.worker = worker
    np.random.seed(worker)


@kind("worker_init_fn sets what samples use", worker_init_fn=_begin)
class Begun(Remembering):
    def sample(self, index: int) -> Any:
        if "rng" not in BEGUN:  # without workers nobody calls it
            _begin(-1)
        return BEGUN["worker"], BEGUN["calls"], BEGUN["rng"].random(), np.random.rand(), THREAD.worker


@kind("a loader inside, read whole")
def _loader_inside(loader: Any) -> Arguments:
    return {"dataset": LoaderInside(loader)}


class LoaderInside(Remembering):
    def __init__(self, loader: Any) -> None:
        self.inner = loader(InList(), batch_size=20, shuffle=True)

    def sample(self, index: int) -> Any:
        return list(self.inner) if index % 5 == 0 else []

    def __getitem__(self, index: int) -> Any:
        found = self.sample(index)
        return index, sum(int(batch[0][0]) for batch in found), sum(int(batch[1][-1]) for batch in found)


@kind("a loader inside, one batch at a time")
def _held_inside(loader: Any) -> Arguments:
    return {"dataset": HeldInside(loader)}


class HeldInside(Remembering):
    def __init__(self, loader: Any) -> None:
        self.inner = loader(OwnTorch(), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(4))
        self.batches: Any = None

    def sample(self, index: int) -> Any:
        if self.batches is None:
            self.batches = iter(self.inner)
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.inner)
            batch = next(self.batches)
        return batch


class Remembered(Sampler[int]):
    """Gives first what it gave last, and draws from a generator that the dataset has too."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.last = list(range(N))

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        for place in range(N):
            other = int(self.rng.integers(place, N))
            self.last[place], self.last[other] = self.last[other], self.last[place]
            yield self.last[place]


@kind("a sampler with memory that shares a generator with the dataset")
def _stateful_sampler(loader: Any) -> Arguments:
    dataset = OwnNumpy()
    return {"dataset": dataset, "sampler": Remembered(dataset.rng)}


class Both(Remembering):
    """Dataset and batch sampler at once."""

    def __init__(self) -> None:
        self.given = 0

    def sample(self, index: int) -> int:
        return self.given

    def __iter__(self) -> Iterator[list[int]]:
        self.given += 100
        for first in range(0, N, SIZE):
            self.given += 1
            yield [first, (first + self.given) % N]


@kind("a dataset that is its own batch sampler")
def _both(loader: Any) -> Arguments:
    dataset = Both()
    return {"dataset": dataset, "batch_sampler": dataset}


class Popping(Remembering):
    """Takes the indices out of the list that it gets."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [(indices.pop(), len(indices)) for _ in range(len(indices))]


@kind("lists of indices that the dataset changes")
def _popping(loader: Any) -> Arguments:
    return {"dataset": Popping(), "batch_sampler": [[first, first + 1, first + 2] for first in range(0, 42, 3)]}


class Harder(Remembering):
    """A sampler that follows what the dataset has found, where both are in one process."""

    def __init__(self) -> None:
        self.weights = torch.ones(N)

    def sample(self, index: int) -> Any:
        self.weights[index] += index % 3
        return float(self.weights[index])

    def __iter__(self) -> Iterator[int]:
        for _ in range(N):
            yield int(torch.multinomial(self.weights, 1))


@kind("a sampler that follows what the dataset has found")
def _harder(loader: Any) -> Arguments:
    dataset = Harder()
    return {"dataset": dataset, "batch_sampler": BatchSampler(dataset, SIZE, False)}


@kind("a generator for order and samples")
def _one_generator(loader: Any) -> Arguments:
    dataset = OwnTorch()
    return {"dataset": dataset, "sampler": RandomSampler(dataset, generator=dataset.rng), "generator": dataset.rng}


# --- iterable-style ---------------------------------------------------------------------------------------------------


class RememberingStream(IterableDataset[Any]):
    """Long enough that a loop that is left in the middle is left before any worker has reached the end."""

    count = 0

    def __iter__(self) -> Iterator[Any]:
        for number in range(N):
            pause()
            yield number, self.sample(number)

    def sample(self, number: int) -> Any:
        self.count += 1
        return self.count


@kind("a stream that counts over epochs")
class CountingStream(RememberingStream):
    pass


@kind("a stream that draws")
class DrawingStream(RememberingStream):
    def sample(self, number: int) -> Any:
        return random.random(), np.random.rand(), torch.rand(())


@kind("a stream that does something when it is left")
class LeavingStream(RememberingStream):
    left = 0

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from super().__iter__()
        finally:
            self.left += 1

    def sample(self, number: int) -> Any:
        return self.left


class Passing:
    """An iterator that counts when it goes away."""

    def __init__(self, stream: "PassingStream") -> None:
        self.stream = stream
        self.number = 0

    def __iter__(self) -> "Passing":
        return self

    def __next__(self) -> Any:
        if self.number == N:
            raise StopIteration
        self.number += 1
        return self.number, self.stream.gone

    def __del__(self) -> None:
        self.stream.gone += 1


@kind("a stream whose iterator counts when it goes away")
class PassingStream(IterableDataset[Any]):
    gone = 0

    def __iter__(self) -> Iterator[Any]:
        return Passing(self)


@kind("a stream that is its own iterator")
class OwnIterator(IterableDataset[Any]):
    """Goes on where the epoch before has stopped."""

    def __init__(self) -> None:
        self.at = 0
        self.left = N

    def __iter__(self) -> Iterator[Any]:
        self.left = N
        return self

    def __next__(self) -> Any:
        if not self.left:
            raise StopIteration
        self.left -= 1
        self.at += 1
        return self.at


@kind("a stream that is shuffled in a buffer")
class Buffering(RememberingStream):
    def __init__(self) -> None:
        self.buffer: list[Any] = []

    def sample(self, number: int) -> int:
        self.buffer.append(number)
        return int(self.buffer.pop(random.randrange(len(self.buffer)))) if len(self.buffer) > 5 else -1


@kind("a stream with a state")
class StatefulStream(RememberingStream):
    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


@kind("a stream with a state that cannot be told")
class NoStreamState(StatefulStream):
    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError("this dataset has no state")


@kind("a stream with a state that can be neither packed nor copied")
class OddStreamState(StatefulStream):
    def state_dict(self) -> dict[str, Any]:
        return {"lock": threading.Lock(), "code": lambda: self.count, "set": {1, 2}}


@kind("a stream of samples as they are", batch_size=None)
class StreamAsItIs(RememberingStream):
    def sample(self, number: int) -> Any:
        self.count += 1
        return torch.full((self.count % 3,), self.count)


@kind("a stream with a collate function with memory")
def _stream_collating(loader: Any) -> Arguments:
    return {"dataset": DrawingStream(), "collate_fn": Collating()}


@kind("a stream with a loader inside")
def _stream_inside(loader: Any) -> Arguments:
    return {"dataset": StreamInside(loader)}


class StreamInside(RememberingStream):
    def __init__(self, loader: Any) -> None:
        self.inner = loader(GlobalTorch(), batch_size=5, shuffle=True)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.inner:
            yield from zip(*batch, strict=True)
        yield from super().__iter__()


# --- one run ----------------------------------------------------------------------------------------------------------


def begin_anew() -> None:
    """What classes, modules and the process remember is as it was before the first run."""
    global COUNT, _TIMES, CONTEXT, THREAD
    COUNT, InClass.count, Dying.gone = 0, 0, 0
    _TIMES = itertools.count()
    CONTEXT, THREAD = contextvars.ContextVar("context", default=0), threading.local()
    for function in (_appending, _failing_collate):
        function.__defaults__[0].clear()  # type: ignore[index]
    vars(_appending).clear()
    _squared.cache_clear()
    BEGUN.clear()
    os.environ.pop("HR_SEEN", None)
    for member in Colour:
        vars(member).pop("seen", None)
    vars(warnings)["onceregistry"].clear()
    decimal.setcontext(decimal.Context())
    np.seterr(divide="warn")
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    random.seed(11)
    np.random.seed(11)
    torch.manual_seed(11)


def told(value: Any) -> Any:
    """A batch, with its types, comparable by `==`, and as it is now: some batches change when they are left alone."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), tuple(value.shape), value.tolist()
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.shape, value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {key: told(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [told(one) for one in value]
    return type(value).__name__, value


def what(error: Exception) -> tuple[str, str]:
    """An error of a sample. (torch puts the traceback of a worker into the text: its last line is what was raised.)"""
    name = type(error).__name__
    return name, str(error).strip().splitlines()[-1].removeprefix(f"{name}: ") if str(error) else ""


def steps(batches: Any) -> Iterator[Any]:
    """What comes, an error in its place, and the states of the global generators behind each."""
    for _ in range(500):
        try:
            batch = next(batches)
        except StopIteration:
            yield "end", global_states()
            return
        except Exception as error:
            error.__traceback__ = None  # (torch's is a circle that would keep the iterator, and its workers, alive)
            yield what(error), global_states()
        else:
            yield told(batch), global_states()
            del batch
    raise AssertionError("the loader does not end")


def story(make: Make, loader_class: Any, stop: int, **options: Any) -> list[Any]:
    """Two epochs; the first is left after `stop` batches, as by `break`."""
    begin_anew()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(all read the same samples|will create \\d+ worker)", UserWarning)
        arguments = {"batch_size": SIZE, **make(loader_class), **options}
        if arguments["batch_size"] is None or "batch_sampler" in arguments:
            arguments = {name: value for name, value in arguments.items() if name != "batch_size"} | (
                {} if "batch_sampler" in arguments else {"batch_size": None}
            )
        plain = not isinstance(arguments["dataset"], IterableDataset) and not {"sampler", "batch_sampler"} & {
            *arguments
        }
        loader = loader_class(**({"shuffle": True} if plain else {}), **arguments)
        found: list[Any] = [*itertools.islice(steps(iter(loader)), stop)]
        found.append(("left", global_states()))
        found += steps(iter(loader))
    return found
