"""Types of arrays, the allowed operations of a program, and the error for programs that cannot be judged."""

from dataclasses import dataclass

import numpy as np
from jax.extend.mlir import ir

# All other operations are refused, most importantly custom calls, which could run any code in the judge's process. The
# list contains the pure array operations, control flow and functions of StableHLO and CHLO.
SUPPORTED_OPERATIONS = (
    frozenset(
        f"stablehlo.{name}"
        for name in """
    abs add after_all and atan2 bitcast_convert broadcast_in_dim case cbrt ceil cholesky clamp compare complex
    concatenate constant convert convolution cosine count_leading_zeros divide dot_general dynamic_slice
    dynamic_update_slice exponential exponential_minus_one fft floor gather imag if iota is_finite log log_plus_one
    logistic map maximum minimum multiply negate not optimization_barrier or pad popcnt power real reduce
    reduce_precision reduce_window remainder reshape return reverse rng_bit_generator round_nearest_afz
    round_nearest_even rsqrt scatter select select_and_scatter shift_left shift_right_arithmetic shift_right_logical
    sign sine slice sort sqrt subtract tan tanh transpose triangular_solve while xor
    """.split()
    )
    | frozenset(
        f"chlo.{name}"
        for name in """
    acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc is_inf is_neg_inf is_pos_inf lgamma
    next_after polygamma sinh square tan top_k zeta
    """.split()
    )
    # The operation that `shard_map` becomes, and operations that occur only inside it.
    | frozenset(f"sdy.{name}" for name in "manual_computation mesh return sharding_constraint".split())
    | frozenset(
        f"stablehlo.{name}"
        for name in "all_gather all_reduce all_to_all collective_permute partition_id reduce_scatter".split()
    )
    | {"builtin.module", "func.func", "func.call", "func.return"}
)

# The only custom call that runs no code: JAX's annotation of an array's memory space.
ALLOWED_CUSTOM_CALLS = {"annotate_device_placement"}

# Maps MLIR's element types to NumPy's names.
DTYPES = {
    "i1": "bool",
    "bf16": "bfloat16",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"complex<f{bits}>": f"complex{2 * bits}" for bits in (32, 64)},
    **{f"{sign}i{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

# Maps integer element types to their maximum values.
MAX_INTEGER = {name: int(np.iinfo(dtype).max) for name, dtype in DTYPES.items() if "int" in dtype}


class ProgramError(ValueError):
    """Raised if a program cannot be judged; the message is the reason, in words for the learner."""


@dataclass(frozen=True)
class TensorType:
    """The type of an array.

    Attributes:
      shape: the sizes of the dimensions.
      dtype: NumPy's name, such as `"bfloat16"`.
    """

    shape: tuple[int, ...]
    dtype: str


def tensor_type(type_: ir.Type) -> TensorType:
    """Return an MLIR type as shape and dtype.

    Raises:
      ProgramError: if it is not the type of an array with a static shape and an element type that NumPy supports.
    """
    try:
        tensor = ir.RankedTensorType(type_)
        if not tensor.has_static_shape:
            raise ValueError(type_)
        return TensorType(tuple(tensor.shape), DTYPES[str(tensor.element_type)])
    except (ValueError, KeyError):
        raise ProgramError(f"the traced program takes or returns a {type_}, which is not an array to judge.") from None
