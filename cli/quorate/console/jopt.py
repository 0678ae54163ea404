"""Command lines of Kafka's option-based tools: one option is the action, others go with it or exclude it.

Kafka's parser (jopt-simple) accepts a repeated option and fails when the tool reads it as a single value; the tools
then check combinations of options. A command here records the options in the order given, and the checks are
functions of that record, which tests call without a command line.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from typer.core import TyperOption

from quorate.console import ToolCommand, UsageError

if TYPE_CHECKING:
    from quorate_admin.types.credentials import KafkaPrincipal

_GIVEN = "quorate.given_options"


class _OptionsCommand(ToolCommand):
    """Adds the actions, rejects a second value for a single-valued option, and records the order of the options."""

    ACTIONS: ClassVar[Mapping[str, str]] = {}
    FLAGS: ClassVar[Mapping[str, str]] = {}

    def __init__(self, name: str | None, *, params: Sequence[Any] | None = None, **settings: Any) -> None:
        actions = [_flag(option, text, "Actions") for option, text in self.ACTIONS.items()]
        flags = [_flag(option, text, None) for option, text in self.FLAGS.items()]
        settings["no_args_is_help"] = True
        super().__init__(name, params=[*actions, *(params or ()), *flags], **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse twice: once to record the order of the options, once as Typer does."""
        if args:
            parser = self.make_parser(ctx)
            _, _, occurrences = parser.parse_args(args=list(args))
            given = tuple(max(occurrence.opts, key=len) for occurrence in occurrences)
            for parameter, option in zip(occurrences, given, strict=True):
                if given.count(option) > 1 and not (
                    parameter.multiple or getattr(parameter, "is_flag", False)
                ):
                    raise UsageError(
                        f"{option} is given {given.count(option)} times; it takes one value", ctx
                    )
            ctx.meta[_GIVEN] = given
        return super().parse_args(ctx, args)


def _flag(option: str, text: str, panel: str | None) -> TyperOption:
    return TyperOption(
        param_decls=[option],
        help=text,
        is_flag=True,
        default=False,
        expose_value=False,
        rich_help_panel=panel,
    )


def options_command(
    actions: Mapping[str, str], flags: Mapping[str, str] | None = None, *, controllers: bool = True
) -> type[ToolCommand]:
    """The class of a tool without subcommands.

    `actions` has option and help text of each action; a command line has exactly one of them. `flags` has those of
    other options without a value, where only presence or order matters. `controllers`: whether the tool has
    --bootstrap-controller.
    """
    content = {"ACTIONS": actions, "FLAGS": flags or {}, "CONTROLLERS": controllers}
    return type("OptionsCommand", (_OptionsCommand,), content)


def given_options(context: Any) -> tuple[str, ...]:
    """The long names of the options on the command line, in order, with repetitions."""
    given: tuple[str, ...] = context.meta[_GIVEN]
    return given


def one_action(given: Collection[str], actions: Sequence[str], *, controllers: bool = True) -> str:
    """Return the action on the command line. Checks that there is a bootstrap option, too.

    `controllers`: whether the tool has --bootstrap-controller.

    Raises:
        UsageError: there is no action, more than one, or no bootstrap option.
    """
    found = [action for action in actions if action in given]
    if len(found) != 1:
        what = f"{' and '.join(found)} can't be given together" if found else "no action is given"
        raise UsageError(f"{what}; give exactly one of {', '.join(actions)}")
    bootstraps = ("--bootstrap-server", *(("--bootstrap-controller",) if controllers else ()))
    if not set(bootstraps) & set(given):
        raise UsageError(f"{found[0]} needs {' or '.join(bootstraps)}")
    return found[0]


def require(given: Collection[str], user: str, *needed: str) -> None:
    """Check that `user` comes with all `needed` options. Raises UsageError."""
    if user in given:
        for option in needed:
            if option not in given:
                raise UsageError(f"{user} needs {option}")


def refuse(given: Collection[str], user: str, unwanted: Iterable[str]) -> None:
    """Check that `user` comes with none of the `unwanted` options. Raises UsageError."""
    if user in given:
        for option in unwanted:
            if option in given:
                raise UsageError(f"{user} can't be used with {option}")


def only_with(given: Collection[str], option: str, actions: Sequence[str]) -> None:
    """Check that `option` comes with one of `actions`. Raises UsageError."""
    if option in given and not any(action in given for action in actions):
        raise UsageError(f"{option} can be used with {' or '.join(actions)} only")


def parse_principals(option: str, texts: Iterable[str]) -> "list[KafkaPrincipal]":
    """Parse the values of a repeatable option, each `Type:name`. Raises UsageError."""
    from quorate_admin.types.credentials import KafkaPrincipal  # two tools have such options

    try:
        return [KafkaPrincipal.parse(text.strip()) for text in texts]
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
