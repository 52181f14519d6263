"""Wrong answers to predict_residuals, each with the finding that must name its mistake."""

from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
RIGHT = {
    "sin": ["cos(x)"],
    "exp": ["exp(x)"],
    "relu": ["x > 0"],
    "tanh": ["1 - tanh(x)**2"],
    "log": ["x"],
    "sigmoid": ["sigmoid(x) * (1 - sigmoid(x))"],
    "cube": ["3 * x**2"],
    "add": [],
    "dot": ["W", "x"],
}


def but(name, **changes):
    """The right answer, except for this question."""

    def answer(op):
        return changes.get(op, RIGHT[op])

    answer.__name__ = name
    return answer


def wrong(name, *words, hint, op, kept, kind="wrong value"):
    fails_with(kind, *words, hint=hint, cases=(op,))(but(name, **{op: kept}))


wrong(
    "sin_saves_nothing",
    "it says that nothing is saved",
    "Is the operation linear?",
    hint="way_back_through_operation_gradient",
    op="sin",
    kept=[],
)

wrong(
    "relu_saves_x",
    "it says that relu saves x",
    "how large `x` is",
    "1 name from the page",
    hint="derivative_relu_1_0_dtype",
    op="relu",
    kept=["x"],
)
wrong(
    "relu_saves_its_output",
    "relu saves its own output",
    "smallest array",
    hint="derivative_relu_1_0_dtype",
    op="relu",
    kept=["relu(x)"],
)
wrong(
    "sin_saves_its_output",
    "sin saves its own output",
    "including its sign",
    hint="know_derivative_did_jax_save",
    op="sin",
    kept=["sin(x)"],
)
wrong(
    "exp_saves_x",
    "it says that exp saves x",
    "derivative of exp",
    hint="know_derivative_did_jax_save",
    op="exp",
    kept=["x"],
)
wrong(
    "tanh_saves_x",
    "it says that tanh saves x",
    "compute the derivative",
    hint="know_derivative_did_jax_save",
    op="tanh",
    kept=["x"],
)
wrong(
    "tanh_saves_its_output",
    "tanh saves its own output",
    "the derivative itself?",
    hint="know_derivative_did_jax_save",
    op="tanh",
    kept=["tanh(x)"],
)
wrong(
    "log_saves_its_output",
    "log saves its own output",
    "what value does it depend on",
    hint="derivative_log_x_1_x",
    op="log",
    kept=["log(x)"],
)
wrong(
    "log_saves_its_derivative",
    "log saves its derivative",
    "What other operation gives the same result",
    hint="derivative_log_x_1_x",
    op="log",
    kept=["1 / x"],
)
wrong(
    "sigmoid_saves_x",
    "it says that sigmoid saves x",
    "compute the derivative",
    hint="know_derivative_did_jax_save",
    op="sigmoid",
    kept=["x"],
)
wrong(
    "sigmoid_saves_its_output",
    "sigmoid saves its own",
    "the derivative itself?",
    hint="know_derivative_did_jax_save",
    op="sigmoid",
    kept=["sigmoid(x)"],
)
wrong(
    "cube_saves_x",
    "it says that cube saves x.",
    "compute the derivative",
    hint="know_derivative_did_jax_save",
    op="cube",
    kept=["x"],
)
wrong(
    "cube_saves_the_square",
    "it says that cube saves x ** 2",
    "Saving `x ** 2` would be enough",
    hint="know_derivative_did_jax_save",
    op="cube",
    kept=["x**2"],
)
wrong(
    "add_saves_its_output",
    "add saves its result",
    "have to be saved",
    hint="x_grows_1_much_x",
    op="add",
    kept=["x + y"],
)
wrong(
    "add_saves_its_arguments",
    "add saves its arguments",
    "no name from the page",
    hint="x_grows_1_much_x",
    op="add",
    kept=["y", "x"],
)
wrong("add_saves_x", "add saves x", "have to be saved", hint="x_grows_1_much_x", op="add", kept=["x"])
wrong("add_saves_y", "add saves y", "have to be saved", hint="x_grows_1_much_x", op="add", kept=["y"])
wrong(
    "dot_saves_x",
    "dot saves only x",
    "2 names from the page",
    hint="dot_gradient_respect_outer_dy",
    op="dot",
    kept=["x"],
)
wrong(
    "dot_saves_w",
    "dot saves only W",
    "for each of these gradients",
    hint="dot_gradient_respect_outer_dy",
    op="dot",
    kept=["W"],
)
wrong("dot_saves_its_result", "dot saves its result", hint="dot_gradient_respect_outer_dy", op="dot", kept=["W @ x"])
wrong(
    "dot_saves_all",
    "of its 3 names, 2 are right",
    "['W', 'x', 'W @ x']",
    hint="dot_gradient_respect_outer_dy",
    op="dot",
    kept=["W", "x", "W @ x"],
)
wrong("one_too_many", "of its 2 names, 1 is right", hint="derivative_relu_1_0_dtype", op="relu", kept=["x > 0", "x"])
wrong("two_wrong", "of its 2 names, none is right", hint="many_names_list_many_should", op="sin", kept=["x", "sin(x)"])
wrong(
    "other_words",
    "'mask' is not one of the names",
    "stands for that value",
    hint="mask_says_derivative_relu_1",
    op="relu",
    kept=["mask"],
    kind="unknown name",
)
wrong(
    "spelled_otherwise",
    "'3x**2' is not one of the names",
    hint="compare_name_list_character_character",
    op="cube",
    kept=["3x**2"],
    kind="unknown name",
)
wrong(
    "a_name_in_no_list",
    "returns the string 'cos(x)' instead of a list of names",
    hint="list_written_square_brackets_even",
    op="sin",
    kept="cos(x)",
    kind="wrong type",
)
wrong(
    "a_number_of_values",
    "returns [1] instead of a list of names",
    hint="list_written_square_brackets_even",
    op="exp",
    kept=[1],
    kind="wrong type",
)
wrong(
    "a_set",
    "returns a set, not plain",
    hint="list_written_square_brackets_even",
    op="dot",
    kept={"x", "W"},
    kind="wrong type",
)
wrong(
    "nothing_for_one",
    "returns None",
    "What should predict_residuals(op)",
    hint="list_written_square_brackets_even",
    op="relu",
    kept=None,
    kind="wrong type",
)


@fails_with("wrong value", "it says that sin saves x", hint="derivative_relu_1_0_dtype", cases=("sin",))
def x_for_all(op):
    return ["W", "x"] if op == "dot" else ["x"]


@fails_with(
    "wrong value", "the name is wrong", "2 names from the page", hint="derivative_relu_1_0_dtype", cases=("dot",)
)
def one_name_for_many(op):
    return ["cos(x)"] if op in ("exp", "relu", "dot") else RIGHT[op]


@fails_with(
    "raises", "KeyError: 'dot'", "has no entry in your answer", hint="call_operation_table_list_return", cases=("dot",)
)
def one_forgotten(op):
    return {name: kept for name, kept in RIGHT.items() if name != "dot"}[op]


CALLS = []


@fails_with("changes from call to call", "the first time and", hint="call_twice_one_cell_same", cases=("cube",))
def every_second_time(op):
    CALLS.append(op)
    return ["x"] if op == "cube" and len(CALLS) % 2 else RIGHT[op]
