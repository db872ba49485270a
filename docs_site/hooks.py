"""What `mkdocs build` does besides: pages made of files outside docs/, and links to these.

The pages of docs/ are read on a code host too, where `../examples/x.py` is a file of the repository. In the site such
files are pages below `repository/`: text is shown as it is, source as a listing, a folder as a list of what is in it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).parent.parent
FORMAT = "kafkalog_spark/format"
TEXTS = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/broker/suites/README.md"),
    *(f"{FORMAT}/{page.name}" for page in sorted((ROOT / FORMAT).glob("*.md"))),
)
FOLDERS = ("examples", "notebooks", "benchmarks/results")
LANGUAGES = {".py": "python", ".json": "json"}

_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_FILE_NAME = re.compile(r"\[([\w./]+\.md)\]\(([^)\s#]+\.md)")
"""A link whose text is the file's name: in the site it is the page's title."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages below `repository/`."""
    for name in TEXTS:
        files.append(File.generated(config, in_site(name), content=(ROOT / name).read_text(encoding="utf-8")))
    for folder in FOLDERS:
        names = sorted(path.name for path in (ROOT / folder).iterdir() if path.is_file())
        pages = [posixpath.basename(in_site(f"{folder}/{name}")) for name in names]
        listed = "\n".join(f"- [{name}]({page})" for name, page in zip(names, pages, strict=True))
        files.append(File.generated(config, in_site(folder), content=f"# {folder}\n\n{listed}\n"))
        for name in names:
            files.append(_of_source(config, f"{folder}/{name}"))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that leave docs/ lead to the pages made of what they name; links named after a file have its title."""
    source = page.file.src_uri
    if source.startswith("repository/") and source.endswith("/index.md"):
        return markdown  # a list of files, made above
    if source.startswith("repository/"):
        here = posixpath.dirname(source.removeprefix("repository/"))
    else:
        here = posixpath.join("docs", posixpath.dirname(source))

    def named(match: re.Match[str]) -> str:
        target = ROOT / posixpath.normpath(posixpath.join(here, match[2]))
        title = re.search(r"^# (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE) if target.is_file() else None
        return f"[{title[1] if title else match[1]}]({match[2]}"

    def linked(match: re.Match[str]) -> str:
        if "://" in match[1] or match[1].startswith(("mailto:", "/")):
            return match[0]
        target = posixpath.normpath(posixpath.join(here, match[1]))
        if target == ".":
            target = "README.md"
        return os.path.relpath(in_site(target), posixpath.dirname(source) or ".") + (match[2] or "")

    return "".join(
        part if fenced else _LINK.sub(linked, _FILE_NAME.sub(named, part)) for fenced, part in _parts(markdown)
    )


def in_site(name: str) -> str:
    """Where a file or folder of the repository is, of the site's sources."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    if not (ROOT / name).exists():
        raise PluginError(f"a page links to {name}, which the repository does not have")
    if (ROOT / name).is_dir():
        return f"repository/{name}/index.md"
    return f"repository/{name}" if Path(name).suffix in (".md", ".ipynb") else f"repository/{name}.md"


def _of_source(config: Any, name: str) -> File:
    path = ROOT / name
    if path.suffix == ".ipynb":  # to be downloaded
        return File.generated(config, in_site(name), abs_src_path=str(path))
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        text = f"# {path.name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"
    return File.generated(config, in_site(name), content=text, inclusion=InclusionLevel.NOT_IN_NAV)


def _parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """(whether it is a listing, lines) of a page, in order: links are not looked for in listings."""
    fence: str = ""
    lines: list[str] = []
    for line in markdown.splitlines(keepends=True):
        marks = re.match(r"\s*(`{3,})", line)
        if marks and not fence:
            yield False, "".join(lines)
            fence, lines = marks[1], [line]
        elif marks and fence and line.strip() == fence:
            yield True, "".join([*lines, line])
            fence, lines = "", []
        else:
            lines.append(line)
    yield bool(fence), "".join(lines)
