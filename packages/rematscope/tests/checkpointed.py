"""Little functions with names. Each is given `checkpoint`, and puts it where it likes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name as name

F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
X, W, WS = F32((8, 4)), F32((4, 4)), F32((3, 4, 4))
LITTLE: dict = {}


def little(*args, names):
    """Add the decorated function to the test cases. `names` are the names that some choice can save."""

    def add(make):
        LITTLE[make.__name__] = make, args, tuple(names.split())
        return make

    return add


def layer(x, w):
    b = jnp.sin(name(x @ w, "a"))
    return jnp.sin(name(b @ w.T, "c")), None


@little(X, WS, names="a c")
def scan_of_checkpoint(checkpoint):
    return lambda x, ws: lax.scan(checkpoint(layer), x, ws)[0]


@little(X, WS, names="a c")
def checkpoint_of_scan(checkpoint):
    return checkpoint(lambda x, ws: lax.scan(layer, x, ws)[0])


@little(X, WS, names="a c")
def reverse_scan_of_checkpoint(checkpoint):
    def f(x, ws):
        x, ys = lax.scan(checkpoint(lambda x, w: (layer(x, w)[0], name(jnp.exp(x), "y"))), x, ws, reverse=True)
        return jnp.sin(x).sum() + jnp.sin(ys).sum()

    return f


@little(X, WS, names="a c")
def unrolled_checkpoints(checkpoint):
    def f(x, ws):
        for i in range(3):
            x, _ = checkpoint(layer)(x, ws[i])
        return x

    return f


@little(X, WS, names="a c")
def nested_scans(checkpoint):
    return checkpoint(lambda x, ws: lax.scan(lambda x, _: (lax.scan(layer, x, ws)[0], None), x, length=2)[0])


@little(X, WS, names="a c")
def nested_checkpoints(checkpoint):
    return checkpoint(lambda x, ws: lax.scan(checkpoint(layer), x, ws)[0])


@little(X, W, WS, names="k m h")
def values_that_do_not_change_in_a_loop(checkpoint):
    def f(x, w, ws):
        def body(h, w_i):
            k, m = name(jnp.sin(w @ w), "k"), name(jnp.tanh(w_i @ w_i), "m")
            h = name(jnp.sin(h @ k @ m), "h")
            return h, jnp.exp(h).sum()

        return lax.scan(body, x, ws)[1]

    return checkpoint(f)


@little(X, WS, names="u v")
def carries_that_need_each_other(checkpoint):
    def f(x, ws):
        def body(pair, w):
            a, b = pair
            return (name(jnp.sin(b @ w), "u"), name(jnp.tanh(a * b), "v")), None

        (a, b), _ = lax.scan(body, (x, 2 * x), ws)
        return a * b

    return checkpoint(f)


@little(X, W, names="a")
def fori_loop(checkpoint):
    return checkpoint(lambda x, w: lax.fori_loop(0, 3, lambda i, h: jnp.sin(name(h @ w, "a")), x))


@little(X, W, names="out z")
def named_outputs_that_another_checkpoint_reads(checkpoint):
    @checkpoint
    def part(x, w):
        y = name(jnp.sin(x @ w), "out")
        z = name(jnp.exp(y), "z")
        return z, jnp.sum(z * jnp.cos(y))

    def f(x, w):
        z, a = part(x, w)
        z, b = part(z, w)
        return z.sum() + a + b

    return f


@little(X, W, names="in")
def a_checkpoint_whose_input_is_needed_only_without_its_name(checkpoint):
    def f(x, w):
        part = checkpoint(lambda h: jnp.sin(name(2 * h, "in") @ w))
        return part(jnp.cos(x @ w))

    return f


@little(X, W, names="a b")
def a_checkpoint_and_a_name_beside_it(checkpoint):
    def f(x, w):
        part = checkpoint(lambda x: name(jnp.sin(name(x @ w, "a")), "b") @ w)
        return part(x) * jnp.exp(name(x, "beside"))

    return f


@little(X, X, X, W, names="q k logits p v")
def attention(checkpoint):
    def f(q, k, v, w):
        logits = name(name(q @ w, "q") @ name(k @ w, "k").T, "logits")
        return name(jax.nn.softmax(logits), "p") @ name(v @ w, "v")

    return checkpoint(f)


@little(X, W, names="s inner")
def custom_vjp_with_a_name(checkpoint):
    @jax.custom_vjp
    def sine(x, w):
        return jnp.sin(x @ w)

    def forward(x, w):
        a = name(x @ w, "inner")
        return jnp.sin(a), (a, x, w)

    def backward(saved, ct):
        a, x, w = saved
        return ct * jnp.cos(a) @ w.T, x.T @ (ct * jnp.cos(a))

    sine.defvjp(forward, backward)
    return checkpoint(lambda x, w: jnp.sin(sine(name(jnp.sin(x), "s"), w)))


@little(X, W, names="b a")
def jit_inside(checkpoint):
    inner = jax.jit(lambda x, w: jnp.sin(name(x @ w, "a")))
    return checkpoint(lambda x, w: inner(name(jnp.sin(x), "b"), w))


@little(X, WS, names="a b")
def vmap_of_checkpoint(checkpoint):
    part = checkpoint(lambda x, w: jnp.sin(name(jnp.sin(name(x @ w, "a")), "b") @ w))
    return lambda x, ws: jax.vmap(part, (None, 0))(x, ws)


@little(X, W, names="relu silu lse")
def activations(checkpoint):
    def f(x, w):
        y = jax.nn.relu(name(x @ w, "relu")) @ w
        y = jax.nn.silu(name(y @ w, "silu"))
        return jax.nn.logsumexp(name(y @ w, "lse"), axis=-1)

    return checkpoint(f)


@little(X, W, names="a b")
def a_value_with_two_names(checkpoint):
    return checkpoint(lambda x, w: jnp.sin(name(name(name(x @ w, "a"), "a"), "b") @ w))


@little(X, W, names="a b")
def a_name_on_equal_values(checkpoint):
    def f(x, w):
        one, other = name(jnp.sin(x @ w), "a"), name(jnp.sin(x @ w), "a")
        return jnp.sin(one @ w) + jnp.cos(other @ w) + jnp.tanh(name(jnp.sin(x @ w), "b") @ w)

    return checkpoint(f)


TABLE = np.arange(4, dtype=np.float32)


@little(X, W, names="x w table half y z")
def names_on_arguments_constants_and_outputs(checkpoint):
    def f(x, w):
        x, w, table, half = name(x, "x"), name(w, "w"), name(jnp.asarray(TABLE), "table"), name(np.float32(0.5), "half")
        y = name(jnp.sin(half * x @ w), "y")
        z = name(jnp.exp(y * table), "z")
        return name(x, "same"), y, z, jnp.sin(z @ w)

    return checkpoint(f)


@little(X, W, names="y t")
def names_that_only_linear_operations_read(checkpoint):
    def f(x, w):
        y = name(x @ w, "y")
        name(jnp.cos(x), "discarded")
        return name(name(y.T, "t") @ y, "linear").sum() + name(2 * x, "last").sum()

    return checkpoint(f)


@little(X, W, F32((0, 4)), F32((0, 4)), names="empty y")
def no_bytes(checkpoint):
    return checkpoint(lambda x, w, e, d: (jnp.sin(name(jnp.sin(e), "empty") * d), jnp.sin(name(x @ w, "y") @ w)))


@little(X, W, jax.ShapeDtypeStruct((3,), np.int32), names="order y next t")
def whole_numbers(checkpoint):
    def f(x, w, i):
        order = name(jnp.argsort(lax.stop_gradient(x @ w).sum(0)), "order")
        y = name(x @ w, "y")[:, order]
        return jnp.sin(name(jnp.sin(y)[name(i + 1, "next")], "t") @ w)

    return checkpoint(f)


@little(X, W, jax.eval_shape(lambda: jax.random.key(0)), names="key kept noise dropped")
def random_numbers(checkpoint):
    def f(x, w, key):
        one, other = jax.random.split(key)
        kept = name(jax.random.bernoulli(name(one, "key"), 0.5, x.shape), "kept")
        noise = name(jax.random.normal(other, x.shape), "noise")
        return jnp.sin(name(jnp.where(kept, jnp.sin(x @ w), 0), "dropped") * noise)

    return checkpoint(f)


@little(X, W, names="start a factor")
def while_loop_beside(checkpoint):
    def f(x, w):
        start = lax.stop_gradient(name(jnp.abs(x @ w) + 1, "start"))
        factor = lax.while_loop(lambda s: s.sum() < 100, lambda s: name(s * 2, "doubled"), start)
        return jnp.sin(name(x @ w, "a") * name(jnp.sin(factor), "factor"))

    return checkpoint(f)


@little(X, W, names="y printed z")
def prints(checkpoint):
    def f(x, w):
        y = name(jnp.sin(x @ w), "y")
        jax.debug.print("{}", name(y * 2, "printed").sum())
        return jnp.sin(name(jnp.sin(y @ w), "z"))

    return checkpoint(f)


@little(X, W, names="h g")
def a_gradient_inside(checkpoint):
    def f(x, w):
        gradient = jax.grad(lambda x: jnp.sin(name(jnp.tanh(name(x @ w, "h")), "g") @ w).sum())
        return jnp.sin(gradient(x)).sum()

    return checkpoint(f)


# Names that JAX could keep, but not so that the bytes of one are its own.


@little(X, W, names="y z")
def branches(checkpoint):
    def f(x, w):
        y = jnp.sin(name(x @ w, "y"))
        z = lax.cond(x.sum() > 0, lambda y: jnp.sin(name(jnp.sin(y) @ w, "one")), lambda y: name(y @ w, "other"), y)
        return jnp.sin(name(z, "z"))

    return checkpoint(f)


@little(X, WS, names="h")
def branches_in_a_loop(checkpoint):
    def body(h, at):
        w, i = at
        ways = [lambda h: jnp.sin(name(h @ w, "one")), lambda h: jnp.tanh(name(h @ w, "other")), lambda h: h]
        return lax.switch(i, ways, name(h * 2, "h")), None

    return lambda x, ws: lax.scan(checkpoint(body), x, (ws, jnp.arange(3)))[0]


@little(jax.ShapeDtypeStruct((4,), np.complex64), names="size")
def complex_numbers(checkpoint):
    return checkpoint(lambda z: jnp.sin(name(jnp.abs(name(jnp.exp(z), "complex")), "size")))


@little(X, W, names="s")
def a_checkpoint_in_a_custom_rule(checkpoint):
    def part(x, w):
        return jnp.sin(name(jnp.sin(x @ w), "inner") @ w)

    rule = jax.custom_vjp(part)
    rule.defvjp(lambda x, w: jax.vjp(jax.checkpoint(part), x, w), lambda pullback, ct: pullback(ct))
    return checkpoint(lambda x, w: jnp.sin(rule(name(jnp.sin(x), "s"), w)))


@little(X, W, names="s rule")
def custom_jvp_with_a_name(checkpoint):
    @jax.custom_jvp
    def softplus(x):
        return jnp.log1p(jnp.exp(name(jnp.sin(x), "hidden")))

    softplus.defjvps(lambda t, out, x: t * jax.nn.sigmoid(name(jnp.sin(x), "rule")) * jnp.cos(x))
    return checkpoint(lambda x, w: jnp.sin(softplus(name(jnp.sin(x), "s") @ w)))


BARRED = {
    "branches": {"one": "branch", "other": "branch"},
    "branches_in_a_loop": {"one": "branch", "other": "branch"},
    "complex_numbers": {"complex": "complex"},
    "a_checkpoint_in_a_custom_rule": {"inner": "custom rule"},
    "custom_jvp_with_a_name": {"hidden": "its own derivative rule"},
}
