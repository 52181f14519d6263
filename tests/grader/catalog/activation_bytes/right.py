"""Right answers to activation_bytes, spelled in many ways."""

import dataclasses
import math

import numpy as np
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def the_papers_table(s, b, h, a, t, mode):
    sbh, matrix = s * b * h, 5 * a * s * s * b // t
    return {
        "tensor": 10 * sbh + 24 * sbh // t + matrix,
        "tensor+sequence": 34 * sbh // t + matrix,
        "tensor+selective": 10 * sbh + 24 * sbh // t,
        "tensor+sequence+selective": 34 * sbh // t,
        "full": 2 * sbh,
    }[mode]


@dataclasses.dataclass
class Layer:
    s: int
    b: int
    h: int
    a: int
    t: int

    def nbytes(self, mode):
        of_width = self.s * self.b * self.h
        if mode == "full":
            return 2 * of_width
        parts = set(mode.split("+"))
        matrix = 0 if "selective" in parts else 5 * self.a * self.s**2 * self.b
        return 10 * of_width // (self.t if "sequence" in parts else 1) + (24 * of_width + matrix) // self.t


@passes
def as_a_dataclass(*arguments):
    return Layer(*arguments[:-1]).nbytes(arguments[-1])


@passes
def numpys_integers(s, b, h, a, t, mode):
    return np.int64(the_papers_table(s, b, h, a, t, mode))


class ByName:
    """The page's table, value by value."""

    split = ("query_proj", "key_proj", "value_proj", "context"), ("mlpwi", "gelu")
    whole = ("x", "norm1", "middle", "norm2"), ("out_mask", "mlp_mask")

    def __call__(self, s, b, h, a, t, mode):
        tokens = s // t if "sequence" in mode else s
        kept = dict.fromkeys(self.whole[0], ((b, tokens, h), 2)) | dict.fromkeys(self.whole[1], ((b, tokens, h), 1))
        kept |= dict.fromkeys(self.split[0], ((b, s, a // t, h // a), 2))
        kept |= dict.fromkeys(self.split[1], ((b, s, 4 * h // t), 2))
        if "selective" not in mode:
            matrix = b, a // t, s, s
            kept |= {"scores": (matrix, 2), "probs_mask": (matrix, 1), "probs": (matrix, 2)}
        names = ["x"] if mode == "full" else kept
        return sum(math.prod(shape) * nbytes for shape, nbytes in map(kept.get, names))


by_name = ByName()
by_name.__name__ = "by_name"
passes(by_name)
