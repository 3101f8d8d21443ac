"""Groups whose commands are imported when they run, so that no command waits for what another one needs."""

from __future__ import annotations

from importlib import import_module

import click

from lake_core.cli.context import OptionsFirst


class LazyCommand(click.Command):
    """A command by the module that defines it."""

    def __init__(self, module: str, attribute: str, first_sentence: str) -> None:
        """Name a command.

        Args:
            module: The module.
            attribute: The name of the command in the module.
            first_sentence: The first sentence of the command's help, for the list of commands.
        """
        super().__init__(attribute, help=first_sentence)
        self._module, self._attribute = module, attribute

    def load(self) -> click.Command:
        """Import the command."""
        loaded = getattr(import_module(self._module), self._attribute)
        assert isinstance(loaded, click.Command)
        return loaded


class LazyCommands(OptionsFirst):
    """A group with commands that are imported when they run."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, which is imported."""
        command = super().get_command(ctx, cmd_name)
        return command.load() if isinstance(command, LazyCommand) else command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, none of which is imported."""
        limit = formatter.width - 6 - max(map(len, self.commands))
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(limit)) for name, each in sorted(self.commands.items())])
