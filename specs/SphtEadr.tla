------------------------------ MODULE SphtEadr ------------------------------
(***************************************************************************)
(* SPHT-eADR (Algorithm 3 of the SPHT-eADR dissertation; l. are its lines):*)
(* caches are durable, so nobody flushes, waits or writes a marker, and    *)
(* recovery applies every whole unit, whatever is missing before it.       *)
(* (Algorithm 4 adds flushes that nobody waits for: the same here.)        *)
(*                                                                         *)
(*   Run       l.4-8 in hardware, all accesses at once; the hardware       *)
(*             aborts whoever is in conflict (requester wins)              *)
(*   Stamp     the RDTSCP of l.11                                          *)
(*   Commit    l.11-12: the record and what was written appear in one step *)
(*   Abort     leaves nothing                                              *)
(*   Lock      the lock path begins: hardware transactions that used these *)
(*             words abort, later ones find the lock. The single global    *)
(*             lock is the lock of all words                               *)
(*   Entry     l.7 on the lock path: entries become durable one by one     *)
(*   Record    l.11: the stamp, and the unit is whole (a checksum)         *)
(*   Release   "memory barrier" of l.12: stores stay in order              *)
(*   Abandon   the lock path rolls back; its unit never becomes whole      *)
(*                                                                         *)
(* The lock path is also what our protocol does on eADR (crates/txn,       *)
(* RedoSink): a number in place of the stamp, drawn under the locks, the   *)
(* unit sealed before they are released.                                   *)
(*                                                                         *)
(* In every state, whatever a crash would keep (the whole units):          *)
(*                                                                         *)
(*   DurablyOpaque  in the order of stamps, each recovered transaction     *)
(*                  finds what it had read; every acknowledged one is      *)
(*                  there; each answered reader saw a state of that order, *)
(*                  without having waited                                  *)
(*   Whole          recovery applies all that a transaction wrote, or      *)
(*                  nothing                                                *)
(*                                                                         *)
(* The constants that are TRUE name one step each; without any one of them *)
(* TLC must find a violation.                                              *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Threads,
    Words,
    TransactionsMax,     \* transactions in a run
    RecordInTransaction, \* hardware: l.11 before l.12
    StampAfterAccesses,  \* the stamp is read behind the last access: RDTSCP, not RDTSC
    RecordBeforeRelease, \* lock path: the unit is whole before others see what was written
    EntriesBeforeRecord, \* lock path: the record comes last
    HardwareSeesLock,    \* hardware transactions abort when the lock is taken
    RecoverWholeUnits,   \* recovery takes no unit without its record
    RecoverInOrder       \* recovery applies units in the order of their stamps

VARIABLES
    pc,     \* where each thread stands
    id,     \* id[i]: the name of its transaction, and the value that it writes
    seen,   \* seen[i][x]: the value that it read, or Unread
    wrote,  \* wrote[i]: the words that it writes
    locks,  \* locks[i]: the words that it has locked
    doomed, \* doomed[i]: the hardware will abort it
    stamp,  \* stamp[i]: its stamp
    log,    \* writeLog of l.1, as a crash leaves it
    clock,  \* what RDTSCP returned last
    memory, \* the working snapshot
    begun,  \* transactions begun
    kept,   \* transactions acknowledged
    told    \* what answered readers saw

vars == <<pc, id, seen, wrote, locks, doomed, stamp, log, clock, memory, begun, kept, told>>

Unread == TransactionsMax + 1
Nothing == [x \in Words |-> Unread]
Touches(i) == wrote[i] \cup {x \in Words : seen[i][x] # Unread}

Init ==
    /\ pc = [i \in Threads |-> "idle"]
    /\ id = [i \in Threads |-> 0]
    /\ seen = [i \in Threads |-> Nothing]
    /\ wrote = [i \in Threads |-> {}]
    /\ locks = [i \in Threads |-> {}]
    /\ doomed = [i \in Threads |-> FALSE]
    /\ stamp = [i \in Threads |-> 0]
    /\ log = {}
    /\ clock = 0 /\ memory = [x \in Words |-> 0]
    /\ begun = 0 /\ kept = {} /\ told = {}

Go(i, to) == pc' = [pc EXCEPT ![i] = to]

\* The thread is done with its transaction.
End(i) ==
    /\ Go(i, "idle")
    /\ id' = [id EXCEPT ![i] = 0]
    /\ seen' = [seen EXCEPT ![i] = Nothing]
    /\ wrote' = [wrote EXCEPT ![i] = {}]
    /\ locks' = [locks EXCEPT ![i] = {}]
    /\ doomed' = [doomed EXCEPT ![i] = FALSE]
    /\ stamp' = [stamp EXCEPT ![i] = 0]

Acknowledge(i) ==
    /\ kept' = (IF wrote[i] = {} THEN kept ELSE kept \cup {id[i]})
    /\ told' = (IF wrote[i] = {} THEN told \cup {seen[i]} ELSE told)

\* A transaction reads the words `from` and writes the words `into`; its stamp comes later, or (wrongly) now.
Access(i, from, into) ==
    /\ pc[i] = "idle" /\ begun < TransactionsMax
    /\ begun' = begun + 1
    /\ id' = [id EXCEPT ![i] = begun + 1]
    /\ seen' = [seen EXCEPT ![i] = [x \in Words |-> IF x \in from THEN memory[x] ELSE Unread]]
    /\ wrote' = [wrote EXCEPT ![i] = into]
    /\ UNCHANGED <<log, memory, kept, told>>

InHardware(j) == pc[j] \in {"stamp", "commit"}
Conflict(j, from, into) ==
    InHardware(j) /\ (wrote[j] \cap (from \cup into) # {} \/ Touches(j) \cap into # {})

\* Only where StampAfterAccesses is FALSE: the stamp is read first.
EarlyStamp(i) ==
    /\ ~StampAfterAccesses /\ pc[i] = "idle" /\ stamp[i] = 0 /\ begun < TransactionsMax
    /\ clock' = clock + 1
    /\ stamp' = [stamp EXCEPT ![i] = clock + 1]
    /\ UNCHANGED <<pc, id, seen, wrote, locks, doomed, log, memory, begun, kept, told>>

\* Hardware.
Run(i, from, into) ==
    /\ Access(i, from, into)
    /\ StampAfterAccesses \/ stamp[i] # 0
    /\ HardwareSeesLock => \A j \in Threads : locks[j] \cap (from \cup into) = {}
    /\ doomed' = [j \in Threads |-> doomed[j] \/ (j # i /\ Conflict(j, from, into))]
    /\ Go(i, IF StampAfterAccesses THEN "stamp" ELSE "commit")
    /\ UNCHANGED <<locks, stamp, clock>>

Stamp(i) ==
    /\ pc[i] = "stamp"
    /\ clock' = clock + 1
    /\ stamp' = [stamp EXCEPT ![i] = clock + 1]
    /\ Go(i, "commit")
    /\ UNCHANGED <<id, seen, wrote, locks, doomed, log, memory, begun, kept, told>>

Unit(i, words, whole) ==
    [stamp |-> stamp[i], id |-> id[i], seen |-> seen[i], wrote |-> wrote[i], words |-> words, whole |-> whole]

Write(i) == memory' = [x \in Words |-> IF x \in wrote[i] THEN id[i] ELSE memory[x]]

Commit(i) ==
    /\ pc[i] = "commit" /\ ~doomed[i]
    /\ Write(i)
    /\ IF RecordInTransaction \/ wrote[i] = {}
       THEN /\ log' = (IF wrote[i] = {} THEN log ELSE log \cup {Unit(i, wrote[i], TRUE)})
            /\ End(i)
            /\ Acknowledge(i)
       ELSE Go(i, "late record") /\ UNCHANGED <<id, seen, wrote, locks, doomed, stamp, log, kept, told>>
    /\ UNCHANGED <<clock, begun>>

\* Only where RecordInTransaction is FALSE, or RecordBeforeRelease.
LateRecord(i) ==
    /\ pc[i] = "late record"
    /\ log' = {u \in log : u.id # id[i]} \cup {Unit(i, wrote[i], TRUE)}
    /\ End(i)
    /\ Acknowledge(i)
    /\ UNCHANGED <<clock, memory, begun>>

Abort(i) ==
    /\ pc[i] = "commit" /\ doomed[i]
    /\ End(i)
    /\ UNCHANGED <<log, clock, memory, begun, kept, told>>

\* The lock path.
Lock(i, from, into) ==
    /\ Access(i, from, into) /\ into # {}
    /\ StampAfterAccesses \/ stamp[i] # 0
    /\ \A j \in Threads : locks[j] \cap (from \cup into) = {}
    /\ locks' = [locks EXCEPT ![i] = from \cup into]
    /\ doomed' = [j \in Threads |-> doomed[j] \/ (HardwareSeesLock /\ j # i /\ Conflict(j, from, into))]
    /\ Go(i, IF EntriesBeforeRecord THEN "entries" ELSE "record")
    /\ UNCHANGED <<stamp, clock>>

Logged(i) == UNION {u.words : u \in {v \in log : v.id = id[i]}}

\* The last entry leads on to the record.
Entry(i, x) ==
    /\ pc[i] = "entries" /\ x \in wrote[i] \ Logged(i)
    /\ log' = {u \in log : u.id # id[i]} \cup {Unit(i, Logged(i) \cup {x}, ~EntriesBeforeRecord)}
    /\ IF wrote[i] \subseteq Logged(i) \cup {x}
       THEN Go(i, IF EntriesBeforeRecord THEN "record" ELSE "release")
       ELSE UNCHANGED pc
    /\ UNCHANGED <<id, seen, wrote, locks, doomed, stamp, clock, memory, begun, kept, told>>

Record(i) ==
    /\ pc[i] = "record"
    /\ IF StampAfterAccesses
       THEN clock' = clock + 1 /\ stamp' = [stamp EXCEPT ![i] = clock + 1]
       ELSE UNCHANGED <<clock, stamp>>
    /\ log' = (IF EntriesBeforeRecord /\ RecordBeforeRelease
               THEN {u \in log : u.id # id[i]} \cup {[Unit(i, wrote[i], TRUE) EXCEPT !.stamp = stamp'[i]]}
               ELSE log)
    /\ Go(i, IF EntriesBeforeRecord THEN "release" ELSE "entries")
    /\ UNCHANGED <<id, seen, wrote, locks, doomed, memory, begun, kept, told>>

\* Locks fall and others see what was written, in one step.
Release(i) ==
    /\ pc[i] = "release"
    /\ Write(i)
    /\ IF RecordBeforeRelease
       THEN End(i) /\ Acknowledge(i)
       ELSE /\ locks' = [locks EXCEPT ![i] = {}]
            /\ Go(i, "late record")
            /\ UNCHANGED <<id, seen, wrote, doomed, stamp, kept, told>>
    /\ UNCHANGED <<log, clock, begun>>

Abandon(i) ==
    /\ pc[i] = "entries" /\ EntriesBeforeRecord
    /\ End(i)
    /\ UNCHANGED <<log, clock, memory, begun, kept, told>>

Next ==
    \E i \in Threads :
        \/ EarlyStamp(i) \/ Stamp(i) \/ Commit(i) \/ LateRecord(i) \/ Abort(i) \/ Record(i) \/ Release(i) \/ Abandon(i)
        \/ Run(i, Words, {})
        \/ \E from, into \in SUBSET Words :
             into # {} /\ from \cap into = {} /\ (Run(i, from, into) \/ Lock(i, from, into))
        \/ \E x \in Words : Entry(i, x)

Spec == Init /\ [][Next]_vars

\* Threads and words are alike.
Alike == Permutations(Threads) \cup Permutations(Words)

\* Recovery.
Found == {u \in log : u.whole \/ ~RecoverWholeUnits}
Before(u, v) == IF RecoverInOrder THEN u.stamp < v.stamp ELSE u.stamp > v.stamp

\* What the units in `earlier` leave in the word x.
Value(earlier, x) ==
    LET writers == {u \in earlier : x \in u.words} IN
      IF writers = {} THEN 0 ELSE (CHOOSE u \in writers : \A v \in writers : ~Before(u, v)).id
Matches(what, earlier) == \A x \in Words : what[x] # Unread => what[x] = Value(earlier, x)

DurablyOpaque ==
    /\ \A u \in Found : Matches(u.seen, {v \in Found : Before(v, u)})
    /\ \A t \in kept : \E u \in Found : u.id = t
    /\ \A what \in told :
         \/ Matches(what, {})
         \/ \E u \in Found : Matches(what, {v \in Found : ~Before(u, v)})

Whole == \A u \in Found : u.words = u.wrote
=============================================================================
