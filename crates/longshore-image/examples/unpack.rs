//! Unpacks uncompressed layers into an empty folder: `unpack DIR LAYER.tar…`, for timing.
#![allow(clippy::print_stdout, missing_docs)]

use std::fs::File;
use std::path::Path;

use longshore_image::{Limits, Unpacker};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let root = args.next().ok_or("usage: unpack DIR LAYER.tar…")?;
    let mut unpacker = Unpacker::new(Path::new(&root), Limits::default())?;
    for layer in args {
        unpacker.layer(&layer, File::open(&layer)?)?;
    }
    println!("{:?}", unpacker.finish()?);
    Ok(())
}
