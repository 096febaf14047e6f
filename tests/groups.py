"""Groups of tests that run only if their inputs have changed since they last passed.

    python -m tests.groups is-unchanged GROUP
    python -m tests.groups inputs GROUP

`make test` leaves out a group whose inputs have the hash in tests/groups.lock; `make test-all` runs
all groups and writes the hashes of those that pass. The inputs of a group are

- its test files, the conftest.py of their folders, and all modules of this repository that these
  import, also inside functions;
- modules and files that a text in these files of tests/ names: "deploy.local.kafka", "-m" with
  "job", "deploy/docker/secrets.sh";
- the files and folders that the group lists.

Only the last is written by hand. A group must list all that it uses of the product, so that it does
not grow by accident, or its `imports_are_listed` is false: tests/unit/project/test_groups.py fails
if it uses more.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("job", "service", "deploy", "bench", "streamjoin")
PACKAGES = (*PRODUCT, "tests")
LOCK = "tests/groups.lock"
MACHINE = {
    *("ctypes", "fcntl", "getpass", "glob", "importlib", "io", "locale", "multiprocessing", "os"),
    *("pathlib", "platform", "psutil", "pwd", "resource", "shutil", "signal", "socket", "ssl"),
    *("subprocess", "tempfile", "uvicorn"),
}
"""Modules with which code uses the machine that it runs on."""
MACHINE_CALLS = {"open", "write_text", "write_bytes", "mkdir", "touch", "symlink_to", "unlink"}


@dataclass(frozen=True)
class Group:
    tests: tuple[str, ...]
    """Files and folders."""
    inputs: tuple[str, ...]
    """Files, folders, and patterns such as job/**/*.java."""
    imports_are_listed: bool = True
    """False: its tests import much of the product, and not all of it. All inputs of a group contain
    what its tests import."""
    packages: tuple[str, ...] = ()
    """Packages whose behaviour other tests check in the clone, and this group in an image or a
    wheel. Of these the inputs are the modules that use the machine, shell scripts, and the names of
    all other files and of all imported packages."""


_LIBRARIES = ("pyproject.toml", "uv.lock", "jars.toml")
# What starts the Spark session of the tests.
_SESSION = (
    "deploy/local",
    "job/errors.py",
    "job/installation",
    "job/jvm_class.py",
    "job/plan/tuning.py",
)
_PACKAGES = ("job/__init__.py", "job/plan/__init__.py")
_INSTALLATION = ("job/errors.py", "job/installation", "job/java_jar.py")
# What a test of a whole job uses.
_JOB = (
    *(*_LIBRARIES, "job", "streamjoin", "deploy/__init__.py", "deploy/local"),
    # Loaded into the processes of jobs, or read, by names that are no paths.
    *("tests/integration/failpoints", "tests/integration/shared_jvm", "tests/golden"),
)

GROUPS = {
    "spark": Group(
        tests=("tests/semantics/test_spark_defects.py",),
        inputs=(*_LIBRARIES, *_SESSION, *_PACKAGES, "deploy/__init__.py", *_INSTALLATION),
    ),
    "semantics": Group(
        tests=("tests/semantics",),
        inputs=(
            *(*_LIBRARIES, "deploy/__init__.py", "deploy/local", "tests/golden"),
            # The jar has all Java classes; tests read the folder of the private API.
            *("job/**/*.java", "job/spark"),
        ),
        imports_are_listed=False,
    ),
    "faults": Group(tests=("tests/faults",), inputs=_JOB),
    "broker": Group(
        tests=("tests/broker",),
        inputs=(
            *_LIBRARIES,
            *("deploy/__init__.py", "deploy/local", "job/__init__.py"),
            *_INSTALLATION,
        ),
    ),
    "installation": Group(
        tests=("tests/installation",),
        inputs=(
            *_LIBRARIES,
            *("hatch_build.py", "streamjoin", "job/__init__.py", "job/__main__.py"),
            *("job/class_archive.py", "job/commands/program.py", "job/commands/setup.py"),
            *("job/jvm_command.py", "job/settings.py"),
            *_INSTALLATION,
        ),
        # The commands that it runs import most of the package.
        packages=("job",),
    ),
    "images": Group(
        tests=("tests/docker",),
        inputs=(
            *_LIBRARIES,
            *("Dockerfile", ".dockerignore", "docker-compose.yml", "hatch_build.py", "deploy"),
            *("streamjoin", "join.example.yaml", "docs/simulation.md", "job/spark"),
            "job/plan/tuning.py",
            # Generated tables: of the spec, the API and the metrics that the tests use.
            *("docs/spec.md", "docs/http-api.md", "docs/metrics.md"),
        ),
        packages=("job", "service"),
    ),
}


def input_hash(group: Group, root: Path = ROOT) -> str:
    digest = hashlib.sha256()
    for file in inputs(group, root):
        digest.update(f"{file.relative_to(root)}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    for package in group.packages:
        digest.update("\n".join(sorted(_names(root / package, root))).encode())
    return digest.hexdigest()[:32]


def inputs(group: Group, root: Path = ROOT) -> list[Path]:
    found = {file for path in group.inputs for file in _listed(path, root)}
    for file in used_files(group, root):
        if file.relative_to(root).parts[0] not in group.packages:
            found.add(file)
    for package in group.packages:
        found |= {file for file in _files(root / package) if _uses_the_machine(file)}
    return sorted(found)


def used_files(group: Group, root: Path = ROOT) -> set[Path]:
    """The test files, and what they use, directly or not."""
    tests = [file for path in group.tests for file in _files(root / path)]
    # Pytest loads these for tests, and not for a module that they import.
    conftests = {folder / "conftest.py" for file in tests for folder in file.parents}
    waiting = tests + [file for file in conftests if _is_in(file, root)]
    found: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _uses(file, root)
    return found


def unlisted(group: Group, root: Path = ROOT) -> list[str]:
    """What the group uses of the product and does not list."""
    if not group.imports_are_listed:
        return []
    listed = {file for path in (*group.inputs, *group.packages) for file in _listed(path, root)}
    used = (file.relative_to(root) for file in used_files(group, root) - listed)
    return sorted(str(path) for path in used if path.parts[0] != "tests")


def _listed(path: str, root: Path) -> list[Path]:
    return [*root.glob(path)] if "*" in path else _files(root / path)


def _files(path: Path) -> list[Path]:
    """The file, or all files in the folder, without those that programs write there."""
    if not path.is_dir():
        return [path]
    return [
        file
        for file in path.rglob("*")
        if file.is_file() and not {"__pycache__", "results"} & {*file.relative_to(path).parts}
    ]


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _uses(file: Path, root: Path) -> list[Path]:
    if file.suffix != ".py":
        return []
    used = {folder / "__init__.py" for folder in file.parents}
    used |= {module for name in _imports(_tree(file)) for module in _modules(name, root)}
    if file.relative_to(root).parts[0] == "tests":
        used |= set(_named(_tree(file), root))
    return [other for other in used if _is_in(other, root)]


def _is_in(file: Path, root: Path) -> bool:
    return file.is_file() and file.is_relative_to(root)


def _imports(tree: ast.AST) -> Iterator[str]:
    """Names of modules, and of what is imported from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _modules(name: str, root: Path) -> Iterator[Path]:
    """A module and the packages that contain it."""
    parts = name.split(".")
    if parts[0] in PACKAGES:
        for count in range(1, len(parts) + 1):
            path = root.joinpath(*parts[:count])
            yield from (path.with_suffix(".py"), path / "__init__.py")


def _named(tree: ast.AST, root: Path) -> Iterator[Path]:
    """Modules and files that a text in a test names, except docstrings."""
    comments = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in comments:
            yield from _named_in(node.value, root)
        for first, second in pairwise(ast.iter_child_nodes(node)):
            values = [getattr(each, "value", None) for each in (first, second)]
            if values[0] == "-m" and isinstance(values[1], str):
                yield from _modules(f"{values[1]}.__main__", root)


def _named_in(text: str, root: Path) -> Iterator[Path]:
    for name in re.findall(rf"\b(?:{'|'.join(PACKAGES)})(?:\.\w+)+", text):
        yield from _modules(name, root)
    for word in re.findall(r"[\w./-]+", text):
        # A single word such as "job" is the name of many things. Folders such as .jars are made
        # from the listed files.
        if ("/" in word or "." in word) and word[0] not in "./" and (root / word).exists():
            yield from _files(root / word)


def _uses_the_machine(file: Path) -> bool:
    if file.suffix != ".py":
        return file.suffix == ".sh"
    called = (node.func for node in ast.walk(_tree(file)) if isinstance(node, ast.Call))
    names = {getattr(func, "attr", getattr(func, "id", "")) for func in called}
    imported = {name.split(".")[0] for name in _imports(_tree(file))}
    return bool(imported & MACHINE or names & MACHINE_CALLS)


def _names(folder: Path, root: Path) -> set[str]:
    """Of the files in a package, and of the packages that these import."""
    files = _files(folder)
    imported = {n for file in files if file.suffix == ".py" for n in _imports(_tree(file))}
    return {str(file.relative_to(root)) for file in files} | {
        name.split(".")[0] for name in imported
    }


def recorded(root: Path = ROOT) -> dict[str, str]:
    """The hash of each group when it last passed."""
    lock = root / LOCK
    lines = lock.read_text().splitlines() if lock.exists() else []
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def has_changed(name: str, root: Path = ROOT) -> bool:
    return recorded(root).get(name) != input_hash(GROUPS[name], root)


def record(name: str, root: Path = ROOT) -> None:
    hashes = {**recorded(root), name: input_hash(GROUPS[name], root)}
    lines = (f"{name} {value}\n" for name, value in sorted(hashes.items()) if name in GROUPS)
    (root / LOCK).write_text("".join(lines))


def main(command: str, name: str) -> int:
    if command == "is-unchanged":
        return 1 if has_changed(name) else 0
    sys.stdout.writelines(f"{file.relative_to(ROOT)}\n" for file in inputs(GROUPS[name]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
