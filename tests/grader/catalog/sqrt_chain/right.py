"""Right answers to sqrt_chain, spelled in many ways."""

import functools

import flax.linen as nn
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


@passes
def linen_modules(fs, k):
    class Segment(nn.Module):
        places: tuple

        def __call__(self, x):
            return chain([fs[place] for place in self.places])(x)

    places = [tuple(map(int, part)) for part in np.array_split(range(len(fs)), k)]
    return lambda x: nn.Sequential([nn.remat(Segment)(own) for own in places]).apply({}, x)


class Chain:
    """Cuts when it is called."""

    def __init__(self, fs, k):
        self.fs, self.k = tuple(fs), k

    def __call__(self, x):
        (length, longer), rest = divmod(len(self.fs), self.k), iter(self.fs)
        for number in range(self.k):
            segment = [next(rest) for _ in range(length + (number < longer))]
            x = jax.checkpoint(functools.partial(self.run, segment))(x)
        return x

    @staticmethod
    def run(segment, x):
        return chain(segment)(x)


passes(Chain)
