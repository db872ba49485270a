"""Build of the documentation site in build/site (`make site`). With the argument `serve`, Zensical serves it instead.

The pages of docs/ are also read on a code host, where `../examples/x.py` is a file of the repository. In the site, such
files are pages below `repository/`: Markdown is copied, source code is shown as a listing, and a folder as a list of
its files. Therefore the pages are first written to build/site-sources, with adapted links. Zensical (mkdocs.yml) builds
the site from there, and fails for a broken link or anchor.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "build" / "site-sources"
SITE = ROOT / "build" / "site"
PACKAGES = ("kafkalog_spark", "broker/kafkalog_broker")
"""Packages with Markdown pages beside their code."""
TEXTS = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("tests/broker/apis.md", "tests/broker/suites/README.md"),
    *("tests/crash_states/README.md", "tests/histories/README.md"),
    *(str(page.relative_to(ROOT)) for package in PACKAGES for page in sorted((ROOT / package).rglob("*.md"))),
)
FOLDERS = ("examples", "notebooks", "benchmarks/results")
LANGUAGES = {".py": "python", ".json": "json"}

_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_FILE_NAME = re.compile(r"\[([\w./]+\.md)\]\(([^)\s#]+\.md)")
"""A link whose text is a file name. In the site, its text is the title of the page."""


def write_sources() -> None:
    """Replace build/site-sources by the pages of docs/ and the pages below `repository/`."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCES)
    for page in SOURCES.rglob("*.md"):
        here = posixpath.join("docs", page.relative_to(SOURCES).as_posix())
        _write(page, with_links(page.read_text(encoding="utf-8"), here))
    for name in TEXTS:
        _write(SOURCES / in_site(name), with_links((ROOT / name).read_text(encoding="utf-8"), name))
    for folder in FOLDERS:
        names = sorted(path.name for path in (ROOT / folder).iterdir() if path.is_file())
        pages = [posixpath.basename(in_site(f"{folder}/{name}")) for name in names]
        listed = "\n".join(f"- [{name}]({page})" for name, page in zip(names, pages, strict=True))
        _write(SOURCES / in_site(folder), f"# {folder}\n\n{listed}\n")
        for name in names:
            _write_file(f"{folder}/{name}")


def with_links(markdown: str, name: str) -> str:
    """Return a page with its links adapted to the site.

    Args:
        markdown: Text of the page.
        name: Path of the page in the repository.
    """
    here, in_sources = posixpath.dirname(name), posixpath.dirname(in_site(name)) or "."

    def named(match: re.Match[str]) -> str:
        target = ROOT / posixpath.normpath(posixpath.join(here, match[2]))
        title = re.search(r"^# (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE) if target.is_file() else None
        return f"[{title[1] if title else match[1]}]({match[2]}"

    def linked(match: re.Match[str]) -> str:
        if "://" in match[1] or match[1].startswith(("mailto:", "/")):
            return match[0]
        target = posixpath.normpath(posixpath.join(here, match[1]))
        return os.path.relpath(in_site("README.md" if target == "." else target), in_sources) + (match[2] or "")

    return "".join(
        part if is_listing else _LINK.sub(linked, _FILE_NAME.sub(named, part)) for is_listing, part in _parts(markdown)
    )


def in_site(name: str) -> str:
    """Return the path in build/site-sources of a file or folder of the repository."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    if not (ROOT / name).exists():
        raise SystemExit(f"a page links to {name}, which the repository does not have")
    if (ROOT / name).is_dir():
        return f"repository/{name}/index.md"
    return f"repository/{name}" if Path(name).suffix in (".md", ".ipynb") else f"repository/{name}.md"


def _write_file(name: str) -> None:
    path, page = ROOT / name, SOURCES / in_site(name)
    if path.suffix == ".ipynb":  # offered for download
        shutil.copyfile(path, page)
        return
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        _write(page, with_links(text, name))
    else:
        _write(page, f"# {path.name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n")


def _write(page: Path, text: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")


def _parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """Split a page at its code listings. Yield (True if the part is a listing, text of the part) in order."""
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


def main(arguments: list[str]) -> int:
    """Write the sources, run Zensical and return its exit status."""
    write_sources()
    zensical = [sys.executable, "-m", "zensical"]
    if arguments == ["serve"]:
        return subprocess.run([*zensical, "serve"], cwd=ROOT, check=False).returncode
    # Zensical does not check the links of pages in its cache, so --clean empties the cache (.cache).
    ran = subprocess.run(
        [*zensical, "build", "--clean", "--strict"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        print(ran.stdout + ran.stderr, file=sys.stderr)
    else:
        print(f"{SITE.relative_to(ROOT)}/index.html: {len(list(SITE.rglob('*.html')))} pages")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
