# SPDX-License-Identifier: Apache-2.0
"""Modules, memory, launches, copies, events and requests on a real server."""
import ctypes
import gc
import json
import subprocess
import threading
import time

import numpy as np
import pytest
from conftest import BIN, BUSY_ROUNDS, PTX

import gpushared

TYPES = ("?", "i1", "u2", "<i4", ">i4", "u8", "f2", "f4", "f8", "c8", "c16", "M8[ns]", "V2", "S5", "U3",
         [("key", "u1"), ("value", "f8")])


class OnlyDlpack:
    """An array of a library that supports only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice:
    """Device memory of a library that supports __cuda_array_interface__."""

    def __init__(self, address, shape, typestr, strides=None):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (address, False),
                                         "strides": strides, "version": 3}


# ---- modules

def test_a_kernel_computes(client, module):
    numbers = client.to_device(np.arange(1000, dtype=np.uint32))
    client.default_stream.launch(module["add_one"], 4, 256, numbers, np.uint32(1000))
    assert (client.default_stream.copy_to_host(numbers) == np.arange(1, 1001)).all()


def test_a_module_lists_its_kernels_and_variables(module):
    assert [kernel.name for kernel in module.kernels] == ["add_one", "scale", "busy", "fault", "hello"]
    kernel = module["add_one"]
    assert kernel.parameters == [(0, 8), (8, 4)] and kernel.parameter_bytes == 12
    assert kernel.threads_per_block_max == 1024 and kernel.static_shared_bytes == 0 and kernel.unsupported == ""
    assert kernel.attributes.ptx_version == 75
    assert [variable.name for variable in module.variables] == ["counter", "text"]


def test_a_variable_of_a_module_is_copied(client, module):
    variable = module.variable("counter")
    value = np.zeros(1, np.uint32)
    client.default_stream.copy_to_host(variable.address, value)
    assert variable.nbytes == 4 and not variable.is_constant and value[0] == 41


def test_missing_names_of_a_module_are_reported(module):
    with pytest.raises(gpushared.NotFound, match="add_one"):
        module["subtract"]
    with pytest.raises(gpushared.NotFound, match="none_such"):
        module.variable("none_such")


def test_text_that_is_no_ptx_is_rejected_with_its_place(client):
    with pytest.raises(gpushared.InvalidArgument, match="line 2"):
        client.load_module(".version 7.0\nnonsense")


def test_modules_come_from_bytes_and_files(client, tmp_path):
    (tmp_path / "kernels.ptx").write_text(PTX)
    assert client.load_module(PTX.encode())["busy"].name == "busy"
    assert client.load_module_file(tmp_path / "kernels.ptx")["busy"].name == "busy"
    with pytest.raises(gpushared.NotFound, match="none.ptx"):
        client.load_module_file(tmp_path / "none.ptx")


# ---- launches

def test_values_of_numpy_and_ctypes_are_arguments(client, module):
    numbers = client.to_device(np.ones(32, np.float32))
    stream = client.default_stream
    stream.launch(module["scale"], 1, 32, numbers, np.float32(1.5))
    stream.launch(module["scale"], (1, 1), (32, 1, 1), np.uint64(numbers.address), ctypes.c_float(2))
    stream.launch(module["scale"], 1, 32, OnDevice(numbers.address, (32,), "<f4"), np.float32(2))
    stream.launch_packed(module["scale"], 1, 32, np.uint64(numbers.address).tobytes() + np.float32(2).tobytes())
    assert (stream.copy_to_host(numbers) == 12).all()


@pytest.mark.parametrize("argument", (3, 3.0, True, "3", None, np.arange(3), np.array(3.0), b"abcd", [1]))
def test_a_value_without_a_size_is_no_argument(client, module, argument):
    numbers = client.allocate(32, np.float32)
    with pytest.raises(TypeError, match="argument 1"):
        client.default_stream.launch(module["scale"], 1, 32, numbers, argument)


def test_arguments_that_do_not_fit_the_kernel_are_rejected(client, module):
    numbers, stream = client.allocate(32, np.float32), client.default_stream
    for wrong in ((numbers,), (numbers, np.float64(2)), (numbers, np.float32(2), np.float32(2)), ()):
        with pytest.raises(gpushared.InvalidArgument, match="scale"):
            stream.launch(module["scale"], 1, 32, *wrong)
    with pytest.raises(gpushared.InvalidArgument):
        stream.launch_packed(module["scale"], 1, 32, b"short")


@pytest.mark.parametrize("grid, block", ((0, 1), (1, 0), (1, 1025), (2**32, 1), (-1, 1), ((1, 1, 1, 1), 1), ((), 1)))
def test_a_shape_beyond_the_limits_is_rejected(client, module, grid, block):
    with pytest.raises(gpushared.InvalidArgument):
        client.default_stream.launch(module["busy"], grid, block, np.uint32(1))


def test_a_fault_says_its_kind_and_stays_with_the_stream(client, module):
    stream = client.create_stream()
    stream.launch(module["fault"], 1, 1)
    for _ in range(2):
        with pytest.raises(gpushared.KernelFault, match="fault") as caught:
            stream.synchronize()
        assert caught.value.fault is gpushared.FaultKind.ILLEGAL_ADDRESS
        assert caught.value.code is gpushared.StatusCode.KERNEL_FAULT
    with pytest.raises(gpushared.KernelFault):
        stream.launch(module["busy"], 1, 1, np.uint32(1))
    with pytest.raises(gpushared.KernelFault):
        client.synchronize()


def test_take_printed_returns_what_kernels_print(client, module):
    client.default_stream.launch(module["hello"], 1, 2)
    client.synchronize()
    assert client.take_printed() == "hello\nhello\n"
    assert client.take_printed() == ""


# ---- memory

@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_arrays_of_every_type_are_copied_unchanged(client, dtype):
    array = np.frombuffer(np.random.default_rng(1).bytes(np.dtype(dtype).itemsize * 12), np.dtype(dtype)).reshape(3, 4)
    buffer = client.to_device(array)
    assert (buffer.shape, buffer.dtype, buffer.nbytes, buffer.size) == (array.shape, array.dtype, array.nbytes, 12)
    assert client.default_stream.copy_to_host(buffer).tobytes() == array.tobytes()
    assert buffer.to_host().tobytes() == array.tobytes()


def test_a_source_may_have_any_layout(client):
    array = np.arange(24).reshape(4, 6)
    for source in (array[::2, ::-1], array.T, np.asfortranarray(array), np.int16(7), array[1:1, :0].reshape(0)[:0]):
        if np.asarray(source).size:
            assert (client.to_device(source).to_host() == source).all()


def test_sources_are_buffers_and_arrays_of_other_libraries(client):
    array = np.arange(6, dtype=np.int32)
    for source in (array.tobytes(), bytearray(array), memoryview(array), OnlyDlpack(array), (ctypes.c_int * 6)(*array)):
        assert client.to_device(source).to_host().tobytes() == array.tobytes()


@pytest.mark.parametrize("source", ([1, 2], 3, "text", None, object()), ids=str)
def test_a_source_without_a_type_is_rejected(client, source):
    with pytest.raises(TypeError, match="array"):
        client.to_device(source)


def test_references_to_python_objects_are_rejected(client):
    for call in (lambda: client.to_device(np.array([object()])), lambda: client.allocate(3, object)):
        with pytest.raises(gpushared.InvalidArgument, match="Python objects"):
            call()


def test_a_destination_is_written_in_place_or_rejected(client):
    buffer, stream = client.to_device(np.arange(6, dtype=np.int32)), client.default_stream
    into = np.zeros((2, 3), np.int32)
    assert stream.copy_to_host(buffer, into) is into and (into.reshape(-1) == np.arange(6)).all()
    read_only = np.zeros(6, np.int32)
    read_only.flags.writeable = False
    for wrong, why in ((np.zeros((6, 2), np.int32)[:, 0], "contiguous"), (read_only, "read-only"),
                       (np.zeros(7, np.int32), "28 bytes"), (np.zeros(6, object), "Python objects")):
        with pytest.raises(gpushared.InvalidArgument, match=why):
            stream.copy_to_host(buffer, wrong)
    with pytest.raises(gpushared.InvalidArgument, match="32 bytes"):
        stream.copy_to_device(buffer, np.arange(4))


def test_slices_are_views(client):
    buffer, stream = client.to_device(np.arange(12, dtype=np.int32).reshape(4, 3)), client.default_stream
    stream.copy_to_device(buffer[1:3], np.full((2, 3), 9, np.int32))
    stream.fill(buffer[3:], 7)
    assert buffer.to_host().tolist() == [[0, 1, 2], [9, 9, 9], [9, 9, 9], [7, 7, 7]]
    assert buffer[3:1].shape == (0, 3) and buffer[-1:].to_host().tolist() == [[7, 7, 7]] and len(buffer) == 4
    with pytest.raises(gpushared.InvalidArgument, match="steps by 1"):
        buffer[::2]
    with pytest.raises(TypeError):
        buffer[1]


def test_a_view_keeps_the_memory(client):
    view = client.to_device(np.arange(1000))[990:]
    gc.collect()
    others = [client.to_device(np.zeros(1000)) for _ in range(20)]
    assert (view.to_host() == np.arange(990, 1000)).all() and others


def test_freed_memory_answers_with_an_error(client, module):
    buffer = client.to_device(np.arange(4))
    view = buffer[2:]
    buffer.free()
    buffer.free()
    for call in (buffer.to_host, view.to_host, lambda: client.default_stream.fill(buffer, 1),
                 lambda: client.default_stream.launch(module["add_one"], 1, 1, buffer, np.uint32(0)),
                 lambda: buffer.__cuda_array_interface__):
        with pytest.raises(gpushared.InvalidArgument, match="freed"):
            call()


def test_memory_of_another_client_is_rejected(server, client, module):
    with gpushared.connect() as other:
        theirs = other.to_device(np.arange(4))
        for call in (lambda: client.default_stream.copy_to_host(theirs),
                     lambda: client.default_stream.launch(module["add_one"], 1, 1, theirs, np.uint32(0))):
            with pytest.raises(gpushared.InvalidArgument, match="another client"):
                call()


def test_numpy_converts_buffers_by_copying(client):
    buffer = client.to_device(np.arange(4, dtype=np.float32))
    assert np.asarray(buffer).tolist() == [0, 1, 2, 3] and np.asarray(buffer, np.int8).dtype == np.int8
    assert np.from_dlpack(buffer, device="cpu").tolist() == [0, 1, 2, 3]
    with pytest.raises(BufferError, match="device='cpu'"):
        np.from_dlpack(buffer)
    with pytest.raises(ValueError):
        np.asarray(buffer, copy=False)


def test_device_memory_of_other_libraries_is_copied(client):
    buffer, stream = client.to_device(np.arange(4, dtype=np.int32)), client.default_stream
    interface = buffer.__cuda_array_interface__
    assert interface["version"] == 3 and interface["data"] == (buffer.address, False)
    theirs = OnDevice(buffer.address + 4, (2,), "<i4")
    assert stream.copy_to_host(theirs).tolist() == [1, 2]
    stream.copy_on_device(theirs, OnDevice(buffer.address + 12, (1,), "<i4"))
    assert buffer.to_host().tolist() == [0, 3, 2, 3]
    with pytest.raises(gpushared.InvalidArgument, match="contiguous"):
        stream.copy_to_host(OnDevice(buffer.address, (2,), "<i4", (8,)))
    with pytest.raises(TypeError, match="device memory"):
        client.to_device(theirs)


def test_fills_repeat_elements(client):
    buffer, stream = client.allocate(8, np.float32), client.default_stream
    stream.fill(buffer, 1.5)
    stream.fill(buffer.address, np.uint16(0), 2)
    assert buffer.to_host().tolist() == [0] + [1.5] * 7
    stream.fill_2d(buffer, 2, width_elements=1, height=2, pitch_bytes=16)
    assert buffer.to_host().tolist() == [2, 1.5, 1.5, 1.5, 2, 1.5, 1.5, 1.5]
    for value, count in ((np.float64(1), None), (1, 9), (1, -1)):
        with pytest.raises(gpushared.InvalidArgument):
            stream.fill(buffer, value, count)
    with pytest.raises(TypeError):
        stream.fill(buffer.address, 1, 2)


def test_copies_of_rows_stay_inside_the_host_array(client):
    stream, array = client.default_stream, np.arange(16, dtype=np.uint8).reshape(4, 4)
    buffer = client.allocate(64)
    stream.fill(buffer, 0)
    rows = {"width_bytes": 2, "height": 3}
    stream.copy_to_device_2d(buffer, array, **rows, destination_pitch_bytes=8, source_pitch_bytes=4)
    stream.copy_on_device_2d(buffer.address + 32, buffer, **rows, destination_pitch_bytes=4, source_pitch_bytes=8)
    into = np.zeros((3, 2), np.uint8)
    stream.copy_to_host_2d(buffer.address + 32, into, **rows, destination_pitch_bytes=2, source_pitch_bytes=4)
    assert into.tolist() == [[0, 1], [4, 5], [8, 9]]
    for width, height, pitch in ((4, 5, 4), (17, 1, 17), (1, 2, 2**63), (1, 2**63, 2), (2**64 - 1, 1, 2**64 - 1)):
        for copy in (stream.copy_to_device_2d, stream.copy_to_host_2d):
            with pytest.raises(gpushared.InvalidArgument, match="exceed the array of 16 bytes"):
                copy(buffer, array, width_bytes=width, height=height, destination_pitch_bytes=pitch,
                     source_pitch_bytes=pitch)


def test_host_arrays_are_shared_with_the_server(client, module):
    stream = client.default_stream
    array = client.allocate_host((10, 100), np.uint32)
    array[...] = np.arange(1000).reshape(10, 100)
    buffer = client.allocate((10, 100), np.uint32)
    stream.copy_to_device(buffer, array)
    stream.launch(module["add_one"], 4, 256, buffer, np.uint32(1000))
    stream.copy_to_host(buffer, array)
    stream.synchronize()
    assert (array.reshape(-1) == np.arange(1, 1001)).all()
    row = array[3]
    del array
    gc.collect()
    more = [client.allocate_host(4000) for _ in range(20)]
    for other in more:
        other[...] = 0
    assert (row == np.arange(301, 401)).all()


def test_memory_beyond_the_quota_is_rejected(server):
    with gpushared.connect(memory_bytes=4 << 20) as small:
        assert small.memory_info.total_bytes == 4 << 20
        with pytest.raises(gpushared.OutOfMemory) as caught:
            small.allocate(1 << 30)
        assert isinstance(caught.value, MemoryError) and "1073741824" in str(caught.value)
        for shape in (-1, (3, -1), 2**64, (2**40, 2**40), 0):
            with pytest.raises(gpushared.Error):
                small.allocate(shape)


def test_an_address_outside_of_the_memory_is_an_error_of_the_stream(client):
    stream = client.create_stream()
    with pytest.raises(gpushared.Error):
        stream.copy_to_host(16, np.zeros(4))
    with pytest.raises(gpushared.Error):
        stream.synchronize()
    client.default_stream.synchronize()


# ---- order and time

def test_events_order_streams_and_measure_time(client, module):
    first, second = client.create_stream(), client.create_stream()
    start, end = (client.create_event(timing=True) for _ in range(2))
    numbers = client.to_device(np.zeros(4, np.uint32))
    first.record(start)
    first.launch(module["busy"], 1, 1, np.uint32(BUSY_ROUNDS // 10))
    first.launch(module["add_one"], 1, 4, numbers, np.uint32(4))
    first.record(end)
    second.wait(end)
    assert second.copy_to_host(numbers).tolist() == [1, 1, 1, 1]
    assert end.query() and start.elapsed_s(end) > 0 > end.elapsed_s(start)
    with pytest.raises(gpushared.InvalidArgument):
        start.elapsed_s(client.create_event())


def test_a_query_does_not_wait(client, module):
    stream, event = client.create_stream(), client.create_event()
    assert stream.query() and event.query()
    stream.launch(module["busy"], 1, 1, np.uint32(BUSY_ROUNDS))
    stream.record(event)
    assert not stream.query() and not event.query()
    stream.synchronize()
    assert stream.query() and event.query()


@pytest.mark.parametrize("wait", ("stream", "event", "client", "copy"))
def test_closing_wakes_a_thread_that_waits(client, module, wait):
    stream, event, buffer, raised = client.create_stream(), client.create_event(), client.allocate(4), []
    stream.launch(module["busy"], 1, 1, np.uint32(0xffffffff))
    stream.record(event)
    waits = {"stream": stream.synchronize, "event": event.synchronize, "client": client.synchronize,
             "copy": lambda: stream.copy_to_host(buffer)}

    def call():
        with pytest.raises(gpushared.Disconnected):
            waits[wait]()
        raised.append(True)

    waiter = threading.Thread(target=call)
    waiter.start()
    time.sleep(0.1)
    # If the call held the interpreter's lock, this thread would run only after the kernel, and the call would succeed.
    client.close()
    waiter.join(10)
    assert raised


# ---- requests

def of_ps(server, client):
    said = subprocess.run([BIN / "gpusharedctl", "--socket", server.socket, "ps", "--json"], check=True,
                          capture_output=True, text=True).stdout
    return next(entry for entry in json.loads(said)["clients"] if entry["client"] == client.session_id)


def test_the_server_knows_the_client_and_its_requests(server):
    with gpushared.connect(name="päonie", scheduling_class="high", weight=1, latency_target_s=10.0) as client:
        kernel, stream = client.load_module(PTX)["busy"], client.default_stream
        for _ in range(3):
            with stream.request(age_s=0.001):
                stream.launch(kernel, 1, 1, np.uint32(10))
            stream.synchronize()
        client.expect_request_in(0.5)
        shown = of_ps(server, client)
    assert shown["name"] == "päonie" and shown["class"] == "high"
    assert shown["requests"] == 3 and shown["requests_target_met"] == 3, shown


def test_a_request_ends_with_its_block_even_after_an_exception(client):
    stream = client.create_stream()
    for _ in range(20):
        with pytest.raises(KeyError), stream.request():
            raise KeyError
    with stream.request():
        with pytest.raises(gpushared.InvalidArgument), stream.request():
            pass


def test_more_requests_than_may_be_open_are_rejected(client):
    streams = [client.create_stream() for _ in range(17)]
    requests = [stream.request() for stream in streams]
    for request in requests[:16]:
        request.__enter__()
    with pytest.raises(gpushared.LimitExceeded):
        requests[16].__enter__()
    for request in requests[:16]:
        request.__exit__(None, None, None)


def test_invalid_times_are_rejected(client):
    for age_s in (-1.0, float("nan"), float("inf"), 1e300, 7200.0):
        with pytest.raises(gpushared.InvalidArgument), client.default_stream.request(age_s):
            pass
    with pytest.raises(gpushared.InvalidArgument):
        client.expect_request_in(float("nan"))
