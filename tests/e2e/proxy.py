# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy between one program and a service that on command stalls, trickles, cuts, or loses
what goes in one direction.

A Kafka client goes where the brokers' answers send it. With kafka=True the proxy reads whole frames
and puts its own port in the place of the broker's, so each program can have a network of its own.
Nothing else is changed; a stalled frame is late, not lost, as in a network.
"""

import asyncio
import contextlib
import socket
import struct
import threading

# Kafka's numbers of requests, for only= and trap().
PRODUCE, FETCH, INIT_PRODUCER_ID, END_TXN = 0, 1, 22, 26

PASS, STALL, TRICKLE, CUT = "pass", "stall", "trickle", "cut"
LOSE_UP, LOSE_DOWN = "lose up", "lose down"  # up: from the program to the service
TRICKLE_S = 0.1  # a byte


class Connection:
    def __init__(self, client, server):
        self.client, self.server = client, server  # StreamWriters
        self.requests = set()  # Kafka's numbers, as far as seen
        self.torn = False  # something was lost: its two ends do not agree any more

    def cut(self):
        """RST to both sides; nobody learns what the other has got."""
        for writer in (self.client, self.server):
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """All methods are for the test's thread; the traffic is in a thread of its own."""

    def __init__(self, target_port, kafka=True):
        self.target_port, self.kafka = target_port, kafka
        self.mode, self.only = PASS, None
        self.connections, self._trap, self.trapped = set(), None, threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._changed = asyncio.Event()
        self._server = self._call(asyncio.start_server, self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def _call(self, function, *args):
        """In the loop's thread."""
        async def run():
            result = function(*args)
            return await result if asyncio.iscoroutine(result) else result
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    # ---- faults ----

    def fault(self, mode, only=None):
        """From now on; only: for connections that have carried this request of Kafka's."""
        self._call(self._set, mode, only)

    def trap(self, mode, request=None, text=None, skip=0):
        """fault(mode) as soon as the program sends such a request, or these bytes, more than `skip`
        times. With STALL they do not pass any more, with LOSE_DOWN they do, and the answer is lost;
        CUT is cut(). `trapped` is set then."""
        self.trapped.clear()
        self._call(setattr, self, "_trap", [mode, request, text, skip])

    def wait_trapped(self, timeout_s=60):
        assert self.trapped.wait(timeout_s), "what the trap waits for was not sent"

    def heal(self):
        """What was held up goes on; connections that have lost something are cut."""
        self._call(self._set, PASS, None)

    def cut(self):
        """RST to all that are connected; what comes afterwards passes."""
        self._call(self._set, CUT, None)

    def close(self):
        self._call(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # ---- in the loop's thread ----

    def _set(self, mode, only):
        self.mode, self.only = PASS if mode == CUT else mode, only
        for connection in list(self.connections):
            if mode == CUT or (mode == PASS and connection.torn):
                connection.cut()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _close(self):
        self._server.close()
        self._trap = None
        for connection in list(self.connections):
            connection.cut()
        self._set(PASS, None)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:  # the service is away, and so are we
            writer.transport.abort()
            return
        connection = Connection(writer, to_server)
        self.connections.add(connection)
        try:
            await asyncio.gather(self._pump(connection, reader, to_server, up=True),
                                 self._pump(connection, from_server, writer, up=False))
        finally:
            self.connections.discard(connection)

    async def _pump(self, connection, reader, writer, up):
        try:
            while data := await self._read(reader):
                if up:
                    self._look(connection, data)
                await self._forward(connection, data if up else self._readdress(data), writer, up)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _read(self, reader):
        if not self.kafka:
            return await reader.read(65536)
        size = await reader.readexactly(4)
        return size + await reader.readexactly(struct.unpack(">i", size)[0])

    def _readdress(self, answer):
        """Host and port stand side by side in every answer that names a broker."""
        if not self.kafka:
            return answer
        ours, theirs = (b"127.0.0.1" + struct.pack(">i", port)
                        for port in (self.port, self.target_port))
        return answer.replace(theirs, ours)

    def _look(self, connection, data):
        number = struct.unpack(">h", data[4:6])[0] if self.kafka else None
        connection.requests.add(number)
        if not self._trap:
            return
        mode, request, text, skip = self._trap
        if number != request if text is None else text not in data:
            return
        self._trap[-1] -= 1
        if skip == 0:
            self._trap = None
            self._set(mode, None)
            self.trapped.set()

    def _mode(self, connection):
        if self.only is not None and self.only not in connection.requests:
            return PASS
        return self.mode

    async def _forward(self, connection, data, writer, up):
        while data:
            mode = self._mode(connection)
            if mode == STALL:
                await self._changed.wait()
                continue
            if mode == (LOSE_UP if up else LOSE_DOWN):
                connection.torn = True
                return
            if mode == TRICKLE:
                writer.write(data[:1])
                data = data[1:]
                await asyncio.sleep(TRICKLE_S)
            else:
                writer.write(data)
                data = b""
            await writer.drain()
