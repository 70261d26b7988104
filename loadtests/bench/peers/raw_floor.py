"""The floor for Python: two asyncio.Protocols spliced byte for byte under uvloop.

The only HTTP work is finding where messages end, with httptools, so that connections can be kept
alive on both sides. It looks at no header and no body, and has no routing, limits or errors.

    python raw_floor.py [port]
"""

import asyncio
import sys

import httptools
import uvloop

WORKER = ("127.0.0.1", 19000)
pool = []  # resting upstream connections
loop = None


class Upstream(asyncio.Protocol):
    def __init__(self):
        self.client = self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def start(self, client):
        self.client = client
        self.done = False
        self.parser = httptools.HttpResponseParser(self)

    def data_received(self, data):
        client = self.client
        if client is None:
            self.transport.close()
            return
        self.parser.feed_data(data)
        client.transport.write(data)
        if self.done:
            self.client = None
            pool.append(self)
            client.answered()

    def on_message_complete(self):
        self.done = True

    def connection_lost(self, exc):
        if self in pool:
            pool.remove(self)
        if self.client is not None:
            self.client.upstream = None
            self.client.transport.close()

    def pause_writing(self):
        if self.client is not None:
            self.client.transport.pause_reading()

    def resume_writing(self):
        if self.client is not None:
            self.client.transport.resume_reading()


class Client(asyncio.Protocol):
    def __init__(self):
        self.transport = self.upstream = None
        self.queue = []  # request bytes that wait for an upstream connection
        self.parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.parser.feed_data(data)
        if self.upstream is not None:
            self.upstream.transport.write(data)
        elif pool:
            self.attach(pool.pop())
            self.upstream.transport.write(data)
        else:
            self.queue.append(data)
            if len(self.queue) == 1:
                loop.create_task(self.connect())

    async def connect(self):
        try:
            _, upstream = await loop.create_connection(Upstream, *WORKER)
        except OSError:
            self.transport.close()
            return
        if self.transport.is_closing():
            pool.append(upstream)
            return
        self.attach(upstream)
        upstream.transport.write(b"".join(self.queue))
        self.queue.clear()

    def attach(self, upstream):
        self.upstream = upstream
        upstream.start(self)

    def answered(self):
        self.upstream = None

    def connection_lost(self, exc):
        if self.upstream is not None:  # gone while being answered: cancel the work
            self.upstream.client = None
            self.upstream.transport.close()
            self.upstream = None

    def pause_writing(self):
        if self.upstream is not None:
            self.upstream.transport.pause_reading()

    def resume_writing(self):
        if self.upstream is not None:
            self.upstream.transport.resume_reading()


async def main():
    global loop
    loop = asyncio.get_running_loop()
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 19013
    server = await loop.create_server(Client, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
