"""What mkdocs is told while it builds the site: every decision has its place in the navigation.

mkdocs knows no folders in its navigation, and a list by hand would forget the next decision.
"""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    docs = Path(config["docs_dir"])
    (design,) = [pages for section in config["nav"] for name, pages in section.items() if name == "Design"]
    design += [str(page.relative_to(docs)) for page in sorted((docs / "decisions").glob("*.md"))]
    return config
