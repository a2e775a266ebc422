"""The files of the page: whole, free of anything inline or from elsewhere, and legible in both colour schemes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import hapvr

STATIC = Path(hapvr.__file__).parent / "server" / "static"
SCRIPTS = sorted(STATIC.rglob("*.js"))
STYLES = sorted(STATIC.rglob("*.css"))
TEXT, LARGE = 4.5, 3.0  # WCAG 2.1 AA: contrast of text, and of large text and controls
GROUNDS = ("ground", "surface", "raised")


def name(path: Path) -> str:
    return str(path.relative_to(STATIC))


@pytest.mark.parametrize("path", SCRIPTS + STYLES, ids=name)
def test_a_file_says_what_it_is_for(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert re.match(r"(// |/\* )[A-Z]", first), f"{name(path)} begins with no sentence"
    if path.name != "strings.js":  # a sentence stays on one line
        assert max(map(len, path.read_text().splitlines())) <= 120


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_a_module_imports_what_is_there_and_uses_it(path: Path) -> None:
    text = path.read_text()
    for names, source in re.findall(r'^import \{([^}]*)\} from "([^"]+)";', text, re.MULTILINE):
        other = (path.parent / source).resolve()
        assert other.is_file(), f"{name(path)} imports {source}"
        exported = re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", other.read_text(), re.MULTILINE)
        for one in re.findall(r"\w+", names):
            assert one in exported, f"{name(path)} imports {one} of {source}"
            assert len(re.findall(rf"\b{one}\b", text)) > 1, f"{name(path)} does not use {one}"
    assert text.count("import {") == len(re.findall(r'^import \{[^}]*\} from "[^"]+";', text, re.MULTILINE))


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    for source in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert (STATIC / source.removeprefix("static/")).is_file(), source
    for path in (STATIC / "index.html", *SCRIPTS, *STYLES):
        found = re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z]{2,}[^\s\"']*", path.read_text())
        assert [one for one in found if one != "http://www.w3.org/2000/svg"] == [], name(path)
    for path in SCRIPTS:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", path.read_text()), path


def read_strings() -> dict[str, list[str | list[str]]]:
    """The table of strings."""
    text = (STATIC / "js" / "strings.js").read_text()
    table: dict[str, list[str | list[str]]] = json.loads(text.partition("export const STRINGS = ")[2].rstrip(";\n"))
    return table


def test_every_string_is_there_in_three_languages_with_the_same_values() -> None:
    text = (STATIC / "js" / "strings.js").read_text()
    table = read_strings()
    assert len(re.findall(r'^  "[^"]+": \[', text, re.MULTILINE)) == len(table)  # no key twice
    for key, row in table.items():
        assert len(row) == 3, key
        forms = [[one] if isinstance(one, str) else one for one in row]
        assert len({len(form) for form in forms}) == 1, key
        assert all(text.strip() for form in forms for text in form), key
        values = {frozenset(re.findall(r"\{(\w+)\}", text)) for form in forms for text in form}
        assert len(values) == 1, f"{key}: {values}"


def test_every_key_is_in_the_table_and_every_string_is_used() -> None:
    text = "\n".join(path.read_text() for path in SCRIPTS if path.name != "strings.js")
    table = read_strings()
    used = set(re.findall(r'\bt\(\s*"([^"]+)"', text))
    assert used <= set(table)
    built = ("filter.", "closer.", "keys.", "hit.")  # keys that are put together, or listed
    assert {key for key in set(table) - used if not key.startswith(built)} == set()
    assert all(f'"{key}"' in text or key.startswith(("filter.", "closer.")) for key in set(table) - used)


# Words in capitals that are no text of the page: of the browser, of the server, and names of keys.
NO_TEXT = {
    "AbortError", "Accept", "ArrowDown", "ArrowLeft", "ArrowRight", "ArrowUp", "Busy", "Cancelled", "Content-Type",
    "End", "English", "Deutsch", "Español", "Esc", "Escape", "Files", "Forbidden", "Home", "Internal", "Offline",
    "PageDown", "PageUp", "Range", "Space", "Tab",
}  # fmt: skip


@pytest.mark.parametrize("path", [one for one in SCRIPTS if one.name != "strings.js"], ids=name)
def test_what_the_page_says_is_in_the_table(path: Path) -> None:
    """As far as that can be seen: no literal begins like a sentence or a label, no template holds several words."""
    text = re.sub(r"^\s*(//|/\*\*|\*).*$|\s// .*$", "", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"new (Error|DOMException)\([^;]*?\)", "", text)
    literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
    found = [one for one in literals if re.match(r"\W*[A-Z][a-zà-ÿ]", one) and one not in NO_TEXT]
    for template in re.findall(r"`([^`]*)`", text):
        words = re.sub(r"\$\{[^}]*\}", "0", template)
        if re.match(r"[A-Z][a-z]+ ", words) or re.search(r"\b(of|and|is|the|in|are|to)\b [\w0]", words):
            found.append(template)
    assert found == []


def colours() -> dict[str, tuple[str, str]]:
    """The named colours, light and dark."""
    text = (STATIC / "css" / "base.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", text)
    return {name: (light, dark) for name, light, dark in found}


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.1 defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_measured_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the known grey that just fails


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_controls_stand_out(scheme: int) -> None:
    named = {name: pair[scheme] for name, pair in colours().items()}
    pairs = [(text, ground, TEXT) for text in ("text", "muted") for ground in GROUNDS]
    pairs += [("accent", ground, TEXT) for ground in ("ground", "surface", "accent-soft")]
    pairs += [(kind, f"{kind}-soft", TEXT) for kind in ("good", "warn", "bad")]
    pairs += [(kind, "surface", TEXT) for kind in ("good", "warn", "bad")]
    pairs += [("text", soft, TEXT) for soft in ("accent-soft", "warn-soft", "bad-soft")]
    pairs += [("accent-text", "accent", TEXT), ("accent-text", "accent-strong", TEXT)]
    pairs += [(edge, ground, LARGE) for edge in ("line-strong", "accent") for ground in ("ground", "surface")]
    pairs += [(f"tone-{number}", "surface", LARGE) for number in range(4)]
    for one, other, least in pairs:
        found = contrast(named[one], named[other])
        assert found >= least, f"{one} on {other}: {found:.2f}"
