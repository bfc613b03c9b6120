"""Origins: who makes the requests for a URL.

http://, https://                 headrace.sources.http (extra `remote`)
s3://, gs://, az:// ...           headrace.sources.stores (extra `stores`), where it is installed and may be used
anything else with ://, or these  headrace.sources.by_fsspec (extra `remote`, and the package of the protocol)
"""

from headrace.sources import stores
from headrace.sources.remote import FileOrigin


def is_http(url: str) -> bool:
    return url.startswith(("http://", "https://")) and "::" not in url


def origin_of(url: str) -> FileOrigin:
    if is_http(url):
        from headrace.sources.http import HttpOrigin

        return HttpOrigin(url)
    if stores.knows(url):
        return stores.StoreOrigin(url)
    from headrace.sources.by_fsspec import FsspecOrigin

    return FsspecOrigin(url)
