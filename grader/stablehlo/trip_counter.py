"""Add trip counters to loops whose trip count is known only when they run.

XLA cannot be interrupted, so an endless loop would block the judge, and the cost of such a loop is not in its text. So
each dynamic loop gets a counter among its carries. The counter ends the loop at a limit, and the program returns its
value.
"""

from collections.abc import Sequence

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from grader.stablehlo.bindings import Value, callee, function_type, functions, operations

_DYNAMIC = "dynamic"


def mark(loop: ir.Operation) -> None:
    """Mark a `stablehlo.while` as dynamic, because the text does not determine its trip count."""
    loop.attributes[_DYNAMIC] = ir.UnitAttr.get(loop.context)


def count(module: ir.Module, limit: int) -> None:
    """Change a module so that `main` returns the trip count of each dynamic loop after its results.

    Args:
      module: a module without recursive functions, whose dynamic loops are marked. No dynamic loop may be in the
        condition of another loop.
      limit: the maximum number of iterations of a loop, including those of the dynamic loops in it.

    The trip counts are int32 scalars, one per loop, each summed over all entries of the loop. Their order is that of
    the loops' ends in the text, as if all calls were inlined.
    """
    with module.context, ir.Location.unknown():
        _Counter(module, limit).function("main")


class _Counter:
    """Rewrites a module from its loops outwards. Each method that rewrites an operation returns the new counts."""

    def __init__(self, module: ir.Module, limit: int):
        self.functions = functions(module)
        self.counted: dict[str, int] = {}  # maps rewritten functions to the number of counts that they return
        self.limit = limit
        self.type = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))

    def function(self, name: str) -> int:
        """Make a function return its counts, and return their number."""
        if name not in self.counted:
            function = self.functions[name]
            counts = self.block(function.regions[0].blocks[0])
            self.counted[name] = len(counts)
            if counts:
                type_ = function_type(function)
                results = [*type_.results, *[self.type] * len(counts)]
                function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(type_.inputs, results))
                if "res_attrs" in function.attributes:
                    notes = [*ir.ArrayAttr(function.attributes["res_attrs"]), *[ir.DictAttr.get({})] * len(counts)]
                    function.attributes["res_attrs"] = ir.ArrayAttr.get(notes)
                self.returning(function.regions[0].blocks[0], counts)
        return self.counted[name]

    def block(self, block: ir.Block) -> list[Value]:
        """Count the loops in a block, and return the counts, which are available before its terminator."""
        counts: list[Value] = []
        for op in operations(block):
            match op.name:
                case "func.call":
                    counts += self.call(op)
                case "stablehlo.while":
                    counts += self.loop(op)
                case "stablehlo.case" | "stablehlo.if":
                    counts += self.branches(op)
        return counts

    def call(self, op: ir.Operation) -> list[Value]:
        if not (more := self.function(callee(op))):
            return []
        return self.widened(op, op.operands, more)

    def branches(self, op: ir.Operation) -> list[Value]:
        blocks = [region.blocks[0] for region in op.regions]
        counts = [self.block(block) for block in blocks]
        total = sum(map(len, counts))
        if not total:
            return []
        for number, block in enumerate(blocks):
            with ir.InsertionPoint(_last_operation(block)):
                zero = self.number(0)
            # A branch that is not taken has run no iterations.
            own = [count if place == number else zero for place, part in enumerate(counts) for count in part]
            self.returning(block, own)
        return self.widened(op, op.operands, total)

    def loop(self, op: ir.Operation) -> list[Value]:
        condition, body = (region.blocks[0] for region in op.regions)
        trips = self.block(body)
        is_dynamic = _DYNAMIC in op.attributes
        if not trips and not is_dynamic:
            return []
        more = len(trips) + is_dynamic
        before = [body.add_argument(self.type, ir.Location.unknown()) for _ in range(more)]
        with ir.InsertionPoint(_last_operation(body)):
            trips += [self.number(1)] if is_dynamic else []
            self.returning(body, [stablehlo.add(old, new) for old, new in zip(before, trips, strict=True)])
        so_far = [condition.add_argument(self.type, ir.Location.unknown()) for _ in range(more)]
        if is_dynamic:
            with ir.InsertionPoint(_last_operation(condition)):
                total = self.number(0)
                for count in so_far:
                    total = stablehlo.add(total, count)
                direction = stablehlo.ComparisonDirectionAttr.get("LT")
                may_go_on = stablehlo.compare(total, self.number(self.limit), direction)
                going_on = _last_operation(condition).operands[0]
                _last_operation(condition).operands[0] = stablehlo.and_(going_on, may_go_on)
        with ir.InsertionPoint(op):
            zero = self.number(0)
        return self.widened(op, [*op.operands, *[zero] * more], more)

    def widened(self, op: ir.Operation, operands: Sequence[Value], more: int) -> list[Value]:
        """Replace an operation with one that has additional results, and return these."""
        with ir.InsertionPoint(op):
            new = ir.Operation.create(
                op.name,
                results=[*(result.type for result in op.results), *[self.type] * more],
                operands=list(operands),
                attributes={name: op.attributes[name] for name in op.attributes if name != _DYNAMIC},
                regions=len(op.regions),
            )
        for region, wider in zip(op.regions, new.regions, strict=True):
            region.blocks[0].append_to(wider)
        count, results = len(op.results), list(new.results)
        for old, result in zip(op.results, results[:count], strict=True):
            old.replace_all_uses_with(result)
        op.erase()
        return [*results[count:]]

    def returning(self, block: ir.Block, counts: list[Value]) -> None:
        """Make a block return counts after its other results."""
        last = _last_operation(block)
        make = func.ReturnOp if last.name == "func.return" else stablehlo.ReturnOp
        with ir.InsertionPoint(last):
            make([*last.operands, *counts])
        last.erase()

    def number(self, value: int) -> Value:
        constant: Value = stablehlo.constant(ir.DenseElementsAttr.get(np.asarray(value, np.int32)))
        return constant


def _last_operation(block: ir.Block) -> ir.Operation:
    return operations(block)[-1]
