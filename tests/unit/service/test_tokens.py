"""The file of tokens: what it may hold, and that it is read again when it changes."""

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


def test_each_token_has_a_holder_and_a_scope(tmp_path: Path) -> None:
    tokens = token_file(tmp_path)

    found = [tokens.holder(READ), tokens.holder(CONTROL)]
    assert [("grafana", Scope.READ), ("ada", Scope.CONTROL)] == [
        (token.name, token.scope) for token in found if token
    ]
    assert [None] * 4 == [tokens.holder(it) for it in ("", READ[:-1], READ + "x", "x" * 20)]


def test_the_tokens_themselves_are_not_kept(tmp_path: Path) -> None:
    assert READ not in repr(token_file(tmp_path)._tokens)


def test_a_token_is_rotated_without_a_restart(tmp_path: Path) -> None:
    tokens, new = token_file(tmp_path), "f00dfacef00dfacef00d"

    (tmp_path / "tokens").write_text(TEXT + f"ada control {new}\n")
    assert ["ada", "ada"] == [token.name for it in (CONTROL, new) if (token := tokens.holder(it))]

    (tmp_path / "tokens").write_text(f"ada control {new}\n")
    assert tokens.holder(CONTROL) is None
    assert tokens.holder(new) is not None


def test_a_file_that_is_replaced_as_a_whole_is_seen(tmp_path: Path) -> None:
    """As Kubernetes does it: another file, the name a link to it."""
    first, second, name = (tmp_path / it for it in ("first", "second", "tokens"))
    first.write_text(f"ada control {CONTROL}\n")
    second.write_text(f"eve control {'e' * 20}\n")
    name.symlink_to(first)
    tokens = TokenFile(name)

    (tmp_path / "new").symlink_to(second)
    (tmp_path / "new").rename(name)

    assert tokens.holder(CONTROL) is None


@pytest.mark.parametrize("broken", ["", "ada control", None])
def test_a_file_that_breaks_leaves_the_tokens_as_they_were_and_is_logged_once(
    broken: str | None, tmp_path: Path
) -> None:
    tokens = token_file(tmp_path)
    if broken is None:
        (tmp_path / "tokens").unlink()
    else:
        (tmp_path / "tokens").write_text(broken)

    with capture_logs() as logs:
        assert tokens.holder(CONTROL) is not None
        assert tokens.holder(CONTROL) is not None
    assert ["tokens_not_read"] == [line["event"] for line in logs]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no token: write `name scope token`"),
        ("# none\n", "holds no token"),
        (f"ada {CONTROL}", "line 1: is not `name scope token`"),
        (f"\nada write {CONTROL}", "line 2: the scope must be one of read, control"),
        (f"ad@ read {CONTROL}", "line 1: the name may have"),
        ("ada read short", "line 1: the token must have at least 16"),
        (f"ada read {CONTROL}!", "line 1: the token must have at least 16"),
        (f"a read {CONTROL}\nb control {CONTROL}", "holds a token twice"),
    ],
)
def test_what_is_wrong_is_told_by_its_line_and_never_repeated(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SetupError) as error:
        token_file(tmp_path, text)

    assert said in str(error.value)
    assert CONTROL not in str(error.value)
    assert "short" not in str(error.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be read: No such file or directory"):
        TokenFile(tmp_path / "tokens")
