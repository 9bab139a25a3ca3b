//! Copies of a node's directory, to be damaged.

use std::path::{Path, PathBuf};

/// Copies the files of a directory that the offline reader looks at.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("log")).expect("a directory");
    for place in ["", "log"] {
        for file in std::fs::read_dir(from.join(place)).expect("the node's files") {
            let path = file.expect("a file").path();
            if path.is_file() {
                let name = path.file_name().expect("a name");
                std::fs::copy(&path, to.join(place).join(name)).expect("a copy");
            }
        }
    }
}

/// Files in `log/` with this ending, oldest first.
pub fn of_kind(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir.join("log"))
        .expect("the log")
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    paths.sort();
    paths
}

/// Changes a file's bytes.
pub fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("the file");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("the file");
}
