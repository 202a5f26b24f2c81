//! Lists the files of `page/`, so that the program has them in itself. No other tool is needed: the
//! files are committed as they were built (`dashboard/`).

use std::{
    env,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=page");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let folder = root.join("page");
    let mut paths = Vec::new();
    list(&folder, &mut paths)?;
    paths.sort();
    let mut rows = String::from("&[\n");
    for path in paths.iter().filter(|path| path.extension().is_none_or(|end| end != "gz")) {
        let name = text(path.strip_prefix(&folder).map_err(io::Error::other)?)?;
        let (path, hash) = (text(path)?, fnv1a(&fs::read(path)?));
        let gzip = format!("{path}.gz");
        let gzip = if Path::new(&gzip).exists() {
            format!("Some(include_bytes!({gzip:?}))")
        } else {
            "None".to_owned()
        };
        writeln!(
            rows,
            "    PageFile {{ name: {name:?}, etag: \"\\\"{hash:016x}\\\"\", \
             octets: include_bytes!({path:?}), gzip: {gzip} }},"
        )
        .map_err(io::Error::other)?;
    }
    rows.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("page_files.rs"), rows)
}

fn text(path: &Path) -> io::Result<&str> {
    path.to_str().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

/// FNV-1a of 64 bits: it only tells versions of a file apart.
fn fnv1a(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}
