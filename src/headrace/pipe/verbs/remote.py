"""Verbs for remote files: HTTP, fsspec, and the cache on the local disk."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.errors import BadPipe
from headrace.pipe.verbs.growing import Verbs, grow, keywords

if TYPE_CHECKING:
    from headrace.op import Each
    from headrace.pipe.graph import Pipe
    from headrace.sources.listing import Masks
    from headrace.sources.stream import StreamWrapper


class RemoteVerbs(Verbs):
    """What a Pipe can do with remote files."""

    __slots__ = ()

    # --- HTTP -------------------------------------------------------------------------------------------------------

    def read_from_http(
        self, timeout: float | None = None, skip_on_error: bool = False, **kwargs: object
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each URL as (url, stream); `kwargs` are those of `requests.get`."""
        from headrace.ops.files.read_from_http import ReadFromHttp

        return _read(self, ReadFromHttp(timeout, keywords(kwargs)), skip_on_error)

    def read_from_gdrive(
        self, *, timeout: float | None = None, skip_on_error: bool = False, **kwargs: object
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each link of Google Drive as (file name, stream), by gdown; `kwargs` are those of `gdown.download`."""
        from headrace.ops.files.read_from_http import ReadFromGdrive

        return _read(self, ReadFromGdrive(timeout, keywords(kwargs)), skip_on_error)

    def read_from_remote(
        self, *, timeout: float | None = None, skip_on_error: bool = False, **kwargs: object
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each URL read by its host: Google Drive, or plain HTTP, to which the `kwargs` go."""
        from headrace.ops.files.read_from_http import ReadFromRemote

        return _read(self, ReadFromRemote(timeout, keywords(kwargs)), skip_on_error)

    # --- any file system --------------------------------------------------------------------------------------------

    def list_files_by_fsspec(self, masks: "Masks" = "", **kwargs: object) -> "Pipe[str]":
        """The files directly under each URL that comes in; `kwargs` make the file system."""
        from headrace.ops.files.by_fsspec import ListFilesByFsspec

        return grow(self, ListFilesByFsspec(masks, keywords(kwargs)))

    def open_files_by_fsspec(
        self, mode: str = "r", *, kwargs_for_open: Mapping[str, Any] | None = None, **kwargs: object
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each URL as (url, stream); `kwargs` make the file system, `kwargs_for_open` open the file."""
        from headrace.ops.files.by_fsspec import OpenFilesByFsspec

        return grow(self, OpenFilesByFsspec(mode, keywords(kwargs_for_open), keywords(kwargs)))

    def save_by_fsspec(
        self,
        mode: str = "w",
        filepath_fn: Callable[[Any], str] | None = None,
        *,
        kwargs_for_open: Mapping[str, Any] | None = None,
        **kwargs: object,
    ) -> "Pipe[str]":
        """Each (meta, data) written to the URL `filepath_fn(meta)`, which is handed on."""
        from headrace.ops.files.by_fsspec import SaveByFsspec

        return grow(self, SaveByFsspec(mode, filepath_fn, keywords(kwargs_for_open), keywords(kwargs)))

    # --- the cache on the local disk --------------------------------------------------------------------------------

    def on_disk_cache(
        self,
        filepath_fn: Callable[[Any], Any] | None = None,
        hash_dict: Mapping[str, str] | None = None,
        hash_type: str = "sha256",
        extra_check_fn: Callable[[str], bool] | None = None,
    ) -> "Pipe[Any]":
        """From here to `end_caching()`, verbs run only for samples whose files are missing or wrong."""
        from headrace.ops.files.on_disk_cache import OnDiskCache

        return grow(self, OnDiskCache(filepath_fn, hash_dict, hash_type, extra_check_fn))

    def end_caching(
        self,
        mode: str = "wb",
        filepath_fn: Callable[[Any], str] | None = None,
        *,
        same_filepath_fn: bool = False,
        skip_read: bool = False,
        timeout: float = 300,
    ) -> "Pipe[str]":
        """The paths of the cached files, made from the (path, content) of the section since `on_disk_cache()`."""
        from headrace.ops.files.on_disk_cache import EndCaching, OnDiskCache

        section = []
        ended = False
        node: Any = self
        while not isinstance(node.op, OnDiskCache):
            ended = ended or isinstance(node.op, EndCaching)
            if len(node.inputs) > 1:
                raise BadPipe(f"a cached section is a single line of verbs: {node.op.describe()} joins or splits pipes")
            if not node.inputs:
                if ended:
                    raise RuntimeError("`end_caching` can only be invoked once per `OnDiskCacheHolder`")
                raise RuntimeError("Expected `OnDiskCacheHolder` existing in pipeline when `end_caching` is invoked")
            section.append(node.op)
            node = node.inputs[0]
        (source,) = node.inputs
        op = EndCaching(node.op, tuple(section[::-1]), mode, filepath_fn, same_filepath_fn, skip_read, timeout)
        return grow(source, op)


def _read(pipe: object, op: "Each[Any, Any]", skip_on_error: bool) -> "Pipe[Any]":
    from headrace.ops.files.read_from_http import Forgiving

    return grow(pipe, Forgiving(op) if skip_on_error else op)
