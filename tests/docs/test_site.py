"""The docs site builds without a warning and without a network, and leaves nothing out."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace import Loader

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(https?:)?//[^>]*>")


@pytest.mark.integrations
@pytest.mark.timeout(300)
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    built = {str(page.relative_to(site).with_suffix(".md")) for page in site.rglob("*.html")} - {"404.md"}
    assert built == {str(page.relative_to(DOCS)) for page in PAGES}
    for page in site.rglob("*.html"):
        assert not FETCHED.search(page.read_text()), f"{page} fetches {FETCHED.search(page.read_text())}"


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES:
        name = str(page.relative_to(DOCS))
        assert name.startswith("decisions/") or f" {name}\n" in config, f"mkdocs.yml has no place for {name}"


def test_every_public_name_is_in_the_docs() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in headrace.__all__ if not re.search(rf"\b{name}\b", text)] == ["__version__"]


def test_every_option_of_a_loader_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "loader.md").read_text()
    options = inspect.signature(Loader).parameters.keys() - {"pipe", "unknown"}
    assert sorted(name for name in options if f"`{name}`" not in text) == []
