"""The choice of names as a 0/1 program: its variables and inequalities, and their meaning.

It has a variable for each decision and for each consequence, as Checkmate has (Jain et al., MLSys 2020). Checkmate
decides at each stage of a schedule which values are live. Here JAX fixes the schedule, and a value is saved or not. So
the program grows with the function, and not with its square.
"""

import dataclasses
from collections import Counter
from enum import StrEnum

from rematscope.choices.choice_graph import ChoiceGraph, Part


class Kind(StrEnum):
    """The meaning of a variable that is 1."""

    SAVED = "saved"  # a name is chosen
    REACHED = "reached"  # the backward pass reads or recomputes a part
    KEPT = "kept"  # an array of several parts is saved


@dataclasses.dataclass(frozen=True)
class Column:
    """A variable between 0 and 1.

    Only the variables of names have to be integers: then the others are integers too in an optimal solution.

    Attributes:
      kind: its meaning.
      of: the name, the `Part` or the array that it is about.
    """

    kind: Kind
    of: object


@dataclasses.dataclass(frozen=True)
class Row:
    """An inequality between variables, in plain numbers without a unit: Σ coefficient · variable ≥ bound.

    Attributes:
      coefficients: the coefficient of each column, by the column's index.
      bound: the lower bound of the sum.
    """

    coefficients: dict[int, int]
    bound: int


@dataclasses.dataclass(frozen=True, eq=False)
class ZeroOneProgram:
    """Which names to save, as a program of 0/1 variables.

    The recompute cost is `least_cost` + Σ cost · column, and the saved bytes are `least_bytes` + Σ nbytes · column. One
    of them is minimized within a limit of the other, subject to the rows:

    * What a reached part reads is reached: r[read] ≥ r[part], and r[read] ≥ r[name] − x[name] after a name.
    * An array is saved if it is reached and chosen: k ≥ r[name] + x[name] − 1. A residual is saved if it is reached:
      k ≥ r[part].

    Attributes:
      columns: the variables x (saved), r (reached) and k (kept); the names come first, in the graph's order.
      cost: for each column, the recompute cost if it is 1, in the unit of the graph's cost.
      nbytes: for each column, the saved bytes if it is 1.
      rows: the inequalities.
      least_cost, least_bytes: the parts that every choice has.
    """

    columns: tuple[Column, ...]
    cost: tuple[float, ...]
    nbytes: tuple[int, ...]
    rows: tuple[Row, ...]
    least_cost: float
    least_bytes: int


def zero_one_program(graph: ChoiceGraph) -> ZeroOneProgram:
    """Return the 0/1 program of a graph's choices."""
    program = _Writer()
    for name in graph.names:
        program.column(Kind.SAVED, name)
    for part in graph.parts:
        if not part.entry:
            for reader in part.readers:
                program.imply(reader, Column(Kind.REACHED, part))
    nbytes = program.imply_kept_arrays(graph)
    columns = tuple(program.places)
    cost = (column.of.cost if isinstance(column.of, Part) and column.of.name is None else 0 for column in columns)
    return ZeroOneProgram(
        columns=columns,
        cost=tuple(cost),
        nbytes=tuple(nbytes[column] for column in columns),
        rows=tuple(program.rows),
        least_cost=graph.least_cost,
        least_bytes=graph.least_bytes,
    )


@dataclasses.dataclass
class _Writer:
    """A 0/1 program under construction: the indices of its columns, and its rows."""

    places: dict[Column, int] = dataclasses.field(default_factory=dict)
    rows: list[Row] = dataclasses.field(default_factory=list)

    def column(self, kind: Kind, of: object) -> int:
        """Return the index of a variable, which is created on first use."""
        return self.places.setdefault(Column(kind, of), len(self.places))

    def imply(self, part: Part, then: Column) -> None:
        """Add a row: if the walk passes a part, which is reached and not saved, a variable is 1."""
        row, bound = {}, 0
        if part.entry:
            bound = 1
        else:
            row[self.column(Kind.REACHED, part)] = -1
        if part.name is not None:
            row[self.column(Kind.SAVED, part.name)] = 1
        row[self.column(then.kind, then.of)] = 1
        self.rows.append(Row(row, bound))

    def imply_kept(self, owner: Part, array: object) -> None:
        """Add a row: if a part saves an array, it is saved. The part is reached, and a name is saved."""
        row, bound = {self.column(Kind.KEPT, array): 1}, 0
        if not owner.entry:
            row[self.column(Kind.REACHED, owner)] = -1
        if owner.name is not None:
            row[self.column(Kind.SAVED, owner.name)] = -1
            bound = 0 if owner.entry else -1
        self.rows.append(Row(row, bound))

    def imply_kept_arrays(self, graph: ChoiceGraph) -> Counter[Column]:
        """Add the rows that say when each array is saved, and return the bytes of each column."""
        owners: dict[object, list[Part]] = {}
        for part in graph.parts:
            for array in part.arrays:
                owners.setdefault(array, []).append(part)
        parts_with = Counter(part.name for part in graph.parts)
        nbytes: Counter[Column] = Counter()
        for array, (first, *others) in owners.items():
            column = Column(Kind.KEPT, array)
            if not others and first.name is None:
                column = Column(Kind.REACHED, first)
            elif not others and (first.entry or parts_with[first.name] == 1):
                # Saving a name that is not reached gains nothing, so a name on one value is saved if it is chosen.
                column = Column(Kind.SAVED, first.name)
            else:
                for owner in (first, *others):
                    self.imply_kept(owner, array)
            nbytes[column] += first.arrays[array]
        return nbytes
