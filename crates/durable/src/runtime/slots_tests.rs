//! Tests of `runtime/slots.rs`, apart from it because models compile that file with other atomics.

use crate::runtime::slots::{FIRST_BLOCK_SLOTS, SlotTable, place};
use crate::runtime::sync::{OWN_FLAGS, SHARED_COUNTERS};

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

#[test]
fn the_list_holds_what_was_enlisted_newest_first() {
    let slots = SlotTable::<u32>::new();
    for _ in 0..10_000 {
        slots.take().unwrap();
    }
    let numbers = [9_999, 3, 640, 0];
    for number in numbers {
        slots.enlist(slots.get(number));
    }
    assert_eq!(slots.waiting(2).map(|slot| slot.number).collect::<Vec<_>>(), [0, 640]);
    let mut taken = Vec::new();
    // Enlisted again while the list is walked, as an owner does whose job is done.
    slots.take_waiting(|slot| {
        taken.push(slot.number);
        slots.enlist(slot);
    });
    assert_eq!(taken, [0, 640, 3, 9_999]);
    taken.clear();
    slots.take_waiting(|slot| taken.push(slot.number));
    assert_eq!(taken, [9_999, 3, 640, 0]);
    slots.take_waiting(|_| panic!("the list was taken"));
}

#[test]
fn readers_are_seen_by_flag_and_by_counter() {
    let slots = SlotTable::<u32>::new();
    let all: Vec<_> = (0..10_000).map(|_| slots.take().unwrap()).collect();
    let (mine, other) = (7, 9);
    // Two of them share a counter.
    for number in [0, OWN_FLAGS - 1, OWN_FLAGS, OWN_FLAGS + SHARED_COUNTERS, 9_999] {
        assert!(slots.readers_are_out());
        slots.begin_read(all[number], mine);
        assert!(!slots.readers_are_out(), "slot {number}");
        assert!(slots.reads_here(mine, None) && !slots.reads_here(other, None), "slot {number}");
        assert!(!slots.reads_here(mine, Some(all[number])), "slot {number}");
        let inside = (number + SHARED_COUNTERS) % all.len();
        slots.begin_read(all[inside], mine);
        assert!(slots.reads_here(mine, Some(all[inside])), "slot {number}");
        slots.end_read(all[number]);
        assert!(!slots.readers_are_out(), "slot {inside} beside {number}");
        slots.end_read(all[inside]);
    }
    assert!(slots.readers_are_out());
}

#[test]
fn the_lowest_free_slot_is_used_first() {
    let slots = SlotTable::<u32>::new();
    let all: Vec<_> = (0..1_000).map(|_| slots.take().unwrap()).collect();
    for slot in &all {
        slots.give_back(slot);
    }
    assert_eq!((0..3).map(|_| slots.take().unwrap().number).collect::<Vec<_>>(), [0, 1, 2]);
}
