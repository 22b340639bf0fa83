//! Tests of `runtime/slots.rs`, apart from it because models compile that file with other atomics.

use crate::runtime::slots::{FIRST_BLOCK_SLOTS, SlotTable, place};

#[test]
fn places_are_dense_and_blocks_double() {
    let mut expected = (0, 0);
    for number in 0..10_000 {
        assert_eq!(place(number), expected, "slot {number}");
        expected.1 += 1;
        if expected.1 == FIRST_BLOCK_SLOTS << expected.0 {
            expected = (expected.0 + 1, 0);
        }
    }
}

#[test]
fn slots_keep_their_address_and_are_used_again() {
    let slots = SlotTable::<u32>::new();
    let first: Vec<_> = (0..100).map(|_| std::ptr::from_ref(slots.take().unwrap())).collect();
    assert_eq!(slots.each().map(std::ptr::from_ref).collect::<Vec<_>>(), first);
    slots.give_back(slots.get(17));
    assert_eq!(slots.take().unwrap().number, 17);
    assert_eq!(slots.take().unwrap().number, 100);
    assert_eq!(std::ptr::from_ref(slots.get(3)), first[3]);
}

#[test]
fn what_different_threads_write_lies_on_different_lines() {
    let slots = SlotTable::<u32>::new();
    let (a, b) = (slots.take().unwrap(), slots.take().unwrap());
    let lines = [
        std::ptr::from_ref(&a.request).addr(),
        std::ptr::from_ref(&a.reading).addr(),
        std::ptr::from_ref(&a.lists).addr(),
        std::ptr::from_ref(&b.request).addr(),
        std::ptr::from_ref(&b.reading).addr(),
    ];
    for (i, one) in lines.iter().enumerate() {
        assert_eq!(one % 128, 0);
        assert!(lines[i + 1..].iter().all(|other| other.abs_diff(*one) >= 128));
    }
}
