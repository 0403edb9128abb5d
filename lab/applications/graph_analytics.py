"""Graph analytics with networkx: PageRank of a graph in which few are linked to by many, read from a file and written
(LockScope table 7, where Spark does it)."""

import csv
from collections.abc import Callable
from pathlib import Path

import networkx

NODES = 1_000
LINKS = 4
"""Of each node to nodes before it."""


def prepare(directory: Path) -> Callable[[], None]:
    links, ranks = directory / "links.csv", directory / "ranks.csv"
    made = networkx.barabasi_albert_graph(NODES, LINKS, seed=1)
    with links.open("w", newline="") as lines:
        # From the younger one to the older one, of which many are linked to.
        csv.writer(lines).writerows((max(link), min(link)) for link in made.edges)

    def work() -> None:
        with links.open(newline="") as lines:
            graph = networkx.DiGraph((int(one), int(other)) for one, other in csv.reader(lines))
        rank = networkx.pagerank(graph)
        if abs(sum(rank.values()) - 1) > 1e-6 or len(rank) != NODES:
            raise ValueError(f"found ranks of {len(rank)} nodes with a sum of {sum(rank.values())}")
        with ranks.open("w", newline="") as lines:
            csv.writer(lines).writerows(sorted(rank.items(), key=lambda one: -one[1]))

    return work
