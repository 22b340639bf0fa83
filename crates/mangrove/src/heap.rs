//! Durable transactions: memory that comes back at its address, changed by atomic, isolated, durable transactions.
//!
//! ```
//! use mangrove::heap::{Cancel, Heap, HeapResult, Pod, Ptr, Zeroable, field};
//!
//! /// What is stored is plain data: `Pod` refuses references, boxes and padding.
//! #[derive(Clone, Copy, Pod, Zeroable)]
//! #[repr(C)]
//! # #[bytemuck(crate = "mangrove::heap::bytemuck")]
//! struct Account {
//!     balance: u64,
//!     next: Ptr<Account>,
//! }
//!
//! # fn main() -> HeapResult<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("bank");
//! let heap = Heap::open(&path)?; // created when it is not there
//! heap.transaction(|tx| {
//!     let second = tx.alloc(Account { balance: 0, next: Ptr::NULL })?;
//!     let first = tx.alloc(Account { balance: 100, next: second })?;
//!     tx.set_root("bank", first)
//! })?; // durable when this returns
//!
//! // Several threads may do this at once.
//! let transfer = |amount: u64| {
//!     heap.try_transaction(|tx| {
//!         let from = tx.root::<Account>("bank")?.expect("set above");
//!         let to = tx.read(field!(from, Account, next))?;
//!         let has = tx.read(field!(from, Account, balance))?;
//!         if has < amount {
//!             return Err(Cancel::Abort("not covered")); // everything is undone
//!         }
//!         tx.write(field!(from, Account, balance), has - amount)?;
//!         let had = tx.read(field!(to, Account, balance))?;
//!         tx.write(field!(to, Account, balance), had + amount)?;
//!         Ok(has - amount)
//!     })
//! };
//! assert_eq!(transfer(70)?, Ok(30));
//! assert_eq!(transfer(70)?, Err("not covered"));
//! heap.close()
//! # }
//! ```
//!
//! A type that cannot live in a heap does not compile:
//!
//! ```compile_fail,E0277
//! # use mangrove::heap::{Heap, HeapResult};
//! # fn name(heap: &Heap) -> HeapResult<()> {
//! heap.transaction(|tx| tx.alloc(String::from("points to this process's own memory")).map(drop))
//! # }
//! ```
//!
//! Collections on the heap, whose operations compose in one transaction: [`HeapVec`], [`HeapMap`], [`HeapOrderedMap`],
//! [`HeapQueue`], and byte strings as their keys and values, [`HeapBytes`]:
//!
//! ```
//! use mangrove::heap::{Heap, HeapMap, HeapQueue};
//!
//! # fn main() -> mangrove::heap::HeapResult<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! let heap = Heap::open(folder.path().join("shop"))?;
//! let (stock, orders) = heap.transaction(|tx| {
//!     let stock = HeapMap::<u64, u32>::at_root(tx, "stock")?; // made when it is not there
//!     stock.insert(tx, &7, 2)?;
//!     Ok((stock, HeapQueue::<u64>::at_root(tx, "orders")?))
//! })?;
//! let sold = heap.transaction(|tx| {
//!     let left = stock.get(tx, &7)?.unwrap_or(0);
//!     if left == 0 {
//!         return Ok(false);
//!     }
//!     stock.insert(tx, &7, left - 1)?;
//!     orders.push(tx, 7)?; // with the line above, or not at all
//!     Ok(true)
//! })?;
//! assert!(sold);
//! heap.close()
//! # }
//! ```
//!
//! A transaction body may run several times. Whatever else it does than by way of its `tx` (printing, sending) happens
//! as often. Reads see one consistent state, also in a run that is undone in the end.

pub use mangrove_txn::{
    AddressChoice, BackupProgress, Cancel, Executor, HardwareLimits, Heap, HeapBackup, HeapBytes, HeapError,
    HeapInfo, HeapKey, HeapMap, HeapOptions, HeapOrderedMap, HeapQueue, HeapResult, HeapStat, HeapVec,
    LastOpening, MapWalk, MediumKind, Order, OrderedWalk, PlainReads, Plan, Pod, Protocol, Ptr, QueueWalk,
    ROOT_COUNT_MAX, ROOT_NAME_BYTES_MAX, Reads, Root, Start, StmOptions, Stop, ThreadLimit, Tx, TxCounts,
    TxTicket, Zeroable, bytemuck, field,
};
