"""The page of a profile: complete in itself, and it shows what was seen."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from headrace.loader import Loader
from headrace.observe.profile import Profile, profile
from headrace.observe.profile.drawing import curve, flame, timeline
from headrace.pipe.graph import Pipe
from tests.observe.planted import plain, slow_map
from tests.programs import needs_chromium


@pytest.fixture(scope="module")
def seen() -> Profile:
    with Loader(plain(fn=slow_map), workers=2) as loader:
        return profile(loader, batches=40)


class Reader(HTMLParser):
    """Collects elements and checks that they are closed in order."""

    VOID = ("meta", "path", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, Any]]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_it_needs_no_other_file_and_no_network(seen: Profile) -> None:
    text = seen.html()
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://|fetch\(|XMLHttpRequest", text)
    assert len(text) < 2_000_000


def test_every_ticket_and_every_turn_has_a_box(seen: Profile) -> None:
    found = read(seen.html()).found
    boxes = [attrs["class"] for tag, attrs in found if tag == "rect"]
    assert boxes.count("stage0") == len(seen.record.spans)
    assert boxes.count("step") == 40
    assert boxes.count("start") == 1
    assert boxes.count("wait") == sum(batch.waited > 0 for batch in seen.record.timings[1:])


def test_curves_without_anything_in_them_are_left_out() -> None:
    with Loader(Pipe.of(range(40)).batch(4)) as loader:
        assert "<figure>" not in profile(loader, batches=5).html()


def test_the_verdict_and_the_ops_are_in_the_text(seen: Profile) -> None:
    text = seen.html()
    assert "The loader sets the pace: map(slow_map)" in text
    for part in ("packing, in workers", "worker 1", "waiting for data", "shared memory, at most"):
        assert part in text


def test_the_data_inside_it_is_the_data_of_the_profile(seen: Profile) -> None:
    inside = re.search(r'id="data">(.*?)</script>', seen.html())
    assert inside is not None
    assert json.loads(inside[1]) == json.loads(json.dumps(seen.data()))


def test_names_with_marks_in_them_do_no_harm() -> None:
    wild = "</script><b>&\"'"
    assert "<b>" not in flame([("work", wild, 1.0)])
    read(flame([("work", wild, 1.0), ("step", "s", 0.5)]))
    read(timeline([(0, 0, 0, 0.0, 0.5, 10)], [(0.0, 0.1, 0.2, 0.5)], 1.0))
    read(curve([(0.0, 1.0), (1.0, 5.0)], 1.0, "bytes", wild))
    assert curve([], 1.0, "bytes", "nothing") == ""


def test_a_long_run_is_cut_to_what_a_browser_can_draw() -> None:
    tickets = [(k % 4, 0, k, k * 1e-4, k * 1e-4 + 9e-5, 0) for k in range(20_000)]
    drawn = timeline(tickets, [(k * 1e-3, 0.0, k * 1e-3, k * 1e-3 + 1e-3) for k in range(2000)], 2.0)
    assert drawn.count('class="stage0"') == 6000


@pytest.mark.integrations
@needs_chromium
@pytest.mark.may_leave("processes", reason="a browser's helpers take a moment to notice that it has ended")
def test_a_browser_shows_the_timeline_and_zooms_into_it(seen: Profile, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'headrace[integrations]'")
    path = tmp_path / "profile.html"
    path.write_text(seen.html())
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 1600})
        trouble: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        assert page.locator("svg.zoom rect.stage0").count() == len(seen.record.spans)
        assert "slow_map" in page.locator(".verdict").inner_text()
        box = page.locator("svg.zoom").bounding_box()
        assert box["width"] > 800
        assert box["height"] == 66
        shot = page.screenshot(path=str(tmp_path / "page.png"))
        assert colours(page, shot) >= 4, "boxes of several kinds are drawn"
        before = page.locator("svg.zoom").get_attribute("viewBox")
        page.mouse.move(box["x"] + 400, box["y"] + 10)
        page.mouse.wheel(0, -400)
        page.wait_for_function(
            "before => document.querySelector('svg.zoom').getAttribute('viewBox') !== before", arg=before
        )
        assert "zoom" in page.locator("#range").inner_text()
        browser.close()
    assert trouble == []
    assert asked == [path.as_uri()]


def colours(page: Any, shot: bytes) -> int:
    """How many of the style sheet's colours are really on the screen."""
    import base64

    script = """async data => {
      const image = new Image(); image.src = 'data:image/png;base64,' + data; await image.decode();
      const canvas = new OffscreenCanvas(image.width, image.height), g = canvas.getContext('2d');
      g.drawImage(image, 0, 0);
      const pixels = g.getImageData(0, 0, image.width, image.height).data, seen = new Map();
      for (let k = 0; k < pixels.length; k += 4) {
        const key = pixels[k] << 16 | pixels[k + 1] << 8 | pixels[k + 2];
        seen.set(key, (seen.get(key) || 0) + 1);
      }
      return [0xd9480f, 0xf4a261, 0x2a9d8f, 0x3b6fb6].filter(c => (seen.get(c) || 0) > 20).length;
    }"""
    found: int = page.evaluate(script, base64.b64encode(shot).decode())
    return found
