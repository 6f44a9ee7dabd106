# SPDX-License-Identifier: Apache-2.0
"""A real server on the cpu device for all tests, and a separate one for tests that end it.

GPUSHARED_BIN names the directory of the server's programs; run_python.py sets it.
"""
import os
import pathlib
import sys

import pytest

import gpushared

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "drop_in/programs"))
from run_programs import Server  # noqa: E402

BIN = pathlib.Path(os.environ["GPUSHARED_BIN"])
PTX = """
.version 7.0
.target sm_75
.address_size 64
.global .u32 counter = 41;
.visible .entry add_one(.param .u64 numbers, .param .u32 n) {
  .reg .pred %p<2>; .reg .b32 %r<7>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [numbers]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1; @%p1 bra done;
  mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r6, [%rd3]; add.s32 %r6, %r6, 1; st.global.u32 [%rd3], %r6;
done: ret;
}
.visible .entry scale(.param .u64 numbers, .param .f32 by) {
  .reg .f32 %f<4>; .reg .b32 %r<2>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [numbers]; ld.param.f32 %f1, [by];
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
  ld.global.f32 %f2, [%rd3]; mul.f32 %f3, %f2, %f1; st.global.f32 [%rd3], %f3;
  ret;
}
.visible .entry busy(.param .u32 rounds) {
  .reg .pred %p<2>; .reg .b32 %r<4>;
  ld.param.u32 %r1, [rounds]; mov.u32 %r2, 0;
again: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra again;
  ret;
}
.visible .entry fault() {
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  mov.u64 %rd1, 16; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1; ret;
}
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 text[7] = {104, 101, 108, 108, 111, 10, 0};
.visible .entry hello() {
  .reg .b64 %rd<3>;
  mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, 0;
  { .param .b64 a; .param .b64 b; .param .b32 r;
    st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; call.uni (r), vprintf, (a, b); }
  ret;
}
"""
# Takes about as long as a person notices.
BUSY_ROUNDS = 20_000_000


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with Server(BIN, tmp_path_factory.mktemp("server")) as running:
        os.environ["GPUSHARED_SOCKET"] = str(running.socket)
        yield running


@pytest.fixture
def own_server(tmp_path):
    with Server(BIN, tmp_path) as running:
        yield running


@pytest.fixture
def client(server):
    with gpushared.connect(name="test", takes_printed=True) as connected:
        yield connected


@pytest.fixture
def module(client):
    return client.load_module(PTX)
