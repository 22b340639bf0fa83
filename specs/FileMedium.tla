----------------------------- MODULE FileMedium -----------------------------
(***************************************************************************)
(* The file medium of crates/pmem: flushes appended to a ring of log       *)
(* groups, group commit, checkpoint of an image behind it, log space used  *)
(* again, and a crash between any two steps (docs/fault-model.md).         *)
(*                                                                         *)
(* Flush number n (1, 2, ...) sets address Addr(n) to n, so the state      *)
(* after a prefix of k flushes is known: each address holds the greatest   *)
(* n <= k that wrote to it. Durability says: what recovery would find now  *)
(* is such a prefix, and it holds everything acknowledged.                 *)
(*                                                                         *)
(* The constants Sync... drop one wait each. With all of them TRUE the     *)
(* invariant must hold; with any of them FALSE TLC must find a crash that  *)
(* breaks it (cargo xtask tla demands both).                               *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    FlushesMax,        \* flushes in a run
    Addresses,         \* image pages: 0 .. Addresses - 1
    RingSlots,         \* flushes that the log can hold
    SyncLogBeforeAck,  \* drain waits for the log write
    ReplayOnlyDurable, \* the checkpointer applies only what the log holds durably
    SyncImageBeforeTail, \* the image is synced before the tail advances
    SyncTailBeforeReuse  \* the tail is durable before its log space is used again

VARIABLES
    appended,   \* flushes in the DRAM ring
    sealed,     \* last flush of the group whose write is under way; = logged when none is
    logged,     \* flushes that the log holds durably
    acked,      \* flushes that some drain acknowledged
    ring,       \* ring[s]: the flush whose record lies durably in slot s of the log file, 0 for none
    ringCache,  \* ring as written, durable or not
    image,      \* image[a]: durable
    imageCache, \* image[a]: as written, may reach the medium at any time
    tail,       \* the log's first flush minus one, in the durable superblock
    tailCache,  \* ... in the superblock as written
    free,       \* flushes whose log space may be used again
    target,     \* the running checkpoint brings the image up to this flush; 0: none runs
    applied     \* ... and has applied this many

vars == <<appended, sealed, logged, acked, ring, ringCache, image, imageCache,
          tail, tailCache, free, target, applied>>

Addr(n) == n % Addresses
Slot(n) == n % RingSlots
Max(S) == CHOOSE x \in S : \A y \in S : y <= x

\* What address a holds after the first k flushes.
Prefix(k, a) == LET W == {n \in 1..k : Addr(n) = a} IN IF W = {} THEN 0 ELSE Max(W)

\* Recovery: from the tail on, as long as the log holds the next flush (a slot that holds another
\* lap's record, or a torn one, ends the log); applied over the image.
LogEnd(r, t) ==
    LET E == {k \in t..(t + RingSlots) : \A n \in (t + 1)..k : r[Slot(n)] = n} IN Max(E)
Recovered(r, t, im, a) ==
    LET W == {n \in (t + 1)..LogEnd(r, t) : Addr(n) = a}
    IN IF W = {} THEN im[a] ELSE Max(W)

Init ==
    /\ appended = 0 /\ sealed = 0 /\ logged = 0 /\ acked = 0
    /\ ring = [s \in 0..(RingSlots - 1) |-> 0]
    /\ ringCache = [s \in 0..(RingSlots - 1) |-> 0]
    /\ image = [a \in 0..(Addresses - 1) |-> 0]
    /\ imageCache = [a \in 0..(Addresses - 1) |-> 0]
    /\ tail = 0 /\ tailCache = 0 /\ free = 0 /\ target = 0 /\ applied = 0

\* A writer flushes; it waits while the ring is full.
Append ==
    /\ appended < FlushesMax
    /\ appended - free < RingSlots
    /\ appended' = appended + 1
    /\ UNCHANGED <<sealed, logged, acked, ring, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

\* The leader seals everything appended into one group and writes it; one write at a time.
Seal ==
    /\ sealed = logged /\ appended > sealed
    /\ sealed' = appended
    /\ ringCache' = [s \in DOMAIN ringCache |->
                       LET W == {n \in (sealed + 1)..appended : Slot(n) = s}
                       IN IF W = {} THEN ringCache[s] ELSE Max(W)]
    /\ UNCHANGED <<appended, logged, acked, ring, image, imageCache, tail, tailCache, free, target, applied>>

\* The group is durable, whole: its checksum makes it all or nothing.
LogDurable ==
    /\ sealed > logged
    /\ logged' = sealed
    /\ ring' = ringCache
    /\ UNCHANGED <<appended, sealed, acked, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

Acknowledge ==
    /\ acked' = (IF SyncLogBeforeAck THEN logged ELSE sealed)
    /\ acked' > acked
    /\ UNCHANGED <<appended, sealed, logged, ring, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

CheckpointBegin ==
    /\ target = 0
    /\ target' = (IF ReplayOnlyDurable THEN logged ELSE appended)
    /\ target' > tailCache
    /\ applied' = tailCache
    /\ UNCHANGED <<appended, sealed, logged, acked, ring, ringCache, image, imageCache, tail, tailCache, free>>

CheckpointApply ==
    /\ target > 0 /\ applied < target
    /\ applied' = applied + 1
    /\ imageCache' = [imageCache EXCEPT ![Addr(applied + 1)] = applied + 1]
    /\ UNCHANGED <<appended, sealed, logged, acked, ring, ringCache, image, tail, tailCache, free, target>>

\* The medium may write any page of the image whenever it likes.
PageReachesMedium(a) ==
    /\ image[a] # imageCache[a]
    /\ image' = [image EXCEPT ![a] = imageCache[a]]
    /\ UNCHANGED <<appended, sealed, logged, acked, ring, ringCache, imageCache, tail, tailCache, free, target, applied>>

CheckpointTail ==
    /\ target > 0 /\ applied = target /\ tailCache < target
    /\ SyncImageBeforeTail => image = imageCache
    /\ tailCache' = target
    /\ UNCHANGED <<appended, sealed, logged, acked, ring, ringCache, image, imageCache, tail, free, target, applied>>

TailReachesMedium ==
    /\ tail # tailCache
    /\ tail' = tailCache
    /\ UNCHANGED <<appended, sealed, logged, acked, ring, ringCache, image, imageCache, tailCache, free, target, applied>>

CheckpointEnd ==
    /\ target > 0 /\ tailCache = target
    /\ SyncTailBeforeReuse => tail = tailCache
    /\ free' = target /\ target' = 0 /\ applied' = 0
    /\ UNCHANGED <<appended, sealed, logged, acked, ring, ringCache, image, imageCache, tail, tailCache>>

\* A record of the group under way reaches the medium before the whole group does (torn write).
RecordReachesMedium(s) ==
    /\ ring[s] # ringCache[s]
    /\ ring' = [ring EXCEPT ![s] = 0]
    /\ UNCHANGED <<appended, sealed, logged, acked, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

Next ==
    \/ Append \/ Seal \/ LogDurable \/ Acknowledge
    \/ CheckpointBegin \/ CheckpointApply \/ CheckpointTail \/ TailReachesMedium \/ CheckpointEnd
    \/ \E a \in 0..(Addresses - 1) : PageReachesMedium(a)
    \/ \E s \in 0..(RingSlots - 1) : RecordReachesMedium(s)

Spec == Init /\ [][Next]_vars

TypeOK ==
    /\ logged <= sealed /\ sealed <= appended /\ tail <= tailCache /\ free <= tailCache

\* After a crash now, recovery finds a prefix of the flushes that holds all acknowledged ones.
Durability ==
    \E k \in acked..FlushesMax :
        \A a \in 0..(Addresses - 1) : Recovered(ring, tail, image, a) = Prefix(k, a)
=============================================================================
