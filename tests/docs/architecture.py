"""Makes the parts of docs/architecture.md that stand in the code: the picture of the packages, and the signatures of
the seams.

``python -m tests.docs.architecture`` writes the page anew.
"""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

from tests.docs.pages import ROOT, WIDTH, refreshed

PAGE = ROOT / "docs" / "architecture.md"
WORDS = "types, errors, seeds, backoff, cpu, logs, words"

Graph = dict[str, set[str]]


def make(name: str) -> str:
    """Makes a part: ``imports``, or ``FILE: MEMBER, MEMBER`` for signatures."""
    if name == "imports":
        return picture(reduced(imports()))
    file, _, members = name.partition(": ")
    return signatures(ROOT / file, members.split(", "))


# the picture ----------------------------------------------------------------------------------------------------------


def imports() -> Graph:
    """Returns which boxes each box imports: the packages of agentr, its command line, its words, and the environment
    servers."""
    found: Graph = defaultdict(set)
    for path in sorted((ROOT / "agentr").glob("*/**/*.py")) + sorted((ROOT / "agentr").glob("[!_]*.py")):
        own = box(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module in _modules(node):
                if module.startswith(("agentr.", "env_servers")) and (other := box(module)) != own:
                    found[own].add(other)
    return {name: found[name] for name in sorted(found)}


def box(module: str) -> str:
    """Returns the box of a module: its package, or what stands for a module without one."""
    top, *rest = module.split(".")
    if top == "env_servers":
        return top
    if rest and (ROOT / top / rest[0]).is_dir():
        return rest[0]
    return "cli" if rest and (rest[0] == "cli" or rest[0].endswith("_cli")) else WORDS


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def reduced(graph: Graph) -> Graph:
    """Returns the graph without the arrows that follow from others (its transitive reduction).

    Raises:
        graphlib.CycleError: Boxes import one another; names them.
    """
    below: Graph = {}
    for name in TopologicalSorter(graph).static_order():
        below[name] = set().union(*({other, *below[other]} for other in graph.get(name, ())))
    return {name: {o for o in others if not any(o in below[p] for p in others)} for name, others in graph.items()}


def picture(graph: Graph) -> str:
    """Returns a graph in mermaid."""
    arrows = [f"    {_id(name)} --> {_id(other)}" for name, others in graph.items() for other in sorted(others)]
    loose = [f"    {_id(WORDS)}[{WORDS}]", "    env_servers[[env_servers: another package]]"]
    return "\n".join(["graph TD", *loose, *arrows])


def _id(name: str) -> str:
    return "words" if name == WORDS else name


# the signatures -------------------------------------------------------------------------------------------------------


def signatures(file: Path, members: list[str]) -> str:
    """Returns functions, methods and fields of a file as they are declared there, without their bodies."""
    lines = [f"# {file.relative_to(ROOT)}"]
    opened = ""
    for member in members:
        scope, _, name = member.rpartition(".")
        body = ast.parse(file.read_text(encoding="utf-8")).body
        if scope:
            found = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == scope)
            bases = ", ".join(map(ast.unparse, found.bases))
            lines += [f"class {scope}({bases}):" if bases else f"class {scope}:"] if scope != opened else []
            body = found.body
        lines += _declared(next(node for node in body if _name(node) == name), "    " if scope else "")
        opened = scope
    return "\n".join(lines)


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    return getattr(node, "name", "")


def _declared(node: ast.stmt, indent: str) -> list[str]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [indent + ast.unparse(node)]
    start = f"{indent}{'async ' * isinstance(node, ast.AsyncFunctionDef)}def {node.name}("
    arguments, end = ast.unparse(node.args), f") -> {ast.unparse(node.returns)}: ..." if node.returns else "): ..."
    whole = start + arguments + end
    return [whole] if len(whole) <= WIDTH else [start, f"{indent}    {arguments}", indent + end]


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE, make), encoding="utf-8")
