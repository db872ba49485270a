"""The size and shape of the product's sources: `python -m benchmarks.house`, or with the path of another checkout.

Counts what makes a house hard to find one's way in: files and lines, rooms (folders) with many files, long functions,
long signatures, interfaces with one implementation, docstrings that do not say what a thing is, names that stand for
several things, and imports that go round in circles, between files and between rooms.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = {"kafkalog_spark": "kafkalog_spark", "kafkalog_broker": "broker/kafkalog_broker"}
"""Package: its folder in a checkout."""
LONG_FUNCTION = 80
"""Lines."""
MANY_PARAMETERS = 10
FULL_ROOM = 20
"""Files beside `__init__.py`."""
WEAK_BEGINNINGS = ("What ", "Whether ", "One ", "Of ")
"""Words that a docstring begins with when it does not name the thing."""
SIZES = (50, 100, 200, 400, 600)

Functions = list[tuple[int, str]]


def modules(root: Path) -> dict[str, tuple[Path, ast.Module]]:
    """Every product module of a checkout by its dotted name; a package's is its `__init__.py`."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found[name] = path, ast.parse(path.read_text(encoding="utf-8"))
    return found


def eager_imports(name: str, tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """Product modules that importing this one imports: those named outside functions and TYPE_CHECKING."""

    def walk(body: list[ast.stmt]) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for one in node.names:
                    inner = f"{node.module}.{one.name}"
                    yield inner if inner in known else node.module
            elif isinstance(node, ast.Import):
                yield from (one.name for one in node.names)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test):
                yield from walk(node.body + node.orelse)
            elif isinstance(node, ast.Try):
                yield from walk(node.body + node.orelse + node.finalbody)

    return (one for one in walk(tree.body) if one in known and one != name)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of two and more nodes that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in graph:
        if node not in index:
            visit(node)
    return found


def functions(trees: Mapping[str, tuple[Path, ast.Module]], size: Callable[[ast.AST], int], above: int) -> Functions:
    """(size, place) of the functions whose size is above a bound, the largest first."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    every = ((size(node), f"{name}.{node.name}") for name, (_, tree) in trees.items() for node in ast.walk(tree)
             if isinstance(node, kinds))  # fmt: skip
    return sorted((one for one in every if one[0] > above), reverse=True)


def parameters(node: ast.AST) -> int:
    """How many parameters a function has; self and cls count."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    given = node.args
    return len(given.posonlyargs + given.args + given.kwonlyargs) + bool(given.vararg) + bool(given.kwarg)


def lines_of(node: ast.AST) -> int:
    """Lines of a function, its docstring included, decorators not."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return (node.end_lineno or node.lineno) - node.lineno + 1


def lone_protocols(trees: Mapping[str, tuple[Path, ast.Module]]) -> list[str]:
    """Protocols whose methods exactly one class has. Callables (`__call__`) are types of functions and do not count."""
    classes = {
        (name, node.name): (
            {base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases},
            {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
            | {
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            }
            | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)},
        )
        for name, (_, tree) in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    lone = []
    for (name, title), (bases, members) in classes.items():
        if "Protocol" not in bases or "__call__" in members or not members:
            continue
        having = [1 for (bases_, members_) in classes.values() if "Protocol" not in bases_ and members <= members_]
        if len(having) == 1:
            lone.append(f"{name}.{title}")
    return lone


def weak_docstrings(trees: Mapping[str, tuple[Path, ast.Module]]) -> int:
    """Docstrings, those after attributes and constants included, that begin with one of WEAK_BEGINNINGS."""
    return sum(
        node.value.value.lstrip().startswith(WEAK_BEGINNINGS)
        for _, tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def shared_names(trees: Mapping[str, tuple[Path, ast.Module]]) -> dict[str, int]:
    """Public classes of one name that are defined three times and more."""
    names = Counter(
        node.name
        for _, tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: count for name, count in names.most_common() if count >= 3}


def room_of(name: str, packages: set[str]) -> str:
    """The folder of a module. What lies beside the rooms is a room of its own: errors, options, the entries."""
    parent = name.rpartition(".")[0]
    return name if name in packages or parent in PACKAGES else parent


def main(root: Path = ROOT) -> None:
    """Print the figures."""
    trees = modules(root)
    sizes = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, (path, _) in trees.items()}
    packages = {name for name, (path, _) in trees.items() if path.name == "__init__.py"}
    files = {name: set(eager_imports(name, tree, trees)) for name, (_, tree) in trees.items()}
    rooms: dict[str, set[str]] = defaultdict(set)
    held: dict[str, int] = Counter()
    for name, others in files.items():
        room = room_of(name, packages)
        rooms[room] |= {room_of(other, packages) for other in others} - {room}
        held[name.rpartition(".")[0]] += name not in packages
    print(f"{sum(sizes.values()):,} lines in {len(sizes)} files, {len(packages)} of them __init__.py")
    files_of = [size for name, size in sizes.items() if name not in packages]
    for low, high in zip((0, *SIZES), (*SIZES, None), strict=True):
        count = sum(low <= size and (high is None or size < high) for size in files_of)
        print(f"  {count:4} of {low} lines " + ("and more" if high is None else f"to {high - 1}"))
    full = {room: count for room, count in held.items() if count > FULL_ROOM}
    print(f"rooms with more than {FULL_ROOM} files: {full or 'none'}")
    for title, size, above in (("lines", lines_of, LONG_FUNCTION), ("parameters", parameters, MANY_PARAMETERS)):
        found = functions(trees, size, above)
        print(f"functions with more than {above} {title}: {len(found)}")
        for count, place in found[:10]:
            print(f"  {count:4} {place}")
    lone = lone_protocols(trees)
    print(f"Protocols with one implementation: {len(lone)}", *lone, sep="\n  ")
    print(f"docstrings that begin with {', '.join(word.strip() for word in WEAK_BEGINNINGS)}: {weak_docstrings(trees)}")
    print(f"names of three public classes and more: {shared_names(trees) or 'none'}")
    for what, graph in (("files", files), ("rooms", rooms)):
        found_circles = circles(graph)
        print(f"circles of imports between {what}: {len(found_circles)}", *map(" ".join, found_circles), sep="\n  ")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
