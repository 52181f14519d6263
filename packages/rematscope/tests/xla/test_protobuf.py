"""Fields by name, of handwritten messages and of XLA's, and the errors about damaged messages."""

import re

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import SCANNED, array, compiled, module, scanned
from jax import lax
from wire_format import field, varint

from rematscope import TargetError
from rematscope.xla.buffers import allocation
from rematscope.xla.hlo import read
from rematscope.xla.protobuf import Message, blob, integer, integers, message, messages, text, texts


class Inner(Message):
    size = integer(1, default=7)


class Outer(Message):
    count = integer(1)
    title = text(2)
    dimensions = integers(3)
    inner = message(4, lambda: Inner)
    inners = messages(5, lambda: Inner)
    outer = message(6, lambda: Outer)
    data = blob(7)
    words = texts(8)


def test_each_kind_of_field_is_read_by_its_name():
    found = Outer(
        field(1, -1) + field(2, "√".encode()) + field(4, field(1, 3)) + field(5, field(1, 4)) + field(5, b"")
        + field(6, field(2, b"within")) + field(7, b"\xff") + field(8, b"a") + field(8, b"b")
    )  # fmt: skip
    assert (found.count, found.title, found.data, found.words) == (-1, "√", b"\xff", ["a", "b"])
    assert (found.inner.size, [inner.size for inner in found.inners]) == (3, [4, 7])
    assert found.outer.title == "within"


def test_a_field_that_is_left_out_has_its_default():
    found = Outer()
    assert (found.count, found.title, found.dimensions, found.data, found.words, found.inners) == (
        0,
        "",
        [],
        b"",
        [],
        [],
    )
    assert found.inner.size == 7 and found.outer.outer.count == 0


def test_repeated_integers_are_read_packed_and_one_by_one():
    assert Outer(field(3, varint(1) + varint(300)) + field(3, 7)).dimensions == [1, 300, 7]


def test_the_last_value_of_a_repeated_scalar_field_counts_and_messages_are_merged():
    found = Outer(field(1, 1) + field(1, 2) + field(6, field(1, 5) + field(2, b"a")) + field(6, field(2, b"b")))
    assert (found.count, found.outer.count, found.outer.title) == (2, 5, "b")


def test_undeclared_fields_are_skipped():
    four, eight = varint(9 << 3 | 5) + b"abcd", varint(9 << 3 | 1) + b"x" * 8
    assert Outer(four + field(1, 1) + eight + field(100, b"more") + field(101, 3) + field(2, b"a")).title == "a"


@pytest.mark.parametrize(
    ("data", "how"),
    [
        (field(2, b"abc")[:-1], "ends inside a field"),
        (varint(2 << 3 | 2) + varint(-5), "ends inside a field"),
        (varint(1 << 3), "ends inside a number"),
        (varint(9 << 3 | 5) + b"abc", "ends inside a field"),
        (b"\xff" * 11, "more than 64 bits"),
        (varint(1 << 3 | 3), "a field of the unknown kind 3"),
        (field(2, b"\xff"), "invalid characters"),
        (field(2, 1), "another type than its name says"),
        (field(1, b"a"), "another type than its name says"),
    ],
)
def test_a_damaged_message_is_reported_with_its_defect(data, how):
    with pytest.raises(TargetError, match=rf"record of the compiled program cannot be read: .*{how}.*\. Compile again"):
        found = Outer(data)
        _ = found.count, found.title


def convolved(image, kernel, w):
    dimensions = ("NHWC", "HWIO", "NHWC")
    found = lax.conv_general_dilated(image, kernel, (2, 1), "SAME", rhs_dilation=(1, 2), dimension_numbers=dimensions)
    return jnp.linalg.cholesky(jnp.einsum("nhwc,nhwd->cd", found, found) + w.T @ w)


@pytest.mark.parametrize(
    "program",
    [
        lambda: compiled(convolved, array(2, 9, 8, 6), array(3, 3, 6, 9), array(5, 9)),
        lambda: compiled(jax.value_and_grad(scanned()), *SCANNED),
    ],
    ids=["convolution", "scan"],
)
def test_field_names_have_the_meaning_of_xlas_text(program):
    program = program()
    (xla,) = program.runtime_executable().hlo_modules()
    lines = {
        name: line for line in xla.to_string().splitlines() for name in re.findall(r"^ +(?:ROOT )?%?(\S+) = ", line)
    }
    found = module(program).by_id
    assert {instruction.name for instruction in found.values()} == set(lines)
    seen = set()
    for instruction in found.values():
        line, opcode = lines[instruction.name], instruction.opcode
        seen.add(opcode)
        shape, operands = re.search(rf"= (.*?) {opcode}\((.*)", line).groups()
        if not shape.startswith("("):
            assert re.search(r"\[([\d,]*)\]", shape)[1] == ",".join(map(str, instruction.shape.dimensions))
        else:
            assert len(instruction.shape.tuple_shapes) == len(re.findall(r"\w\[", shape))
        assert f'op_name="{instruction.metadata.op_name}"' in line or not instruction.metadata.op_name
        assert all(re.search(rf"%?{re.escape(found[number].name)}\b", operands) for number in instruction.operand_ids)
        match opcode:
            case "parameter":
                assert operands.startswith(f"{instruction.parameter_number})")
            case "get-tuple-element":
                assert f"index={instruction.tuple_index}" in line
            case "dot":
                contracted = instruction.dot_dimension_numbers.lhs_contracting_dimensions
                assert f"lhs_contracting_dims={{{','.join(map(str, contracted))}}}" in line
            case "convolution":
                window = instruction.window.dimensions
                assert f"size={'x'.join(str(dimension.size) for dimension in window)} " in line
                assert f"stride={'x'.join(str(dimension.stride) for dimension in window)} " in line
                assert f"rhs_dilate={'x'.join(str(dimension.window_dilation) for dimension in window)}" in line
                # Places of batch, features and space in the result, as in 2b01f.
                where = instruction.convolution_dimension_numbers
                layout = re.search(r"dim_labels=\w+->(\w+)", line)[1]
                assert layout.index("b") == where.output_batch_dimension
                assert layout.index("f") == where.output_feature_dimension
                assert [layout.index(letter) for letter in "01"] == where.output_spatial_dimensions
            case "custom-call":
                assert f'custom_call_target="{instruction.custom_call_target}"' in line
    assert seen >= ({"convolution", "custom-call"} if "convolution" in seen else {"while", "get-tuple-element", "dot"})


def serialized():
    program = compiled(jnp.sin, array(3))
    (xla,) = program.runtime_executable().hlo_modules()
    return xla.as_serialized_hlo_module_proto(), program.memory_analysis().serialized_buffer_assignment_proto


def test_half_a_module_and_half_a_record_are_refused_in_a_sentence():
    whole, record = serialized()
    with pytest.raises(TargetError, match="cannot be read"):
        read(whole[: len(whole) // 2])
    assert allocation(read(whole), record, "").peak_bytes > 0
    with pytest.raises(TargetError, match="cannot be read"):
        allocation(read(whole), record[:-1], "")


def test_a_module_with_dangling_references_is_refused():
    instruction = field(1, b"sine") + field(2, b"sine") + field(35, 1) + field(36, 5)
    computation = field(2, instruction) + field(5, 2) + field(6, 1)
    with pytest.raises(TargetError, match="refers to an instruction or computation that does not exist"):
        read(field(3, computation) + field(6, 2))
