//! One run of the virtual machine: from power on to power cut.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::media::argument;
use super::packages;
use crate::tree;

/// A guest that prints nothing for this long counts as hung.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// How long KVM may take to show that it works; a working one needs two seconds.
const TRIAL_MAX: Duration = Duration::from_secs(8);
const LISTEN_EVERY: Duration = Duration::from_millis(2);

/// How the guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Accelerator {
    /// By the processor.
    Kvm,
    /// By QEMU's translator; works everywhere.
    Tcg,
}

/// The parts of a machine.
pub(super) struct VirtualMachine<'a> {
    pub(super) accelerator: Accelerator,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// Arguments that add the storage.
    pub(super) devices: Vec<String>,
    /// Directory for the machine's output.
    pub(super) folder: &'a Path,
}

/// A running machine.
///
/// The guest reports through a virtio port that ends in a file. `ioeventfd=off,event_idx=off` make QEMU take the
/// bytes inside the guest's own kick, and a file never blocks: when `write(2)` has returned in the guest, the line
/// is in the host's file, and SIGKILL cannot remove it. So the file holds *every* operation that was begun or
/// acknowledged at the instant of the cut, which `history.rs` relies on.
pub(super) struct Guest {
    qemu: Child,
    keyboard: File,
    said: File,
    /// Bytes of an unfinished line.
    partial: Vec<u8>,
    ready: VecDeque<String>,
    console: PathBuf,
}

impl Guest {
    /// Switches a machine on; its shell is ready some seconds later.
    pub(super) fn start(machine: &VirtualMachine) -> anyhow::Result<Self> {
        let typed = machine.folder.join("typed.fifo");
        let said = machine.folder.join("said.txt");
        let console = machine.folder.join("console.log");
        let errors = machine.folder.join("qemu.log");
        if !typed.exists() {
            tree::run(Command::new("mkfifo").arg(&typed))?;
        }
        // Open for reading as well, so that neither side waits for the other to open it.
        let keyboard = File::options().read(true).write(true).open(&typed)?;
        File::create(&said)?;
        let program = packages::find("qemu-system-x86_64").context("qemu-system-x86_64 is not installed")?;
        let mut command = killed_with_this_process(&program);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-smp", "2"]);
        command.args(["-machine", "pc,nvdimm=on,nvdimm-persistence=mem-ctrl", "-m", "1G,slots=2,maxmem=4G"]);
        command.args(match machine.accelerator {
            Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accelerator::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        });
        command.arg("-kernel").arg(machine.kernel).arg("-initrd").arg(machine.initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.args(["-device", "virtio-serial-pci,ioeventfd=off,event_idx=off"]);
        command.arg("-chardev").arg(format!("file,id=said,path={}", argument(&said)));
        command.args(["-device", "virtserialport,nr=1,chardev=said"]);
        command.arg("-chardev").arg(format!("pipe,id=typed,path={}", argument(&typed)));
        command.args(["-device", "virtserialport,nr=2,chardev=typed"]);
        command.args(&machine.devices);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?);
        let qemu = command.spawn().context("cannot start QEMU")?;
        Ok(Self {
            qemu,
            keyboard,
            said: File::open(&said)?,
            partial: Vec::new(),
            ready: VecDeque::new(),
            console,
        })
    }

    /// Types shell commands.
    pub(super) fn type_in(&mut self, commands: &str) -> anyhow::Result<()> {
        Ok(self.keyboard.write_all(commands.as_bytes())?)
    }

    /// Returns the lines up to the first that begins with `mark`, which comes last.
    pub(super) fn lines_until(&mut self, mark: &str) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            match self.line(Instant::now() + SILENCE_MAX)? {
                Some(line) => lines.push(line),
                None => bail!("the guest is silent\n{}", self.console_tail()),
            }
            if lines.last().is_some_and(|line| line.starts_with(mark)) {
                return Ok(lines);
            }
        }
    }

    /// Returns the lines until `instant`, or up to the first that begins with `mark`, which comes last.
    pub(super) fn lines_before(&mut self, instant: Instant, mark: &str) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        while let Some(line) = self.line(instant)? {
            lines.push(line);
            if lines.last().is_some_and(|line| line.starts_with(mark)) {
                break;
            }
        }
        Ok(lines)
    }

    /// Kills the machine and returns the lines that were not read yet.
    pub(super) fn cut(mut self) -> anyhow::Result<Vec<String>> {
        if let Some(status) = self.qemu.try_wait()? {
            bail!(
                "the machine stopped by itself ({status}) before its power was cut\n{}",
                self.console_tail()
            );
        }
        self.qemu.kill()?;
        self.qemu.wait()?;
        self.listen()?;
        Ok(std::mem::take(&mut self.ready).into())
    }

    /// The next line, `None` if there is none until `instant`.
    fn line(&mut self, instant: Instant) -> anyhow::Result<Option<String>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Some(line));
            }
            // In this order, so that output from before the end is read.
            let ended = self.qemu.try_wait()?;
            self.listen()?;
            if self.ready.is_empty() {
                if let Some(status) = ended {
                    bail!("the machine stopped by itself ({status})\n{}", self.console_tail());
                }
                let now = Instant::now();
                if now >= instant {
                    return Ok(None);
                }
                std::thread::sleep(LISTEN_EVERY.min(instant - now));
            }
        }
    }

    /// Reads new output. A line without its end stays in `partial`.
    fn listen(&mut self) -> std::io::Result<()> {
        self.said.read_to_end(&mut self.partial)?;
        if let Some(last) = self.partial.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.partial.split_off(last + 1);
            let whole = std::mem::replace(&mut self.partial, rest);
            self.ready.extend(String::from_utf8_lossy(&whole).lines().map(str::to_owned));
        }
        Ok(())
    }

    /// The last lines of QEMU and of the guest's kernel.
    pub(super) fn console_tail(&self) -> String {
        let folder = self.console.parent().unwrap_or(Path::new("."));
        let mut text = fs::read(folder.join("qemu.log")).unwrap_or_default();
        text.extend(fs::read(&self.console).unwrap_or_default());
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Failure means that it is dead already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// A command that the kernel kills when this process ends, however it ends, because no other process would.
fn killed_with_this_process(program: &Path) -> Command {
    let Some(setpriv) = packages::find("setpriv") else { return Command::new(program) };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// KVM if a guest really reaches its shell under it (a nested machine often offers a KVM that does not work),
/// otherwise TCG.
pub(super) fn detect(kernel: &Path, initramfs: &Path, folder: &Path) -> anyhow::Result<Accelerator> {
    if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accelerator::Tcg);
    }
    let machine =
        VirtualMachine { accelerator: Accelerator::Kvm, kernel, initramfs, devices: Vec::new(), folder };
    let Ok(mut guest) = Guest::start(&machine) else { return Ok(Accelerator::Tcg) };
    guest.type_in("echo '# alive'\n")?;
    let lines = guest.lines_before(Instant::now() + TRIAL_MAX, "# alive").unwrap_or_default();
    Ok(if lines.is_empty() { Accelerator::Tcg } else { Accelerator::Kvm })
}
