//! The two kinds of storage that the guest gets.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::packages;
use crate::tree;

/// Capacity of each kind.
const DISK_BYTES: u64 = 768 << 20;
/// An fsdax namespace keeps its info block in the first 2 MiB; the file system comes after it.
const NAMESPACE_HEAD_BYTES: u64 = 2 << 20;
const BLOCK_BYTES: u64 = 4096;

/// Where the pool lies in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuestStorage {
    /// ext4 on a virtio disk with a volatile write cache.
    Ext4,
    /// ext4 mounted with `-o dax` on a virtual NVDIMM.
    Dax,
}

impl GuestStorage {
    /// The name on the command line and in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Dax => "dax",
        }
    }

    /// Makes an image with an empty file system.
    pub(super) fn format(self, image: &Path) -> anyhow::Result<()> {
        File::create(image)?.set_len(DISK_BYTES)?;
        let mut command = mkfs();
        match self {
            Self::Ext4 => command.arg(image),
            Self::Dax => {
                let blocks = (DISK_BYTES - NAMESPACE_HEAD_BYTES) / BLOCK_BYTES;
                command
                    .args(["-E", &format!("offset={NAMESPACE_HEAD_BYTES}")])
                    .arg(image)
                    .arg(blocks.to_string())
            }
        };
        tree::run(&mut command)
    }

    /// The devices of the virtual machine: for [`GuestStorage::Ext4`] our disk at `socket`, for
    /// [`GuestStorage::Dax`] the image itself as memory.
    pub(super) fn devices(self, image: &Path, socket: &Path) -> Vec<String> {
        match self {
            Self::Ext4 => vec![
                "-blockdev".to_owned(),
                format!("driver=nbd,node-name=disk,server.type=unix,server.path={}", argument(socket)),
                "-device".to_owned(),
                "virtio-blk-pci,drive=disk,write-cache=on,logical_block_size=512,physical_block_size=512"
                    .to_owned(),
            ],
            Self::Dax => vec![
                "-object".to_owned(),
                format!(
                    "memory-backend-file,id=memory,share=on,size={DISK_BYTES},mem-path={}",
                    argument(image)
                ),
                "-device".to_owned(),
                "nvdimm,id=nvdimm,memdev=memory".to_owned(),
            ],
        }
    }

    /// Shell commands that mount the file system on `/mnt` and print the result: `# mounted`, or `# no mount`.
    /// Devices may appear some time after their drivers were loaded.
    pub(super) fn mount(self, image: &Path) -> anyhow::Result<String> {
        Ok(match self {
            Self::Ext4 => {
                "until [ -b /dev/vda ]; do sleep 0.02; done\n\
                 if mount -t ext4 /dev/vda /mnt; then echo \"# mounted $(cat /sys/block/vda/queue/write_cache)\"; \
                 else echo '# no mount'; fi\n"
                    .to_owned()
            }
            Self::Dax => {
                let namespace = if has_namespace(image)? { "" } else { MAKE_NAMESPACE };
                format!(
                    "cd /sys/bus/nd/devices\n{namespace}\
                     until [ -n \"$(cat namespace0.0/holder)\" ] && [ -b /dev/pmem0 ]; do sleep 0.02; done\n\
                     domain=$(cat region0/persistence_domain)\n\
                     cd /\n\
                     if mount -t ext4 -o dax /dev/pmem0 /mnt; then \
                     echo \"# mounted $(grep -o 'dax=always' /proc/mounts) $domain\"; \
                     else echo '# no mount'; fi\n"
                )
            }
        })
    }

    /// What the guest must print about its mount, or the test would not test what it claims.
    pub(super) fn mounted(self) -> &'static str {
        match self {
            Self::Ext4 => "# mounted write back",
            Self::Dax => "# mounted dax=always memory_controller",
        }
    }
}

/// A path inside an argument of QEMU, where a comma ends a value and two commas mean one.
pub(super) fn argument(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A namespace without labels is raw until an info block makes it fsdax; the kernel writes it once, and finds it
/// at every later boot.
const MAKE_NAMESPACE: &str =
    "until [ -e namespace0.0/holder ] && [ -e pfn0.0/mode ] && [ -b /dev/pmem0 ]; do sleep 0.02; done
echo namespace0.0 > ../drivers/nd_pmem/unbind
cat /proc/sys/kernel/random/uuid > pfn0.0/uuid
echo ram > pfn0.0/mode
echo 2097152 > pfn0.0/align
echo namespace0.0 > pfn0.0/namespace
echo pfn0.0 > ../drivers/nd_pmem/bind
";

/// Whether the image already holds the info block of an fsdax namespace.
fn has_namespace(image: &Path) -> std::io::Result<bool> {
    const SIGNATURE: &[u8; 16] = b"NVDIMM_PFN_INFO\0";
    let mut found = [0; SIGNATURE.len()];
    File::open(image)?.read_exact_at(&mut found, 4096)?;
    Ok(found == *SIGNATURE)
}

/// ext4 with as little background work as possible; a journal that checks its own blocks is the default.
fn mkfs() -> Command {
    let mut command = Command::new(packages::find("mkfs.ext4").unwrap_or_else(|| "mkfs.ext4".into()));
    command.args(["-q", "-F", "-b", "4096", "-J", "size=16"]);
    command
}
