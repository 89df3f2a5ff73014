"""Suggestions for a name that does not exist: "did you mean ...?"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache

MIN_SIMILARITY = 0.6
"""Least similarity of a suggestion, from 0 to 1."""
MAX_DISTANCE_TO_BEST = 0.05
"""How much less similar than the best suggestion another one may be."""
SCOPE_PENALTY = 0.06
"""How much less a name counts whose scope is similar than one whose end is: names with such an end are then suggested alone."""
MAX_SUGGESTIONS = 5


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """The end of an error's sentence: "; did you mean ...?" with the most similar names, or a full stop if none is similar."""
    close = nearest(wanted, names)
    return f"; did you mean {', '.join(close)}?" if close else "."


def keras_export(path: str) -> str:
    """The way out where the file of a Keras model was given in place of a SavedModel; "" for another file."""
    if not path.endswith((".keras", ".h5", ".hdf5")):
        return ""
    return f' It is a Keras model: keras.models.load_model({path!r}).export("FOLDER") writes the SavedModel that is needed.'


def nearest(wanted: str, names: Iterable[str]) -> list[str]:
    """The names that contain `wanted`, or else the names most similar to it; equally good names in the given order.

    Only letters, digits and slashes count. Of names in scopes, the whole names are compared, and the end of `wanted` with the end
    of the other name, or with another part of it that has as many scopes. The best match counts. The similarity is that of
    `difflib.SequenceMatcher`.
    """
    low = _plain(wanted)
    if not low:
        return []
    plain = {name: _plain(name) for name in names}
    containing = [name for name, text in plain.items() if low in text]
    if containing:
        return sorted(containing, key=lambda name: (plain[name] != low, plain[name].rpartition("/")[2] != low))[:MAX_SUGGESTIONS]
    matcher = SequenceMatcher(autojunk=False)

    @cache
    def similarity(text: str, other: str) -> float:
        matcher.set_seq2(text)
        matcher.set_seq1(other)
        upper_bounds = (matcher.real_quick_ratio, matcher.quick_ratio)  # the cheaper one first
        return matcher.ratio() if all(bound() >= MIN_SIMILARITY for bound in upper_bounds) else 0.0

    def best_similarity(text: str) -> float:
        wanted_parts, parts = low.split("/"), text.split("/")
        depth = min(len(wanted_parts), len(parts))
        end = "/".join(wanted_parts[-depth:])
        first, *scopes = ("/".join(parts[k : k + depth]) for k in range(len(parts) - depth, -1, -1))
        return max(similarity(low, text), similarity(end, first), *(similarity(end, s) - SCOPE_PENALTY for s in scopes))

    similarities = {name: best_similarity(text) for name, text in plain.items()}
    least = max(MIN_SIMILARITY, max(similarities.values(), default=0.0) - MAX_DISTANCE_TO_BEST)
    similar = [name for name in similarities if similarities[name] >= least]
    return sorted(similar, key=lambda name: -similarities[name])[:MAX_SUGGESTIONS]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9/]", "", name.lower()).strip("/")
