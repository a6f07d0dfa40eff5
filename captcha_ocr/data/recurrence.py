"""What recurs in the texts of a folder: words that stand for no text, and versions of one image;
and characters that hardly recur.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from os.path import commonprefix
from pathlib import PurePosixPath
from statistics import median, median_low

from captcha_ocr.charset import name_character

# What people, programs and spreadsheets write where there is no text, without signs and blanks
_NO_TEXT = re.compile(
    "|null?|none|nil|nan|na|void|undefined|unknown|unk|unlabell?ed|empty|blank|missing|err(?:or)?"
    "|fail(?:ed|ure)?|exception|timeout|invalid|bad|broken|corrupt(?:ed)?|unreadable|illegible"
    "|unrecogni[sz]ed|unsolvable|unsolved|unclear|notext|no(?:t)?readable|can(?:no)?tread|noidea"
    "|skip(?:ped)?|ignored?|todo|tbd|fixme|placeholder|default|false|idk|dontknow"
    "|unbekannt|unleserlich|fehler|leer|keine?|inconnu|illisible|erreur|vide|desconocido|ilegible"
    "|vacío|desconhecido|ilegível|erro|sconosciuto|illeggibile|errore|неизвестно|ошибка|нет|пусто"
    "|未知|无|無|空|不明|错误|無法辨識|看不清|読めない|알수없음"
)
_USUAL = 0.9  # of all texts have so many images or fewer
# Images of a word, and times as many as usual: of one that is known, of any other
_FEWEST, _TIMES = (3, 10), (3, 5)
_MANY_TEXTS = 10  # fewer cannot be split
_BY_CHANCE = 4  # possible texts for each image; with fewer, texts recur by chance
_SCRIPTS = {"LATIN", "CYRILLIC", "GREEK"}  # with letters that look alike
_MANY = 10  # texts; one of them with a character of its own is odd
_COMMON = 3  # texts with a character that a network can learn without one of them


def find_no_texts(texts: Collection[str]) -> dict[str, int]:
    """Return the words that stand for no text, `null` or `????`, with the number of their images.

    They recur much more often than nearly all texts: one that occurs once is a text. A word that is
    known, or has no letter and no digit, needs to recur less often.
    """
    counts = Counter(texts)
    words = {text: "".join(filter(str.isalnum, text.casefold())) for text in counts}
    usual = sorted([0, *counts.values()])[math.ceil(_USUAL * len(counts))]
    known, other = (max(least, times * usual) for least, times in zip(_FEWEST, _TIMES, strict=True))
    return {
        text: count
        for text, count in counts.items()
        if count >= other or (count >= known and _NO_TEXT.fullmatch(words[text]))
    }


def are_versions(texts: Mapping[str, str]) -> bool:
    """Tell whether most images are versions of others: AB12_0, AB12_1, turned or blurred.

    texts: of each file. They recur more than by chance, in files whose names have the text or begin
    alike, and their characters are in several of them.
    """
    names_of = defaultdict[str, list[str]](list)
    for file, text in texts.items():
        names_of[text.casefold()].append(PurePosixPath(file).stem.casefold())
    characters = Counter(chain.from_iterable(map(set, names_of)))
    possible = len(characters) ** median_low([*map(len, names_of), 0])
    if len(names_of) < _MANY_TEXTS or _BY_CHANCE * len(texts) > possible:
        return False
    everywhere = len(find_beginning(chain(*names_of.values())))
    versions = sum(
        len(names)
        for text, names in names_of.items()
        if len(names) > 1 and (text in names[0] or len(find_beginning(names)) > everywhere)
    )
    are_common = 2 * sum(count >= _COMMON for count in characters.values()) > len(characters)
    return are_common and 2 * versions > len(texts)


def find_beginning(texts: Iterable[str]) -> str:
    """Return the beginning that all texts share."""
    return commonprefix(list(texts))  # noqa: RUF071 - of any texts


def find_odd_characters(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the character that hardly any other text has, by the name of the text: the sign of a
    note, a typing error, a letter of another script, such as a Cyrillic А among Latin ones.
    """
    no_texts = find_no_texts(texts.values())
    texts = {name: text for name, text in texts.items() if text not in no_texts}
    counts = Counter(chain.from_iterable(map(set, texts.values())))
    scripts = {character: unicodedata.name(character, "").split(" ")[0] for character in counts}
    texts_of = Counter(script for text in texts.values() for script in {*map(scripts.get, text)})
    usual = median([0, *map(counts.__getitem__, chain.from_iterable(texts.values()))])
    odd = {
        character
        for character, count in counts.items()
        if (count == 1 and usual >= _MANY)
        or (2 * count <= usual and _MANY * texts_of[scripts[character]] < len(texts))
    }
    native = max(_SCRIPTS, key=texts_of.__getitem__)
    foreign = {character for character in counts if scripts[character] in _SCRIPTS - {native}}
    found: dict[str, str] = {}
    for name, text in texts.items():
        mixes = native in map(scripts.get, text)
        if here := (odd | foreign if mixes else odd).intersection(text):
            found[name] = f"{min(here)!r} {name_character(min(here))}"
    return found
