"""Reports sales: `report-py <sales.csv`

Reads lines `region,product,quantity,price` after a header from standard input and prints, for
each region in alphabetical order, the revenue, the median order and the best product. Money is
decimal, so that the result is the same everywhere.

The run fails if a line makes no sense.
"""

import csv
import statistics
import sys
from collections import Counter, defaultdict
from decimal import Decimal

from componentize_py_types import Err
from wit_world import exports


class Run(exports.Run):
    """The export `wasi:cli/run`."""

    def run(self) -> None:
        try:
            report(sys.stdin, sys.stdout)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            print(f"report-py: {error!r}", file=sys.stderr)
            raise Err(None) from error


def report(source, target) -> None:
    orders = defaultdict(list)
    products = defaultdict(Counter)
    for row in csv.DictReader(source):
        revenue = int(row["quantity"]) * Decimal(row["price"])
        orders[row["region"]].append(revenue)
        products[row["region"]][row["product"]] += revenue
    for region in sorted(orders):
        best, _ = min(products[region].items(), key=lambda item: (-item[1], item[0]))
        total, median = sum(orders[region]), statistics.median(orders[region])
        print(f"{region}: {total:.2f}, median {median:.2f}, best {best}", file=target)
