"""tests/groups.py: a group of tests runs again if any of its inputs has changed."""

import ast
from pathlib import Path

import pytest

from tests import group_runs
from tests.groups import (
    GROUPS,
    LOCK,
    PRODUCT,
    ROOT,
    Group,
    _tree,
    has_changed,
    input_hash,
    inputs,
    record,
    recorded,
    unlisted,
)

pytest_plugins = ["pytester"]

FILES = {
    "uv.lock": "1",
    "Makefile": "",
    "job/__init__.py": "",
    "job/near.py": "import job.far",
    "job/far.py": "",
    "job/late.py": "",
    "job/text.py": "",
    "job/__main__.py": "",
    "job/pure.py": "import math",
    "job/disk.py": "import os",
    "job/start.sh": "",
    "job/other.java": "",
    "deploy/values.yaml": "",
    "tests/__init__.py": "",
    "tests/conftest.py": "import tests.helper",
    "tests/helper.py": "",
    "tests/a/conftest.py": "",
    "tests/a/test_a.py": """
import job.near
def test_a():
    from job import late
    run("from job.text import x", ["-m", "job"], "deploy/values.yaml")
""",
    "tests/b/test_b.py": "import job.pure",
}
USED = {
    *("uv.lock", "job/__init__.py", "job/near.py", "job/far.py", "job/late.py", "job/text.py"),
    *("job/__main__.py", "deploy/values.yaml", "tests/__init__.py", "tests/conftest.py"),
    *("tests/helper.py", "tests/a/conftest.py", "tests/a/test_a.py"),
}
GROUP = Group(tests=("tests/a",), inputs=("uv.lock",))
IN_AN_IMAGE = Group(tests=("tests/b",), inputs=(), packages=("job",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def hash_after(root: Path, name: str, text: str) -> str:
    """With this text in a file."""
    (root / name).write_text(text)
    _tree.cache_clear()
    return input_hash(GROUP, root)


def test_inputs_are_what_the_tests_import_or_name_and_what_the_group_lists(root: Path) -> None:
    assert USED == {str(file.relative_to(root)) for file in inputs(GROUP, root)}


@pytest.mark.parametrize("name", FILES)
def test_changed_input_changes_the_hash_and_no_other_file_does(root: Path, name: str) -> None:
    before = input_hash(GROUP, root)

    assert (name in USED) == (before != hash_after(root, name, f"{FILES[name]}\n# changed"))


@pytest.mark.parametrize("name", ["job/math.py", "tests/a/test_new.py", "tests/a/data.json"])
def test_new_file_of_the_tests_changes_the_hash(root: Path, name: str) -> None:
    before = input_hash(GROUP, root)

    assert name.startswith("tests/") == (before != hash_after(root, name, ""))


def test_pattern_lists_the_files_of_all_folders(root: Path) -> None:
    of_java = Group(tests=GROUP.tests, inputs=("job/**/*.java",))

    assert {*USED - {"uv.lock"}, "job/other.java"} == {
        str(file.relative_to(root)) for file in inputs(of_java, root)
    }


def test_conftest_of_a_folder_counts_for_its_tests_only(root: Path) -> None:
    """Pytest does not load it for a module that tests of another folder import."""
    (root / "tests/b/conftest.py").write_text("import job.far")
    (root / "tests/b/helper.py").write_text("")
    (root / "tests/c").mkdir()
    (root / "tests/c/test_c.py").write_text("import tests.b.helper")
    used = {str(file.relative_to(root)) for file in inputs(Group(("tests/c",), ()), root)}

    assert "tests/b/helper.py" in used
    assert not {"tests/b/conftest.py", "job/far.py"} & used


def test_all_imports_of_the_product_are_statements() -> None:
    """The inputs of a group are found by these."""
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for package in PRODUCT
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Call)
    }
    assert not {"import_module", "__import__", "exec_module", "run_module", "run_path"} & called


def test_import_that_the_group_does_not_list_is_found(root: Path) -> None:
    used = sorted(USED - {"uv.lock"})

    assert [name for name in used if not name.startswith("tests/")] == unlisted(GROUP, root)
    for listed in (
        Group(tests=GROUP.tests, inputs=("uv.lock", "job", "deploy")),
        Group(tests=GROUP.tests, inputs=("uv.lock",), imports_are_listed=False),
    ):
        assert [] == unlisted(listed, root)


@pytest.mark.parametrize(
    ("name", "text", "runs"),
    [
        ("job/pure.py", "import math\n1", False),
        ("job/pure.py", "import requests", True),
        ("job/pure.py", "import os", True),
        ("job/pure.py", "folder.mkdir()", True),
        ("job/disk.py", "import os\n1", True),
        ("job/start.sh", "exit", True),
        ("job/other.java", "class A {}", False),
        ("job/new.java", "", True),
        ("tests/b/test_b.py", "", True),
    ],
)
def test_of_packages_in_an_image_only_what_uses_the_machine_is_an_input(
    root: Path, name: str, text: str, *, runs: bool
) -> None:
    before = input_hash(IN_AN_IMAGE, root)
    _tree.cache_clear()
    (root / name).write_text(text)

    assert runs == (before != input_hash(IN_AN_IMAGE, root))


@pytest.mark.parametrize("name", GROUPS)
def test_group_lists_all_that_it_uses_of_the_product(name: str) -> None:
    assert [] == unlisted(GROUPS[name])


@pytest.mark.parametrize("name", GROUPS)
def test_paths_of_a_group_exist(name: str) -> None:
    paths = (*GROUPS[name].tests, *GROUPS[name].inputs, *GROUPS[name].packages)

    assert [] == [path for path in paths if not any(ROOT.glob(path))]


def test_group_that_passed_is_left_out_until_an_input_changes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GROUPS, "planted", GROUP)
    assert has_changed("planted", root)

    record("planted", root)
    assert not has_changed("planted", root)
    (root / "uv.lock").write_text("2")
    assert has_changed("planted", root)


PASSES = "def test_a(): pass"
FAILS = "def test_a(): assert False"
SKIPS = "import pytest\ndef test_a(): pytest.skip('nothing')"


@pytest.mark.parametrize(
    ("mode", "unchanged", "text", "options", "outcomes", "line", "is_recorded"),
    [
        ("changed", True, FAILS, [], {"passed": 1}, "planted: not run", False),
        ("changed", False, PASSES, [], {"passed": 2}, "planted: passed; it is left out", False),
        ("changed", False, FAILS, [], {"passed": 1, "failed": 1}, "", False),
        ("selected", True, PASSES, [], {"passed": 2}, "planted: passed; it is left out", False),
        ("all", True, PASSES, [], {"passed": 2}, "planted: passed, recorded", True),
        ("all", True, FAILS, [], {"passed": 1, "failed": 1}, "", False),
        ("all", True, SKIPS, [], {"passed": 1, "skipped": 1}, "", False),
        ("all", True, PASSES, ["-k", "test_a"], {"passed": 1}, "", False),
    ],
)
@pytest.mark.parametrize("arguments", [["tests"], ["tests/g", "tests/test_other.py"]], ids=str)
def test_run_leaves_out_unchanged_groups_and_records_those_that_passed(
    arguments: list[str],
    mode: str,
    *,
    unchanged: bool,
    text: str,
    options: list[str],
    outcomes: dict[str, int],
    line: str,
    is_recorded: bool,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for path, content in (("g/test_g.py", text), ("test_other.py", "def test_other(): pass")):
        (pytester.path / "tests" / path).parent.mkdir(parents=True, exist_ok=True)
        (pytester.path / "tests" / path).write_text(content)
    written: list[str] = []
    for name, value in {
        "GROUPS": {"planted": Group(tests=("tests/g",), inputs=())},
        "ROOT": pytester.path,
        "has_changed": lambda _: not unchanged,
        "input_hash": lambda _: "0123",
        "record": written.append,
    }.items():
        monkeypatch.setattr(group_runs, name, value)

    run = pytester.runpytest_inprocess(
        "-p", "tests.group_runs", "--groups", mode, *options, *arguments
    )
    found = run.parseoutcomes()
    assert outcomes == {
        name: found[name] for name in found if name in {"passed", "failed", "skipped"}
    }
    assert (line in run.stdout.str()) if line else ("planted:" not in run.stdout.str())
    assert is_recorded == (written == ["planted"])


def test_recorded_groups_exist() -> None:
    assert set() == set(recorded()) - set(GROUPS), f"remove them from {LOCK}"
