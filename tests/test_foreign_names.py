"""Names that people bring from other libraries are answered with what one writes here."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.ops.shape.batch import Batch
from headrace.pipe.verbs.helpful import FOREIGN_OPTIONS, FOREIGN_VERBS
from headrace.plan.world import World
from headrace.ranks.detect import explain

PIPE: Any = Pipe.of([1, 2])


@pytest.mark.parametrize("name", FOREIGN_VERBS)
def test_a_verb_of_another_library_is_answered_with_ours(name: str) -> None:
    for thing in (Pipe, PIPE):
        with pytest.raises(AttributeError, match="here one writes"):
            getattr(thing, name)


def test_a_misspelt_verb_is_answered_with_the_one_that_was_meant() -> None:
    name = "shufle"
    for thing in (Pipe, PIPE):
        with pytest.raises(AttributeError, match="did you mean 'shuffle'"):
            getattr(thing, name)
        assert not hasattr(thing, "_private")


@pytest.mark.parametrize(("verb", "name"), [("shuffle", "seed"), ("shuffle", "reshuffle_each_iteration")])
def test_an_option_of_another_library_is_answered_with_ours(verb: str, name: str) -> None:
    assert name in FOREIGN_OPTIONS
    with pytest.raises(TypeError, match="here one writes"):
        getattr(PIPE, verb)(**{name: 1})


@pytest.mark.parametrize("name", ["worker_count", "worker_buffer_size", "mp_prefetch", "num_epochs", "read_options"])
def test_an_option_of_another_loader_is_answered_with_ours(name: str) -> None:
    with pytest.raises(BadOption, match=f"no option '{name}': (write|each)"):
        Loader(PIPE, **dict.fromkeys([name], 3))  # type: ignore[arg-type]


def noisy(x: int, rng: Any) -> int:
    return x


def two(x: int, y: int) -> int:
    return x


def test_a_function_of_two_arguments_is_refused_when_the_pipe_is_made() -> None:
    with pytest.raises(BadOption, match=r"map\(\) calls noisy with one sample.* headrace\.rng\(\) inside it"):
        PIPE.map(noisy)
    with pytest.raises(BadOption, match=r"needs x, y; give it the others with functools\.partial"):
        PIPE.map(two)
    assert list(PIPE.map(lambda x, y=1: x + y).map(int).map(np.float32)) == [2.0, 3.0]


def jax_of(address: str) -> dict[str, Any]:
    distributed = SimpleNamespace(is_initialized=lambda: True)
    jax = SimpleNamespace(distributed=distributed, process_index=lambda: 1, process_count=lambda: 2)
    state = SimpleNamespace(global_state=SimpleNamespace(coordinator_address=address))
    return {"jax": jax, "jax._src.distributed": state}


def variables(address: str) -> dict[str, str]:
    return {"JAX_COORDINATOR_ADDRESS": address, "JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}


@pytest.mark.parametrize("address", ["localhost:1234", "127.0.0.1:1234", "[::1]:1234"])
def test_jax_processes_that_meet_on_this_machine_share_it(address: str) -> None:
    for found in (explain({}, jax_of(address)), explain(variables(address), {})):
        world = found.world
        assert (world.rank, world.ranks, world.local_rank, world.local_ranks, world.nodes) == (1, 2, 1, 2, 1)
        assert not found.warnings


def test_jax_processes_that_meet_elsewhere_are_taken_for_one_a_machine() -> None:
    for found in (explain({}, jax_of("head:1234")), explain(variables("head:1234"), {})):
        assert isinstance(found.world, World)
        assert (found.world.local_ranks, found.world.nodes) == (1, 2)
        assert "one rank a machine is assumed" in found.warnings[0]


def test_jax_arrays_are_stacked() -> None:
    jax = pytest.importorskip("jax")
    pipe = Pipe.of(range(4)).map(lambda x: {"a": jax.numpy.full((2,), x)}).batch(2).collate()
    first, _ = Loader(pipe)
    assert isinstance(first["a"], jax.Array)
    assert first["a"].tolist() == [[0, 0], [1, 1]]
    unlike = Pipe.of(range(1, 3)).map(lambda x: jax.numpy.zeros(x)).batch(2).collate()
    with pytest.raises(ValueError, match=r"jax array of shape \(1,\), sample 1 has shape \(2,\)"):
        list(Loader(unlike))


@pytest.mark.parametrize(
    ("node", "inputs", "says"),
    [
        (str, (), r"not of type: \.map\(fn\)"),
        ([1], (), r"not of list: Pipe\.of\(data\)"),
        (Batch, (PIPE,), r"Batch is a class of ops: give one of them, Batch\(\.\.\.\)"),
        (PIPE.op, (PIPE,), "is a source, which has no input"),
        (PIPE.batch(2).op, ([1],), r"must be pipes, not list: wrap it in Pipe\.of\(\)"),
    ],
)
def test_a_pipe_of_something_else_than_ops_is_refused(node: Any, inputs: tuple[Any, ...], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        Pipe(node, *inputs)
