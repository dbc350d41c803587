//! AF_XDP sockets whose frames have one owner, checked by the compiler.
