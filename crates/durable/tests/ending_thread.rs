//! Destructors of a thread's variables read and write, before and after what this crate has of the thread is destroyed.

use mangrove_durable::{Allocator, Durable, Error};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

type Book = BTreeMap<u64, u64>;

/// Writes its number when it is destroyed.
struct Last {
    number: u64,
    book: Arc<Durable<Book>>,
}

impl Drop for Last {
    fn drop(&mut self) {
        let (number, book) = (self.number, &*self.book);
        book.write(move |book| _ = book.insert(number, number)).expect("written");
        let inside = |found: &Book| (found.contains_key(&number), book.write(|book| book.clear()));
        let (is_there, nested) = book.read(inside).expect("read");
        assert!(is_there && matches!(nested, Err(Error::Nested)), "{is_there}, {nested:?}");
    }
}

thread_local! {
    static FIRST: RefCell<Option<Last>> = const { RefCell::new(None) };
    static SECOND: RefCell<Option<Last>> = const { RefCell::new(None) };
}

#[test]
fn destructors_of_an_ending_thread_read_and_write() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let book = Arc::new(Durable::open(scratch.path().join("book"), Book::new).expect("opens"));
    let shared = Arc::clone(&book);
    let thread = std::thread::spawn(move || {
        // One is made before the thread's first call and one after it: in either order of destruction one of them calls
        // when this crate's variable of the thread is gone.
        FIRST.set(Some(Last { number: 1, book: Arc::clone(&shared) }));
        shared.write(|book| _ = book.insert(0, 0)).expect("written");
        SECOND.set(Some(Last { number: 2, book: shared }));
    });
    thread.join().expect("ends");
    let numbers = book.read(|book| book.keys().copied().collect::<Vec<_>>()).expect("read");
    assert_eq!(numbers, [0, 1, 2]);
    Arc::into_inner(book).expect("no other owner").close().expect("closes");
}
