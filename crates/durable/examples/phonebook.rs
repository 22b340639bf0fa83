//! A Rust program whose state survives: tests/typed.rs kills it and starts it again.
//!
//!     phonebook FOLDER run THREADS      adds numbers and prints each that was acknowledged
//!     phonebook FOLDER check THREADS    prints how many each thread has
//!     phonebook FOLDER panic            a write that panics halfway
//!     phonebook FOLDER outlive          an initialisation and a write that panic, told when their states are gone

use mangrove_durable::{Allocator, Durable, Error, Persist};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

#[derive(Default)]
struct Books {
    by_name: BTreeMap<String, Vec<u8>>,
    by_thread: HashMap<u64, Vec<String>>,
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
        list.push(name);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.total += 1;
        number
    }

    /// Everything agrees with everything.
    fn check(&self) {
        assert_eq!(self.by_name.len() as u64, self.total);
        assert_eq!(self.by_thread.values().map(Vec::len).sum::<usize>() as u64, self.total);
        assert_eq!(self.recent.len(), RECENT.min(self.total as usize));
        for name in self.by_thread.values().flatten() {
            let value = &self.by_name[name];
            assert!(value.chunks(name.len()).all(|chunk| chunk == name.as_bytes()), "{name}");
        }
    }
}

fn outlive(folder: &str) {
    let what = std::hint::black_box("no");
    let caught = |call: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("panics");
        // The memory of states that failed goes at the latest now.
        Durable::open(format!("{folder}.other"), Books::default).expect("opens").close().expect("closes");
        payload.downcast::<String>().expect("text")
    };
    let beginning = caught(&|| drop(Durable::<Books>::open(folder, || panic!("{what} beginning"))));
    let end = caught(&|| {
        let books = Durable::open(folder, Books::default).expect("opens");
        let _ = books.write(|_| panic!("{what} end"));
    });
    println!("{beginning}, {end}");
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
                // A value that left the state is dropped here, outside.
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
