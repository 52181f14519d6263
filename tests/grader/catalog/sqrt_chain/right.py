"""Right answers to sqrt_chain, spelled in many ways."""

import functools

import jax
import numpy as np
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def chain(fs):
    return lambda x: functools.reduce(lambda x, f: f(x), fs, x)


@passes
def split_by_numpy(fs, k):
    segments = [jax.checkpoint(chain(segment)) for segment in np.array_split(fs, k)]
    return chain(segments)


@passes
def segment_by_segment(fs, k):
    def run(x):
        left = list(fs)
        for more in range(k, 0, -1):
            length = -(-len(left) // more)
            segment, left = left[:length], left[length:]
            x = jax.remat(lambda x, segment=segment: chain(segment)(x))(x)
        return x

    return run


@passes
def recursive(fs, k):
    if k == 1:
        return jax.checkpoint(chain(fs))
    length = -(-len(fs) // k)
    first, others = jax.checkpoint(jax.jit(chain(fs[:length]))), recursive(fs[length:], k - 1)
    return lambda x: others(first(x))


@passes
def by_its_number(fs, k):
    numbers = np.concatenate([[number] * len(part) for number, part in enumerate(np.array_split(range(len(fs)), k))])

    @functools.partial(jax.checkpoint, static_argnums=0)
    def run(segment, x):
        for f, number in zip(fs, numbers, strict=True):
            x = f(x) if number == segment else x
        return x

    return jax.jit(lambda x: functools.reduce(lambda x, segment: run(segment, x), range(k), x))


@passes
def takes_from_the_list(fs, k):
    lengths = [len(fs) // k + (number < len(fs) % k) for number in range(k)]
    segments = [chain([fs.pop(0) for _ in range(length)]) for length in lengths]
    return chain([*map(jax.checkpoint, segments)])


@passes
def checkpoints_within(fs, k):
    return chain([jax.checkpoint(chain([*map(jax.checkpoint, segment)])) for segment in np.array_split(fs, k)])


@RIGHT.passes_with_advice
def without_a_barrier(fs, k):
    return chain([jax.checkpoint(chain(segment), prevent_cse=False) for segment in np.array_split(fs, k)])
