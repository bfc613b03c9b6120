"""Functions over a graph of pipes."""

from headrace.doors.datapipes.graph import (
    apply_sharding,
    find_dps,
    lint,
    list_dps,
    remove_dp,
    replace_dp,
    set_datapipes_seed,
    set_graph_random_seed,
    shuffled_before_sharding,
    traverse_dps,
)

__all__ = [
    "apply_sharding",
    "find_dps",
    "lint",
    "list_dps",
    "remove_dp",
    "replace_dp",
    "set_datapipes_seed",
    "set_graph_random_seed",
    "shuffled_before_sharding",
    "traverse_dps",
]
