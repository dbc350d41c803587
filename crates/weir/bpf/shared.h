/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every structure and enumeration in the headers that include this one has its counterpart in Rust.
 * src/bpf/layout.rs compares both when a program is loaded, by the types in the object (BTF).
 */
#ifndef WEIR_SHARED_H
#define WEIR_SHARED_H

/* An enumeration is in the object's types only if something there has its type. This section is not
 * loaded into the kernel. */
#define SHARED_ENUM(name) const enum name name SEC("shared_enums")

#endif
