"""The memory report on exercise 31's page belongs to the page's model, and lists the array that the answer removes."""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import nbformat
import numpy as np

from benchmarks import oom_dump
from grader.exercises import registry
from rematscope import residual_table
from rematscope.xla.out_of_memory import out_of_memory
from solutions.read_oom import read_oom


def report_of_the_page():
    """Return the message and the rows of the page's report: bytes, and the shapes listed there."""
    cells = nbformat.read(oom_dump.PAGE, as_version=4).cells
    (text,) = (cell.source for cell in cells if "RESOURCE_EXHAUSTED" in cell.source and cell.cell_type == "markdown")
    rows = re.findall(r"%\); +([\d.]+)(GiB|MiB); (.*)", text)
    unit = {"GiB": 2**30, "MiB": 2**20}
    return out_of_memory(text), [(float(size) * unit[of], shapes) for size, of, shapes in rows]


def model_of_the_page():
    """Return the page's `loss`, and the shapes of the report's arguments."""
    names = {"jax": jax, "jnp": jnp}
    exec(oom_dump.model_source(), names)
    params, x, pairs = oom_dump.shapes_of(**oom_dump.SIZES)
    arrays = [{name: np.empty(0) for name in params}, x, pairs]
    arrays[0] = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in params.items()}
    x, pairs = (jax.ShapeDtypeStruct(shape, "float32") for shape in (x, pairs))
    return names["loss"], (arrays[0], x, pairs, x)


def saved_bytes(function, arguments):
    """Return the bytes of the residuals by type."""
    found = Counter()
    for row in residual_table(function, *arguments).rows:
        found[row.type] += row.nbytes
    return found


def test_the_largest_rows_of_the_report_are_residuals_that_the_answer_removes():
    message, rows = report_of_the_page()
    loss, arguments = model_of_the_page()
    largest = max(saved_bytes(loss, arguments), key=saved_bytes(loss, arguments).__getitem__)
    shape = largest.partition("[")[2]
    of_it = sum(size for size, shapes in rows if re.fullmatch(rf"\d+×\w+\[{re.escape(shape)}", shapes))
    assert of_it > 0.8 * message.needed_bytes > 0.8 * message.available_bytes
    assert largest not in saved_bytes(read_oom, arguments)


def test_the_other_suspect_is_in_the_report_and_smaller():
    message, rows = report_of_the_page()
    sizes = oom_dump.SIZES
    weights = f"[{sizes['layers']},{sizes['batch']},{sizes['heads']},{sizes['tokens']},{sizes['tokens']}]"
    assert 0 < sum(size for size, shapes in rows if weights in shapes) < 0.1 * message.needed_bytes


def test_the_residuals_that_may_stay_are_smaller_than_one_large_array_in_all_ranges(seed):
    task, rng = registry.task("read_oom"), np.random.default_rng(seed)
    ends = {symbol: (range_.low, range_.high) for symbol, range_ in task.ranges.items() if symbol != "called"}
    corners = [dict.fromkeys(ends, 0) | {"n": n, "a": 1 - n, "c": c, "m": 1} for n in (0, 1) for c in (0, 1)]
    corners.append(dict.fromkeys(ends, 0) | {"a": 1, "m": 1})
    for corner in corners:
        sizes = {symbol: ends[symbol][end] for symbol, end in corner.items()}
        case = task.case(rng, **sizes, called="directly")
        large = np.prod([sizes[symbol] for symbol in "Lbnnc"]) * 4
        residuals = residual_table(case.differentiated(read_oom), *case.arguments).rows
        assert sum(row.nbytes for row in residuals if row.kind == "computed") < 0.75 * large
