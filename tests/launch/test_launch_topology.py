"""The picture of a job, to the character."""

from headrace.launch.topology import topology

EIGHT_ON_TWO = """\
 ===========================================
|             headrace topology             |
|===========================================|
| hosts     |           localhost           |
|-----------|-------------------------------|
| instances |       0       |       1       |
|-----------|-------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
 -------------------------------------------"""

TWO_HOSTS = """\
 ==========================================================
|                    headrace topology                     |
|==========================================================|
| hosts     |       a       | longer-host-name.example.org |
|-----------|----------------------------------------------|
| instances |   0   |   1   |   2   |          3           |
|-----------|----------------------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 |        7         |
 ----------------------------------------------------------"""


def test_eight_replicas_on_two_instances() -> None:
    assert topology(["localhost"], 2, 8) == EIGHT_ON_TWO


def test_a_long_name_makes_its_column_wider() -> None:
    assert topology(["a", "longer-host-name.example.org"], 4, 8) == TWO_HOSTS


def test_every_line_has_the_same_width_whatever_the_numbers() -> None:
    for hosts, instances, replicas in [(1, 1, 1), (1, 3, 12), (2, 4, 100), (4, 4, 4)]:
        first, *rest = topology([f"h{number}" for number in range(hosts)], instances, replicas).splitlines()
        assert {len(line) for line in rest[:-1]} == {len(first) + 1}
        assert len(rest[-1]) == len(first)
