"""Checks for operators and sources of your own: `check_op`, `check_source`, `check_pipe`."""

from headrace.testing.checks import check_op as check_op
from headrace.testing.checks import check_pipe as check_pipe
from headrace.testing.checks import check_source as check_source

__all__ = ["check_op", "check_pipe", "check_source"]
