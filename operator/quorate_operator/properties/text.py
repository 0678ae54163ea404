"""The text of .properties files."""

from collections.abc import Mapping


def render_properties(properties: Mapping[str, str], comment: str) -> str:
    """The text of a .properties file that Java reads back as `properties`; `comment` is its first line."""
    lines = [f"{_escaped(key, in_key=True)}={_escaped(value)}\n" for key, value in properties.items()]
    return f"# {comment}\n" + "".join(lines)


def _escaped(text: str, *, in_key: bool = False) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if in_key:
        escapes |= {"=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    # Java reads these files as Latin-1, and anything beyond as UTF-16 units in escapes.
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    escaped = "".join(escapes.get(chr(code), chr(code)) if code < 127 else f"\\u{code:04x}" for code in codes)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
