"""The process that runs an answer's programs reports a reason when it refuses one, and losing it is handled."""

import os
import re
import signal

import bubblewrap
import numpy as np
import pytest

from grader.isolation.limits import Killed, TimedOut
from grader.isolation.remote_execution import RemoteExecution
from grader.stablehlo.types import ProgramError

SCALAR = "module {{ func.func public @main(%a: tensor<f32>) -> tensor<f32> {{ {} return %b : tensor<f32> }} }}"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("%b = stablehlo.custom_call @xla_python_cpu_callback(%a) : (tensor<f32>) -> tensor<f32>", "custom_call"),
        ("%b = func.call @main(%a) : (tensor<f32>) -> tensor<f32>", "calls itself"),
        ("%b = stablehlo.negate %a : tensor<f32>" * 0 + "%b = " + "(" * 10, "not valid"),
    ],
)
@bubblewrap.needed
def test_a_program_that_cannot_be_judged_is_refused_with_a_sentence(body, reason, zygote):
    with RemoteExecution(zygote) as remote, pytest.raises(ProgramError, match=re.escape(reason)):
        remote.execute(SCALAR.format(body), SCALAR.format(body), [1, 0])


@pytest.mark.parametrize(
    ("sent", "error", "reason"),
    [
        (signal.SIGKILL, Killed, "was killed (SIGKILL)"),
        (signal.SIGSTOP, TimedOut, "longer than 2 s"),
    ],
)
@bubblewrap.needed
def test_a_process_that_dies_or_hangs_is_a_reason(sent, error, reason, zygote):
    plain, array = SCALAR.format("%b = stablehlo.negate %a : tensor<f32>"), [[np.float32(1)]]
    before = bubblewrap.descendants(os.getpid())
    with RemoteExecution(zygote) as remote:
        remote.execute(plain, plain, [1, 0])
        (worker,) = [pid for pid in bubblewrap.descendants(os.getpid()) - before if not bubblewrap.descendants(pid)]
        os.kill(worker, sent)
        remote.seconds = 2 if error is TimedOut else 60
        with pytest.raises(error, match=re.escape(reason)):
            remote.peak(array, array, 0, compiled=True)
