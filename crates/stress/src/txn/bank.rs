//! The bank: accounts, and for each thread the receipt of its last transfer. Every transfer writes all of what it
//! touches in one transaction, so that what a crash splits contradicts itself.

use super::ledger::{Findings, Ledger, operation, stamp};
use crate::value::WriterOperation;
use mangrove::heap::{Heap, HeapResult, Pod, Ptr, Stop, Tx, Zeroable, field};
use std::collections::BTreeSet;

/// What each account begins with.
const BALANCE: u64 = 1_000;
/// Threads that can have a receipt: as many as an [`WriterOperation`] can name.
const THREAD_COUNT: usize = 256;
const ROOT: &str = "bank";

/// What the root points to.
#[derive(Clone, Copy, Pod, Zeroable)]
#[bytemuck(crate = "mangrove::heap::bytemuck")]
#[repr(C)]
pub(crate) struct Bank {
    accounts: Ptr<Account>,
    account_count: u64,
    /// By thread; null before its first transfer.
    receipts: Ptr<Ptr<Receipt>>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[bytemuck(crate = "mangrove::heap::bytemuck")]
#[repr(C)]
struct Account {
    balance: u64,
    /// The [`stamp`] of the last transfer; 0 before the first.
    stamp: u64,
}

/// The first words of a block that each transfer allocates, while it frees the one before: the thread's counter.
#[derive(Clone, Copy, Pod, Zeroable)]
#[bytemuck(crate = "mangrove::heap::bytemuck")]
#[repr(C)]
struct Receipt {
    stamp: u64,
    /// The bitwise complement of the stamp: a torn receipt shows.
    check: u64,
}

impl Bank {
    /// The money, summed, and the last transfer of `thread`, all of one instant.
    fn sum_and_last(self, tx: &mut Tx<'_>, thread: u8) -> Result<(u64, Option<WriterOperation>), Stop> {
        let mut sum = 0;
        for i in 0..self.account_count as usize {
            sum += tx.read(field!(self.accounts.add(i), Account, balance))?;
        }
        let receipt = tx.read(self.receipts.add(usize::from(thread)))?;
        let Some(receipt) = receipt.some() else { return Ok((sum, None)) };
        Ok((sum, Some(operation(tx.read(field!(receipt, Receipt, stamp))?))))
    }

    /// The money that is there at all times.
    fn total(self) -> u64 {
        self.account_count * BALANCE
    }
}

impl Ledger for Bank {
    const NAME: &'static str = "bank";

    /// The bank of the heap; made in one transaction where there is none.
    fn open(heap: &Heap, account_count: u64) -> HeapResult<Self> {
        heap.transaction(|tx| {
            if let Some(bank) = tx.root::<Self>(ROOT)? {
                return tx.read(bank);
            }
            let accounts = tx.alloc_array::<Account>(account_count as usize)?;
            for i in 0..account_count as usize {
                tx.write(field!(accounts.add(i), Account, balance), BALANCE)?;
            }
            let receipts = tx.alloc_array(THREAD_COUNT)?;
            let bank = Self { accounts, account_count, receipts };
            let root = tx.alloc(bank)?;
            tx.set_root(ROOT, root)?;
            Ok(bank)
        })
    }

    /// One transfer, chosen by `noise`, in the transaction `tx`.
    fn operate(self, tx: &mut Tx<'_>, of: WriterOperation, noise: u64) -> Result<(), Stop> {
        let account = |i: u64| self.accounts.add((i % self.account_count) as usize);
        let (from, to) = (account(noise >> 32), account(noise >> 8));
        let stamp = stamp(of);
        let has = tx.read(field!(from, Account, balance))?;
        let amount = has.min(noise % 100);
        tx.write(from, Account { balance: has - amount, stamp })?;
        // Read after the write: both may be the same account.
        let had = tx.read(field!(to, Account, balance))?;
        tx.write(to, Account { balance: had + amount, stamp })?;
        // Blocks of many size classes; now and then one of several pages.
        let words = if noise.is_multiple_of(64) { noise >> 8 & 0x7ff } else { noise >> 8 & 0x3f };
        let receipt = tx.alloc_array::<u64>(2 + words as usize)?.cast::<Receipt>();
        tx.write(receipt, Receipt { stamp, check: !stamp })?;
        let slot = self.receipts.add(usize::from(of.thread));
        let last = tx.read(slot)?;
        tx.write(slot, receipt)?;
        last.some().map_or(Ok(()), |last| tx.free(last))
    }

    fn look(self, tx: &mut Tx<'_>, thread: u8) -> Result<Result<Option<WriterOperation>, String>, Stop> {
        let (sum, last) = self.sum_and_last(tx, thread)?;
        Ok(if sum == self.total() {
            Ok(last)
        } else {
            Err(format!("a transaction saw {sum} in all accounts, not {}", self.total()))
        })
    }

    fn examine(heap: &Heap) -> HeapResult<Findings> {
        examine(heap)
    }
}

/// Reads all of a heap that at most a bank is in.
fn examine(heap: &Heap) -> HeapResult<Findings> {
    let mut problems = heap.check()?;
    let mut last = Vec::new();
    let mut reachable = BTreeSet::new();
    let bank = heap.read(|tx| {
        let Some(root) = tx.root::<Bank>(ROOT)? else { return Ok(None) };
        Ok(Some((root, tx.read(root)?)))
    })?;
    if let Some((root, bank)) = bank {
        let (accounts, receipts) = heap.read(|tx| {
            let accounts = (0..bank.account_count as usize).map(|i| tx.read(bank.accounts.add(i)));
            let accounts = accounts.collect::<Result<Vec<Account>, Stop>>()?;
            let mut receipts = Vec::new();
            for slot in 0..THREAD_COUNT {
                let at = tx.read(bank.receipts.add(slot))?;
                let receipt = if at.is_null() { None } else { Some((at.address(), tx.read(at)?)) };
                receipts.push(receipt);
            }
            Ok((accounts, receipts))
        })?;
        reachable.extend([root.address(), bank.accounts.address(), bank.receipts.address()]);
        reachable.extend(receipts.iter().flatten().map(|(address, _)| *address));
        judge(bank, &accounts, &receipts, &mut problems);
        last.extend(receipts.iter().flatten().map(|(_, receipt)| operation(receipt.stamp)));
    }
    let mut blocks = BTreeSet::new();
    heap.for_each_block(|address, _| {
        blocks.insert(address);
    })?;
    for lost in blocks.difference(&reachable) {
        problems.push(format!("nothing points to the block at {lost:#x}"));
    }
    for free in reachable.difference(&blocks) {
        problems.push(format!("the bank uses {free:#x}, where no block is"));
    }
    Ok(Findings { last, problems })
}

fn judge(
    bank: Bank,
    accounts: &[Account],
    receipts: &[Option<(usize, Receipt)>],
    problems: &mut Vec<String>,
) {
    let sum: u64 = accounts.iter().map(|account| account.balance).fold(0, u64::wrapping_add);
    if sum != bank.total() {
        problems.push(format!("the accounts hold {sum}, not {}", bank.total()));
    }
    for (thread, (_, receipt)) in receipts.iter().enumerate().filter_map(|(i, r)| Some((i, r.as_ref()?))) {
        let named = operation(receipt.stamp);
        if receipt.check != !receipt.stamp || usize::from(named.thread) != thread || named.number == 0 {
            problems
                .push(format!("the receipt of thread {thread} says {:x}/{:x}", receipt.stamp, receipt.check));
        }
    }
    for (i, account) in accounts.iter().enumerate().filter(|(_, account)| account.stamp != 0) {
        let by = operation(account.stamp);
        let receipt = receipts[usize::from(by.thread)].map_or(0, |(_, receipt)| receipt.stamp);
        if account.stamp > receipt {
            problems.push(format!("account {i} has the transfer {by}, but its thread has no receipt of it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove::{Latency, Medium};

    const ACCOUNTS: u64 = 50;

    /// A bank after some transfers, and what `break_it` does to it afterwards, is examined.
    fn problems(break_it: impl Fn(&mut Tx<'_>, Bank) -> Result<(), Stop>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let medium = Medium::Emulated(Latency::new(0, 0));
        let heap = Heap::options().medium(medium).capacity(64 << 20).log_bytes(1 << 20);
        let heap = heap.open(folder.path().join("heap")).unwrap();
        assert_eq!(examine(&heap).unwrap().problems, Vec::<String>::new(), "without a bank");
        let bank = Bank::open(&heap, ACCOUNTS).unwrap();
        for number in 1..=500 {
            let of = WriterOperation { round: 3, thread: (number % 2) as u8, number };
            heap.transaction(|tx| bank.operate(tx, of, crate::value::mix(u64::from(number)))).unwrap();
        }
        let findings = examine(&heap).unwrap();
        assert_eq!(findings.problems, Vec::<String>::new());
        let last: Vec<u32> = findings.last.iter().map(|of| of.number).collect();
        assert_eq!(last, [500, 499]);
        heap.transaction(|tx| break_it(tx, bank)).unwrap();
        examine(&heap).unwrap().problems
    }

    #[track_caller]
    fn finds(sentence: &str, break_it: impl Fn(&mut Tx<'_>, Bank) -> Result<(), Stop>) {
        let problems = problems(break_it);
        assert!(problems.iter().any(|p| p.contains(sentence)), "{sentence:?} is not in {problems:?}");
    }

    #[test]
    fn half_a_transfer_is_found() {
        finds("the accounts hold 49993, not 50000", |tx, bank| {
            let from = field!(bank.accounts.add(7), Account, balance);
            let has = tx.read(from)?;
            tx.write(from, has.wrapping_sub(7))
        });
    }

    #[test]
    fn a_transfer_without_its_receipt_is_found() {
        let by = WriterOperation { round: 3, thread: 0, number: 501 };
        finds("account 9 has the transfer r3t0 501", |tx, bank| {
            tx.write(field!(bank.accounts.add(9), Account, stamp), stamp(by))
        });
    }

    #[test]
    fn a_torn_receipt_is_found() {
        finds("the receipt of thread 1 says", |tx, bank| {
            let receipt = tx.read(bank.receipts.add(1))?;
            tx.write(field!(receipt, Receipt, check), 0)
        });
    }

    #[test]
    fn a_lost_block_is_found() {
        finds("nothing points to the block", |tx, _| tx.alloc(0u64).map(drop));
    }

    #[test]
    fn a_block_freed_in_use_is_found() {
        finds("where no block is", |tx, bank| {
            let receipt = tx.read(bank.receipts.add(0))?;
            tx.free(receipt)
        });
    }
}
