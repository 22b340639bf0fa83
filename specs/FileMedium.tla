----------------------------- MODULE FileMedium -----------------------------
(***************************************************************************)
(* The file medium of crates/pool: flushes appended to a ring of log       *)
(* groups, group commit, checkpoint of an image behind it, log space used  *)
(* again, and a crash between any two steps (docs/fault-model.md).         *)
(*                                                                         *)
(* Flush number n (1, 2, ...) sets address Addr(n) to n, so the state      *)
(* after a prefix of k flushes is known: each address holds the greatest   *)
(* n <= k that wrote to it. A unit is one flush or several in a row, which *)
(* are appended in one step and kept together or not at all; each has a    *)
(* group of its own here. Durability says: what recovery would find now is *)
(* a prefix of units, and it holds everything acknowledged. NoFalseDamage  *)
(* says: no whole group that a crash leaves in the log claims that the     *)
(* place where recovery stops had been durable.                            *)
(*                                                                         *)
(* The constants Sync... drop one wait each. With all of them TRUE the     *)
(* invariant must hold; with any of them FALSE TLC must find a crash that  *)
(* breaks it (cargo xtask tla demands both).                               *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS
    FlushesMax,        \* flushes in a run
    Addresses,         \* image pages: 0 .. Addresses - 1
    RingSlots,         \* flushes that the log can hold
    UnitMax,           \* flushes of a unit
    WritesMax,         \* writes of the log under way at once
    AdvanceInOrder,    \* a write counts only when all before it are done
    SayWhatWasDurable, \* a group says what was durable when it was issued, not where its write began
    SyncLogBeforeAck,  \* drain waits for the log write
    ReplayOnlyDurable, \* the checkpointer applies only what the log holds durably
    SyncImageBeforeTail, \* the image is synced before the tail advances
    DropHalfUnits,     \* recovery leaves out a unit whose last group is missing
    SyncTailBeforeReuse  \* the tail is durable before its log space is used again

VARIABLES
    appended,   \* flushes in the DRAM ring
    goesOn,     \* goesOn[n]: the unit of flush n goes on with the next one
    sealed,     \* last flush of the group last issued; = logged when none is under way
    flights,    \* the writes under way: [from, to, done], in the order of positions
    said,       \* said[n]: what the group of flush n says was durable
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

vars == <<appended, goesOn, sealed, flights, said, logged, acked, ring, ringCache, image, imageCache,
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
\* The end of the last unit that is whole there; the tail is the end of one.
WholeEnd(r, t) ==
    LET E == {k \in t..LogEnd(r, t) : k = t \/ ~goesOn[k]}
    IN IF DropHalfUnits THEN Max(E) ELSE LogEnd(r, t)
Recovered(r, t, im, a) ==
    LET W == {n \in (t + 1)..WholeEnd(r, t) : Addr(n) = a}
    IN IF W = {} THEN im[a] ELSE Max(W)

Init ==
    /\ appended = 0 /\ sealed = 0 /\ logged = 0 /\ acked = 0
    /\ ring = [s \in 0..(RingSlots - 1) |-> 0]
    /\ ringCache = [s \in 0..(RingSlots - 1) |-> 0]
    /\ image = [a \in 0..(Addresses - 1) |-> 0]
    /\ imageCache = [a \in 0..(Addresses - 1) |-> 0]
    /\ goesOn = [n \in 1..FlushesMax |-> FALSE]
    /\ flights = <<>> /\ said = [n \in 1..FlushesMax |-> 0]
    /\ tail = 0 /\ tailCache = 0 /\ free = 0 /\ target = 0 /\ applied = 0

\* A writer appends a unit; it waits while the ring is full.
Flush ==
    \E count \in 1..UnitMax :
        /\ appended + count <= FlushesMax
        /\ appended + count - free <= RingSlots
        /\ appended' = appended + count
        /\ goesOn' = [n \in DOMAIN goesOn |-> goesOn[n] \/ (n > appended /\ n < appended + count)]
        /\ UNCHANGED <<sealed, flights, said, logged, acked, ring, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

\* A leader seals everything appended and issues its write.
Seal ==
    /\ Len(flights) < WritesMax /\ appended > sealed
    /\ sealed' = appended
    /\ flights' = Append(flights, [from |-> sealed, to |-> appended, done |-> FALSE])
    /\ said' = [n \in DOMAIN said |->
                  IF n > sealed /\ n <= appended THEN IF SayWhatWasDurable THEN logged ELSE sealed ELSE said[n]]
    /\ ringCache' = [s \in DOMAIN ringCache |->
                       LET W == {n \in (sealed + 1)..appended : Slot(n) = s}
                       IN IF W = {} THEN ringCache[s] ELSE Max(W)]
    /\ UNCHANGED <<appended, goesOn, logged, acked, ring, image, imageCache, tail, tailCache, free, target, applied>>

\* A write is done: its groups are durable, whole (their checksums make each all or nothing). It may
\* overtake the write before it.
WriteDone(i) ==
    /\ ~flights[i].done
    /\ flights' = [flights EXCEPT ![i].done = TRUE]
    /\ ring' = [s \in DOMAIN ring |->
                  IF ringCache[s] > flights[i].from /\ ringCache[s] <= flights[i].to
                  THEN ringCache[s] ELSE ring[s]]
    /\ UNCHANGED <<appended, goesOn, sealed, said, logged, acked, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

\* What is durable grows to the end of a write that is done.
LogDurable(i) ==
    /\ flights[i].done
    /\ AdvanceInOrder => i = 1
    /\ logged' = flights[i].to
    /\ flights' = SubSeq(flights, i + 1, Len(flights))
    /\ UNCHANGED <<appended, goesOn, sealed, said, acked, ring, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

Acknowledge ==
    /\ acked' = (IF SyncLogBeforeAck THEN logged ELSE sealed)
    /\ acked' > acked
    /\ UNCHANGED <<appended, goesOn, sealed, flights, said, logged, ring, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

CheckpointBegin ==
    /\ target = 0
    /\ target' = (IF ReplayOnlyDurable THEN logged ELSE appended)
    /\ target' > tailCache
    /\ applied' = tailCache
    /\ UNCHANGED <<appended, goesOn, sealed, flights, said, logged, acked, ring, ringCache, image, imageCache, tail, tailCache, free>>

CheckpointApply ==
    /\ target > 0 /\ applied < target
    /\ applied' = applied + 1
    /\ imageCache' = [imageCache EXCEPT ![Addr(applied + 1)] = applied + 1]
    /\ UNCHANGED <<appended, goesOn, sealed, flights, said, logged, acked, ring, ringCache, image, tail, tailCache, free, target>>

\* The medium may write any page of the image whenever it likes.
PageReachesMedium(a) ==
    /\ image[a] # imageCache[a]
    /\ image' = [image EXCEPT ![a] = imageCache[a]]
    /\ UNCHANGED <<appended, goesOn, sealed, flights, said, logged, acked, ring, ringCache, imageCache, tail, tailCache, free, target, applied>>

CheckpointTail ==
    /\ target > 0 /\ applied = target /\ tailCache < target
    /\ SyncImageBeforeTail => image = imageCache
    /\ tailCache' = target
    /\ UNCHANGED <<appended, goesOn, sealed, flights, said, logged, acked, ring, ringCache, image, imageCache, tail, free, target, applied>>

TailReachesMedium ==
    /\ tail # tailCache
    /\ tail' = tailCache
    /\ UNCHANGED <<appended, goesOn, sealed, flights, said, logged, acked, ring, ringCache, image, imageCache, tailCache, free, target, applied>>

CheckpointEnd ==
    /\ target > 0 /\ tailCache = target
    /\ SyncTailBeforeReuse => tail = tailCache
    /\ free' = target /\ target' = 0 /\ applied' = 0
    /\ UNCHANGED <<appended, goesOn, sealed, flights, said, logged, acked, ring, ringCache, image, imageCache, tail, tailCache>>

\* A group under way reaches the medium before its write is done, whole or torn.
GroupReachesMedium(s) ==
    /\ ring[s] # ringCache[s]
    /\ \E arrived \in {0, ringCache[s]} : ring' = [ring EXCEPT ![s] = arrived]
    /\ UNCHANGED <<appended, goesOn, sealed, flights, said, logged, acked, ringCache, image, imageCache, tail, tailCache, free, target, applied>>

Next ==
    \/ Flush \/ Seal \/ Acknowledge
    \/ \E i \in DOMAIN flights : WriteDone(i) \/ LogDurable(i)
    \/ CheckpointBegin \/ CheckpointApply \/ CheckpointTail \/ TailReachesMedium \/ CheckpointEnd
    \/ \E a \in 0..(Addresses - 1) : PageReachesMedium(a)
    \/ \E s \in 0..(RingSlots - 1) : GroupReachesMedium(s)

Spec == Init /\ [][Next]_vars

TypeOK ==
    /\ logged <= sealed /\ sealed <= appended /\ tail <= tailCache /\ free <= tailCache

\* After a crash now, recovery finds a prefix of the units that holds all acknowledged ones.
Durability ==
    \E k \in acked..appended :
        /\ k = 0 \/ ~goesOn[k]
        /\ \A a \in 0..(Addresses - 1) : Recovered(ring, tail, image, a) = Prefix(k, a)

\* Recovery takes a group that says more was durable than recovery finds for a proof of damage.
NoFalseDamage ==
    \A s \in DOMAIN ring : ring[s] # 0 => said[ring[s]] <= WholeEnd(ring, tail)
=============================================================================
