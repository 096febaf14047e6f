"""The token file: its format, its errors, and reading it again after a change."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from job.errors import SetupError
from service.tokens import Scope, TokenFile

READ = "0QXcFq6cXXuE4kqLq7bW"
CONTROL = "Yk3iq0Yl8B2w1c5v0m9K"
TEXT = f"# who    scope   token\n\ngrafana read    {READ}\nada\tcontrol {CONTROL}\n"


def token_file(folder: Path, text: str = TEXT) -> TokenFile:
    (folder / "tokens").write_text(text)
    return TokenFile(folder / "tokens")


def test_each_token_has_a_name_and_a_scope(tmp_path: Path) -> None:
    tokens = token_file(tmp_path)

    entries = [tokens.find(READ), tokens.find(CONTROL)]
    assert [("grafana", Scope.READ), ("ada", Scope.CONTROL)] == [
        (token.name, token.scope) for token in entries if token
    ]
    assert [None] * 4 == [tokens.find(it) for it in ("", READ[:-1], READ + "x", "x" * 20)]


def test_tokens_are_kept_only_as_digests(tmp_path: Path) -> None:
    assert READ not in repr(token_file(tmp_path)._tokens)


def test_token_is_rotated_without_a_restart(tmp_path: Path) -> None:
    tokens, new = token_file(tmp_path), "f00dfacef00dfacef00d"

    (tmp_path / "tokens").write_text(TEXT + f"ada control {new}\n")
    assert ["ada", "ada"] == [token.name for it in (CONTROL, new) if (token := tokens.find(it))]

    (tmp_path / "tokens").write_text(f"ada control {new}\n")
    assert tokens.find(CONTROL) is None
    assert tokens.find(new) is not None


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    """As Kubernetes replaces it: the name is a link to another file."""
    first, second, name = (tmp_path / it for it in ("first", "second", "tokens"))
    first.write_text(f"ada control {CONTROL}\n")
    second.write_text(f"eve control {'e' * 20}\n")
    name.symlink_to(first)
    tokens = TokenFile(name)

    (tmp_path / "new").symlink_to(second)
    (tmp_path / "new").rename(name)

    assert tokens.find(CONTROL) is None


@pytest.mark.parametrize("broken", ["", "ada control", None])
def test_invalid_file_keeps_the_tokens_and_is_logged_once(
    broken: str | None, tmp_path: Path
) -> None:
    tokens = token_file(tmp_path)
    if broken is None:
        (tmp_path / "tokens").unlink()
    else:
        (tmp_path / "tokens").write_text(broken)

    with capture_logs() as logs:
        assert tokens.find(CONTROL) is not None
        assert tokens.find(CONTROL) is not None
    assert ["tokens_invalid"] == [line["event"] for line in logs]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no token: write lines of `name scope token`"),
        ("# none\n", "contains no token"),
        (f"ada {CONTROL}", "line 1: must be `name scope token`"),
        (f"\nada write {CONTROL}", "line 2: the scope must be one of read, control"),
        (f"ad@ read {CONTROL}", "line 1: the name must have"),
        ("ada read short", "line 1: the token must have at least 16"),
        (f"ada read {CONTROL}!", "line 1: the token must have at least 16"),
        (f"a read {CONTROL}\nb control {CONTROL}", "contains a token twice"),
    ],
)
def test_error_names_the_line_and_does_not_repeat_it(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SetupError) as error:
        token_file(tmp_path, text)

    assert message in str(error.value)
    assert CONTROL not in str(error.value)
    assert "short" not in str(error.value)


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be read: No such file or directory"):
        TokenFile(tmp_path / "tokens")
