"""Worked answer to exercise 2: save the input and run `g` a second time.

`jax.vjp(g, x)` computes `g(x)` and returns a pullback that holds all residuals of `g`. If the forward pass calls it,
these residuals stay in memory until the backward pass. So the forward pass only calls `g`, and `bwd` calls `jax.vjp(g,
x)` when it needs the pullback of `g`.

`h` comes last, and the backward pass starts with it. Its pullback is needed first, so the forward pass computes it. The
residuals in it belong to `h`, even if one of them is `g(x)`.

`bwd` is a closure. It refers to `x` and to the pullback of `h`, so only these are saved. This is the same as
`jax.vjp(lambda x: h(jax.checkpoint(g)(x)), x)`, except for the barrier: under `jax.jit`, the compiler sees `g(x)` twice
and may merge both computations, which saves the residuals after all. `jax.checkpoint` adds an optimization barrier that
prevents this.
"""

import jax


def vjp_by_hand(g, h, x):
    """Return the value of `h(g(x))` and its backward pass, which saves no intermediate value of `g`.

    Args:
      g: a function of one array.
      h: a function of `g`'s output that returns one array.
      x: an array.

    Returns:
      (z, bwd): `h(g(x))`, and a function from the gradient of z to the gradient of x.
    """
    y = g(x)  # the value alone: jax.vjp(g, x) would hold g's residuals
    z, h_vjp = jax.vjp(h, y)

    def bwd(dz):
        (dy,) = h_vjp(dz)
        _, g_vjp = jax.vjp(g, x)  # runs g again for its residuals; the value is not needed
        (dx,) = g_vjp(dy)
        return dx

    return z, bwd
