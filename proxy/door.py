"""tmp"""
from tailrace.proxy.peer import Peer
class Door:
    def peer_of(self, transport): return Peer.of("127.0.0.1",secure=False,trusted=False)
