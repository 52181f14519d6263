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
# Printed by an older release: github.com/jax-ml/jax/issues/13428, the first buffer.
DUMP = """jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    6.00MiB
              constant allocation:         0B
        maybe_live_out allocation:    6.00MiB
     preallocated temp allocation:         0B
                 total allocation:   12.00MiB
              total fragmentation:         0B (0.00%)
Peak buffers:
        Buffer 1:
                Size: 6.00MiB
                Operator: op_name="jit(concatenate)/jit(main)/concatenate[dimension=0]" source_file="models.py" source_line=689
                XLA Label: concatenate
                Shape: f32[4096,128,3]
                ==========================
"""  # noqa: E501
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


@pytest.mark.parametrize(
    ("message", "needed", "free"),
    [
        # github.com/huggingface/diffusers/issues/8358, and, for a program, github.com/pytorch/xla/issues/1735
        ("Error allocating device buffer: Attempting to allocate 4.39G. That was not possible. There are 2.30G free.; "
         "(0x0x0_HBM0)", 4.39, 2.30),
        ("Attempting to reserve 3.95G at the bottom of memory. That was not possible. There are 1.92G free, 0B "
         "reserved, and 1.92G reservable.; ", 3.95, 1.92),
        ("Out of memory allocating 2147483648 bytes.", 2, None),
        ("Failed to allocate request for 154.06GiB (165425291480B) on device ordinal 0", 154.06, None),
    ],
    ids=["array", "program", "without a unit", "request"],
)  # fmt: skip
def test_the_messages_of_a_runtime_are_read(message, needed, free):
    found = out_of_memory(f"RESOURCE_EXHAUSTED: {message}")
    assert found.needed_bytes == int(needed * GIB)
    assert found.available_bytes == (free and int(free * GIB))


def test_a_dump_of_an_older_release_is_left_out():
    found = out_of_memory(DUMP)
    assert (found.text, found.needed_bytes) == ("Out of memory while trying to allocate 6291456 bytes", 6 * MIB)


def test_a_program_that_fails_when_it_runs_does_not_fit(monkeypatch):
    """A GPU's program compiles whatever it needs; the allocation fails at its first run."""
    found = measure(jnp.sin, jax.ShapeDtypeStruct((4,), jnp.float32))

    def fail(*_):
        raise jax.errors.JaxRuntimeError(EXCEPTION.partition(": ")[2])

    monkeypatch.setattr("jax.block_until_ready", fail)
    with pytest.raises(TargetError, match="sin does not fit into the memory of a cpu: Out of memory while trying to"):
        found.time()
