"""HTML from calls: what comes from outside is text and stays text."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from quorate_operator.web.html import element, fragment

HOSTILE = "<script>alert('x')</script>\"&"


class _Reader(HTMLParser):
    """What a browser would see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
def test_any_text_is_read_back_as_it_was(text: str) -> None:
    reader = _Reader()
    reader.feed(element("p", text, title=text))
    reader.close()
    assert reader.tags == [("p", [("title", text)])]
    assert reader.text == text


def test_attributes_are_named_as_in_html() -> None:
    made = element("a", "x", class_="b", aria_label="c", hidden=True, title=None, open=False, tabindex=0)
    assert made == '<a class="b" aria-label="c" hidden tabindex="0">x</a>'


def test_what_is_html_already_is_not_escaped_again() -> None:
    inner = element("b", HOSTILE)
    assert element("p", [inner, [None, 3]]) == f"<p>{inner}3</p>"
    assert fragment(inner, "<") == f"{inner}&lt;"
    assert element("br") == "<br>"
