# SPDX-License-Identifier: Apache-2.0
"""Rows of run.sh's table, for parts that are written in Python."""


class Rows:
    """Appends rows to a file immediately, so that a part that is ended early keeps its rows.

    A row is a rule or figure, which is compared with the bound `must`, or a fact. A value of None means that it could
    not be determined, for the reason in `note`.
    """

    def __init__(self, path, part):
        self.path, self.part = path, part

    def add(self, what, value, unit="-", kind="fact", must="-", note=""):
        if isinstance(value, float):
            value = f"{value:.6g}"
        row = (self.part, what, "none" if value is None else value, unit, kind, must, note)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("\t".join(" ".join(str(each).split()) for each in row) + "\n")

    def rule(self, what, holds, note=""):
        self.add(what, int(holds), kind="rule", must="== 1", note=note)
