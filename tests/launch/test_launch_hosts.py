"""Names of machines."""

import ipaddress
import socket
from pathlib import Path

import pytest

from headrace.errors import BadOption
from headrace.launch.hosts import are_here, expand, free_port, interface, network, read_file


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("h0", ["h0"]),
        ("h0,h1", ["h0", "h1"]),
        ("h[0-2,4]", ["h0", "h1", "h2", "h4"]),
        ("h[0-1],g", ["h0", "h1", "g"]),
        ("n[08-11].lan", ["n08.lan", "n09.lan", "n10.lan", "n11.lan"]),
        ("r[0-1]n[2,5]", ["r0n2", "r0n5", "r1n2", "r1n5"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
        ("a, b", ["a", "b"]),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, hosts: list[str]) -> None:
    assert list(expand(text)) == hosts


@pytest.mark.parametrize("text", ["", "h[", "h[]", "h[2-1]", "h[a-b]", "h0,,h1", "h 0", "h0,h0", "h[0-1],h1", "h]0["])
def test_a_list_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="--host"):
        expand(text)


def test_a_host_file_has_one_name_a_line_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# rack 1\nh[0-1]\n\nh7  # the spare\n")
    assert read_file(file) == ("h0", "h1", "h7")


@pytest.mark.parametrize("text", ["", "# nothing\n", "h0 slots=4\n"])
def test_a_host_file_that_says_something_else_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    with pytest.raises(BadOption, match="--hostfile"):
        read_file(file)
    with pytest.raises(BadOption, match="No such file"):
        read_file(tmp_path / "none")


def test_this_machine_is_known_by_its_names() -> None:
    assert are_here(["localhost"])
    assert are_here([socket.gethostname()])
    assert not are_here(["localhost", "h1"])
    assert not are_here(["h1"])


def test_the_interface_of_a_network_is_found() -> None:
    assert interface(network("127.0.0.0/8")) == ("lo", "127.0.0.1")
    with pytest.raises(BadOption, match=r"lo 127\.0\.0\.1"):
        interface(ipaddress.IPv4Network("203.0.113.0/24"))
    with pytest.raises(BadOption, match=r"10\.1\.0\.0/16"):
        network("eth0")


def test_a_free_port_can_be_taken() -> None:
    with socket.socket() as taker:
        taker.bind(("", free_port()))
