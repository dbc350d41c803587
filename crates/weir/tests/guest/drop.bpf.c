// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Drops every packet: the guest as a receiver. Needs no header, so that clang is all it
 * takes to compile it.
 */
#define XDP_DROP 1

__attribute__((section("xdp"), used)) int drop(void *context)
{
	(void)context;
	return XDP_DROP;
}
