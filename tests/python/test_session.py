# SPDX-License-Identifier: Apache-2.0
"""Connecting, errors, and objects that outlive their session."""
import gc
import inspect
import os
import pathlib
import re
import time

import numpy as np
import pytest
from conftest import PTX

import gpushared

ROOT = pathlib.Path(__file__).parents[2]


def enumerators(header, prefix=""):
    text = (ROOT / "ipc/include/gpushared" / header).read_text(encoding="utf-8")
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper(): int(number)
            for name, number in re.findall(r"^  k(\w+) = (\d+),", text, re.M)}


def test_codes_and_faults_are_those_of_the_library():
    codes = enumerators("status.h")
    del codes["OK"]
    assert {code.name: code.value for code in gpushared.StatusCode} == codes
    assert {kind.name: kind.value for kind in gpushared.FaultKind} == enumerators("fault_kind.h")


def test_each_code_has_an_exception_of_its_name():
    for code in gpushared.StatusCode:
        kind = getattr(gpushared, code.name.title().replace("_", ""))
        error = gpushared._errors.error_of(code, "sentence", 700)
        assert type(error) is kind and error.code is code and str(error) == "sentence"


def test_each_public_name_has_a_docstring():
    for name in gpushared.__all__:
        item = getattr(gpushared, name)
        assert item.__doc__ and item.__module__ == "gpushared", name
        for called, member in vars(item).items() if inspect.isclass(item) else ():
            if not called.startswith("_") and (callable(member) or isinstance(member, property)):
                assert member.__doc__, f"{name}.{called}"


def test_the_example_of_the_readme_runs(server, monkeypatch, capsys):
    text = (ROOT / "client_lib/python/README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(ROOT)
    exec(compile(re.search(r"```python\n(.*?)```", text, re.S).group(1), "README.md", "exec"), {})
    assert "1998" in capsys.readouterr().out


def test_a_missing_server_is_reported(tmp_path):
    with pytest.raises(gpushared.Unavailable, match="none.sock") as caught:
        gpushared.connect(socket=tmp_path / "none.sock")
    assert isinstance(caught.value, ConnectionError)


@pytest.mark.parametrize("option", ({"scheduling_class": "urgent"}, {"weight": -1}, {"weight": 1001}, {"weight": 2**40},
                                    {"memory_bytes": -1}, {"memory_bytes": 2**64}, {"latency_target_s": -1.0},
                                    {"latency_target_s": float("nan")}, {"name": "x" * 64}, {"name": "a\nb"},
                                    {"control_timeout_s": float("inf")}, {"device": "cpu:7"}), ids=str)
def test_an_invalid_option_is_rejected(server, option):
    with pytest.raises(gpushared.Error) as caught:
        gpushared.connect(**option)
    assert isinstance(caught.value, (gpushared.InvalidArgument, gpushared.NotFound, gpushared.PermissionDenied))


def test_the_environment_supplies_unset_options(server, monkeypatch):
    monkeypatch.setenv("GPUSHARED_CLASS", "urgent")
    with pytest.raises(gpushared.InvalidArgument, match="GPUSHARED_CLASS"):
        gpushared.connect()
    gpushared.connect(scheduling_class="low").close()


def test_devices_are_listed_without_a_session(server):
    device, = gpushared.list_devices()
    assert device.id == "cpu:0" and device.kind == "cpu" and len(device.uuid) == 16 and device.attributes[10] == 32
    with gpushared.connect() as client:
        assert client.device == device


def everything_of(client):
    """Makes one call of every kind, on objects of the session."""
    module = client.load_module(PTX)
    kernel, stream, event = module["add_one"], client.create_stream(), client.create_event()
    buffer, array = client.allocate(4, np.uint32), client.allocate_host(4, np.uint32)
    stream.record(event)
    stream.synchronize()
    rows = {"width_bytes": 1, "height": 1, "destination_pitch_bytes": 1, "source_pitch_bytes": 1}
    return {
        "check": client.check, "trim_device": client.trim_device, "load_module": lambda: client.load_module(PTX),
        "allocate": lambda: client.allocate(4), "allocate_host": lambda: client.allocate_host(4),
        "to_device": lambda: client.to_device(array), "to_host": buffer.to_host, "asarray": lambda: np.asarray(buffer),
        "create_stream": client.create_stream, "create_event_and_wait": lambda: stream.wait(client.create_event()),
        "expect": lambda: client.expect_request_in(1), "synchronize_all": client.synchronize,
        "printed": client.take_printed, "launch": lambda: stream.launch(kernel, 1, 1, buffer, np.uint32(1)),
        "launch_packed": lambda: stream.launch_packed(kernel, 1, 1, bytes(12)),
        "copy_to_device": lambda: stream.copy_to_device(buffer, np.zeros(4, np.uint32)),
        "copy_from_shared": lambda: stream.copy_to_device(buffer, array),
        "copy_to_host": lambda: stream.copy_to_host(buffer), "copy_to_shared": lambda: stream.copy_to_host(buffer, array),
        "copy_on_device": lambda: stream.copy_on_device(buffer[:1], buffer[1:2]),
        "to_device_2d": lambda: stream.copy_to_device_2d(buffer, array, **rows),
        "to_host_2d": lambda: stream.copy_to_host_2d(buffer, array, **rows),
        "on_device_2d": lambda: stream.copy_on_device_2d(buffer[:1], buffer[1:2], **rows),
        "fill": lambda: stream.fill(buffer, 1),
        "fill_2d": lambda: stream.fill_2d(buffer, 1, width_elements=1, height=1, pitch_bytes=4),
        "record": lambda: stream.record(event), "wait": lambda: stream.wait(event), "event": event.synchronize,
        "request": lambda: stream.request().__enter__(), "synchronize": stream.synchronize, "query": stream.query,
    }, (module, kernel, buffer, array, client)


# The library knows the answer to these without the server.
KEEP_ANSWERING = {"event", "wait", "create_event_and_wait", "printed"}


def test_after_close_every_object_answers_with_an_error(server):
    calls, (module, kernel, buffer, array, client) = everything_of(gpushared.connect(takes_printed=True))
    array[...] = 7
    client.close()
    client.close()
    for name, call in calls.items():
        if name in KEEP_ANSWERING:
            continue
        with pytest.raises(gpushared.Disconnected, match="closed by this program"):
            call()
            pytest.fail(f"{name} did not raise")
    assert array.sum() >= 0 and kernel.name == "add_one" and module["busy"].name == "busy" and buffer.nbytes == 16
    assert "cpu:0" in repr(client) and client.memory_info.total_bytes > 0
    assert client.memory_info.guaranteed_bytes == client.memory_info.total_bytes
    buffer.free()


def test_after_the_servers_death_every_object_answers_with_an_error(own_server):
    calls, (_, _, _, array, _) = everything_of(gpushared.connect(socket=own_server.socket, takes_printed=True))
    array[...] = 7
    own_server.process.terminate()  # Drains.
    time.sleep(0.2)
    own_server.process.terminate()
    own_server.process.wait(30)
    for name, call in calls.items():
        if name in KEEP_ANSWERING:
            continue
        with pytest.raises((gpushared.Disconnected, gpushared.DeviceLost, gpushared.Unavailable)):
            call()
            pytest.fail(f"{name} did not raise")
    array[...] = 8
    assert (array == 8).all()


def test_objects_keep_their_session(server):
    stream = gpushared.connect().default_stream
    gc.collect()
    stream.synchronize()
    kernel = gpushared.connect().load_module(PTX)["busy"]
    gc.collect()
    assert kernel.threads_per_block_max == 1024


def test_objects_may_be_destroyed_in_any_order(server):
    for seed in range(20):
        calls, things = everything_of(gpushared.connect(takes_printed=True))
        parts = [*calls.values(), *things]
        del calls, things
        if seed % 2:
            parts[-1].close()
        order = np.random.default_rng(seed).permutation(len(parts))
        for index in order:
            parts[index] = None
        gc.collect()


def test_a_forked_child_is_rejected_and_can_connect_again(server):
    with gpushared.connect() as client:
        stream, buffer = client.default_stream, client.allocate(4)
        child = os.fork()
        if child == 0:
            answers = []
            for call in (stream.synchronize, lambda: client.allocate(4), lambda: stream.copy_to_host(buffer)):
                try:
                    call()
                except gpushared.WrongProcess:
                    answers.append(True)
            with gpushared.connect() as own:
                answers.append((own.to_device(np.arange(3)).to_host() == np.arange(3)).all())
            del client, stream, buffer, call
            gc.collect()
            os._exit(0 if answers == [True] * 4 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert stream.copy_to_host(buffer).nbytes == 4


WILD = (None, -1, 2**64, 2**200, 1.5, float("nan"), "text", "\ud800", b"bytes", (), [1], {}, object(), np.arange(3),
        np.zeros((0, 3)), np.array(None), lambda: None, gpushared, type)


def test_wild_arguments_are_exceptions(client):
    """Whatever is passed, the process survives, and so does the session."""
    module = client.load_module(PTX)
    stream, event, buffer = client.create_stream(), client.create_event(), client.allocate(16)
    targets = [client, module, module["busy"], stream, event, buffer, stream.request()]
    rejected = 0
    for target in targets:
        for name, method in inspect.getmembers(target, callable):
            if name in ("close", "free", "__exit__", "__class__", "__init__", "__new__", "__init_subclass__", "__subclasshook__"):
                continue
            for wild in WILD:
                for arguments in ((wild,), (wild, wild), (buffer, wild), (module["busy"], wild, 1), (wild,) * 5,
                                  (module["busy"], 1, 1, wild)):
                    try:
                        method(*arguments)
                    except Exception:
                        rejected += 1
    client.check()
    client.default_stream.synchronize()
    assert rejected > 5000
    numbers = client.to_device(np.zeros(3, np.uint32))
    client.default_stream.launch(module["add_one"], 1, 3, numbers, np.uint32(3))
    assert numbers.to_host().tolist() == [1, 1, 1] if stream.query else True
