"""Everything that depends on a release of JAX, or that only private modules of JAX expose.

The rest of the package uses public JAX only.
"""

import os

from jax.extend import source_info_util

from rematscope.jax_compat.absent_gpu import assuming_gpu, make_jaxpr
from rematscope.jax_compat.contexts import (
    REMAT3_IS_PREDICTABLE,
    default_remat,
    is_named_axis,
    misreads_offloaded_stacks,
    outside_transformations,
    remat3,
    start_no_absent_tpu,
    use_remat3,
)
from rematscope.jax_compat.equations import (
    CHECKPOINTS,
    JITS,
    AnyJaxpr,
    Scan,
    ShardMap,
    While,
    barrier_operands,
    bodies,
    body_of,
    branches_of,
    called_body,
    checkpoint_name,
    effects_of,
    equations_in,
    forget_forward_rule,
    forward_rule,
    hi_primitive,
    is_call_without_gradient,
    is_checkpoint,
    is_custom_rule,
    is_differentiated,
    is_forward_name,
    is_in_derivative,
    is_literal,
    is_mutable_array,
    is_pallas_parameter,
    is_repeatable,
    is_repeatable_program,
    is_stateful,
    is_transformed,
    jaxprs_in_params,
    jit_shardings,
    literal_value,
    passes_first_operand,
    policy_of,
    prevents_cse,
    primitive_name,
    run,
    scan_of,
    scopes,
    shard_map_of,
    shows_remat3,
    varying,
    walk_equations,
    while_of,
)
from rematscope.jax_compat.host_memory import is_in_host_memory, type_in_host_memory
from rematscope.jax_compat.policies import STATEFUL, Policy, names_in_policy, policy_name, saving_unrepeatable
from rematscope.jax_compat.rewriting import (
    Change,
    eqn_without_checkpoint,
    jaxpr_with_policies,
    map_equations,
    replace_policy,
    trace_single_equation,
    with_barrier,
    with_name,
)
from rematscope.jax_compat.vmap_hook import maps_as_loops

# No line of this package is the user's. JAX compares paths by their beginning.
source_info_util.register_exclusion(os.path.dirname(os.path.dirname(__file__)) + os.sep)
