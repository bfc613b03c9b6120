"""The timeline of a profile: everything until the first batch is start-up, and only later waits are waits."""

from headrace.observe.profile.drawing import WIDTH, timeline


def test_all_until_the_first_batch_is_one_band_of_start_up() -> None:
    drawn = timeline([], [(0.0, 0.2, 1.0, 1.2), (1.2, 0.3, 1.6, 2.0)], end=2.0)
    assert f'<rect class="start" x="0.000" y="2" width="{WIDTH / 2:.3f}"' in drawn
    assert drawn.count('class="wait"') == drawn.count('class="take"') == 1
