"""Sends frames to a forwarder at the other end of a device, and prints how many came back.

usage: peer.py DEVICE COUNT
"""

import select
import socket
import struct
import sys

ETHER_TYPE = 0x88B5
TO = bytes.fromhex("02000000000a")
FROM = bytes.fromhex("02000000000b")
WINDOW = 64  # frames on their way: no queue overflows, however slow the machine is
PATIENCE = 5  # seconds for a frame

device, count = sys.argv[1], int(sys.argv[2])
peer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
peer.bind((device, ETHER_TYPE))
back = set()


def receive(wanted):
    """Receives until `wanted` frames have come back; false if there are no more."""
    while len(back) < wanted:
        if not select.select([peer], [], [], PATIENCE)[0]:
            return False
        frame = peer.recv(2048)
        if frame[:6] == FROM and frame[6:12] == TO:
            back.add(struct.unpack_from("!I", frame, 14)[0])
    return True


for number in range(count):
    peer.send(TO + FROM + struct.pack("!HI", ETHER_TYPE, number) + bytes(42))
    if not receive(number - WINDOW):
        break
receive(count)
print(f"{len(back)} of {count} frames came back")
sys.exit(len(back) != count)
