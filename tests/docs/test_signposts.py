"""Every place that a document names is there: paths, modules, classes and their attributes."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PACKAGES = ("agentr", "env_servers", "ray_jobs", "tests")
TOPS = (*PACKAGES, "configs", "docs", "docker", "examples", "locks")
#: These tell of what was there when they were written.
DOCUMENTS = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "ray_jobs").rglob("*.md")}
    - {ROOT / "docs/log.md", ROOT / "CHANGELOG.md"}
)
#: Parts of names that stand for any, such as env_servers/NAME/environment.py.
ANY = re.compile(r"[A-Z]{2,}|[<>*{]|\.\.\.")


def named(text: str) -> Iterator[str]:
    """Yields what stands in a document as code within a line."""
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"(?ms)^```.*?^```", "", text))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def defined(within: ast.AST) -> set[str]:
    """Returns the names that are defined or set anywhere within a module or a class, attributes of ``self``
    included."""
    nodes = list(ast.walk(within))
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


@cache
def classes() -> dict[str, set[str]]:
    """Returns the names of what each class of the wheel has, by the class's name; where several are called so, of all
    of them."""
    found, bases = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for path in (
        path
        for top in ("agentr", "env_servers")
        for path in (ROOT / top).rglob("*.py")
        if "node_modules" not in path.parts
    ):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                bases[node.name] |= {re.split(r"[\[.]", ast.unparse(base))[0] for base in node.bases}
                found[node.name] |= defined(node)
    for _ in range(4):  # as deep as they inherit
        for name, above in bases.items():
            found[name] |= {attribute for base in above for attribute in found.get(base, ())}
    return {name: found[name] for name in bases}


def missing(name: str) -> str:
    """Returns what is wrong with a name in a document; nothing if it is right, or the name of no place of ours."""
    if ANY.search(name):
        return ""
    if re.fullmatch(rf"({'|'.join(TOPS)})/[\w./-]+", name):
        return "" if (ROOT / name).exists() else "there is no such file"
    if re.fullmatch(rf"({'|'.join(PACKAGES)})(\.\w+)+(:[\w.]+)?", name) and not name.endswith((".md", ".yaml")):
        return _no_such_object(name.replace(":", "."))
    if (found := re.fullmatch(r"([A-Z]\w*[a-z]\w*)\.(\w+)", name)) and found[1] in classes():
        return "" if found[2] in classes()[found[1]] else f"{found[1]} has no {found[2]}"
    return ""


def _no_such_object(name: str) -> str:
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:size])
        file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        if not file.exists():
            continue
        if size == len(parts):
            return ""
        first, *rest = parts[size:]
        module = parsed(file)
        imported = {
            alias.asname or alias.name
            for node in ast.walk(module)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        if first not in defined(module) | imported:
            return f"{file.relative_to(ROOT)} has no {first}"
        return "" if not rest or rest[0] in classes().get(first, rest) else f"{first} has no {rest[0]}"
    return "there is no such module"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_is_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    wrong = {name: problem for name in named(text) if (problem := missing(name))}
    # As in `iter_rows` (`agentr/store/dataset.py`), and in `agentr/search/tree.py`: `Tree`.
    places = re.findall(r"`(\w+)`\s(?:\(|in\s)`([\w/]+\.py)`", text) + [
        (n, p) for p, n in re.findall(r"`([\w/]+\.py)`: `(\w+)`", text)
    ]
    wrong |= {f"{name} in {path}": "" for name, path in places if name not in defined(parsed(ROOT / path))}
    assert not wrong


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("agentr/no/such.py", "there is no such file"),
        ("agentr.search.no_such", "agentr/search/__init__.py has no no_such"),
        ("agentr.search.tree:Tree.no_such", "Tree has no no_such"),
        ("Tree.no_such", "Tree has no no_such"),
        ("tests.no_such.module", "tests/__init__.py has no no_such"),
    ],
)
def test_a_place_that_is_not_there_is_found(name: str, problem: str) -> None:
    assert missing(name) == problem


@pytest.mark.parametrize(
    "name",
    [
        "agentr/search/tree.py",
        "agentr.search.tree:Tree.back_up",
        "Tree.back_up",
        "env_servers/NAME/environment.py",
        "run.dir",
    ],
)
def test_a_place_that_is_there_is_none(name: str) -> None:
    assert missing(name) == ""


def test_a_public_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "agentr").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 300
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
