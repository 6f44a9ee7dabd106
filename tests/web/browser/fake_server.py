# SPDX-License-Identifier: Apache-2.0
"""Answers operators like a gpushared server, with the contents that a test chooses."""
import json
import os
import socket
import struct
import threading

FRAME = struct.Struct("<IHHII")  # Magic, type, reserved, request, bytes; see docs/protocol.md.
PAGE = struct.Struct("<IIB7x")   # Code, bytes, is last.
TEXT = struct.Struct("<II")      # Code, bytes.
MAGIC, ADMIN_REPLY, REJECTED = 0x31534747, 19, 17
STATUS, CLIENTS, EXPLAIN = 1, 2, 7  # Verbs.
UNSUPPORTED = 10                 # A code.
PAGE_BYTES_MAX = 128 * 1024


class FakeServer:
    """Listens at `path` until close. Answers are sent as given: bytes, a value to be sent as JSON, or a function that
    returns either. None is a rejection."""

    def __init__(self, path, status, clients, explanation=None):
        self.answers = {STATUS: status, CLIENTS: clients, EXPLAIN: explanation}
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self):
        # Ends accept, which close alone would not.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        os.unlink(self.path)

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                try:
                    self.answer(connection)
                except (OSError, struct.error):
                    pass  # The client has disconnected.

    def answer(self, connection):
        _, _, _, request, size = FRAME.unpack(connection.recv(FRAME.size, socket.MSG_WAITALL))
        verb = connection.recv(size, socket.MSG_WAITALL)[4]
        told = self.answers.get(verb)
        if callable(told):
            told = told()
        if told is None:
            text = b"this server is not real"
            return connection.sendall(FRAME.pack(MAGIC, REJECTED, 0, request, TEXT.size + len(text)) +
                                      TEXT.pack(UNSUPPORTED, len(text)) + text)
        text = told if isinstance(told, bytes) else json.dumps(told).encode()
        pages = [text[at:at + PAGE_BYTES_MAX] for at in range(0, len(text), PAGE_BYTES_MAX)]
        for number, page in enumerate(pages):
            is_last = number == len(pages) - 1
            connection.sendall(FRAME.pack(MAGIC, ADMIN_REPLY, 0, request, PAGE.size + len(page)) +
                               PAGE.pack(0, len(page), is_last) + page)
