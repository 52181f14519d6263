"""The process that runs an answer's two programs, and is told nothing worth stealing."""

import dataclasses
import socket

import jax

from grader.answers.failures import message_of
from grader.isolation.inside import messages
from grader.isolation.inside.messages import MAX_MESSAGE, counts, nested
from grader.stablehlo.execution import Execution
from grader.stablehlo.operations import Uninterpreted
from grader.stablehlo.types import ProgramError


def serve(line: socket.socket):
    """Answers requests until the other side hangs up."""
    execution = None
    while True:
        try:
            asked, arrays = messages.receive(line, MAX_MESSAGE)
        except messages.WireError:
            return
        try:
            match asked.pop("do"):
                case "read":
                    execution = Execution(**asked)
                    passes = execution.forward, execution.backward
                    messages.send(
                        line, {"programs": [dataclasses.asdict(dataclasses.replace(p, text="")) for p in passes]}
                    )
                case "interpret" | "compile" as do:
                    run = execution.interpreted if do == "interpret" else execution.compiled
                    results = run(*nested(asked["counts"], arrays))
                    messages.send(line, {"counts": counts(results)}, jax.tree.leaves(results))
                case "peak":
                    messages.send(line, {"nbytes": execution.peak(asked["index"], *nested(asked["counts"], arrays))})
        except Uninterpreted:
            messages.send(line, {"uninterpreted": True})
        except ProgramError as error:
            messages.send(line, {"refused": str(error)})
        except Exception as error:
            messages.send(line, {"refused": f"its two programs lead to {message_of(error)}"})
