"""A second checker of certificates, written from docs/certificates.md alone.

python -m shardwright.check plan/                          a plan folder
python -m shardwright.check problem.json certificate.json  what `solve --certificate` wrote

It needs nothing but Python, computes in exact integers, and never searches. It shares no code with
the checker of `shardwright check-plan`, so a fault would have to be made twice.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import math
import operator
import struct
import sys
import zlib
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

INF = math.inf
MOST_COST = 2**52
MOST_MESSAGE = 2**50
PRICE_BITS = 40
MOST_SWEEPS = 1000
MOST_BYTES = 2**30

MERGE, DROP, SEPARATE, ADD, ELIMINATE, SHIFT, PRUNE, FUSE, PRICE = range(1, 10)
PARETO, BRANCH, PART, END, WHOLE, MESSAGES, SWEEP, SUPPORT = range(10, 18)
ARGUMENTS = (None, 3, 2, 1, 2, 1, 5, 1, 3, 1, 0, 2, 1, 0, 0, 3, 3, 0)
KEEPS_MESSAGES = (MESSAGES, SWEEP, SUPPORT, BRANCH)

Values = tuple  # of int, INF where a value is forbidden


class Refused(Exception):
    """The certificate does not prove what it says."""


class GaveUp(Refused):
    """The proof takes more work than this checker does; nothing is said about it."""


def need(condition: bool, reason: str) -> None:
    """Refuses, with the reason, unless the condition holds."""
    if not condition:
        raise Refused(reason)


# --- Problems ---------------------------------------------------------------------------------


class Problem:
    """A choice problem: see "The problem" of the page."""

    def __init__(self, domains: Sequence[int], unary: Sequence[int], vectors: list[Values]) -> None:
        self.domains, self.unary, self.vectors = list(domains), list(unary), vectors
        self.maps: list[tuple[int, ...]] = []
        self.tables: list[tuple[int, int, Values]] = []
        self.edges: list[tuple[int, int, int, int, int]] = []
        self.constant = 0
        self.tolerance = 0.0
        self.rows: list[tuple[list[int], list[Values], float]] = []
        self.pieces: list[tuple[int, float, float, Values]] = []
        self.limit: float | None = None

    def hash(self) -> str:
        """The fingerprint that a certificate names."""
        state = [0x243F6A88, 0x85A308D3]

        def integers(numbers: Sequence[int]) -> None:
            a, b = state[0] ^ len(numbers), state[1] + len(numbers)
            for x in numbers:
                a = ((a ^ x) * 0x01000193) & 0xFFFFFFFF
                b = ((b + x) * 0x85EBCA6B) & 0xFFFFFFFF
                a ^= a >> 15
                b ^= b >> 13
            state[:] = [a & 0xFFFFFFFF, b & 0xFFFFFFFF]

        def doubles(numbers: Sequence[float]) -> None:
            packed = struct.pack(f"<{len(numbers)}d", *(x + 0 for x in numbers))
            integers(struct.unpack(f"<{2 * len(numbers)}i", packed))

        integers(self.domains)
        integers(self.unary)
        for vector in self.vectors:
            doubles(vector)
        for column in range(5):
            integers([edge[column] for edge in self.edges])
        for class_map in self.maps:
            integers(class_map)
        for rows, columns, cells in self.tables:
            integers([rows, columns])
            doubles(cells)
        doubles([self.constant])
        for variables, amounts, bound in self.rows:
            integers(variables)
            for amount in amounts:
                doubles(amount)
            doubles([bound])
        if self.limit is not None:
            doubles([self.limit])
            for variable, lo, hi, amount in self.pieces:
                integers([variable])
                doubles([lo, hi])
                doubles(amount)
        return "".join(f"{h:08x}" for h in state)

    def cost(self, choice: Sequence[int]) -> int:
        """Returns the cost of a choice; refuses what is not a choice of the problem."""
        need(len(choice) == len(self.domains), f"{len(choice)} values for {len(self.domains)} variables")
        need(all(0 <= a < k for a, k in zip(choice, self.domains)), "a value is out of range")
        terms = [self.vectors[u][a] for u, a in zip(self.unary, choice)]
        for i, j, table, first, second in self.edges:
            row = choice[i] if first < 0 else self.maps[first][choice[i]]
            column = choice[j] if second < 0 else self.maps[second][choice[j]]
            terms.append(self.tables[table][2][row * self.tables[table][1] + column])
        need(INF not in terms, "the choice is forbidden")
        for variables, amounts, bound in self.rows:
            need(sum(u[choice[v]] for v, u in zip(variables, amounts)) <= bound, "the choice breaks a row")
        for time in sorted({lo for _, lo, _, _ in self.pieces}):
            used = sum(u[choice[v]] for v, lo, hi, u in self.pieces if lo <= time < hi)
            need(self.limit is None or used <= self.limit, f"the choice breaks the limit at {time}")
        return self.constant + sum(terms)

    def row_of(self, source: dict[str, int]) -> tuple[int, dict[int, list[Values]]]:
        """Bound and amounts, by variable, of a row that a certificate names."""
        amounts: dict[int, list[Values]] = {}
        if "row" in source:
            need(0 <= source["row"] < len(self.rows), "a row is not there")
            variables, lists, bound = self.rows[source["row"]]
            entries = list(zip(variables, lists))
        else:
            need(self.limit is not None, "there is no usage limit")
            bound = self.limit  # type: ignore[assignment]
            entries = [(v, u) for v, lo, hi, u in self.pieces if lo <= source["time"] < hi]
        need(bound < INF, "the row has no bound")
        for v, u in entries:
            amounts.setdefault(v, []).append(u)
        return math.floor(bound), amounts

    def divisor(self) -> int:
        """The greatest common divisor of all costs; 1 where all are 0."""
        lists: Iterable[Values] = [*self.vectors, *(cells for _, _, cells in self.tables)]
        found = abs(self.constant)
        for costs in lists:
            if found == 1:
                break
            found = math.gcd(found, *(c for c in costs if c != INF))
        return max(1, found)

    def numbers(self) -> int:
        """How large the problem is."""
        return sum(self.domains) + len(self.edges) + sum(len(cells) for _, _, cells in self.tables)


def field(record: Any, key: str, where: str) -> Any:
    """A field of a JSON object; refused where the object is none or lacks it."""
    need(isinstance(record, dict) and key in record, f"{where} has no {key}")
    return record[key]


def listed(record: Any, key: str, where: str) -> list[Any]:
    """A list of a JSON object."""
    found = field(record, key, where)
    need(isinstance(found, list), f"{where}: {key} is not a list")
    return found


def whole(numbers: Any, where: str, low: float = -INF, high: float = INF) -> list[int]:
    """A list of integers from low to below high; one written as 2.0 or 1e3 is an integer too."""
    need(isinstance(numbers, list), f"{where} is not a list")
    found = [x if type(x) is int else integer(x) for x in numbers]
    need(all(low <= x < high for x in found), f"{where} has a number out of range")
    return found


def number(record: Any, key: str, where: str) -> float:
    """A finite number of a JSON object."""
    x = field(record, key, where)
    need(isinstance(x, (int, float)) and not isinstance(x, bool), f"{where}: {key} is not a number")
    need(math.isfinite(x), f"{where}: {key} is not finite")
    return x


def read_problem(file: dict[str, Any], record: dict[str, Any]) -> Problem:
    """A problem of a problems file, whose lists are those of the file."""
    here = f"problem {field(record, 'about', 'a problem')}"
    shared = {key: listed(file, key, "the problems file") for key in ("vectors", "maps", "tables")}

    def place(kind: str, k: Any) -> Any:
        at, = whole([k], f"{here}: {kind}", 0, len(shared[kind]))
        return shared[kind][at]

    def values(k: Any) -> Values:
        costs = place("vectors", k)
        need(isinstance(costs, list), f"vector {k} is not a list")
        return tuple(INF if c is None else c if type(c) is int else integer(c) for c in costs)

    def places(key: str, count: float) -> list[int]:
        return whole(listed(record, key, here), f"{here}: {key}", 0, count)

    domains = places("domains", INF)
    vectors = [values(k) for k in listed(record, "vectors", here)]
    problem = Problem(domains, places("unary", len(vectors)), vectors)
    need(len(problem.unary) == len(domains), f"{here}: domains and unary are of different lengths")
    need(all(len(vectors[u]) == k for u, k in zip(problem.unary, domains)), f"{here}: a variable has other costs")

    problem.maps = [tuple(whole(place("maps", k), f"map {k}", 0)) for k in listed(record, "maps", here)]
    for k in listed(record, "tables", here):
        table, at = place("tables", k), f"table {k}"
        rows, columns = whole([field(table, "rows", at), field(table, "columns", at)], at, 0)
        problem.tables.append((rows, columns, values(field(table, "costs", at))))
        need(len(problem.tables[-1][2]) == rows * columns, f"{at} has other costs than rows times columns")
    problem.edges = read_edges(problem, listed(record, "edges", here), here)
    problem.constant = whole([field(record, "constant", here)], here)[0]
    problem.tolerance = number(record, "tolerance", here)
    for row in listed(record, "rows", here):
        variables = whole(listed(row, "variables", "a row"), "a row", 0, len(domains))
        amounts = [values(k) for k in listed(row, "amounts", "a row")]
        sizes = [domains[v] for v in variables]
        need(sizes == [len(u) for u in amounts], f"{here}: a row has other amounts than variables")
        bound = INF if field(row, "bound", "a row") is None else number(row, "bound", "a row")
        problem.rows.append((variables, amounts, bound))
    usage = field(record, "usage", here)
    if usage is not None:
        problem.limit = INF if field(usage, "limit", "the usage") is None else number(usage, "limit", "the usage")
        for piece in listed(usage, "pieces", "the usage"):
            need(isinstance(piece, list) and len(piece) == 4, "a piece of the usage is not a list of four")
            v, = whole(piece[:1], "a piece of the usage", 0, len(domains))
            lo, hi = whole(piece[1:3], "a piece of the usage")
            problem.pieces.append((v, lo, hi, values(piece[3])))
            need(len(problem.pieces[-1][3]) == domains[v], "a piece of the usage has other amounts")
    return problem


def read_edges(problem: Problem, columns: list[Any], here: str) -> list[tuple[int, int, int, int, int]]:
    """The edges: five lists of equal length, whose maps and tables fit their variables."""
    need(len(columns) == 5, f"{here}: edges are not five lists")
    count, tables, maps = len(problem.domains), len(problem.tables), len(problem.maps)
    limits = ((0, count), (0, count), (0, tables), (-1, maps), (-1, maps))
    lists = [whole(x, f"{here}: edges", low, high) for x, (low, high) in zip(columns, limits)]
    need(len(set(map(len, lists))) == 1, f"{here}: the lists of edges are of different lengths")
    edges = list(zip(*lists))
    for i, j, table, first, second in edges:
        for v, k, size in ((i, first, problem.tables[table][0]), (j, second, problem.tables[table][1])):
            values = range(problem.domains[v]) if k < 0 else problem.maps[k]
            fits = len(values) == problem.domains[v] and all(a < size for a in values)
            need(fits, f"{here}: an edge does not fit its table")
    return edges  # type: ignore[return-value]


def read_iopddl(parsed: Any) -> Problem:
    """A problem in the format of google/iopddl, numbered as the page says."""
    body = field(parsed, "problem", "the file")
    nodes, edges = field(body, "nodes", "the problem"), field(body, "edges", "the problem")
    unary = [costs_of(c, "the costs of a node") for c in listed(nodes, "costs", "nodes")]
    ends = [whole(e, "the nodes of an edge", 0, len(unary)) for e in listed(edges, "nodes", "edges")]
    need(all(len(e) in (1, 2) for e in ends), "an edge has neither one node nor two")
    cells = [costs_of(c, "the costs of an edge") for c in listed(edges, "costs", "edges")]
    need(len(cells) == len(ends), "edges have other costs than nodes")
    for e, table in zip(ends, cells):
        need(len(table) == math.prod(len(unary[v]) for v in e), "an edge has other costs than pairs of its nodes")
        if len(e) == 1:
            unary[e[0]] = tuple(map(operator.add, unary[e[0]], table))
    pairs = [(i, j, table) for (i, j), table in ((e, c) for e, c in zip(ends, cells) if len(e) == 2)]
    sizes = [largest(c) for c in (*unary, *(table for _, _, table in pairs))]
    need(sum(sizes) <= MOST_COST, "the largest costs add up to more than 2^52")
    vectors: dict[Values, int] = {}
    problem = Problem([len(c) for c in unary], [vectors.setdefault(c, len(vectors)) for c in unary], [])
    problem.vectors = list(vectors)
    read_usage(problem, body, nodes)
    tables: dict[tuple[int, int, Values], int] = {}
    for i, j, table in pairs:
        key = (problem.domains[i], problem.domains[j], table)
        problem.edges.append((i, j, tables.setdefault(key, len(tables)), -1, -1))
    problem.tables = list(tables)
    return problem


def read_usage(problem: Problem, body: dict[str, Any], nodes: dict[str, Any]) -> None:
    """The limit of a file of the contest, and what is alive when."""
    spans, usages = listed(nodes, "intervals", "nodes"), listed(nodes, "usages", "nodes")
    need(len(spans) == len(usages) == len(problem.domains), "nodes have other intervals or usages than costs")
    if body.get("usage_limit") is None:
        return
    problem.limit = number(body, "usage_limit", "the problem")
    need(problem.limit >= 0, "usage_limit is negative")
    for v, (span, amounts) in enumerate(zip(spans, usages)):
        times = whole(span, "an interval", 0, 2**53)
        need(len(times) == 2, "an interval has not two ends")
        usage = tuple(whole(amounts, "the usages of a node", 0, 2**53))
        need(len(usage) == problem.domains[v], "a node has other usages than costs")
        if times[0] < times[1]:
            problem.pieces.append((v, times[0], times[1], usage))
    changes = [(t, sign * largest(u)) for _, lo, hi, u in problem.pieces for t, sign in ((lo, 1), (hi, -1))]
    level = 0
    for time, change in sorted(changes):
        level += change
        need(level <= MOST_COST, f"the largest usages at {time} add up to more than 2^52")


def costs_of(numbers: Any, where: str) -> Values:
    """Costs of a file of the contest: integers below 2^53, and from 10^18 on forbidden."""
    need(isinstance(numbers, list), f"{where} are not a list")
    plain = (isinstance(c, (int, float)) and not isinstance(c, bool) for c in numbers)
    need(all(plain), f"{where}: a cost is not a number")
    finite = whole([0 if c >= 10**18 else c for c in numbers], where, 0, 2**53)
    return tuple(INF if c >= 10**18 else x for c, x in zip(numbers, finite))


def largest(costs: Values) -> int:
    """The largest cost that does not forbid."""
    return max((c for c in costs if c != INF), default=0)


# --- The model --------------------------------------------------------------------------------


class Store:
    """Lists by content: equal lists are one object, and what was made of them is made once."""

    def __init__(self, problem: Problem) -> None:
        self.lists: dict[tuple, tuple] = {}
        self.made: dict[tuple, Any] = {}
        self.left = 10**8 + 2000 * problem.numbers()

    def spend(self, work: float) -> None:
        """Gives up once more is spent than the problem is worth."""
        self.left -= work
        if self.left < 0:
            raise GaveUp("the proof takes more work than this checker does")

    def keep(self, values: Iterable) -> tuple:
        """The one list of this content."""
        made = tuple(values)
        self.spend(len(made))
        return self.lists.setdefault(made, made)

    def costs(self, values: Iterable) -> Values:
        """The one list of these costs, none of which may exceed 2^52."""
        made = self.keep(values)
        if made and id(made) not in self.made:
            finite = [c for c in made if c != INF]
            need(not finite or (max(finite) <= MOST_COST and min(finite) >= -MOST_COST), "a cost exceeds 2^52")
            self.made[id(made)] = max(map(abs, finite), default=0)  # type: ignore[index]
        return made

    def most(self, costs: Values | None) -> int:
        """The largest finite size of a list of costs."""
        return 0 if not costs else self.made[id(costs)]  # type: ignore[index]

    def once(self, make: Callable[..., Any], *lists: Any) -> Any:
        """Makes a value of lists of this store, once for the same lists."""
        key = (make.__name__, *(id(x) if isinstance(x, tuple) else x for x in lists))
        if key not in self.made:
            self.made[key] = make(self, *lists)
        return self.made[key]


def gather(store: Store, values: tuple, places: tuple, otherwise: Any) -> tuple:
    """The values at these places, something else at -1."""
    return store.keep(otherwise if a < 0 else values[a] for a in places)


def total(store: Store, left: Values, right: Values) -> Values:
    """The sum of two lists of costs."""
    return store.costs(map(operator.add, left, right))


class Factor:
    """A table over variables: `maps[k]` sends each value of `vars[k]` to a class of axis k, or to -1."""

    __slots__ = ("cells", "dims", "maps", "tidy", "vars")

    def __init__(self, variables: tuple, maps: tuple, dims: tuple, cells: Values, tidy: bool = False) -> None:
        self.vars, self.maps, self.dims, self.cells, self.tidy = variables, maps, dims, cells, tidy

    def cell(self, *classes: int) -> float:
        """The cost of a class on each axis."""
        if min(classes) < 0:
            return INF
        at = 0
        for size, c in zip(self.dims, classes):
            at = at * size + c
        return self.cells[at]


def tidied(store: Store, dims: tuple, cells: Values, *maps: tuple) -> tuple[tuple, tuple, Values]:
    """The same table without classes that no value has; equal slices are one, forbidden ones -1."""
    sizes, fresh = list(dims), list(maps)
    table: Sequence = cells
    store.spend(4 * len(cells))
    for merging in (False, True):
        for axis, size in enumerate(sizes):
            inner = math.prod(sizes[axis + 1 :])
            outer = math.prod(sizes[:axis])
            target: dict[int, int] = {}
            known: dict[tuple, int] = {}
            kept: list[int] = []
            for c in fresh[axis]:
                if c < 0 or c in target:
                    continue
                if merging:
                    piece = tuple(
                        itertools.chain.from_iterable(
                            table[(o * size + c) * inner : (o * size + c + 1) * inner] for o in range(outer)
                        )
                    )
                    if all(x == INF for x in piece):
                        target[c] = -1
                        continue
                    if piece in known:
                        target[c] = known[piece]
                        continue
                    known[piece] = len(kept)
                target[c] = len(kept)
                kept.append(c)
            fresh[axis] = store.keep(-1 if c < 0 else target[c] for c in fresh[axis])
            table = tuple(
                itertools.chain.from_iterable(
                    table[(o * size + c) * inner : (o * size + c + 1) * inner] for o in range(outer) for c in kept
                )
            )
            sizes[axis] = len(kept)
    return tuple(fresh), store.keep(sizes), store.costs(table)


class Model:
    """The part of a problem that is left while a proof is replayed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.costs: list[Values] = []
        self.priced: list[Values | None] = []
        self.gone: list[bool] = []
        self.incident: list[list[int]] = []
        self.factors: list[Factor | None] = []
        self.rows: list[tuple[int, list[Values | None]]] = []
        self.constant = 0
        self.paid = 0
        self.not_negative = False
        self.whole = False
        self.empty = False
        self.cut: int | None = None
        self.messages: dict[int, list[Values | None]] | None = None
        self.bits = 0
        self.prices: list[int] = []

    def clone(self) -> Model:
        """A copy that a part of a branch may change."""
        copy = Model(self.store)
        self.store.spend(4 * (len(self.costs) + len(self.factors)))
        copy.__dict__.update(self.__dict__)
        for name in ("costs", "priced", "gone", "factors"):
            setattr(copy, name, list(getattr(self, name)))
        copy.incident = [list(numbers) for numbers in self.incident]
        copy.rows = [(bound, list(amounts)) for bound, amounts in self.rows]
        if self.messages is not None:
            copy.messages = {f: list(pair) for f, pair in self.messages.items()}
        return copy

    def add_variable(self, costs: Values) -> int:
        """The number of a new variable."""
        self.costs.append(costs)
        self.priced.append(None)
        self.gone.append(False)
        self.incident.append([])
        for _, amounts in self.rows:
            amounts.append(None)
        return len(self.costs) - 1

    def add_factor(self, factor: Factor | None) -> None:
        """The next free number goes to a factor, or to a self loop that is none."""
        for v in factor.vars if factor else ():
            self.incident[v].append(len(self.factors))
        self.factors.append(factor)

    def left(self) -> list[int]:
        """The variables that are left."""
        return [i for i in range(len(self.costs)) if not self.gone[i]]

    def numbered(self) -> list[tuple[int, Factor]]:
        """The factors that are left, with their numbers."""
        return [(f, self.factor(f)) for f, factor in enumerate(self.factors) if factor is not None]

    def needs(self, *variables: int) -> None:
        """Refuses unless the variables are there."""
        for v in variables:
            need(0 <= v < len(self.costs) and not self.gone[v], f"variable {v} is not there")

    def factor(self, f: int) -> Factor:
        """Factor f, tidy."""
        need(0 <= f < len(self.factors) and self.factors[f] is not None, f"factor {f} is not there")
        factor = self.factors[f]
        assert factor is not None
        if not factor.tidy:
            maps, dims, cells = self.store.once(tidied, factor.dims, factor.cells, *factor.maps)
            factor = self.factors[f] = Factor(factor.vars, maps, dims, cells, True)
        return factor

    def edge(self, f: int) -> Factor:
        """Factor f, which joins two variables."""
        factor = self.factor(f)
        need(len(factor.vars) == 2, f"factor {f} does not join two variables")
        return factor

    def remove(self, f: int) -> None:
        """Takes factor f away."""
        factor = self.factors[f]
        for v in factor.vars if factor else ():
            self.incident[v].remove(f)
        self.factors[f] = None

    def raise_costs(self, i: int, by: Values) -> None:
        """Adds costs to the values of a variable."""
        self.costs[i] = self.store.once(total, self.costs[i], by)

    def add_diagonal(self, i: int, factor: Factor, first: tuple, second: tuple) -> None:
        """Adds what a table costs when both of its axes are read along one variable."""
        self.raise_costs(i, self.store.costs(factor.cell(a, b) for a, b in zip(first, second)))

    def restrict(self, i: int, keep: tuple) -> None:
        """Keeps these positions of a variable."""
        once = self.store.once
        self.store.spend(4 * len(self.incident[i]))
        self.costs[i] = self.store.costs(once(gather, self.costs[i], keep, 0))
        if self.priced[i] is not None:
            self.priced[i] = self.store.costs(once(gather, self.priced[i], keep, 0))
        for _, amounts in self.rows:
            if amounts[i] is not None:
                amounts[i] = self.store.costs(once(gather, amounts[i], keep, 0))
        for f in self.incident[i]:
            factor = self.factors[f]
            assert factor is not None
            maps = tuple(once(gather, m, keep, -1) if v == i else m for v, m in zip(factor.vars, factor.maps))
            self.factors[f] = Factor(factor.vars, maps, factor.dims, factor.cells)
            if self.messages is not None and f in self.messages:
                pair = self.messages[f]
                for side, v in enumerate(factor.vars):
                    if v == i and pair[side] is not None:
                        pair[side] = self.store.costs(once(gather, pair[side], keep, 0))
        self.empty = self.empty or len(keep) == 0

    # --- Steps ---

    def drop(self, i: int, pairs: Sequence[int]) -> None:
        """Deletes positions for the stated reasons."""
        self.needs(i)
        need(len(pairs) % 2 == 0, "a position to delete has no reason")
        costs, priced = self.costs[i], self.priced[i]
        factors = [self.factor(f) for f in self.incident[i]]
        most = self.store.most(costs) + self.store.most(priced) + sum(self.store.most(f.cells) for f in factors)
        need(most <= MOST_COST, "the costs of a variable and its factors exceed 2^52")
        amounts = [row[i] for _, row in self.rows if row[i] is not None]
        dead: set[int] = set()
        for d, w in zip(pairs[::2], pairs[1::2]):
            need(0 <= d < len(costs) and d not in dead, f"there is no value {d} to delete")
            need(w == -1 or (0 <= w < len(costs) and w != d and w not in dead), f"value {w} cannot stand in")
            classes = [f.maps[f.vars.index(i)] for f in factors]
            forbidden = costs[d] == INF or any(m[d] < 0 for m in classes)
            need(w >= 0 or forbidden, f"value {d} of variable {i} has partners")
            if not forbidden:
                worse = costs[w] - costs[d]
                if priced is not None:
                    worse -= priced[w] - priced[d]
                for f, m in zip(factors, classes):
                    if m[w] != m[d]:
                        need(len(f.vars) == 2 and m[w] >= 0, "a value next to a wide factor cannot stand in")
                        worse += self.store.once(
                            excess, f.dims, f.cells, f.vars.index(i), m[w], m[d]
                        )
                need(worse <= 0, f"value {w} of variable {i} is not always as good as {d}")
                need(all(u[w] <= u[d] for u in amounts), f"value {w} of variable {i} needs more of a row than {d}")
            dead.add(d)
        self.restrict(i, self.store.keep(a for a in range(len(costs)) if a not in dead))

    def merge(self, j: int, i: int, f: int) -> None:
        """Replaces variable j by the function of variable i that factor f makes it."""
        self.needs(j, i)
        edge = self.edge(f)
        need(i != j and set(edge.vars) == {i, j}, f"factor {f} does not join {i} and {j}")
        side = edge.vars.index(i)
        mine, theirs = edge.maps[side], edge.maps[1 - side]
        places: dict[int, list[int]] = {}
        for b, c in enumerate(theirs):
            places.setdefault(c, []).append(b)
        target: dict[int, int] = {-1: -1}
        self.store.spend(len(edge.cells))
        for c in range(edge.dims[side]):
            allowed = [
                b
                for d in range(edge.dims[1 - side])
                if (edge.cell(c, d) if side == 0 else edge.cell(d, c)) != INF
                for b in places[d]
            ]
            need(len(allowed) == 1, f"variable {j} is not a function of {i}")
            target[c] = allowed[0]
        follow = self.store.keep(target[c] for c in mine)
        self.remove(f)
        self.raise_costs(i, self.store.costs(gather(self.store, self.costs[j], follow, INF)))
        along = gather(self.store, theirs, follow, -1)
        self.add_diagonal(i, edge, *((mine, along) if side == 0 else (along, mine)))
        self.move(j, i, follow)

    def move(self, j: int, i: int, places: tuple) -> None:
        """Gives the factors, amounts and prices of j to i, whose values choose those of j."""
        self.store.spend(len(self.incident[j]))
        for g in list(self.incident[j]):
            factor = self.factors[g]
            assert factor is not None
            maps = tuple(
                self.store.once(gather, m, places, -1) if v == j else m for v, m in zip(factor.vars, factor.maps)
            )
            if i not in factor.vars:
                variables = tuple(i if v == j else v for v in factor.vars)
                self.factors[g] = Factor(variables, maps, factor.dims, factor.cells)
                self.incident[i] = sorted([*self.incident[i], g])
                continue
            need(len(factor.vars) == 2, "two variables of one wide factor cannot become one")
            self.remove(g)
            self.add_diagonal(i, factor, *maps)
        self.incident[j] = []
        for list_ in [*(amounts for _, amounts in self.rows), self.priced]:
            theirs = list_[j]
            if theirs is not None:
                moved = self.store.costs(gather(self.store, theirs, places, 0))
                mine = list_[i]
                list_[i] = moved if mine is None else total(self.store, mine, moved)
                list_[j] = None
        self.gone[j] = True

    def separate(self, f: int) -> None:
        """Moves an edge that is a sum of two costs into its variables."""
        edge = self.edge(f)
        rows, columns = edge.dims
        cells = edge.cells
        least = min(cells[:columns], default=0)
        need(INF not in cells, "a separated edge is not a sum of two costs")
        top = [c - least for c in cells[:columns]]
        left = [cells[a * columns] - top[0] for a in range(rows)]
        need(
            all(cells[a * columns + b] == left[a] + top[b] for a in range(rows) for b in range(columns)),
            "a separated edge is not a sum of two costs",
        )
        self.remove(f)
        for v, m, half in zip(edge.vars, edge.maps, (left, top)):
            self.raise_costs(v, self.store.costs(gather(self.store, self.store.costs(half), m, INF)))

    def add(self, f: int, g: int) -> None:
        """Adds edge g to edge f."""
        a, b = self.edge(f), self.edge(g)
        need(f != g and set(a.vars) == set(b.vars), f"factors {f} and {g} do not join the same variables")
        self.remove(g)
        swap = a.vars != b.vars
        maps, dims, cells = self.store.once(summed, a.dims, a.cells, *a.maps, b.dims, b.cells, *b.maps, swap)
        self.factors[f] = Factor(a.vars, maps, dims, cells)

    def slack(self) -> float:
        """The largest cost over the constant that may still matter."""
        if self.whole or not self.not_negative or self.cut is None:
            return INF
        return self.cut - self.constant

    def eliminate(self, v: int) -> None:
        """Minimises over v."""
        self.needs(v)
        need(all(amounts[v] is None for _, amounts in self.rows), f"variable {v} is in a row")
        parts = [self.factor(f) for f in self.incident[v]]
        near: list[int] = []
        for part in parts:
            near.extend(u for u in part.vars if u != v and u not in near)
        shape = tuple(tuple(-1 if u == v else near.index(u) for u in part.vars) for part in parts)
        lists = [x for part in parts for x in (part.dims, part.cells, *part.maps)]
        key = self.store.keep([len(near), self.slack(), *itertools.chain.from_iterable((len(s), *s) for s in shape)])
        least, order, table = self.store.once(minimised, self.costs[v], key, *lists)
        for f in list(self.incident[v]):
            self.remove(f)
        self.gone[v] = True
        if least == INF:
            self.empty = True
            return
        self.constant += least
        if not near:
            return
        maps, dims, cells = table
        if len(near) == 1:
            self.raise_costs(near[0], self.store.costs(gather(self.store, cells, maps[0], INF)))
        else:
            self.add_factor(Factor(tuple(near[k] for k in order), maps, dims, cells))

    def shift(self, f: int, u: int, v: int, first: Values, second: Values) -> None:
        """Moves amounts from edge f into the costs of its variables."""
        self.needs(u, v)
        edge = self.edge(f)
        need(u != v and set(edge.vars) == {u, v}, f"factor {f} does not join {u} and {v}")
        need(len(first) == len(self.costs[u]) and len(second) == len(self.costs[v]), "a message does not fit")
        amounts = (first, second) if edge.vars[0] == u else (second, first)
        maps, dims, cells = self.store.once(lowered, edge.dims, edge.cells, *edge.maps, *amounts)
        self.factors[f] = Factor(edge.vars, maps, dims, cells)
        self.raise_costs(u, first)
        self.raise_costs(v, second)
        self.not_negative = False

    def prune(self, limit: int | None) -> None:
        """Moves all minima into the constant, and forbids what alone exceeds the limit."""
        variables, factors = self.left(), self.numbered()
        self.store.spend(len(variables) + len(factors))
        for costs in [*(self.costs[i] for i in variables), *(factor.cells for _, factor in factors)]:
            least = min(costs, default=INF)
            if least == INF:
                self.empty = True
                return
            self.constant += least
        if limit is not None and (self.cut is None or limit < self.cut):
            self.cut = limit
        slack = INF if limit is None else limit - self.constant
        if slack < 0:
            self.empty = True
            return
        for i in variables:
            self.costs[i] = self.store.once(levelled, self.costs[i], slack)
        for f, factor in factors:
            cells = self.store.once(levelled, factor.cells, slack)
            self.factors[f] = Factor(factor.vars, factor.maps, factor.dims, cells)
        self.not_negative, self.whole = True, False

    def fuse(self, f: int, u: int, v: int) -> None:
        """The finite pairs of edge f become the values of a new variable."""
        self.needs(u, v)
        edge = self.edge(f)
        need(u != v and set(edge.vars) == {u, v}, f"factor {f} does not join {u} and {v}")
        side = edge.vars.index(u)
        mine, theirs = edge.maps[side], edge.maps[1 - side]
        self.store.spend(8 * len(mine) * len(theirs))
        pairs = []
        for a, c in enumerate(mine):
            for b, d in enumerate(theirs):
                cost = edge.cell(c, d) if side == 0 else edge.cell(d, c)
                if cost != INF:
                    pairs.append((a, b, cost))
        self.remove(f)
        w = self.add_variable(self.store.costs(cost for _, _, cost in pairs))
        self.empty = self.empty or not pairs
        for half, end in ((0, u), (1, v)):
            places = self.store.keep(pair[half] for pair in pairs)
            self.raise_costs(w, self.store.costs(gather(self.store, self.costs[end], places, INF)))
            self.move(end, w, places)

    def price(self, prices: list[int]) -> None:
        """Prices the rows."""
        for (bound, amounts), price in zip(self.rows, prices):
            if price == 0:
                continue
            self.store.spend(len(amounts))
            for i, used in enumerate(amounts):
                if used is None:
                    continue
                costs = self.store.costs(price * u >> PRICE_BITS for u in used)
                self.raise_costs(i, costs)
                before = self.priced[i]
                self.priced[i] = costs if before is None else total(self.store, before, costs)
            paid = -(-price * bound >> PRICE_BITS)
            self.constant -= paid
            self.paid += paid
        self.not_negative = False

    def support(self) -> None:
        """Deletes values that cost infinity or have no finite partner, until none is left."""
        waiting = dict.fromkeys(self.left())
        while waiting:
            i = next(iter(waiting))
            del waiting[i]
            factors = [self.factor(f) for f in self.incident[i]]
            classes = [f.maps[f.vars.index(i)] for f in factors]
            costs = self.costs[i]
            self.store.spend(len(costs) * (1 + len(classes)))
            keep = [a for a in range(len(costs)) if costs[a] != INF and all(m[a] >= 0 for m in classes)]
            if len(keep) == len(costs):
                continue
            self.restrict(i, self.store.keep(keep))
            if self.empty:
                return
            waiting.update(dict.fromkeys(u for f in factors for u in f.vars if not self.gone[u]))

    def set_messages(self, bits: int, prices: list[int], triples: Sequence[int], lists: list) -> None:
        """Reads the costs that move from the edges to the values of their variables."""
        need(len(triples) % 3 == 0, "messages are not in triples")
        messages: dict[int, list[Values | None]] = {}
        for f, *sent in zip(triples[::3], triples[1::3], triples[2::3]):
            edge = self.edge(f)
            need(f not in messages, f"factor {f} has messages twice")
            pair: list[Values | None] = []
            for v, k in zip(edge.vars, sent):
                if k == -1:
                    pair.append(None)
                    continue
                need(0 <= k < len(lists), f"there is no list {k}")
                pair.append(self.store.costs(lists[k]))
                need(len(lists[k]) == len(self.costs[v]), f"list {k} does not fit variable {v}")
                need(self.store.most(pair[-1]) <= MOST_MESSAGE, "a message exceeds 2^50")
            messages[f] = pair
        self.bits, self.prices, self.messages = bits, prices, messages

    def priced_cost(self, prices: list[int], i: int) -> list[float]:
        """Costs of the values of i with the prices of its amounts, in units of 2^-40."""
        rows = [(p, amounts[i]) for p, (_, amounts) in zip(prices, self.rows) if p and amounts[i] is not None]
        self.store.spend(len(self.costs[i]) * (1 + len(rows)))
        return [
            INF if c == INF else (c << PRICE_BITS) + sum(p * u[a] for p, u in rows)  # type: ignore[index]
            for a, c in enumerate(self.costs[i])
        ]

    def sweep(self, bits: int, prices: list[int], count: int) -> None:
        """Sweeps in doubles, in the very order of the page; rounded, they are messages as any."""
        need(0 <= count <= MOST_SWEEPS, f"{count} sweeps")
        links = sorted((Link(self, f) for f, _ in self.numbered()), key=lambda link: (link.one, link.other))
        cells = sum(len(link.cells) * len(link.to_other) for link in links)
        self.store.spend(4 * (count + 1) * (cells + len(self.costs)))
        later: dict[int, list[Link]] = {}
        earlier: dict[int, list[Link]] = {}
        for link in links:
            later.setdefault(link.one, []).append(link)
            earlier.setdefault(link.other, []).append(link)
        variables = sorted({*later, *earlier})
        unit = 2.0**-PRICE_BITS
        costs = {i: [INF if c == INF else float(c) * unit for c in self.priced_cost(prices, i)] for i in variables}

        def received(i: int) -> list[float]:
            sums = list(costs[i])
            for to in [*(link.to_one for link in later.get(i, ())), *(link.to_other for link in earlier.get(i, ()))]:
                for a, x in enumerate(to):
                    sums[a] += x
            return sums

        def share(i: int) -> float:
            return 1 / max(len(later.get(i, ())), len(earlier.get(i, ())), 1)

        for k in range(count):
            for i in variables:
                sums = received(i)
                for link in later.get(i, ()):
                    send(sums, share(i), link.to_one, link.cells, link.to_other)
            for i in reversed(variables):
                sums = received(i)
                least = least_of(sums)
                sums = [x - least for x in sums]
                for link in earlier.get(i, ()):
                    send(sums, share(i), link.to_other, link.transposed, link.to_one)
                    if k == count - 1:
                        for a, x in enumerate(sums):
                            link.to_other[a] -= share(i) * x
        messages: dict[int, list[Values | None]] = {}
        for link in links:
            pair = [self.store.costs(rounded(x * 2.0**bits) for x in to) for to in (link.to_one, link.to_other)]
            need(all(self.store.most(m) <= MOST_MESSAGE for m in pair), "a message exceeds 2^50")
            messages[link.f] = pair[::-1] if link.swapped else pair  # type: ignore[assignment]
        self.bits, self.prices, self.messages = bits, prices, messages

    # --- Bounds ---

    def bound(self) -> int | None:
        """Returns a cost that no remaining choice undercuts; None where no choice remains."""
        if self.empty:
            return None
        if self.messages is not None:
            return self.bound_by_messages(self.messages)
        minima = [min(self.costs[i], default=INF) for i in self.left()]
        minima += [min(factor.cells, default=INF) for _, factor in self.numbered()]
        self.store.spend(len(minima))
        return None if INF in minima else self.constant + sum(minima)  # type: ignore[return-value]

    def bound_by_messages(self, messages: dict[int, list[Values | None]]) -> int | None:
        finer = PRICE_BITS - self.bits
        bound = self.constant << PRICE_BITS
        for price, (limit, _) in zip(self.prices, self.rows):
            bound -= price * limit
        received: list[list[Values]] = [[] for _ in self.costs]
        for f, factor in self.numbered():
            pair = messages.get(f, [None] * len(factor.vars))
            for v, message in zip(factor.vars, pair):
                if message is not None:
                    received[v].append(message)
            if f in messages:
                least = self.store.once(least_rest, factor.dims, factor.cells, *factor.maps, *pair, self.bits)
            else:
                least = min(factor.cells, default=INF)
                least = least if least == INF else least << self.bits
            if least == INF:
                return None
            bound += least << finer
        for i in self.left():
            sums = self.priced_cost(self.prices, i)
            self.store.spend(len(sums) * len(received[i]))
            least = min(
                (c + (sum(m[a] for m in received[i]) << finer) for a, c in enumerate(sums) if c != INF), default=INF
            )
            if least == INF:
                return None
            bound += least
        return -(-bound >> PRICE_BITS)

    def pareto(self) -> int | None:
        """The least cost, without prices, of what is left and keeps the rows."""
        factors = [factor for _, factor in self.numbered()]
        left = self.left()
        most = sum(self.store.most(self.costs[i]) + self.store.most(self.priced[i]) for i in left)
        need(most + sum(self.store.most(f.cells) for f in factors) <= MOST_COST, "costs add up to more than 2^52")
        least = [sum(min(u) for i in left if (u := amounts[i])) for _, amounts in self.rows]
        room = [bound - used for (bound, _), used in zip(self.rows, least)]
        if min(room, default=0) < 0:
            return None
        slack = self.cut - self.constant if self.not_negative and self.cut is not None else INF
        labels = Labels(self, room, slack)
        while left:
            v = min(left, key=labels.cells_after)
            left.remove(v)
            if not labels.eliminate(v):
                return None
        found = labels.least()
        return None if found is None else found + self.constant + self.paid


class Labels:
    """Pareto elimination: each cell has (true cost, priced cost, amounts) that no other beats."""

    def __init__(self, model: Model, room: list[int], slack: float) -> None:
        self.model, self.room, self.slack = model, room, slack
        zero = (0,) * len(room)
        self.fronts: list[tuple[tuple, tuple, dict[tuple, list]]] = []
        for _, f in model.numbered():
            cells = {}
            for at, c in zip(itertools.product(*map(range, f.dims)), f.cells):
                if c != INF:
                    cells[at] = [(c, c, zero)]
            self.fronts.append((f.vars, f.maps, cells))

    def cells_after(self, v: int) -> int:
        """Cells of what an elimination of v would leave, or more."""
        sizes: dict[int, int] = {}
        for variables, maps, _ in self.fronts:
            if v in variables:
                for u, m in zip(variables, maps):
                    sizes[u] = min(len(m), sizes.get(u, 1) * (1 + max(m)))
        self.model.store.spend(len(self.fronts))
        return math.prod(size for u, size in sizes.items() if u != v)

    def combine(self, left: list, right: list) -> list:
        """All sums of two that stay within the rows and the cut."""
        self.model.store.spend(8 * len(left) * len(right))
        sums = []
        for real, cost, used in left:
            for more, dearer, also in right:
                amounts = tuple(map(operator.add, used, also))
                if cost + dearer <= self.slack and all(map(operator.le, amounts, self.room)):
                    sums.append((real + more, cost + dearer, amounts))
        return sums

    def best(self, labels: list) -> list:
        """Returns the labels that no other beats in true cost and in every amount."""
        kept: list = []
        for label in sorted(labels, key=lambda x: (x[0], x[2], x[1])):
            rivals = kept[-1:] if len(self.room) == 1 else kept
            self.model.store.spend(4 * (1 + len(rivals)))
            if not any(all(map(operator.le, other[2], label[2])) for other in rivals):
                kept.append(label)
        return kept

    def eliminate(self, v: int) -> bool:
        """Minimises over v; False where nothing is left."""
        model = self.model
        touching = [front for front in self.fronts if v in front[0]]
        self.fronts = [front for front in self.fronts if v not in front[0]]
        near = sorted({u for variables, _, _ in touching for u in variables if u != v})
        groups = {u: classes_of([m for vs, ms, _ in touching for w, m in zip(vs, ms) if w == u]) for u in near}
        own = model.costs[v]
        values = []
        for a, c in enumerate(own):
            if c == INF or c > self.slack:
                continue
            priced = model.priced[v]
            amounts = tuple(0 if (u := row[v]) is None else u[a] - min(u) for _, row in model.rows)
            values.append((a, [(c - (priced[a] if priced else 0), c, amounts)]))
        cells: dict[tuple, list] = {}
        model.store.spend(math.prod(len(groups[u][1]) for u in near))
        for at in itertools.product(*(range(len(groups[u][1])) for u in near)):
            place = {u: groups[u][1][c] for u, c in zip(near, at)}
            found: list = []
            for a, labels in values:
                for variables, maps, front in touching:
                    key = tuple(m[a if u == v else place[u]] for u, m in zip(variables, maps))
                    labels = self.combine(labels, front.get(key, [])) if min(key) >= 0 else []
                    if not labels:
                        break
                found += labels
            if any(not all(map(operator.le, label[2], self.room)) for label in found):
                found = [label for label in found if all(map(operator.le, label[2], self.room))]
            if found:
                cells[at] = self.best(found)
        self.fronts.append((tuple(near), tuple(groups[u][0] for u in near), cells))
        return bool(cells)

    def least(self) -> int | None:
        """The least true cost of all that is eliminated; None where nothing is left."""
        rest: list = [(0, 0, (0,) * len(self.room))]
        for _, _, cells in self.fronts:
            rest = self.best(self.combine(rest, cells[()]))
        return min((real for real, _, _ in rest), default=None)


class Link:
    """An edge in a sweep: `one` is its lower variable; what its ends have received from it."""

    def __init__(self, model: Model, f: int) -> None:
        edge = model.edge(f)
        self.f = f
        self.swapped = edge.vars[0] > edge.vars[1]
        side = 1 if self.swapped else 0
        self.one, self.other = edge.vars[side], edge.vars[1 - side]
        lists = (edge.dims, edge.cells, *edge.maps)
        self.cells = model.store.once(expanded, *lists, side)
        self.transposed = model.store.once(expanded, *lists, 1 - side)
        pair = (model.messages or {}).get(f, [None, None])
        unit = 2.0**-model.bits
        begun = [
            [0.0] * len(model.costs[v]) if m is None else [x * unit for x in m] for v, m in zip(edge.vars, pair)
        ]
        self.to_one, self.to_other = begun[side], begun[1 - side]


def least_of(values: Sequence[float]) -> float:
    """The least; what is not a number is never less."""
    least = INF
    for x in values:
        if x < least:
            least = x
    return least


def send(sums: Sequence[float], share: float, back: list[float], cells: tuple, to: list[float]) -> None:
    """The message of an edge to its other end."""
    to[:] = [INF] * len(to)
    for a, row in enumerate(cells):
        own = share * sums[a] - back[a]
        for b, c in enumerate(row):
            x = own + c
            if x < to[b]:
                to[b] = x
    least = least_of(to)
    for b, x in enumerate(to):
        to[b] = x - least


def rounded(x: float) -> int:
    """The nearest integer, halves up; 0 for what is not finite."""
    if not math.isfinite(x):
        return 0
    low = math.floor(x)
    return low + (1 if x - low >= 0.5 else 0)


def expanded(store: Store, dims: tuple, cells: Values, first: tuple, second: tuple, side: int) -> tuple:
    """Costs of an edge by value, a row for each value of the given end."""
    table = [[INF if r < 0 or c < 0 else float(cells[r * dims[1] + c]) for c in second] for r in first]
    store.spend(4 * len(first) * len(second))
    return tuple(map(tuple, table if side == 0 else zip(*table)))


def excess(store: Store, dims: tuple, cells: Values, side: int, w: int, d: int) -> float:
    """Returns the largest excess of the cost of class w over that of class d, where d is allowed."""
    store.spend(dims[1 - side])
    here = cells[w * dims[1] : (w + 1) * dims[1]] if side == 0 else cells[w :: dims[1]]
    there = cells[d * dims[1] : (d + 1) * dims[1]] if side == 0 else cells[d :: dims[1]]
    return max(x - y for x, y in zip(here, there) if y != INF)


def levelled(store: Store, costs: Values, slack: float) -> Values:
    """Costs less their least; what exceeds the slack is forbidden."""
    least = min(costs, default=0)
    return store.costs(INF if c == INF or c - least > slack else c - least for c in costs)


def lowered(
    store: Store, dims: tuple, cells: Values, m: tuple, n: tuple, first: Values, second: Values
) -> tuple[tuple, tuple, Values]:
    """A table less an amount for each value; classes whose values get different amounts are split."""
    maps, kept = [], []
    for places, amounts in ((m, first), (n, second)):
        known: dict[tuple[int, int], int] = {}
        maps.append(store.keep(-1 if c < 0 else known.setdefault((c, x), len(known)) for c, x in zip(places, amounts)))
        kept.append(list(known))
    made = [cells[r * dims[1] + c] - x - y for r, x in kept[0] for c, y in kept[1]]
    return tuple(maps), store.keep([len(kept[0]), len(kept[1])]), store.costs(made)


def summed(
    store: Store,
    dims: tuple,
    cells: Values,
    m: tuple,
    n: tuple,
    other_dims: tuple,
    others: Values,
    p: tuple,
    q: tuple,
    swap: bool,
) -> tuple[tuple, tuple, Values]:
    """The sum of two tables of the same variables."""
    if swap:
        p, q = q, p
    rows, columns = classes_of([m, p]), classes_of([n, q])
    made = []
    store.spend(2 * len(rows[1]) * len(columns[1]))
    for a in rows[1]:
        for b in columns[1]:
            r, c = (q[b], p[a]) if swap else (p[a], q[b])
            made.append(cells[m[a] * dims[1] + n[b]] + others[r * other_dims[1] + c])
    maps = (store.keep(rows[0]), store.keep(columns[0]))
    return maps, store.keep([len(rows[1]), len(columns[1])]), store.costs(made)


def classes_of(maps: list[tuple]) -> tuple[tuple, list[int]]:
    """The joint classes of several maps by first appearance, -1 where any is; a value of each class."""
    known: dict[tuple, int] = {}
    values: list[int] = []
    joint = []
    for a, classes in enumerate(zip(*maps)):
        if min(classes) < 0:
            joint.append(-1)
            continue
        if classes not in known:
            known[classes] = len(values)
            values.append(a)
        joint.append(known[classes])
    return tuple(joint), values


def minimised(store: Store, costs: Values, key: tuple, *lists: tuple) -> tuple[float, tuple, Any]:
    """The least of an elimination, the order of its neighbours, and their table."""
    count, slack, *flat = key
    parts, at, place = [], 0, 0
    while place < len(flat):
        size = flat[place]
        shape = flat[place + 1 : place + 1 + size]
        place += 1 + size
        dims, cells, *maps = lists[at : at + 2 + size]
        at += 2 + size
        parts.append((shape, dims, cells, maps))
    most = store.most(costs) + sum(store.most(cells) for _, _, cells, _ in parts)
    need(most <= 2 * MOST_COST, "the costs of a variable and its factors exceed 2^53")
    own = [maps[shape.index(-1)] for shape, _, _, maps in parts]
    joint = classes_of(own) if own else (tuple(range(len(costs))), list(range(len(costs))))
    best: dict[int, int] = {}
    for c, cost in zip(joint[0], costs):
        if c >= 0 and cost != INF and cost <= slack:
            best[c] = min(best.get(c, cost), cost)
    axes = [
        classes_of([m for shape, _, _, maps in parts for k, m in zip(shape, maps) if k == u]) for u in range(count)
    ]
    order = sorted(range(count), key=lambda u: (len(axes[u][1]), u))
    cells_left = math.prod(len(axes[u][1]) for u in order)
    store.spend(cells_left * (1 + len(best) * (1 + len(parts)) // 8))
    candidates = [joint[1][c] for c in best]
    # For each part: its other variables, their classes by joint class, the costs of all candidates.
    rows: list[tuple[list[int], list[list[int]], dict[tuple, list]]] = []
    for shape, dims, cells, maps in parts:
        at_own = shape.index(-1)
        others = [k for k in range(len(shape)) if k != at_own]
        table: dict[tuple, list] = {}
        strides = [math.prod(dims[k + 1 :]) for k in range(len(dims))]
        offsets = [maps[at_own][a] * strides[at_own] for a in candidates]
        for classes in itertools.product(*(range(dims[k]) for k in others)):
            base = sum(c * strides[k] for c, k in zip(classes, others))
            table[classes] = [cells[base + o] for o in offsets]
        projected = [[maps[k][a] for a in axes[shape[k]][1]] for k in others]
        rows.append(([shape[k] for k in others], projected, table))
    found = []
    first = list(best.values())
    for classes in itertools.product(*(range(len(axes[u][1])) for u in order)):
        here = dict(zip(order, classes))
        sums: Iterable = first
        for variables, projected, table in rows:
            sums = map(operator.add, sums, table[tuple(p[here[u]] for u, p in zip(variables, projected))])
        cost = min(sums, default=INF)
        found.append(cost if cost <= slack else INF)
    least = min(found, default=INF)
    if least == INF or count == 0:
        return least, tuple(order), None
    level = store.costs(c - least if c != INF else INF for c in found)
    maps = [store.keep(axes[u][0]) for u in order]
    return least, tuple(order), tidied(store, store.keep(len(axes[u][1]) for u in order), level, *maps)


def least_rest(
    store: Store, dims: tuple, cells: Values, m: tuple, n: tuple, first: Any, second: Any, bits: int
) -> float:
    """The least of a table, in units of 2^-bits, less the messages to its variables."""
    most: list[dict[int, int]] = []
    for places, message in ((m, first), (n, second)):
        of: dict[int, int] = {}
        for a, c in enumerate(places):
            x = 0 if message is None else message[a]
            if c >= 0 and (c not in of or x > of[c]):
                of[c] = x
        most.append(of)
    store.spend(len(cells))
    return min(
        (
            (cells[r * dims[1] + c] << bits) - x - y
            for r, x in most[0].items()
            for c, y in most[1].items()
            if cells[r * dims[1] + c] != INF
        ),
        default=INF,
    )


# --- The replay -------------------------------------------------------------------------------


def in_form(certificate: Any) -> tuple[list[dict[str, int]], list[int], list[list[int]]]:
    """Rows, steps and lists of a value that has the form of a certificate."""
    keys = {"version", "problem", "rows", "steps", "lists"}
    need(isinstance(certificate, dict) and set(certificate) == keys, "this is not a certificate")
    need(not isinstance(certificate["version"], bool) and certificate["version"] == 2, "this is not format 2")
    need(isinstance(certificate["problem"], str), "$.problem is not text")
    rows, steps, lists = certificate["rows"], certificate["steps"], certificate["lists"]
    need(all(isinstance(x, list) for x in (rows, steps, lists)), "rows, steps or lists are not a list")
    named = []
    for row in rows:
        need(isinstance(row, dict) and len(row) == 1 and next(iter(row)) in ("row", "time"), "a row of no kind")
        (kind, x), = row.items()
        named.append({kind: integer(x)})
        need(abs(named[-1][kind]) < 2**53, "a row of no integer")
    for k, numbers in enumerate(lists):
        need(isinstance(numbers, list), f"$.lists[{k}] is not a list")
    return named, [integer(x) for x in steps], [[integer(x) for x in numbers] for numbers in lists]


def integer(x: Any) -> int:
    """A JSON number that is an integer: those from 2^53 on are the double nearest to their digits."""
    need(isinstance(x, (int, float)) and not isinstance(x, bool), "a number is none")
    try:
        value = float(x)
    except OverflowError:
        value = INF
    need(math.isfinite(value) and value.is_integer(), f"{x} is not an integer")
    return int(value)


class Replay:
    """A certificate read from its first step to its last."""

    def __init__(self, problem: Problem, certificate: Any) -> None:
        rows, self.steps, self.lists = in_form(certificate)
        self.store = Store(problem)
        self.at = 0
        self.problem = problem
        self.model = self.start(rows)

    def start(self, rows: list[dict[str, int]]) -> Model:
        """The problem under the rows that the certificate names."""
        problem, store = self.problem, self.store
        model = Model(store)
        vectors = [store.costs(v) for v in problem.vectors]
        tables = [(store.keep([r, c]), store.costs(cells)) for r, c, cells in problem.tables]
        for size, u in zip(problem.domains, problem.unary):
            model.add_variable(vectors[u])
            model.empty = model.empty or size == 0
        for i, j, table, first, second in problem.edges:
            maps = tuple(
                store.keep(range(problem.domains[v]) if m < 0 else problem.maps[m])
                for v, m in ((i, first), (j, second))
            )
            factor = Factor((i, j), maps, *tables[table])
            if i != j:
                model.add_factor(factor)
                continue
            model.add_diagonal(i, factor, *maps)
            model.add_factor(None)
        model.constant = problem.constant
        for source in rows:
            store.spend(8 * len(problem.domains))
            bound, lists = problem.row_of(source)
            amounts: list[Values | None] = [None] * len(problem.domains)
            for v, several in lists.items():
                need(all(0 <= u < INF for used in several for u in used), "a row has a negative amount")
                amounts[v] = store.costs(map(sum, zip(*several)))
            need(sum(map(store.most, amounts)) <= MOST_COST, "the amounts of a row exceed 2^52")
            model.rows.append((bound, amounts))
        return model

    @property
    def done(self) -> bool:
        """True if no step is left."""
        return self.at >= len(self.steps)

    def next(self) -> int:
        """The next number of the steps."""
        need(not self.done, "the proof ends within a step")
        self.store.spend(1)
        self.at += 1
        return self.steps[self.at - 1]

    def list(self) -> list[int]:
        """The list that the next number names."""
        k = self.next()
        need(0 <= k < len(self.lists), f"there is no list {k}")
        self.store.spend(len(self.lists[k]))
        return self.lists[k]

    def small(self) -> list[int]:
        """The same, of integers of 32 bits."""
        numbers = self.list()
        need(all(-(2**31) <= x < 2**31 for x in numbers), "a list holds large integers")
        return numbers

    def scale_and_prices(self) -> tuple[int, list[int]]:
        """Reads the scale and the prices with which messages and sweeps begin."""
        bits = self.next()
        need(0 <= bits <= 30, f"messages have the scale {bits}")
        return bits, self.prices()

    def prices(self) -> list[int]:
        """A price for each row."""
        prices = self.list()
        need(len(prices) == len(self.model.rows) and min(prices, default=0) >= 0, "prices do not fit the rows")
        return prices

    def run(self) -> int | None:
        """The bound of the whole proof; None where it proves that there is no choice."""
        open_: list[dict[str, Any]] = []
        numbers = len(self.problem.domains) + len(self.problem.edges)
        depth = 64 + 10**7 // (100 + numbers)
        while True:
            bound, branch = self.part()
            if branch is not None:
                need(len(open_) < depth, "branches are nested too deep")
                open_.append(branch)
            else:
                while open_:
                    top = open_[-1]
                    need(not self.done and self.next() == END, "a part does not end")
                    if bound is not None and (top["least"] is None or bound < top["least"]):
                        top["least"] = bound
                    if top["parts"] > 0:
                        break
                    need(len(top["covered"]) == top["size"], "the parts do not cover their variable")
                    bound = capped(top["cut"], top["least"])
                    open_.pop()
                if not open_:
                    need(self.done, "steps follow after the end of the proof")
                    return bound
            top = open_[-1]
            need(not self.done and self.next() == PART, "a branch lacks a part")
            keep = self.small()
            need(all(a < b for a, b in zip([-1, *keep], [*keep, top["size"]])), "a part is out of order")
            top["covered"].update(keep)
            top["parts"] -= 1
            self.model = top["model"].clone() if top["parts"] > 0 else top["model"]
            self.model.restrict(top["variable"], self.store.keep(keep))

    def part(self) -> tuple[int | None, dict[str, Any] | None]:
        """Replays to the end of a part, or to a branch."""
        model = self.model
        while not self.done and self.steps[self.at] != END:
            code = self.next()
            need(0 < code < len(ARGUMENTS) and code != PART, f"unknown step {code}")
            if model.empty:
                need(code != BRANCH, "a branch where nothing is left")
                for _ in range(ARGUMENTS[code]):  # type: ignore[arg-type]
                    self.next()
                continue
            need(model.messages is None or code in KEEPS_MESSAGES, f"step {code} follows messages")
            if code == PARETO:
                return capped(model.cut, model.pareto()), None
            if code == BRANCH:
                v, parts = self.next(), self.next()
                model.needs(v)
                need(parts >= 1, "a branch has no parts")
                size = len(model.costs[v])
                opened = {"model": model, "variable": v, "parts": parts, "size": size, "covered": set()}
                return None, {**opened, "least": None, "cut": model.cut}
            self.step(model, code)
        return capped(model.cut, model.bound()), None

    def step(self, model: Model, code: int) -> None:
        """Carries out a step that is neither the last nor a branch."""
        if code == MERGE:
            model.merge(self.next(), self.next(), self.next())
        elif code == DROP:
            model.drop(self.next(), self.small())
        elif code == SEPARATE:
            model.separate(self.next())
        elif code == ADD:
            model.add(self.next(), self.next())
        elif code == ELIMINATE:
            model.eliminate(self.next())
        elif code == SHIFT:
            f, u, v = self.next(), self.next(), self.next()
            model.shift(f, u, v, self.store.costs(self.list()), self.store.costs(self.list()))
        elif code == PRUNE:
            limits = self.list()
            need(len(limits) < 2 and all(abs(x) < 2**53 for x in limits), "a prune has several limits, or a large one")
            model.prune(limits[0] if limits else None)
        elif code == FUSE:
            model.fuse(self.next(), self.next(), self.next())
        elif code == PRICE:
            model.price(self.prices())
        elif code == WHOLE:
            model.whole = True
        elif code == MESSAGES:
            model.set_messages(*self.scale_and_prices(), self.list(), self.lists)
        elif code == SWEEP:
            model.sweep(*self.scale_and_prices(), self.next())
        elif code == SUPPORT:
            model.support()


def capped(cut: int | None, bound: int | None) -> int | None:
    """Limits a bound to one above the cut: values that were deleted as too expensive cost at least that."""
    if cut is None:
        return bound
    return cut + 1 if bound is None else min(bound, cut + 1)


def proven(problem: Problem, certificate: Any) -> int | None:
    """Returns the least cost of every choice that is proven; None where there is no choice. Refuses what is not a proof."""
    rows, _, _ = in_form(certificate)
    found = problem.hash()
    need(certificate["problem"] == found, f"it is about problem {certificate['problem']}, not {found}")
    bound = Replay(problem, certificate).run()
    if bound is None:
        return None
    divisor = problem.divisor()
    return -(-bound // divisor) * divisor


# --- The command ------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """A JSON file, packed or not."""
    data = path.read_bytes()
    return parse(unpacked(data) if data[:2] == b"\x1f\x8b" else data)


def unpacked(data: bytes) -> bytes:
    """Unpacks gzip; refuses what is not gzip or unpacks to more than a certificate may have."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            text = packed.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused(f"not packed by gzip: {error}") from error
    need(len(text) <= MOST_BYTES, f"more than {MOST_BYTES} bytes unpacked")
    return text


def parse(data: bytes | str) -> Any:
    """JSON as its standard has it: without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise Refused(f"{name} is not JSON")

    try:
        return json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Refused(f"not JSON: {error}") from error


def verdict(problem: Problem, certificate: Any) -> dict[str, Any]:
    """Returns the verdict on a certificate, as a record."""
    try:
        bound = proven(problem, certificate)
    except Refused as error:
        return {"accepted": False, "gaveUp": isinstance(error, GaveUp), "reason": str(error)}
    return {"accepted": True, "bound": None if bound is None else str(bound)}


def in_plan_form(proofs: Any) -> dict[str, Any]:
    """The certificates of a plan by what they are about, of a file that has the form of the page."""
    need(isinstance(proofs, dict), "certificate.json.gz is not an object")
    odd = set(proofs) - {"version", "free", "within", "leastBytes", "program"}
    need(not odd, f"certificate.json.gz has a key that the page does not name: {min(odd, default='')}")
    need(proofs.get("version") == 1 and proofs["version"] is not True, "certificate.json.gz is not of version 1")
    need(isinstance(proofs.get("program", ""), str), "the program of the certificate is not text")
    found = {key: proofs[key] for key in ("free", "leastBytes") if key in proofs}
    if "within" in proofs:
        within = proofs["within"]
        found["within"] = field(within, "certificate", "the certificate 'within'")
        names = [within.get("storages", []), listed(within, "moments", "the certificate 'within'")]
        need(set(within) <= {"moments", "storages", "certificate"}, "the certificate 'within' has another key")
        texts = (isinstance(x, list) and all(isinstance(name, str) for name in x) for x in names)
        need(all(texts), "a moment of the certificate 'within' is not a name")
    return found


def held_to_its_files(folder: Path, plan: Any) -> None:
    """Refuses a plan beside another graph or request than it names."""
    hashes = field(plan, "hashes", "the plan")
    for name, key in (("graph.swg", "graph"), ("request.json", "request")):
        need((folder / name).exists(), f"{name} is not next to the plan: write the plan again with `plan -o`")
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        need(hashes.get(key) == found, f"{name} is not the file that the plan was written with")
    stated = field(plan, "request", "the plan")
    need(stated == read_json(folder / "request.json"), "the plan states another request than request.json")


def check_plan(folder: Path) -> str:
    """Judges a plan folder by its problems, its certificate and its own words."""
    plan = read_json(folder / "plan.json")
    texts = {}
    for name in ("problems.json.gz", "certificate.json.gz"):
        need((folder / name).exists(), f"{name} is not next to the plan: write the plan again with `plan -o`")
        texts[name] = unpacked((folder / name).read_bytes())
    file, proofs = parse(texts["problems.json.gz"]), in_plan_form(parse(texts["certificate.json.gz"]))
    stated = field(field(plan, "hashes", "the plan"), "certificate", "the plan")
    found = hashlib.sha256(texts["certificate.json.gz"]).hexdigest()
    need(stated == found, "certificate.json.gz is not the file that the plan was written with")
    held_to_its_files(folder, plan)
    problems, units = {}, {}
    for record in listed(file, "problems", "the problems file"):
        about = field(record, "about", "a problem")
        need(isinstance(about, str) and about not in problems, "two problems are about the same, or one about nothing")
        problems[about], units[about] = read_problem(file, record), number(record, "unitsPerSecond", about)
        need(units[about] > 0, f"the problem {about} has no unit")
    for about in ("plan", "free", *proofs):
        need(about in problems, f"problems.json.gz has no problem '{about}'")

    def seconds_of(about: str, certificate: Any) -> float:
        bound = proven(problems[about], certificate)
        need(bound is not None, f"the certificate '{about}' proves that there is no plan")
        return bound / units[about]  # type: ignore[operator]

    trivial = {"version": 2, "problem": problems["free"].hash(), "rows": [], "steps": [], "lists": []}
    seconds_by = {about: seconds_of(about, proof) for about, proof in {"free": trivial, **proofs}.items()}
    bound = max(seconds_by["free"], seconds_by.get("within", -INF))
    problem, unit = problems["plan"], units["plan"]
    seconds = problem.cost(whole(listed(file, "choice", "the problems file"), "the choice")) / unit
    said = number(field(plan, "objective", "the plan"), "seconds", "the plan")
    proof = field(plan, "proof", "the plan")
    stated_bound, status = number(proof, "bound", "the proof"), field(proof, "status", "the proof")
    slack = problem.tolerance / unit + 1e-9 * seconds
    # Every cost was rounded to a multiple of what now divides all: no plan may state more.
    terms = len(problem.domains) + len(problem.edges)
    rounding = number(proof, "roundingSeconds", "the proof") if "roundingSeconds" in proof else 0
    need(0 <= rounding <= terms * problem.divisor() / unit, f"{rounding} s of rounding are more than its units explain")
    blur = rounding + slack
    need(abs(said - seconds) <= blur, f"the plan says {said} s and costs {seconds} s")
    need(bound <= seconds + slack, f"the certificate proves {bound} s, more than the plan takes")
    need(stated_bound <= min(seconds, bound) + blur, f"{stated_bound} s are stated as bound, {bound} s are proven")
    need(status != "optimal" or bound >= seconds - slack, "the plan is not proven optimal")
    gap = number(proof, "gap", "the proof")
    need(gap >= (said - stated_bound - blur) / max(said, blur), f"a gap of {gap} is stated, and more is open")
    return f"accepted: the plan takes {seconds:.6g} s, and no plan of its problems takes less than {bound:.6g} s"


def batch() -> None:
    """Judges lines of JSON, a problems file and a certificate each; for tests."""
    for line in sys.stdin:
        asked = json.loads(line)
        file = asked["problems"]
        print(json.dumps(verdict(read_problem(file, file["problems"][0]), asked["certificate"])), flush=True)


def main(arguments: list[str]) -> int:
    """The exit code: 0 accepted, 5 refused, 2 usage."""
    if arguments == ["--batch"]:
        batch()
        return 0
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if len(arguments) == 1:
            print(check_plan(Path(arguments[0])))
            return 0
        problem = read_iopddl(read_json(Path(arguments[0])))
        said = verdict(problem, read_json(Path(arguments[1])))
    except Refused as error:
        print(f"refused: {error}")
        return 5
    except OSError as error:
        print(f"cannot read {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if not said["accepted"]:
        print(f"refused: {said['reason']}")
        return 5
    bound = said["bound"]
    print(f"accepted: {'there is no choice' if bound is None else f'no choice costs less than {bound}'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
