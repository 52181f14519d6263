"""Right answers to microbatch_fsdp, spelled in many ways."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


def gathered(w):
    return jax.lax.all_gather(w, "devices", tiled=True)


def layer(up, down, rows):
    return rows + jnp.sin(rows @ up) @ down


@passes
def scan_that_takes_weights_as_arguments(params, x, k):
    @jax.checkpoint
    def run(params, parts):
        up, down = map(gathered, params)

        def body(_, rows):
            return None, jax.checkpoint(layer, prevent_cse=False)(up, down, rows)

        return jax.lax.scan(body, None, parts)[1]

    return run(params, x.reshape(k, -1, x.shape[1])).reshape(x.shape)


@passes
def policy_that_saves_nothing(params, x, k):
    def run(params, x):
        up, down = (checkpoint_name(gathered(shard), "weight") for shard in params)
        one = jax.checkpoint(lambda rows: layer(up, down, rows), policy=policies.nothing_saveable)
        return jnp.concatenate(jax.lax.map(one, jnp.stack(jnp.split(x, k))))

    return jax.checkpoint(run, policy=policies.save_only_these_names("something else"))(params, x)


@passes
def unrolled_loop(params, x, k):
    @jax.checkpoint
    def run(params, x):
        up, down = map(gathered, params)
        return jnp.concatenate([jax.checkpoint(layer)(up, down, rows) for rows in jnp.split(x, k)])

    return run(params, x)


@passes
def rows_by_number(params, x, k):
    rows = len(x) // k

    @jax.checkpoint
    def run(params, x):
        up, down = map(gathered, params)

        @jax.checkpoint
        def one(i):
            return layer(up, down, jax.lax.dynamic_slice_in_dim(x, i * rows, rows))

        return jax.lax.map(one, jnp.arange(k)).reshape(x.shape)

    return run(params, x)


@passes
def by_hand(params, x, k):
    """The loops of both passes, unrolled."""

    @jax.custom_vjp
    def run(up, down, x):
        up, down = gathered(up), gathered(down)
        return jax.lax.map(lambda rows: layer(up, down, rows), x.reshape(k, -1, x.shape[1])).reshape(x.shape)

    def forward(up, down, x):
        return run(up, down, x), (up, down, x)

    def backward(saved, ct):
        up, down, x = saved
        whole = gathered(up), gathered(down)

        def body(sums, part):
            rows, ct = part
            *gradients, of_rows = jax.vjp(layer, *whole, rows)[1](ct)
            return tuple(map(jnp.add, sums, gradients)), of_rows

        parts = x.reshape(k, -1, x.shape[1]), ct.reshape(k, -1, x.shape[1])
        zeros = tuple(jax.lax.pcast(jnp.zeros(w.shape, w.dtype), "devices", to="varying") for w in whole)
        sums, of_rows = jax.lax.scan(body, zeros, parts)
        return *(jax.lax.psum_scatter(s, "devices", tiled=True) for s in sums), of_rows.reshape(x.shape)

    run.defvjp(forward, backward)
    return run(*params, x)


@passes
def one_gather_of_both_weights(params, x, k):
    """A transfer of one long array takes as many bytes as two transfers."""
    up, down = params

    @jax.checkpoint
    def run(params, x):
        both = gathered(jnp.concatenate([jnp.ravel(w) for w in params])[None])
        whole_up = both[:, : up.size].reshape(-1, up.shape[1])
        whole_down = both[:, up.size :].reshape(-1, down.shape[1])
        one = jax.checkpoint(lambda rows: layer(whole_up, whole_down, rows))
        return jax.lax.map(one, x.reshape(k, -1, x.shape[1])).reshape(x.shape)

    return run(params, x)


@passes
def round_in_a_ring(params, x, k):
    to_the_left = [(device, (device - 1) % 8) for device in range(8)]

    def ring(part):
        parts = [part]
        while len(parts) < 8:
            parts.append(jax.lax.ppermute(parts[-1], "devices", to_the_left))
        return jnp.roll(jnp.concatenate(parts), jax.lax.axis_index("devices") * len(part), axis=0)

    @jax.checkpoint
    def run(params, x):
        up, down = map(ring, params)
        return jax.lax.map(jax.checkpoint(lambda rows: layer(up, down, rows)), x.reshape(k, -1, x.shape[1]))

    return run(params, x).reshape(x.shape)


@passes
def saved_within_a_microbatch(params, x, k):
    """The inner checkpoint saves nothing that the outer one would not recompute: it only has a policy of its own."""

    @jax.checkpoint
    def run(params, x):
        up, down = map(gathered, params)

        def one(_, rows):
            h = jax.checkpoint(jnp.matmul)(rows, up)
            return (), rows + jax.checkpoint(lambda h: jnp.sin(h) @ down)(h)

        one = jax.checkpoint(one, policy=policies.nothing_saveable)
        return jax.lax.scan(one, (), x.reshape(k, -1, x.shape[1]))[1].reshape(x.shape)

    return run(params, x)


@passes
def row_by_row_unrolled(params, x, k):
    """A microbatch of one row at a time: many small operations, on each of the devices."""

    @jax.checkpoint
    def run(params, x):
        up, down = map(gathered, params)
        return jnp.concatenate([jax.checkpoint(layer)(up, down, row[None]) for row in x])

    return run(params, x)
