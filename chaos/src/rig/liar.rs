//! The disk of fsyncgate: a sync fails once, the kernel drops the pages it could not write, and the next sync
//! succeeds. An ext4 over a sparse image on a tmpfs that is too small for it; needs root.

use std::path::{Path, PathBuf};

use super::{RigError, disk, tool};

/// Size that the file system believes to have.
const IMAGE_BYTES: u64 = 300 << 20;

/// Mounted at [`LyingDisk::path`]; taken apart when dropped.
#[derive(Debug)]
pub struct LyingDisk {
    backing: PathBuf,
    mount: PathBuf,
}

impl LyingDisk {
    /// Makes it below `dir`; `real_bytes` is what can really be stored.
    pub fn create(dir: &Path, name: &str, real_bytes: u64) -> Result<LyingDisk, RigError> {
        let lying = LyingDisk {
            backing: dir.join(format!("{name}.tmpfs")),
            mount: dir.join(name),
        };
        for path in [&lying.backing, &lying.mount] {
            std::fs::create_dir_all(path).map_err(RigError::io(path.display().to_string()))?;
        }
        tool("mount", "-t tmpfs none -o")
            .arg(format!("size={real_bytes}"))
            .arg(&lying.backing)
            .run()?;
        let image = lying.backing.join("img");
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .map_err(RigError::io(image.display().to_string()))?;
        // Without a journal: its blocks would be as unreal as those of the files, and a journal that fails
        // turns the file system read-only instead of letting it lie.
        tool(
            "mkfs.ext4",
            "-q -m 0 -b 4096 -O ^has_journal -E lazy_itable_init=1",
        )
        .arg(&image)
        .run()?;
        lying.mount()?;
        Ok(lying)
    }

    fn mount(&self) -> Result<(), RigError> {
        let attached = tool("losetup", "--find --show").arg(self.backing.join("img"));
        let device = attached.run()?.trim().to_owned();
        // A page at a time: of a longer write the loop device would count the part that found room as the whole.
        let name = Path::new(&device).file_name().unwrap_or_default();
        let longest = Path::new("/sys/block")
            .join(name)
            .join("queue/max_sectors_kb");
        let limited =
            std::fs::write(&longest, "4").map_err(RigError::io(longest.display().to_string()));
        let mounted = tool("mount", "-o errors=continue")
            .arg(&device)
            .arg(&self.mount)
            .run();
        // In use now, so it goes away with the mount, also when this program dies.
        tool("losetup", "-d").arg(&device).run()?;
        limited?;
        mounted.map(drop)
    }

    /// What is only in the page cache is gone, as after a power cut. No process may have files open here.
    pub fn forget_cache(&self) -> Result<(), RigError> {
        tool("umount", "").arg(&self.mount).run()?;
        self.mount()
    }

    /// Where the lying file system is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// From here on no block that was never written can be: syncs of such fail once each, then lie.
    pub fn exhaust(&self) -> Result<(), RigError> {
        disk::fill(&self.backing, 0)
    }

    /// The disk stores again what it is given.
    pub fn replenish(&self) -> Result<(), RigError> {
        disk::empty(&self.backing)
    }
}

impl Drop for LyingDisk {
    fn drop(&mut self) {
        for path in [&self.mount, &self.backing] {
            let _ended = tool("umount", "-l").arg(path).run();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    #[ignore = "needs root, loop devices and e2fsprogs"]
    fn the_first_sync_fails_and_the_next_one_lies() {
        let dir = tempfile::tempdir().unwrap();
        let lying = LyingDisk::create(dir.path(), "n0", 24 << 20).unwrap();
        let path = lying.path().join("file");
        let file = File::create(&path).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 8 << 20).unwrap();
        file.sync_all().unwrap();
        lying.exhaust().unwrap();
        file.write_all_at(&[7; 1 << 20], 0).unwrap();
        let first = file.sync_data().unwrap_err();
        assert!(
            matches!(first.raw_os_error(), Some(5 | 28)),
            "the first sync: {first}"
        );
        file.sync_data().unwrap();
        // Still there to look at, and yet on no disk.
        assert_eq!(std::fs::read(&path).unwrap()[100], 7);
        drop(file);
        lying.replenish().unwrap();
        lying.forget_cache().unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[100], 0);
    }
}
