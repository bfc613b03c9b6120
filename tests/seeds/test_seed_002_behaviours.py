"""The 35 behaviours of the loader and launcher behind seed 002: each is shown by the tests named here.

Where ours differs on purpose, the row says why; the table of differences is in docs/replicas.md.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILES = {
    "accessor": "doors/test_replicas_accessor.py",
    "launch": "launch/test_launch.py",
    "layout": "doors/test_replicas_layout.py",
    "loader": "doors/test_replicas_loader.py",
    "options": "doors/test_replicas_options.py",
    "output": "launch/test_launch_output.py",
    "partition": "doors/test_replicas_partition.py",
    "processes": "doors/test_replicas_processes.py",
    "run": "cli/test_run.py",
    "seed": "seeds/test_seed_002.py",
}

SHOWN: dict[int, tuple[str, ...]] = {
    1: ("seed: a_step_on_four_processes_with_eight_replicas", "seed: without_a_launcher_each_step_reads_everything"),
    2: ("partition: the_steps_of_chapter_five",),
    3: ("layout: the_combined_batch_is_the_product_of_all_five_factors", "layout: an_input_group_counts_once"),
    4: (
        "layout: the_micro_batches_of_a_replica_lie_where_the_layout_says",
        "layout: replicas_of_one_group_receive_the_same",
        "processes: eight_replicas_on_four_processes_read_disjoint_streams",
    ),
    5: ("partition: every_process_reads_a_block_of_its_own_in_equally_many_steps",),
    6: ("partition: what_is_left_out_is_counted_and_said_once",),
    7: ("partition: too_few_samples_for_one_step_are_refused_with_all_three_numbers",),
    8: (
        "partition: without_drop_last_every_sample_comes_and_steps_are_equal",
        "partition: short_is_the_default_and_sizes_of_one_step_differ_by_at_most_one",
    ),
    9: (
        "partition: a_shuffled_epoch_is_one_permutation_shared_by_all_processes",
        "partition: every_epoch_has_another_order_and_every_seed_too",
        "partition: without_a_seed_all_processes_agree_and_are_told",
    ),
    10: ("partition: each_sample_is_left_out_equally_often",),
    11: ("loader: the_order_of_a_seed_is_the_same_for_every_way_to_start",),
    12: ("options: a_loader_freezes_its_options_and_a_clone_can_change",),
    13: ("options: what_the_launcher_owns_cannot_be_set", "seed: setting_the_replicas_by_hand_is_the_seeds_error"),
    14: ("options: a_setter_refuses_another_type_and_names_the_one_it_expects",),
    15: (
        "options: plain_options_know_the_processes_of_mpi_but_not_the_replicas",
        "options: the_process_can_be_told_by_hand",
        "options: options_in_the_environment_are_refused_and_not_ignored",
    ),
    16: ("options: outside_any_launcher_there_is_one_process_with_one_replica",),
    17: ("loader: all_modes_give_the_same_batches",),
    18: ("loader: the_tail_of_a_stream_is_cut_once_however_many_workers_there_are",),
    19: (
        "loader: what_a_worker_loads_at_a_time_does_not_change_the_batches",
        "loader: a_worker_cannot_load_more_than_a_step_at_a_time",
    ),
    20: ("loader: the_batches_of_a_sampler_are_combined_and_counted_as_delivered",),
    21: ("loader: the_batches_of_a_sampler_are_combined_and_counted_as_delivered",),
    22: (
        "layout: batches_of_every_form_are_split_and_keep_their_form",
        "loader: batches_have_the_form_that_torch_gives_them",
        "loader: dataclasses_keep_their_form_and_anything_else_stays_a_list_but_none",
    ),
    23: ("loader: after_a_break_the_next_epoch_is_whole",),
    24: (
        "accessor: the_next_epoch_begins_when_the_last_batch_is_handed_out",
        "accessor: an_early_preload_fills_the_buffer_before_anybody_iterates",
    ),
    25: ("loader: an_error_of_the_data_set_arrives_as_it_was_raised", "accessor: an_error_arrives_as_it_was_raised"),
    26: (
        "loader: a_killed_worker_does_not_change_the_epoch",
        "loader: a_sample_that_always_kills_its_worker_is_an_error_that_names_it",
    ),
    27: (
        "accessor: items_of_changing_shape_and_type_arrive_as_they_are_and_stay",
        "loader: shapes_that_change_inside_a_batch_are_an_error_and_types_are_promoted",
    ),
    28: ("loader: batches_stay_valid_as_long_as_they_are_held",),
    29: ("loader: a_terminated_loader_says_so", "accessor: a_terminated_accessor_says_so"),
    30: ("processes: whatever_ends_a_program_no_process_stays",),
    31: (
        "run: lines_are_whole_and_tagged_also_with_bars_and_long_bursts",
        "run: lines_that_ranks_write_in_turns_and_in_pieces_stay_whole",
        "run: a_rank_that_fails_ends_the_others_and_gives_its_exit_code",
        "run: a_signal_ends_everything",
        "output: lines_are_whole_and_a_carriage_return_ends_the_state_of_a_bar",
        "output: each_line_carries_its_rank_and_its_stream_and_goes_to_it",
    ),
    32: (
        "run: what_cannot_be_done_is_refused",
        "run: each_process_knows_its_rank_and_its_replicas",
        "run: variables_of_the_launcher_reach_the_ranks",
    ),
    33: (
        "run: of_hidden_ranks_what_they_say_to_stderr_is_shown",
        "output: of_a_hidden_rank_what_it_says_to_stderr_is_shown",
    ),
    34: ("run: any_program_runs_and_sees_its_arguments_as_they_were_typed",),
    35: ("launch: an_option_that_cannot_work_is_refused_with_what_to_write",),
}

DIFFERENT = {
    18: "100 of 100 samples in every mode: the tail is cut once, not once for each worker",
    26: "a killed worker is replaced and nothing is lost; only a sample that kills two workers is an error",
    15: "options are not read from the environment: a variable that holds some is refused",
    32: "options of the launcher are not kept in files, and there is no picture of the job: what PopRun has is refused",
    33: "what hidden ranks write to stderr is always shown, not only when one fails",
    35: "the names of machines are written out: h[0-2] is refused with what to write",
    10: "each sample is left out equally often and never twice running, which is more than 'all within two epochs'",
}


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / FILES[file]).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_behaviour_has_a_row() -> None:
    assert sorted(SHOWN) == list(range(1, 36))
    assert set(DIFFERENT) <= set(SHOWN)


@pytest.mark.parametrize("number", list(SHOWN), ids=lambda number: f"PT-{number:02}")
def test_the_names_in_a_behaviour_are_there(number: int) -> None:
    for row in SHOWN[number]:
        file, _, name = row.partition(": ")
        assert f"test_{name}" in names_in(file), row
