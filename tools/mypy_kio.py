"""mypy plugin: read kio's bounded numbers and strings as the plain ``int`` and ``str`` they are at run time.

kio annotates fields with phantom types such as ``i32`` or ``TopicName``; decoded values are plain ones, and
the encoder checks the bounds. Without this plugin each constructor call would need a cast per field.
"""

from collections.abc import Callable

from mypy.plugin import AnalyzeTypeContext, Plugin
from mypy.types import Type

INTEGERS = {f"kio.static.primitive.{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)} | {
    "kio.schema.types.BrokerId",
    "kio.schema.types.ProducerId",
}
STRINGS = {f"kio.schema.types.{name}" for name in ("GroupId", "TopicName", "TransactionalId")}
OTHERS = {
    "kio.static.primitive.f64": "builtins.float",
    "kio.static.primitive.Records": "builtins.bytes",
    "kio.static.primitive.TZAware": "datetime.datetime",
} | {f"kio.static.primitive.{name}": "datetime.timedelta" for name in ("i32Timedelta", "i64Timedelta")}


class KioPlugin(Plugin):
    """Replaces kio's phantom types where mypy reads an annotation."""

    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        if fullname in INTEGERS:
            return lambda context: context.api.named_type("builtins.int", [])
        if fullname in STRINGS:
            return lambda context: context.api.named_type("builtins.str", [])
        if fullname in OTHERS:
            return lambda context: context.api.named_type(OTHERS[fullname], [])
        return None


def plugin(version: str) -> type[Plugin]:  # noqa: ARG001 - mypy's interface
    """Entry point that mypy calls with its own version."""
    return KioPlugin
