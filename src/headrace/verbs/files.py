"""Verbs for files: pipes that start from paths, and verbs that open, read and parse them."""


class FileVerbs:
    """What a Pipe can do with files."""

    __slots__ = ()
