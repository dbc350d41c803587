//! The object code of `moves.c`, for the benches that declare its functions: the moves of a packet through the four
//! rings by the inline functions of libxdp's `<xdp/xsk.h>`. It is there with the cfg `libxdp`, where the headers were
//! installed when this was built.
