"""Messages about a GPU's memory. Those of a TPU's compiler are in test_measure.py."""

import jax
import jax.numpy as jnp
import pytest

from rematscope import TargetError, measure
from rematscope.xla.out_of_memory import out_of_memory

# Printed by JAX 0.11.2 on an NVIDIA H200: the exception of a program that runs, and a warning in its log.
EXCEPTION = (
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 192.00GiB with allocator "
    "GPU_0_bfc on device 0. [executable_name='jit__lambda'] [tf-allocator-allocation-error='']"
)
WARNING = (
    "W1126 07:21:14.984607    1164 bfc_allocator.cc:598] Allocator (GPU_0_bfc) ran out of memory trying to allocate "
    "159.03GiB (rounded to 170760761600) from the lower end requested by op \n"
    "If this is caused by memory fragmentation, the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' may "
    "improve the situation.\nCurrent allocation summary follows.\n"
)
# While XLA tries variants of a kernel (the program text before `Status` is left out).
AUTOTUNING = (
    'metadata={op_name="jit(model_loss)/jvp()/while/body/eval_jaxpr/vmap()/reduce_sum" stack_frame_id=11}. Status: '
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 128.02GiB with allocator GPU_0_bfc on device 0. "
    "[tf-allocator-allocation-error='']\n=== Source Location Trace: === \n"
)
# Printed by an older release: github.com/jax-ml/jax/issues/13428, up to the list of buffers.
DUMP = """XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    6.00MiB
              constant allocation:         0B
        maybe_live_out allocation:    6.00MiB
     preallocated temp allocation:         0B
                 total allocation:   12.00MiB
              total fragmentation:         0B (0.00%)
"""
MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("message", "needed", "text"),
    [
        (EXCEPTION, 192, "Out of memory while trying to allocate 192.00GiB with allocator GPU_0_bfc on device 0"),
        (WARNING, 159.03, "Allocator (GPU_0_bfc) ran out of memory trying to allocate 159.03GiB"),
        (AUTOTUNING, 128.02, "Out of memory while trying to allocate 128.02GiB with allocator GPU_0_bfc on device 0"),
    ],
    ids=["exception", "warning", "autotuning"],
)
def test_the_failed_allocation_is_read(message, needed, text):
    found = out_of_memory(message)
    assert found.needed_bytes == int(needed * GIB) and found.available_bytes is None
    assert found.text.startswith(text) and "[" not in found.text


def test_the_dump_of_an_older_release_is_no_part_of_the_message():
    found = out_of_memory(DUMP)
    assert (found.text, found.needed_bytes) == ("Out of memory while trying to allocate 6291456 bytes", 6 * MIB)


def test_a_failed_request_is_read():
    failed = "Failed to allocate request for 154.06GiB (165425291480B) on device ordinal 0"
    found = out_of_memory(f"E0528 pjrt] Execution of replica 0 failed: RESOURCE_EXHAUSTED: {failed}")
    assert (found.text, found.needed_bytes) == (failed, int(154.06 * GIB))


def test_a_program_that_fails_when_it_runs_does_not_fit(monkeypatch):
    """A GPU's program compiles whatever it needs; the allocation fails at its first run."""
    found = measure(jnp.sin, jax.ShapeDtypeStruct((4,), jnp.float32))

    def fail(*_):
        raise jax.errors.JaxRuntimeError(EXCEPTION.partition(": ")[2])

    monkeypatch.setattr("jax.block_until_ready", fail)
    with pytest.raises(TargetError, match="sin does not fit into the memory of a cpu: Out of memory while trying to"):
        found.time()
