"""How the code is built: what takes a whole configuration, how large classes are, who names a method."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from agentr.methods import methods

ROOT = Path(__file__).parents[1]
#: What reads a configuration for a person is made for the whole of it.
READS_IT = (
    "agentr/config/",
    *(f"agentr/{name}.py" for name in ("cli", "cluster_cli", "env_cli", "run_cli", "ui_cli", "verify_cli")),
)


@cache
def modules() -> dict[str, ast.Module]:
    found = [path for top in ("agentr", "ray_jobs") for path in sorted((ROOT / top).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in found}


def whole_configurations(tree: ast.Module) -> Iterator[str]:
    """Yields what takes, returns or keeps a ``Config``: functions, and fields of classes."""

    def is_config(annotation: ast.expr | None) -> bool:
        text = ast.unparse(annotation) if annotation else ""
        return text.replace(" | None", "").strip("'\"") == "Config"

    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if any(map(is_config, [node.returns, *(argument.annotation for argument in arguments)])):
                yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (
                node.name for field in node.body if isinstance(field, ast.AnnAssign) and is_config(field.annotation)
            )


def test_few_take_the_whole_configuration() -> None:
    """Whoever takes a part of it says which part it depends on."""
    found = {
        path: list(whole_configurations(tree)) for path, tree in modules().items() if not path.startswith(READS_IT)
    }
    found = {path: names for path, names in found.items() if names}
    assert sum(map(len, found.values())) <= 40 and len(found) <= 15, found


def test_no_class_is_long() -> None:
    classes = [
        (path, node) for path, tree in modules().items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    sizes = {f"{path}: {node.name}": (node.end_lineno or 0) - node.lineno + 1 for path, node in classes}
    assert not {name: lines for name, lines in sizes.items() if lines > 200}


def named(tree: ast.Module) -> Counter[str]:
    """Counts the words that code uses: names, and texts that are one word, such as a value or a key."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.Constant(value=str(word)):
                found[word] += 1
            case ast.ImportFrom(module=str(module), names=names):
                found.update([*module.split("."), *(alias.name for alias in names)])
            case ast.Import(names=names):
                found.update(part for alias in names for part in alias.name.split("."))
    return found


# losses have these names, too
@pytest.mark.parametrize("name", [name for name in methods() if name not in ("sft", "grpo")])
def test_nothing_outside_of_a_methods_folder_names_it(name: str) -> None:
    folder = f"agentr/methods/{name}/"
    own = {name, methods()[name].__name__, methods()[name].config_class.__name__}
    # of files, which are named after whose software reads them
    formats = {"agentr/rows/entries.py", "agentr/rows/export.py"}
    others = {path: tree for path, tree in modules().items() if path not in formats and not path.startswith(folder)}
    places = {path: own & named(tree).keys() for path, tree in others.items()}
    assert {path: words for path, words in places.items() if words} == {}
