"""The fields of XLA's messages for compiled programs and buffer assignments that this package reads.

Names and numbers are those of OpenXLA's `xla/service/hlo.proto` and `xla/xla_data.proto`, which document each
field; the names leave out `Proto` and `Hlo`. A field never changes its number.
"""

import enum

from rematscope.xla.protobuf import Message, blob, integer, integers, message, messages, text, texts

# xla_data.proto


class PrimitiveType(enum.IntEnum):
    """The element types of JAX's arrays, except those smaller than a byte."""

    PRED = 1
    S8 = 2
    S16 = 3
    S32 = 4
    S64 = 5
    U8 = 6
    U16 = 7
    U32 = 8
    U64 = 9
    F16 = 10
    F32 = 11
    F64 = 12
    C64 = 15
    BF16 = 16
    C128 = 18


class Shape(Message):
    element_type = integer(2)
    dimensions = integers(3)
    tuple_shapes = messages(4, lambda: Shape)


class OpMetadata(Message):
    op_name = text(2)
    stack_frame_id = integer(15)


class Literal(Message):
    s32s = integers(4)
    s64s = integers(5)


class WindowDimension(Message):
    size = integer(1)
    stride = integer(2, default=1)
    padding_low = integer(3)
    window_dilation = integer(5, default=1)
    base_dilation = integer(6, default=1)


class Window(Message):
    dimensions = messages(1, lambda: WindowDimension)


class ConvolutionDimensionNumbers(Message):
    kernel_input_feature_dimension = integer(3)
    output_batch_dimension = integer(9)
    output_feature_dimension = integer(10)
    input_spatial_dimensions = integers(11)
    output_spatial_dimensions = integers(12)


class DotDimensionNumbers(Message):
    lhs_contracting_dimensions = integers(1)


class ReplicaGroup(Message):
    replica_ids = integers(1)


class IotaReplicaGroupList(Message):
    num_devices_per_group = integer(2)


class FrontendAttribute(Message):
    """An entry of a map."""

    key = text(1)
    value = text(2)


class FrontendAttributes(Message):
    map = messages(1, lambda: FrontendAttribute)


class CollectiveDeviceList(Message):
    replica_groups = messages(1, lambda: ReplicaGroup)
    iota_replica_group_list = message(2, lambda: IotaReplicaGroupList)


class MeshAxis(Message):
    size = integer(2)


class Mesh(Message):
    axes = messages(1, lambda: MeshAxis)


class SubAxisInfo(Message):
    size = integer(2)


class AxisRef(Message):
    """An axis of a mesh by its index, or a part of this size of it."""

    mesh_axis_index = integer(1)
    sub_axis_info = message(2, lambda: SubAxisInfo)


class MeshAxesReplicaGroupList(Message):
    mesh = message(1, lambda: Mesh)
    axes = messages(2, lambda: AxisRef)


# hlo.proto: the program


class Instruction(Message):
    name = text(1)
    opcode = text(2)
    shape = message(3, lambda: Shape)
    metadata = message(7, lambda: OpMetadata)
    literal = message(8, lambda: Literal)
    parameter_number = integer(9)
    tuple_index = integer(13)
    dimensions = integers(14)
    window = message(15, lambda: Window)
    convolution_dimension_numbers = message(16, lambda: ConvolutionDimensionNumbers)
    custom_call_target = text(28)
    dot_dimension_numbers = message(30, lambda: DotDimensionNumbers)
    fft_length = integers(32)
    id = integer(35)
    operand_ids = integers(36)
    called_computation_ids = integers(38)
    backend_config = blob(43)
    replica_groups = messages(49, lambda: ReplicaGroup)
    comparison_direction = text(63)
    frontend_attributes = message(68, lambda: FrontendAttributes)
    collective_device_list = message(87, lambda: CollectiveDeviceList)
    mesh_axes_replica_group_list = message(93, lambda: MeshAxesReplicaGroupList)


class Computation(Message):
    instructions = messages(2, lambda: Instruction)
    id = integer(5)
    root_id = integer(6)


class InstructionSequence(Message):
    instruction_ids = integers(1)


class ScheduleEntry(Message):
    """An entry of a map: the id of a computation, and the order of its instructions."""

    key = integer(1)
    value = message(2, lambda: InstructionSequence)


class Schedule(Message):
    sequences = messages(1, lambda: ScheduleEntry)


class FileLocation(Message):
    file_name_id = integer(1)
    function_name_id = integer(2)
    line = integer(3)


class StackFrame(Message):
    file_location_id = integer(1)


class StackFrameIndex(Message):
    """The source lines of operations: four lists, which refer to each other by indices that start at 1."""

    file_names = texts(1)
    function_names = texts(2)
    file_locations = messages(3, lambda: FileLocation)
    stack_frames = messages(4, lambda: StackFrame)


class Module(Message):
    computations = messages(3, lambda: Computation)
    entry_computation_id = integer(6)
    schedule = message(7, lambda: Schedule)
    stack_frame_index = message(17, lambda: StackFrameIndex)


# hlo.proto: the buffer assignment


class Location(Message):
    shape_index = integers(3)
    instruction_id = integer(4)


class LogicalBuffer(Message):
    id = integer(1)
    defined_at = message(3, lambda: Location)


class Assigned(Message):
    """A buffer's part of an allocation, in bytes."""

    logical_buffer_id = integer(1)
    offset = integer(2)
    size = integer(3)


class BufferAllocation(Message):
    size = integer(2)
    is_thread_local = integer(3)
    is_entry_computation_parameter = integer(5)
    assigned = messages(9, lambda: Assigned)
    is_tuple = integer(11)
    is_constant = integer(12)


class BufferAssignment(Message):
    logical_buffers = messages(1, lambda: LogicalBuffer)
    buffer_allocations = messages(3, lambda: BufferAllocation)
