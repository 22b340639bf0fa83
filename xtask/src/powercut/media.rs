//! The kinds of storage that the guest gets.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::packages;
use crate::tree;

/// Capacity of an image.
const DISK_BYTES: u64 = 768 << 20;
/// An fsdax namespace keeps its info block in the first 2 MiB; the file system comes after it.
const NAMESPACE_HEAD_BYTES: u64 = 2 << 20;
const BLOCK_BYTES: u64 = 4096;
/// So many bytes at the beginning of an image are memory, and the rest a disk, where the pool lies on a device.
const DEVICE_BYTES: u64 = 256 << 20;

/// Where the pool lies in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuestStorage {
    /// ext4 on a virtio disk with a volatile write cache.
    Ext4,
    /// ext4 mounted with `-o dax` on a virtual NVDIMM.
    Dax,
    /// A devdax device on a virtual NVDIMM, and ext4 on a virtio disk for the pool's directory. Both lie in one image;
    /// the host keeps every write of that disk.
    Devdax,
}

impl GuestStorage {
    /// The name on the command line and in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Dax => "dax",
            Self::Devdax => "devdax",
        }
    }

    /// Makes an image with an empty file system.
    pub(super) fn format(self, image: &Path) -> anyhow::Result<()> {
        File::create(image)?.set_len(DISK_BYTES)?;
        let mut command = mkfs();
        let mut behind = |bytes: u64| {
            let blocks = (DISK_BYTES - bytes) / BLOCK_BYTES;
            command.args(["-E", &format!("offset={bytes}")]).arg(image).arg(blocks.to_string());
        };
        match self {
            Self::Ext4 => drop(command.arg(image)),
            Self::Dax => behind(NAMESPACE_HEAD_BYTES),
            Self::Devdax => behind(DEVICE_BYTES),
        }
        tree::run(&mut command)
    }

    /// The devices of the virtual machine: for [`GuestStorage::Ext4`] our disk at `socket`, for the others the image
    /// itself, or its beginning, as memory.
    pub(super) fn devices(self, image: &Path, socket: &Path) -> Vec<String> {
        match self {
            Self::Ext4 => vec![
                "-blockdev".to_owned(),
                format!("driver=nbd,node-name=disk,server.type=unix,server.path={}", argument(socket)),
                "-device".to_owned(),
                "virtio-blk-pci,drive=disk,write-cache=on,logical_block_size=512,physical_block_size=512"
                    .to_owned(),
            ],
            Self::Dax => nvdimm(image, DISK_BYTES),
            Self::Devdax => {
                let mut devices = nvdimm(image, DEVICE_BYTES);
                devices.extend([
                    "-blockdev".to_owned(),
                    format!(
                        "driver=raw,node-name=disk,offset={DEVICE_BYTES},size={},file.driver=file,file.locking=off,\
                         file.filename={}",
                        DISK_BYTES - DEVICE_BYTES,
                        argument(image)
                    ),
                    "-device".to_owned(),
                    "virtio-blk-pci,drive=disk".to_owned(),
                ]);
                devices
            }
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
                let namespace = if has_namespace(image, b"NVDIMM_PFN_INFO\0")? {
                    String::new()
                } else {
                    make_namespace("pfn0.0", "nd_pmem")
                };
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
            Self::Devdax => {
                let device = if has_namespace(image, b"NVDIMM_DAX_INFO\0")? {
                    String::new()
                } else {
                    make_namespace("dax0.0", "dax_pmem")
                };
                format!(
                    "cd /sys/bus/nd/devices\n{device}\
                     until [ -c /dev/dax0.0 ] && [ -b /dev/vda ]; do sleep 0.02; done\n\
                     domain=$(cat region0/persistence_domain)\n\
                     cd /\n\
                     if mount -t ext4 /dev/vda /mnt; then \
                     echo \"# mounted $(cat /sys/bus/dax/devices/dax0.0/align) $domain\"; \
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
            Self::Devdax => "# mounted 2097152 memory_controller",
        }
    }
}

/// The first `bytes` of the image as a virtual NVDIMM.
fn nvdimm(image: &Path, bytes: u64) -> Vec<String> {
    vec![
        "-object".to_owned(),
        format!("memory-backend-file,id=memory,share=on,size={bytes},mem-path={}", argument(image)),
        "-device".to_owned(),
        "nvdimm,id=nvdimm,memdev=memory".to_owned(),
    ]
}

/// A path inside an argument of QEMU, where a comma ends a value and two commas mean one.
pub(super) fn argument(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// The guest's commands that make the namespace one for `driver`. A namespace without labels is raw until an info
/// block, which the kernel writes once for the device `seed`, says what it is; every later boot finds the block.
fn make_namespace(seed: &str, driver: &str) -> String {
    format!(
        "until [ -e namespace0.0/holder ] && [ -e {seed}/mode ] && [ -b /dev/pmem0 ]; do sleep 0.02; done
echo namespace0.0 > ../drivers/nd_pmem/unbind
cat /proc/sys/kernel/random/uuid > {seed}/uuid
echo ram > {seed}/mode
echo 2097152 > {seed}/align
echo namespace0.0 > {seed}/namespace
echo {seed} > ../drivers/{driver}/bind
"
    )
}

/// Whether the image already holds the info block of a namespace with this signature.
fn has_namespace(image: &Path, signature: &[u8; 16]) -> std::io::Result<bool> {
    let mut found = [0; 16];
    File::open(image)?.read_exact_at(&mut found, 4096)?;
    Ok(found == *signature)
}

/// ext4 with as little background work as possible; a journal that checks its own blocks is the default.
fn mkfs() -> Command {
    let mut command = Command::new(packages::find("mkfs.ext4").unwrap_or_else(|| "mkfs.ext4".into()));
    command.args(["-q", "-F", "-b", "4096", "-J", "size=16"]);
    command
}
