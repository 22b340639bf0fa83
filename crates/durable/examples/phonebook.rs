//! A Rust program whose state survives: tests/typed.rs kills it and starts it again.
//!
//!     phonebook DIRECTORY run THREADS    adds numbers and prints each that was acknowledged
//!     phonebook DIRECTORY check THREADS  prints how many each thread has
//!     phonebook DIRECTORY panic          a write that panics halfway
//!     phonebook DIRECTORY outlive        initialisations and writes that panic, looked at when their states are gone

use mangrove_durable::{Allocator, Durable, Error, Options, Persist};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

#[derive(Default)]
struct Books {
    by_name: BTreeMap<String, Vec<u8>>,
    /// Its hasher draws a seed when the map is made, and keeps it in the map.
    by_thread: HashMap<u64, Vec<String>>,
    /// Its hasher has no seed.
    names: HashSet<String, BuildHasherDefault<DefaultHasher>>,
    recent: VecDeque<Box<str>>,
    total: u64,
}
// SAFETY: collections of text and numbers.
unsafe impl Persist for Books {}

const RECENT: usize = 50;

impl Books {
    fn add(&mut self, thread: u64) -> u64 {
        let list = self.by_thread.entry(thread).or_default();
        let number = list.len() as u64 + 1;
        let name = format!("thread {thread} number {number}");
        self.by_name.insert(name.clone(), name.as_bytes().repeat(1 + number as usize % 7));
        self.recent.push_back(name.as_str().into());
        self.names.insert(name.clone());
        list.push(name);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.total += 1;
        number
    }

    /// Checks that the indexes agree, and that each finds its keys.
    fn check(&self) {
        assert_eq!(self.by_name.len() as u64, self.total);
        assert_eq!(self.by_thread.values().map(Vec::len).sum::<usize>() as u64, self.total);
        assert_eq!(self.recent.len(), RECENT.min(self.total as usize));
        assert_eq!(self.names.len() as u64, self.total);
        for (thread, list) in &self.by_thread {
            assert_eq!(self.by_thread.get(thread), Some(list), "thread {thread}");
            assert!(list.iter().all(|name| self.names.contains(name)), "thread {thread}");
        }
        for name in self.by_thread.values().flatten() {
            let value = &self.by_name[name];
            assert!(value.chunks(name.len()).all(|chunk| chunk == name.as_bytes()), "{name}");
        }
    }
}

/// A way to panic in a command.
type Panics = fn();

/// A text; a text where there is too little address space to keep a copy of the state for a while; and a payload
/// that is no text.
const PANICS: [(&str, Panics); 3] = [
    ("text", || panic!("{} luck", black_box("no"))),
    ("narrow", || {
        black_box(vec![1u8; 64 << 20]);
        limit(Some(16 << 20));
        panic!("{} luck", black_box("no"))
    }),
    ("numbers", || panic_any(vec![7u64; 3])),
];

/// Limits the process to so many more bytes of address space, or to as many as it could have at its start.
fn limit(more: Option<u64>) {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = pages.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    // SAFETY: reads and sets numbers of this process.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &raw mut limit), 0);
        limit.rlim_cur = more.map_or(limit.rlim_max, |more| pages * 4096 + more);
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
    }
}

/// Panics while the state is made, or in its first write.
fn fail(folder: &str, options: &Options, at_once: bool, panics: Panics) {
    let make = || {
        if at_once {
            panics();
        }
        Books::default()
    };
    let books = Durable::open_with(folder, options, make).expect("opens");
    let _ = books.write(|_| panics());
}

fn outlive(folder: &str) {
    let options = Options::new().capacity(1 << 30).log_bytes(8 << 20);
    let mut number = 0;
    for (name, panics) in PANICS {
        for (returns_memory, at_once) in [(false, false), (false, true), (true, false), (true, true)] {
            number += 1;
            let options = options.clone().returns_memory(returns_memory);
            let failed = AssertUnwindSafe(|| fail(&format!("{folder}.{number}"), &options, at_once, panics));
            let payload = catch_unwind(failed).expect_err("panics");
            limit(None);
            // The next opening unmaps the memory of states that failed, if anything does.
            let other = Durable::open_with(format!("{folder}.other"), &options, Books::default);
            other.expect("opens").close().expect("closes");
            match payload.downcast::<String>() {
                Ok(text) => assert_eq!((text.as_str(), name == "numbers"), ("no luck", false)),
                Err(payload) => assert_eq!(*payload.downcast::<Vec<u64>>().expect("numbers"), [7; 3]),
            }
        }
    }
    println!("outlived");
}

fn main() {
    mangrove_durable::settle_addresses();
    let args: Vec<String> = std::env::args().collect();
    if args[2] == "outlive" {
        return outlive(&args[1]);
    }
    let threads: u64 = args.get(3).map_or(1, |n| n.parse().expect("a number"));
    let books = match Durable::open(&args[1], Books::default) {
        Ok(books) => books,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    books.read(Books::check).expect("reads");
    match args[2].as_str() {
        "run" => std::thread::scope(|scope| {
            for thread in 0..threads {
                let books = &books;
                scope.spawn(move || {
                    loop {
                        let number = books.write(|books| books.add(thread)).expect("durable");
                        let line = format!("{thread} {number}\n");
                        std::io::stdout().lock().write_all(line.as_bytes()).expect("told");
                    }
                });
            }
        }),
        "check" => {
            for thread in 0..threads {
                let count = books.read(|b| b.by_thread.get(&thread).map_or(0, Vec::len)).expect("reads");
                println!("{thread} {count}");
            }
            let nested = books.read(|_| books.read(|b| b.total)).expect("reads");
            assert!(matches!(nested, Err(Error::Nested)), "{nested:?}");
            let first = books.write(|b| b.by_name.pop_first()).expect("durable");
            if let Some((name, value)) = first {
                // A value that left the state is dropped here, outside commands.
                books.write(|b| b.by_name.insert(name.clone(), value.clone())).expect("durable");
            }
            books.read(Books::check).expect("reads");
            books.close().expect("closes");
        }
        "panic" => {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                books.write(|books| {
                    books.add(0);
                    books.by_name.clear();
                    panic!("halfway");
                })
            }));
            assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"halfway"));
            assert!(matches!(books.read(|b| b.total), Err(Error::Broken { .. })));
            assert!(matches!(books.write(|b| b.add(0)), Err(Error::Broken { .. })));
            assert!(books.close().is_err());
            println!("panicked");
        }
        other => panic!("{other}?"),
    }
}
