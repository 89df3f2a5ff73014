"""Groups of nodes that must share a device."""

from __future__ import annotations


class Groups:
    """Disjoint sets of nodes (union-find), each with the first reason that was given for it."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._reasons: dict[str, str] = {}

    def join(self, a: str, b: str, reason: str = "") -> None:
        """Puts `a` and `b`, and all that share a device with one of them, into one group."""
        a, b = self._root(a), self._root(b)
        self._parents.setdefault(a, a)
        if a != b:
            self._parents[b] = a
        if reason:
            self._reasons.setdefault(a, reason)

    def group_of(self) -> dict[str, str]:
        """By node that is in a group: the group, which is called like one of its nodes."""
        return {name: self._root(name) for name in self._parents}

    def reason(self, group: str) -> str:
        """Why the nodes of a group share a device."""
        return self._reasons.get(group, "they pass a handle or list that cannot change device")

    def _root(self, name: str) -> str:
        root = name
        while (up := self._parents.get(root, root)) != root:
            root = up
        while (up := self._parents.get(name, name)) != root:
            self._parents[name] = root
            name = up
        return root
