//! The network block device protocol over a unix socket: how QEMU reaches our [`PowerCutDisk`].
//!
//! Written from the protocol's description (NetworkBlockDevice/nbd, doc/proto.md): fixed newstyle handshake,
//! simple replies, one connection at a time, commands answered in order.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::disk::{PowerCutDisk, SECTOR_BYTES};

const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const MAGIC_OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const MAGIC_REQUEST: u32 = 0x2560_9513;
const MAGIC_REPLY: u32 = 0x6744_6698;

const HANDSHAKE_FIXED_NEWSTYLE: u16 = 1;
const HANDSHAKE_NO_ZEROES: u16 = 2;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;

const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR_UNSUPPORTED: u32 = 1 << 31 | 1;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// Has flags, takes flush, takes FUA: to the guest this is a disk with a write-back cache.
const TRANSMISSION_FLAGS: u16 = 1 | 1 << 2 | 1 << 3;

const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;
const COMMAND_FLAG_FUA: u16 = 1;

const ERROR_IO: u32 = 5;
const ERROR_INVALID: u32 = 22;

/// No sane client sends more in one request or option.
const PAYLOAD_BYTES_MAX: u32 = 64 << 20;

/// One connection, which a thread of its own serves.
pub(super) struct NbdServer {
    thread: JoinHandle<io::Result<()>>,
}

impl NbdServer {
    /// Listens on `socket` and serves the first client.
    pub(super) fn start(socket: &Path, disk: Arc<Mutex<PowerCutDisk>>) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let socket = socket.to_owned();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            std::fs::remove_file(socket)?;
            serve(stream, &disk)
        });
        Ok(Self { thread })
    }

    /// Waits until the client is gone. A client that was killed is not an error.
    pub(super) fn finish(self) -> io::Result<()> {
        match self.thread.join().expect("the disk's thread does not panic") {
            Err(error) if is_hang_up(&error) => Ok(()),
            other => other,
        }
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn serve(stream: UnixStream, disk: &Mutex<PowerCutDisk>) -> io::Result<()> {
    let mut output = stream.try_clone()?;
    let mut input = BufReader::with_capacity(256 << 10, stream);
    let bytes = disk.lock().expect("no panic under the lock").bytes();
    if handshake(&mut input, &mut output, bytes)? {
        while answer(&mut input, &mut output, disk)? {}
    }
    Ok(())
}

/// Agrees on the export; `false` if the client left.
fn handshake(input: &mut impl Read, output: &mut impl Write, bytes: u64) -> io::Result<bool> {
    let mut hello = Vec::new();
    hello.extend(MAGIC.to_be_bytes());
    hello.extend(MAGIC_OPTION.to_be_bytes());
    hello.extend((HANDSHAKE_FIXED_NEWSTYLE | HANDSHAKE_NO_ZEROES).to_be_bytes());
    output.write_all(&hello)?;
    let zeroes = take_u32(input)? & u32::from(HANDSHAKE_NO_ZEROES) == 0;
    loop {
        if take_u64(input)? != MAGIC_OPTION {
            return Err(malformed("an option without its magic"));
        }
        let option = take_u32(input)?;
        let len = take_u32(input)?;
        // Whatever the client asks for (a name, a list of information), there is one answer: the one disk.
        take(input, len)?;
        match option {
            OPTION_EXPORT_NAME => {
                let mut export = Vec::new();
                export.extend(bytes.to_be_bytes());
                export.extend(TRANSMISSION_FLAGS.to_be_bytes());
                export.resize(export.len() + if zeroes { 124 } else { 0 }, 0);
                output.write_all(&export)?;
                return Ok(true);
            }
            OPTION_GO | OPTION_INFO => {
                let mut export = INFO_EXPORT.to_be_bytes().to_vec();
                export.extend(bytes.to_be_bytes());
                export.extend(TRANSMISSION_FLAGS.to_be_bytes());
                output.write_all(&option_reply(option, REPLY_INFO, &export))?;
                let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                for size in [SECTOR_BYTES as u32, 4096, 32 << 20] {
                    sizes.extend(size.to_be_bytes());
                }
                output.write_all(&option_reply(option, REPLY_INFO, &sizes))?;
                output.write_all(&option_reply(option, REPLY_ACK, &[]))?;
                if option == OPTION_GO {
                    return Ok(true);
                }
            }
            OPTION_ABORT => {
                output.write_all(&option_reply(option, REPLY_ACK, &[]))?;
                return Ok(false);
            }
            _ => output.write_all(&option_reply(option, REPLY_ERROR_UNSUPPORTED, &[]))?,
        }
    }
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut reply = MAGIC_OPTION_REPLY.to_be_bytes().to_vec();
    reply.extend(option.to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend((data.len() as u32).to_be_bytes());
    reply.extend(data);
    reply
}

/// Answers one command; `false` after a disconnect.
fn answer(input: &mut impl Read, output: &mut impl Write, disk: &Mutex<PowerCutDisk>) -> io::Result<bool> {
    if take_u32(input)? != MAGIC_REQUEST {
        return Err(malformed("a request without its magic"));
    }
    let flags = take_u16(input)?;
    let command = take_u16(input)?;
    let handle = take_u64(input)?;
    let offset = take_u64(input)?;
    let len = take_u32(input)?;
    let lock = || disk.lock().expect("no panic under the lock");
    let mut payload = Vec::new();
    let outcome = match command {
        COMMAND_READ if len <= PAYLOAD_BYTES_MAX => {
            payload.resize(len as usize, 0);
            lock().read(offset, &mut payload)
        }
        COMMAND_WRITE => {
            let data = take(input, len)?;
            lock().write(offset, &data, flags & COMMAND_FLAG_FUA != 0)
        }
        COMMAND_FLUSH => {
            let delay = lock().flush_begins();
            std::thread::sleep(delay);
            lock().flush()
        }
        COMMAND_DISCONNECT => return Ok(false),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    };
    let error = match outcome {
        Ok(()) => 0,
        // Without power there is no answer, not even an error.
        Err(_) if lock().is_off() => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => ERROR_INVALID,
        Err(_) => ERROR_IO,
    };
    let mut reply = MAGIC_REPLY.to_be_bytes().to_vec();
    reply.extend(error.to_be_bytes());
    reply.extend(handle.to_be_bytes());
    if error == 0 {
        reply.append(&mut payload);
    }
    output.write_all(&reply)?;
    Ok(true)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the NBD client sent {what}"))
}

fn take(input: &mut impl Read, len: u32) -> io::Result<Vec<u8>> {
    if len > PAYLOAD_BYTES_MAX {
        return Err(malformed("too much at once"));
    }
    let mut data = vec![0; len as usize];
    input.read_exact(&mut data)?;
    Ok(data)
}

fn take_u16(input: &mut impl Read) -> io::Result<u16> {
    let mut bytes = [0; 2];
    input.read_exact(&mut bytes)?;
    Ok(u16::from_be_bytes(bytes))
}

fn take_u32(input: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn take_u64(input: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    input.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};

    fn request(flags: u16, command: u16, handle: u64, offset: u64, len: u32, data: &[u8]) -> Vec<u8> {
        let mut request = MAGIC_REQUEST.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(handle.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        request
    }

    /// The client's side of the handshake, byte for byte, then a write, a flush and a read.
    #[test]
    fn a_client_writes_flushes_reads_and_hangs_up() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, vec![0; 8 * SECTOR_BYTES]).unwrap();
        let disk = Arc::new(Mutex::new(PowerCutDisk::open(&image, false, StdRng::seed_from_u64(1)).unwrap()));
        let socket = folder.path().join("socket");
        let server = NbdServer::start(&socket, Arc::clone(&disk)).unwrap();
        let mut client = UnixStream::connect(&socket).unwrap();

        let mut hello = [0; 18];
        client.read_exact(&mut hello).unwrap();
        assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
        client.write_all(&3u32.to_be_bytes()).unwrap();
        for (option, data) in [(8u32, &[][..]), (OPTION_GO, &[0; 6][..])] {
            client.write_all(b"IHAVEOPT").unwrap();
            client.write_all(&option.to_be_bytes()).unwrap();
            client.write_all(&(data.len() as u32).to_be_bytes()).unwrap();
            client.write_all(data).unwrap();
        }
        let mut replies = [0; 20 + (20 + 12) + (20 + 14) + 20];
        client.read_exact(&mut replies).unwrap();
        assert_eq!(&replies[12..16], &REPLY_ERROR_UNSUPPORTED.to_be_bytes());
        assert_eq!(&replies[42..50], &(8 * SECTOR_BYTES as u64).to_be_bytes());

        client.write_all(&request(0, COMMAND_WRITE, 7, 512, 512, &[9; SECTOR_BYTES])).unwrap();
        client.write_all(&request(0, COMMAND_FLUSH, 8, 0, 0, &[])).unwrap();
        client.write_all(&request(0, COMMAND_READ, 9, 0, 1024, &[])).unwrap();
        client.write_all(&request(0, COMMAND_READ, 10, 1 << 40, 512, &[])).unwrap();
        let mut replies = vec![0; 4 * 16 + 1024];
        client.read_exact(&mut replies).unwrap();
        assert_eq!(&replies[8..16], &7u64.to_be_bytes());
        assert_eq!((replies[48 + 511], replies[48 + 512]), (0, 9));
        assert_eq!(&replies[48 + 1024 + 4..48 + 1024 + 8], &ERROR_INVALID.to_be_bytes());

        drop(client);
        server.finish().unwrap();
        assert_eq!(disk.lock().unwrap().traffic().flushes, 1);
        assert_eq!(std::fs::read(&image).unwrap()[512], 9);
    }
}
