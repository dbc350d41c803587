"""Sends UDP packets to 192.0.2.1, each with its number, to whoever inspects the other end of a device.

usage: udp.py DEVICE COUNT
"""

import socket
import struct
import sys
import time

TO = bytes.fromhex("02000000000a")
FROM = bytes.fromhex("02000000000b")
WINDOW = 32  # frames without a pause: no queue overflows


def checksum(header):
    """The Internet checksum."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(number):
    """An Ethernet frame with a UDP packet, without the UDP checksum, which IPv4 allows."""
    payload = f"number {number:08}".encode()
    udp = struct.pack("!HHHH", 4000, 5000, 8 + len(payload), 0) + payload
    addresses = bytes([192, 0, 2, 2, 192, 0, 2, 1])
    fields = (0x45, 0, 20 + len(udp), number & 0xFFFF, 0, 64, socket.IPPROTO_UDP)
    ip = struct.pack("!BBHHHBB", *fields)
    ip += struct.pack("!H", checksum(ip + bytes(2) + addresses)) + addresses
    return TO + FROM + b"\x08\x00" + ip + udp


device, count = sys.argv[1], int(sys.argv[2])
peer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
peer.bind((device, 0))
for number in range(count):
    peer.send(packet(number))
    if number % WINDOW == 0:
        time.sleep(0.01)
