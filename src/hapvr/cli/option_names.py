"""Errors in the words of the command line: an error about a setting names the option that the user typed.

The functions behind the commands know nothing of options. What they refuse begins with the name of an argument or of a
field, as in "min_seconds must be 0 or more, got -7.0." or "There is no codec 'int6'; ..."; here that becomes
"--min-length must be 0 or more, got -7.0." and "--codec: There is no codec 'int6'; ...".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

from hapvr.errors import HapvrError

_OTHER_NAMES = {
    "min_seconds": "min_length",
    "max_seconds": "max_length",
    "films": "long_films",
    "queries_per_video": "queries",
    "way": "action",
}
"""Names of options in Python, by names of fields that differ from them in more than a unit."""
_UNIT = re.compile(r"_(s|percent)$")
_SUBJECT = re.compile(r"(?:[A-Z]\w*(?:\.|: ))?([a-z]\w*)(?= )")  # "videos must ...", "Collection.videos must ..."
_ABSENT = re.compile(r"There is no ([a-z]\w*) '")
_OTHER = re.compile(r"(?<= and )[a-z]\w*(?= do not go together)")  # "features and videos do not go together"
_WORDS = re.compile(r"'[^']*'|[a-z]\w*_\w*")  # what is quoted, and names that can be nothing but names


def name_options(message: str, options: Mapping[str, str]) -> str:
    """A message with options in place of the fields that it names; `options` has them by their names in Python.

    >>> name_options("end_s must come after start_s; got 'end_s'.", {"start_s": "--from", "end_s": "--to"})
    "--to must come after --from; got 'end_s'."
    >>> name_options("Collection.videos must be above 0, got 0.", {"videos": "--videos"})
    '--videos must be above 0, got 0.'
    >>> name_options("features and videos do not go together.", {"features": "--features", "videos": "--videos"})
    '--features and --videos do not go together.'
    >>> name_options("There is no codec 'int6'; known: int8.", {"codec": "--codec"})
    "--codec: There is no codec 'int6'; known: int8."
    """

    def find(field: str) -> str | None:
        names = (field, _OTHER_NAMES.get(field, field), _UNIT.sub("", field))
        return next((options[name] for name in names if name in options), None)

    if (absent := _ABSENT.match(message)) and (option := find(absent[1])):
        return f"{option}: {message}"
    if (subject := _SUBJECT.match(message)) and (option := find(subject[1])):
        message = _OTHER.sub(lambda word: find(word[0]) or word[0], option + message[subject.end() :])
    return _WORDS.sub(lambda word: find(word[0]) or word[0], message)


class NamingCommand(TyperCommand):
    """A command whose errors name its options."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except HapvrError as error:
            options = {one.name: _choose_name(one.opts) for one in self.params if one.param_type_name == "option"}
            if (named := name_options(str(error), options)) == str(error):
                raise
            raise type(error)(named) from error


def _choose_name(names: list[str]) -> str:
    """The first long name of an option, else its short one."""
    return next((name for name in names if name.startswith("--")), names[0])
