"""The commands of the metadata shell over a small tree."""

import pytest
from quorate.tools.metadata_shell.calls import (
    CommandLineError,
    NotThereError,
    completions,
    content_of,
    parse_call,
    words_of,
)
from quorate.tools.metadata_shell.interactive import HISTORY_MAX, remember, run_line, run_shell
from quorate.tools.metadata_shell.nodes import Directory, Node, fixed, number_of, value
from quorate.tools.metadata_shell.paths import components_of
from quorate.tools.metadata_shell.shell_builtins import ShellState, columns


@pytest.fixture
def root() -> Directory:
    """A tree with two levels."""
    return fixed(
        {
            "zoo": lambda: fixed(
                {"b": lambda: value(2), "a": lambda: value("one"), "{odd}": lambda: value(3)}
            ),
            "air": lambda: fixed({"a": lambda: value(4)}),
            "void": lambda: fixed({}),
            "file": lambda: value("text"),
        }
    )


def run(root: Node, line: str, **state: object) -> list[str]:
    """What a line prints."""
    return list(run_line(ShellState(root, **state), line))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("", []),
        ("ls", ["air", "file", "void", "zoo"]),
        ("ls /zoo", ["a", "b", "{odd}"]),
        # Files first, without a title; an empty directory has none either, as in Kafka's shell.
        ("ls *", ["file", "", "air:", "a", "", "zoo:", "a", "b", "{odd}"]),
        ("ls v* z*", ["", "zoo:", "a", "b", "{odd}"]),
        ("ls nope zoo", ["ls: nope: no such file or directory.", "a", "b", "{odd}"]),
        ("cat /zoo/{a,b} /air/a", ["one", "2", "4"]),
        ("cat zoo", ["cat: zoo: Is a directory"]),
        ("cat file/x", ["cat: file/x: No such file or directory."]),
        ("cat /*/nope", ["cat: /*/nope: No such file or directory."]),
        ("cat", ["too few arguments"]),
        ("find /", ["/", "/air", "/air/a", "/file", "/void", "/zoo", "/zoo/a", "/zoo/b", "/zoo/{odd}"]),
        ("find zoo/? nope", ["zoo/?", "zoo/?", "find: nope: no such file or directory."]),
        ("tree z* /file", ["a:", "  one", "b:", "  2", "{odd}:", "  3", "text"]),
        ("tree nope", ["tree: nope: No such file or directory."]),
        ("pwd", ["/"]),
        ("pwd x y", ["unrecognized arguments: 'x y'"]),
        ("cd /nope", ["cd: /nope: no such directory."]),
        ("cd file", ["cd: file: not a directory."]),
        ("ca x", ["invalid choice: 'ca': did you mean 'cat'?"]),
        ("man nope", ["man: unknown command nope. Type help to get a list of commands."]),
        ("man cd", ["cd: Set the current working directory.", "", "usage: cd [target]", "", "positional arguments:",
                    "  target                 The directory to change to."]),
        ("ls -l", ["unrecognized arguments: '-l'"]),
        ("cat 'zoo/a", ["no closing quotation"]),
        ("cat 'zoo/a'", ["one"]),
    ],
)  # fmt: skip
def test_lines_print_what_kafkas_shell_prints(root: Directory, line: str, printed: list[str]) -> None:
    assert run(root, line) == printed


def test_a_working_directory_is_where_relative_paths_begin(root: Directory) -> None:
    state = ShellState(root)
    assert list(run_line(state, "cd zoo")) == []
    assert list(run_line(state, "cat a")) == ["one"]
    assert list(run_line(state, "cat ../air/./a")) == ["4"]
    assert list(run_line(state, "pwd")) == ["/zoo"]
    assert list(run_line(state, "cd")) == []
    assert list(run_line(state, "pwd")) == ["/"]


def test_history_counts_from_the_first_line_and_is_bounded() -> None:
    history: list[str] = []
    for line in ("ls", "ls", " ", "pwd", "ls"):
        remember(history, line)
    assert history == ["ls", "pwd", "ls"]
    assert run(fixed({}), "history", history=history) == ["    0  ls", "    1  pwd", "    2  ls"]
    assert run(fixed({}), "history 1", history=history) == ["    2  ls"]
    assert run(fixed({}), "history x", history=history) == [
        "argument numEntriesToShow: could not convert 'x' to Integer (For input string: \"x\")"
    ]
    (reported,) = run(fixed({}), f"history {'9' * 5000}", history=history)
    assert reported.startswith("argument numEntriesToShow: could not convert '999")
    for number in range(2 * HISTORY_MAX):
        remember(history, str(number))
    assert len(history) == HISTORY_MAX


def test_a_number_is_one_of_java() -> None:
    assert [number_of(text) for text in ("7", "+7", "-7", "2147483647", "-2147483648")] == [
        7,
        7,
        -7,
        2147483647,
        -2147483648,
    ]
    assert [number_of(text) for text in ("", "x", "2147483648", "-2147483649", "9" * 5000)] == [None] * 5


def test_paths_are_cleaned() -> None:
    assert components_of("/a//b/./c/../", "/x") == ["a", "b"]
    assert components_of("../y", "/x") == ["y"]
    assert components_of("../../..", "/x") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["cat ", "cd ", "exit ", "find ", "help ", "history ", "ls ", "man ", "pwd ", "tree "]),
        (["c"], ["cat ", "cd "]),
        (["man", "h"], ["help ", "history "]),
        (["cat", ""], ["air/", "file ", "void/", "zoo/"]),
        (["cat", "zoo/"], ["zoo/a ", "zoo/b ", "zoo/{odd} "]),
        (["cat", "x", "/z"], ["/zoo/"]),
        (["cat", "nope/"], []),
        (["cat", "file/"], []),
        (["cd", "x", "/z"], []),
        (["pwd", ""], []),
        (["nope", ""], []),
    ],
)
def test_completions(root: Directory, words: list[str], expected: list[str]) -> None:
    assert completions(ShellState(root), words) == expected


def test_columns_fill_the_screen_downwards() -> None:
    names = ["a", "bbbb", "c", "dd", "e"]
    assert list(columns(names, None)) == names
    assert list(columns(names, 14)) == ["a     c   e", "bbbb  dd  "]
    assert list(columns(names, 12)) == ["a     dd", "bbbb  e", "c     "]
    assert list(columns(names, 4)) == names
    assert list(columns([], 80)) == []
    assert list(columns(["a", "b", "c"], 80)) == ["a  b  c"]


def test_json_is_strict_where_text_is_lenient(root: Directory) -> None:
    def content(line: str) -> object:
        call = parse_call(words_of(line), is_interactive=False)
        assert call is not None
        return content_of(call, ShellState(root))

    assert content("cat /zoo/b file") == {"/zoo/b": 2, "/file": "text"}
    assert content("ls zoo file") == [
        {"path": "/zoo", "children": ["a", "b", "{odd}"]},
        {"path": "/file", "children": None},
    ]
    assert content("find air") == ["/air", "/air/a"]
    assert content("tree /air /void") == {"/air": {"a": 4}, "/void": {}}
    for line in ("cat nope", "cat zoo", "ls z* nope"):
        with pytest.raises(NotThereError):
            content(line)
    with pytest.raises(CommandLineError, match="invalid choice: 'pwd'"):
        content("pwd")


def test_the_prompt_goes_on_after_an_interrupt_and_ends_with_exit(
    root: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["cat file", KeyboardInterrupt(), "exit", "never read"])
    refreshed = []

    def read(_: str) -> str:
        line = next(lines)
        if isinstance(line, KeyboardInterrupt):
            raise line
        return line

    def refresh() -> Node:
        refreshed.append(True)
        return root

    run_shell(fixed({}), refresh, read)
    assert capsys.readouterr().out == "[ Kafka Metadata Shell ]\ntext\n^C\n"
    assert len(refreshed) == 2
    assert next(lines) == "never read"
