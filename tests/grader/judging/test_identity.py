"""A residual counts as a value of the reference if that value can replace it; information hidden in it is found."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from grader.exercises.feedback import Feedback
from grader.exercises.requirements import Recomputes, Saves
from grader.exercises.spec import Case
from grader.judging.judge import judge
from grader.tracing import capture


class Folded:
    """An exercise, its task and its expectation in one class: `abs` drops the sign of its argument.

    An answer that saves only the result must recompute the matmul. One that also saves the sign need not.
    """

    signature = "folded(w, v, x)"
    mistakes = ()
    feedback = Feedback({}, (), "", "", {})

    @staticmethod
    def cases(kinds=(jnp.float32, jnp.float16)):
        shapes = (6, 5), (5, 7), (8, 6)
        return [Case(kind.__name__, tuple(jax.ShapeDtypeStruct(shape, kind) for shape in shapes)) for kind in kinds]

    @staticmethod
    def reference(w, v, x):
        y = x @ w
        folded = abs(y)
        return jnp.sin(folded) @ v, {"the product": y, "its signs": y > 0, "its absolute values": folded}

    @staticmethod
    def requirements(case):
        saves = Saves(("its absolute values",), too_much="What else?", by_hand=True)
        return ((saves, Recomputes(count=1, too_many="Which?")),)

    @staticmethod
    def sample_input(rng, argument):
        size = rng.uniform(0.3, 1, argument.shape)
        return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def verdict(keep, find, kinds=(jnp.float32, jnp.float16)):
    """Return the verdict on an answer that saves its arguments and `keep(|y|, y > 0)`. Its backward pass recovers both
    values as `find(saved, x, w)`."""

    @jax.custom_vjp
    def answer(w, v, x):
        return jnp.sin(abs(x @ w)) @ v

    def forward(w, v, x):
        y = x @ w
        return jnp.sin(abs(y)) @ v, (w, v, x, keep(abs(y), y > 0))

    def backward(kept, dz):
        w, v, x, packed = kept
        folded, positive = find(packed, x, w)
        dy = jnp.where(positive, 1, -1).astype(w.dtype) * jnp.cos(folded) * (dz @ v.T)
        return x.T @ dy, jnp.sin(folded).T @ dz, dy @ w.T

    answer.defvjp(forward, backward)
    cases = Folded.cases(kinds)
    return judge(capture.capture(answer, "folded", cases), cases, Folded, Folded, seed=0)


def positive(x, w):
    return x @ w > 0


HONEST = {
    "as it is": (lambda h, s: h, lambda h, x, w: (h, positive(x, w))),
    "flat": (lambda h, s: h.ravel(), lambda h, x, w: (h.reshape(8, 5), positive(x, w))),
    "transposed": (lambda h, s: h.T, lambda h, x, w: (h.T, positive(x, w))),
    "transposed and flat": (lambda h, s: h.T.ravel(), lambda h, x, w: (h.reshape(5, 8).T, positive(x, w))),
    "cut in two": (
        lambda h, s: h.reshape(2, 4, 5).transpose(2, 0, 1),
        lambda h, x, w: (h.transpose(1, 2, 0).reshape(8, 5), positive(x, w)),
    ),
    "among sizes of 1": (lambda h, s: h[:, None, :, None], lambda h, x, w: (h[:, 0, :, 0], positive(x, w))),
    "with zeros whose sign is lost": (lambda h, s: h * 1 + 0, lambda h, x, w: (h, positive(x, w))),
    "rounded otherwise": (lambda h, s: h / 3 * 3, lambda h, x, w: (h, positive(x, w))),
    "rounded to six digits": (lambda h, s: h + jnp.sin(h) * 1e-7, lambda h, x, w: (h, positive(x, w))),
}


@pytest.mark.parametrize("spelling", HONEST)
def test_a_value_is_identified_in_any_shape_order_and_rounding(spelling):
    assert verdict(*HONEST[spelling]).passed


def test_gradients_that_rounding_changed_much_identify_no_value_of_another_case():
    """The residual differs from the value in the last bits in float32. In float16 it is equal, but the gradients are
    rounded coarsely."""
    spelled = (
        lambda h, s: h / 3 * 3 if h.dtype == jnp.float32 else h,
        lambda h, x, w: ((h + 64) - 64 if h.dtype == jnp.float16 else h, positive(x, w)),
    )
    assert verdict(*spelled).passed


def bits_of(h):
    return {2: jnp.uint16, 4: jnp.uint32}[h.dtype.itemsize]


def with_bit(h, sign, place=0):
    bits = lax.bitcast_convert_type(h, bits_of(h))
    return lax.bitcast_convert_type(
        (bits & ~(jnp.ones_like(bits) << place)) | (sign.astype(bits.dtype) << place), h.dtype
    )


def bit_of(h, place=0):
    return (lax.bitcast_convert_type(h, bits_of(h)) >> place) & 1 == 1


def step(h):
    return 4 * jnp.finfo(h.dtype).eps.astype(h.dtype)


def rounding_error(sign):
    """float16 cannot represent 2049, so the result, which is 0 without rounding, is 1 with it."""
    return (sign * jnp.float32(2049)).astype(jnp.float16).astype(jnp.float32) - sign * jnp.float32(2049)


HIDDEN = {
    "in the lowest bit": (with_bit, lambda h, x, w: (h, bit_of(h))),
    "in the lowest bit, inverted": (lambda h, s: with_bit(h, ~s), lambda h, x, w: (h, ~bit_of(h))),
    "in the third bit": (lambda h, s: with_bit(h, s, 2), lambda h, x, w: (h, bit_of(h, 2))),
    "in the lowest bit, in another shape": (
        lambda h, s: with_bit(h, s).T.ravel(),
        lambda h, x, w: (h.reshape(5, 8).T, bit_of(h.reshape(5, 8).T)),
    ),
    "as steps that are even or odd": (
        lambda h, s: (2 * jnp.round(h / (2 * step(h))) + s.astype(h.dtype)) * step(h),
        lambda h, x, w: (h, jnp.round(h / step(h)) % 2 != 0),
    ),
    "in rounding errors that are added": (
        lambda h, s: (jnp.round(h * 2**18) / 2**18 + rounding_error(s) * 2**-20).astype(h.dtype),
        lambda h, x, w: (h, h * 2**18 % 1 != 0),
    ),
}
APART = {
    "as rounding errors": (
        lambda h, s: (h, rounding_error(s)),
        lambda kept, x, w: (kept[0], kept[1] != 0),
    ),
    "in a sign": (lambda h, s: jnp.where(s, h, -h), lambda h, x, w: (abs(h), h > 0)),
    "in an exponent": (
        lambda h, s: jnp.where(s, h, h * 2**20),
        lambda h, x, w: (jnp.where(h > 16, h / 2**20, h), h <= 16),
    ),
    "in an array of both": (lambda h, s: jnp.stack([h, s.astype(h.dtype)]), lambda k, x, w: (k[0], k[1] != 0)),
    "as bits that are packed": (
        lambda h, s: (h, jnp.packbits(s)),
        lambda kept, x, w: (kept[0], jnp.unpackbits(kept[1])[: kept[0].size].reshape(kept[0].shape) == 1),
    ),
}


@pytest.mark.parametrize("place", HIDDEN)
def test_data_hidden_in_a_value_is_found(place):
    kinds = (jnp.float32,) if place == "in rounding errors that are added" else (jnp.float32, jnp.float16)
    found = verdict(*HIDDEN[place], kinds)
    assert found.outcome == "not passed"
    assert found.findings[0].kind == "also saved" and "hidden in its low-order bits" in found.findings[0].text, found


@pytest.mark.parametrize("place", APART)
def test_data_saved_next_to_a_value_is_found(place):
    found = verdict(*APART[place], (jnp.float32,))
    assert found.findings[0].kind == "also saved" and "hidden" not in found.findings[0].text, found


def test_a_wider_dtype_is_reported():
    found = verdict(lambda h, s: h.astype(jnp.float32), lambda h, x, w: (h.astype(w.dtype), positive(x, w)))
    assert found.findings[0].kind == "also saved" and found.findings[0].cases == ("float16",)
    assert "its absolute values, f32[8,5]" in found.findings[0].text and "f16[8,5]" in found.findings[0].text
