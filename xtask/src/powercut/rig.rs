//! One virtual machine with one disk: powered on, mounted, cut, again and again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::disk::{PowerCutDisk, Traffic};
use super::hypervisor::{Accelerator, Guest, VirtualMachine};
use super::media::GuestStorage;
use super::nbd::NbdServer;
use super::packages;
use crate::{tree, valkey};

/// How many boots in a row may fail before the file system is mounted.
const BOOT_DEATHS_MAX: u32 = 2;

/// The guest in its network, as QEMU expects it.
pub(super) const GUEST_ADDRESS: &str = "10.0.2.15";

/// The parts that do not change.
pub(super) struct Rig {
    pub(super) accelerator: Accelerator,
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) storage: GuestStorage,
    pub(super) folder: PathBuf,
    /// The disk answers flushes without doing anything.
    pub(super) lies: bool,
    /// Programs of the host connect to this port of the guest.
    pub(super) serves: Option<u16>,
    pub(super) rng: StdRng,
    pub(super) totals: Totals,
}

/// What all boots together did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) boots: u64,
    pub(super) traffic: Traffic,
    /// Mounts that needed e2fsck first: a torn superblock is the file system's matter, not the pool's.
    pub(super) repairs: u64,
    pub(super) boot_seconds: f64,
}

impl Powered {
    /// If the disk is ours: cuts the power when the `flushes`th flush from now comes.
    pub(super) fn cut_at_flush(&self, flushes: u64) {
        if let Some((disk, _)) = &self.disk {
            disk.lock().expect("no panic under the lock").power_off_at_flush(flushes);
        }
    }

    /// Whether the disk has cut the power.
    pub(super) fn is_off(&self) -> bool {
        self.disk.as_ref().is_some_and(|(disk, _)| disk.lock().expect("no panic under the lock").is_off())
    }
}

/// A machine that runs, with its file system mounted on `/mnt`.
pub(super) struct Powered {
    pub(super) guest: Guest,
    /// The host's port that leads to [`Rig::serves`].
    pub(super) port: u16,
    disk: Option<(Arc<Mutex<PowerCutDisk>>, NbdServer)>,
}

impl Rig {
    /// The image of the machine's storage.
    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    /// A fresh file system.
    pub(super) fn format(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.storage.format(&self.image())
    }

    /// Boots and mounts. A kernel that dies while it boots (on a busy machine, of its timers) is booted again.
    pub(super) fn boot(&mut self) -> anyhow::Result<Powered> {
        let mut repaired = false;
        let mut deaths = 0;
        loop {
            let start = Instant::now();
            let mut powered = self.power_on()?;
            powered.guest.type_in(&self.storage.mount(&self.image())?)?;
            let answer = match powered.guest.lines_until("# ") {
                Ok(mut lines) => lines.pop().unwrap_or_default(),
                Err(_) if deaths < BOOT_DEATHS_MAX => {
                    deaths += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if answer != "# no mount" {
                let expected = self.storage.mounted();
                ensure!(answer == expected, "the guest says {answer:?} where {expected:?} must be");
                self.totals.boots += 1;
                self.totals.boot_seconds += start.elapsed().as_secs_f64();
                return Ok(powered);
            }
            let console = powered.guest.console_tail();
            self.cut(powered)?;
            // Only our disk tears writes; every store that retired is in the NVDIMM.
            ensure!(
                !repaired && self.storage == GuestStorage::Ext4,
                "the file system cannot be mounted\n{console}"
            );
            self.repair()?;
            repaired = true;
        }
    }

    /// Cuts the power and returns the guest's last lines.
    pub(super) fn cut(&mut self, powered: Powered) -> anyhow::Result<Vec<String>> {
        if let Some((disk, _)) = &powered.disk {
            disk.lock().expect("no panic under the lock").power_off();
        }
        let lines = powered.guest.cut()?;
        if let Some((disk, server)) = powered.disk {
            server.finish().context("the disk failed")?;
            let mut disk = disk.lock().expect("no panic under the lock");
            disk.settle().context("the disk failed")?;
            self.totals.traffic.add(disk.traffic());
        }
        Ok(lines)
    }

    fn power_on(&mut self) -> anyhow::Result<Powered> {
        // Not in `folder`: a socket's path has at most 107 bytes.
        let socket = format!("mangrove-powercut-{}-{}", std::process::id(), self.storage.name());
        let socket = std::env::temp_dir().join(socket);
        let disk = match self.storage {
            GuestStorage::Dax | GuestStorage::Devdax => None,
            GuestStorage::Ext4 => {
                if socket.exists() {
                    fs::remove_file(&socket)?;
                }
                let rng = StdRng::seed_from_u64(self.rng.random());
                let disk = Arc::new(Mutex::new(PowerCutDisk::open(&self.image(), self.lies, rng)?));
                let server = NbdServer::start(&socket, Arc::clone(&disk))?;
                Some((disk, server))
            }
        };
        let mut devices = self.storage.devices(&self.image(), &socket);
        // Another one at each boot: a port that somebody took meanwhile costs a boot and no more.
        let port = if self.serves.is_some() { valkey::free_port(0)? } else { 0 };
        if let Some(inside) = self.serves {
            devices.extend(network(port, inside));
        }
        let guest = Guest::start(&VirtualMachine {
            accelerator: self.accelerator,
            kernel: &self.kernel,
            initramfs: &self.initramfs,
            devices,
            folder: &self.folder,
        })?;
        Ok(Powered { guest, port, disk })
    }

    fn repair(&mut self) -> anyhow::Result<()> {
        self.totals.repairs += 1;
        let program = packages::find("e2fsck").context("e2fsck is not installed")?;
        let output = Command::new(program).args(["-f", "-y"]).arg(self.image()).output()?;
        // 1: errors corrected.
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "e2fsck cannot repair the file system: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
        Ok(())
    }
}

/// A network of the host and the guest alone, in which `port` of the host leads to `inside`.
fn network(port: u16, inside: u16) -> [String; 4] {
    [
        "-netdev".into(),
        format!("user,id=net,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:{port}-{GUEST_ADDRESS}:{inside}"),
        "-device".into(),
        // Without the program that boots over the network, which is a package of its own.
        "virtio-net-pci,netdev=net,romfile=".into(),
    ]
}

/// Copies an image, leaving holes where it has holes.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    tree::run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(from).arg(to))
}
