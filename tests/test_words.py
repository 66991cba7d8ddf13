"""The check for words that must not come back, on files of its own and on the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import words

LIST = "# a remark\n\\bfoo\\b => bar\nold name => new name\n# \\bquux\\b => corge [7]\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("tools", "src", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tools" / "words.txt").write_text(LIST)
    (tmp_path / "README.md").write_text("Nothing to see, food apart.\n")
    return tmp_path


def test_the_list_is_read() -> None:
    assert list(words.entries(LIST)) == [
        (r"\bfoo\b", "bar", True),
        ("old name", "new name", True),
        (r"\bquux\b", "corge [7]", False),
    ]


def test_an_active_word_is_named_with_its_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "src" / "a.py").write_text("x = 1\n# An old\n# name of Foo\n")
    (root / "docs" / "b.md").write_text("quux\n\nfoo\n")
    assert words.main(root, count_all=False) == 1
    assert capsys.readouterr().out.splitlines() == [
        r"src/a.py:3: /\bfoo\b/ must not come back. Write instead: bar",
        r"docs/b.md:3: /\bfoo\b/ must not come back. Write instead: bar",
        "src/a.py:2: /old name/ must not come back. Write instead: new name",
    ]


def test_an_inactive_word_is_only_counted(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "src" / "a.py").write_text("quux = 1\nprint(quux)  # words: ok\nquux2 = quux\n")
    assert words.main(root, count_all=False) == 0
    assert capsys.readouterr().out == ""
    assert words.main(root, count_all=True) == 0
    assert capsys.readouterr().out == "   2 /\\bquux\\b/ (switched off)\n"


def test_a_line_may_keep_its_word(root: Path) -> None:
    (root / "src" / "a.py").write_text('NAME = "foo"  # words: ok (the file format says so)\n')
    assert words.main(root, count_all=True) == 0


def test_other_files_are_left_alone(root: Path) -> None:
    (root / "tools" / "a.py").write_text("foo\n")
    (root / "src" / "foo.bin").write_bytes(b"foo\xff")
    (root / "docs" / "_build" / "html").mkdir(parents=True)
    (root / "docs" / "_build" / "html" / "api.html").write_text("foo\n")
    assert words.main(root, count_all=True) == 0


def test_the_repository_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    status = words.main(words.ROOT, count_all=False)
    assert status == 0, capsys.readouterr().out
