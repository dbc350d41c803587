//! Compiles libxdp's inline functions, where its headers are installed.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libxdp)");
    println!("cargo::rerun-if-changed=src/moves.c");
    let mut probe = pkg_config::Config::new();
    probe.cargo_metadata(false); // Its inline functions call none of its others.
    let Ok(libxdp) = probe.atleast_version("1.2").probe("libxdp") else {
        return;
    };
    let compiled = cc::Build::new()
        .file("src/moves.c")
        .includes(libxdp.include_paths)
        .opt_level(3) // As the benches are built.
        .extra_warnings(true)
        .try_compile("moves");
    match compiled {
        Ok(()) => println!("cargo::rustc-cfg=libxdp"),
        Err(error) => println!("cargo::warning=no libxdp to compare with: {error}"),
    }
}
