-------------------------------- MODULE Spht --------------------------------
(***************************************************************************)
(* SPHT for persistent memory with volatile caches (Algorithm 2 of the     *)
(* SPHT-eADR dissertation; l. are its lines): hardware transactions, time  *)
(* stamps, and a durable marker up to which recovery applies.              *)
(*                                                                         *)
(*   Begin       l.5-7, in our order: the thread is no update, its persist *)
(*               bit is unset                                              *)
(*   LowerBound  l.8                                                       *)
(*   Run         l.9-12, all accesses of the transaction at once; the      *)
(*               hardware aborts whoever is in conflict (requester wins)   *)
(*   Stamp       l.14                                                      *)
(*   HtmCommit   l.15; Abort: the bit is set again, which l.1-9 leave out  *)
(*   Externalize l.16                                                      *)
(*   ReadOnly    l.17-18. Beyond l.19 the answer waits: the reader looks   *)
(*               as in l.27, and waits until the marker covers each update *)
(*               before its own stamp that it finds                        *)
(*   Update      l.20                                                      *)
(*   Persist     l.21-22. The marker makes the order of the stores within  *)
(*               l.21 irrelevant, so its flush is one step, and a unit is  *)
(*               whole or lost                                             *)
(*   Load, Skip  l.27-30. One load of ts[t] ends the wait of l.27 and is   *)
(*               compared in l.29; isUpd[t] is loaded after it             *)
(*   Mark        l.33-36, the loop of CAS as one step                      *)
(*   FlushMarker l.37-40; Marked l.41-43                                   *)
(*                                                                         *)
(* Why skipping (l.29) is safe: isUpd[t] is reset (l.5) before ts[t] grows *)
(* (l.8), and set (l.20) after the last abort is past. So a thread that    *)
(* loads a greater ts[t] and then finds isUpd[t] has found a transaction   *)
(* that brings the marker beyond its own stamp, or waits for one that does.*)
(* In any other order it can wait for a marker that nobody writes, and a   *)
(* reader can miss an update that it must wait for.                        *)
(*                                                                         *)
(* In every state, whatever a crash would keep (any subset of the unflushed*)
(* units, the marker as flushed or any later value; recovery applies the   *)
(* units up to the marker):                                                *)
(*                                                                         *)
(*   DurablyOpaque  in the order of stamps, each recovered transaction     *)
(*                  finds what it had read; every acknowledged one is      *)
(*                  there; each answered reader saw a state of that order  *)
(*   Opaque         the same for what has committed in memory, now         *)
(*   NobodyStuck    not everybody who is in a transaction waits            *)
(*                                                                         *)
(* Not here: log space, the lock path (its stamp is taken before the lock  *)
(* is released; see SphtEadr), stamps of earlier openings (the generations *)
(* of OneFence). The constants that are TRUE name one step each; without   *)
(* any one of them TLC must find a violation.                              *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Threads,
    Words,
    TransactionsMax,         \* transactions begun in a run
    LowerBoundAtBegin,       \* l.7-8: a thread announces itself before its transaction
    ResetBeforeLowerBound,   \* l.5 before l.8
    StampAfterAccesses,      \* l.14 stands behind the last access: RDTSCP, not RDTSC
    AbortSetsBit,            \* a thread without a transaction shows a set bit
    UpdateBeforeBit,         \* l.20 before l.22
    FlushBeforeBit,          \* l.21 before l.22
    WaitForPreceding,        \* l.27
    LoadStampBeforeUpdate,   \* l.29: ts[t] is loaded before isUpd[t]
    SkipForUpdatesOnly,      \* l.29: isUpd[t] is asked for
    MarkerOnlyGrows,         \* l.35-36: compare-and-swap, not a store
    FlushBeforeMarked,       \* l.38 before l.39
    WaitForFlushedMarker,    \* l.41-43: waits for marked[t], not for the marker
    ReadersWait,             \* the wait that l.19 leaves out
    RecoverUpToMarker        \* recovery applies nothing beyond the marker

VARIABLES
    pc,      \* the line at which each thread stands
    id,      \* id[i]: the name of its transaction, and the value that it writes
    seen,    \* seen[i][x]: the value that it read, or Unread
    wrote,   \* wrote[i]: the words that it wrote
    doomed,  \* doomed[i]: the hardware will abort it
    stamp,   \* stamp[i]: ts' of l.3
    ts,      \* l.1, without the persist bit
    bit,     \* the persist bits
    isUpd,   \* l.1
    marked,  \* l.1
    skip,    \* skipCAS of l.3
    unseen,  \* unseen[i]: threads that the loop of l.26 has not passed
    asked,   \* asked[i]: the threads between the two loads of l.29
    need,    \* need[i]: the stamp that the marker must have for a reader's answer
    marker,  \* l.2, in the cache
    markers, \* values of the marker that a crash may leave
    log,     \* writeLog of l.2: units of transactions that have committed
    clock,   \* what RDTSCP returned last
    memory,  \* the working snapshot
    begun,   \* transactions begun
    kept,    \* transactions acknowledged
    told     \* what answered readers saw

transaction == <<id, seen, wrote, doomed, stamp>>
commit == <<skip, unseen, asked, need>>
shared == <<ts, bit, isUpd, marked>>
medium == <<marker, markers, log>>
world == <<clock, memory>>
history == <<begun, kept, told>>
vars == <<pc, transaction, commit, shared, medium, world, history>>

Unread == TransactionsMax + 1
Nothing == [x \in Words |-> Unread]
Touches(i) == wrote[i] \cup {x \in Words : seen[i][x] # Unread}
Max(S) == CHOOSE n \in S : \A m \in S : m <= n

Init ==
    /\ pc = [i \in Threads |-> "idle"]
    /\ id = [i \in Threads |-> 0]
    /\ seen = [i \in Threads |-> Nothing]
    /\ wrote = [i \in Threads |-> {}]
    /\ doomed = [i \in Threads |-> FALSE]
    /\ stamp = [i \in Threads |-> 0]
    /\ ts = [i \in Threads |-> 0]
    /\ bit = [i \in Threads |-> TRUE]
    /\ isUpd = [i \in Threads |-> FALSE]
    /\ marked = [i \in Threads |-> 0]
    /\ skip = [i \in Threads |-> FALSE]
    /\ unseen = [i \in Threads |-> {}]
    /\ asked = [i \in Threads |-> {}]
    /\ need = [i \in Threads |-> 0]
    /\ marker = 0 /\ markers = {0} /\ log = {}
    /\ clock = 0 /\ memory = [x \in Words |-> 0]
    /\ begun = 0 /\ kept = {} /\ told = {}

Go(i, to) == pc' = [pc EXCEPT ![i] = to]

\* The thread is done with its transaction.
End(i) ==
    /\ Go(i, "idle")
    /\ id' = [id EXCEPT ![i] = 0]
    /\ seen' = [seen EXCEPT ![i] = Nothing]
    /\ wrote' = [wrote EXCEPT ![i] = {}]
    /\ doomed' = [doomed EXCEPT ![i] = FALSE]
    /\ stamp' = [stamp EXCEPT ![i] = 0]
    /\ skip' = [skip EXCEPT ![i] = FALSE]
    /\ unseen' = [unseen EXCEPT ![i] = {}]
    /\ asked' = [asked EXCEPT ![i] = {}]
    /\ need' = [need EXCEPT ![i] = 0]

Begin(i) ==
    /\ pc[i] = "idle" /\ begun < TransactionsMax
    /\ begun' = begun + 1
    /\ id' = [id EXCEPT ![i] = begun + 1]
    /\ isUpd' = (IF ResetBeforeLowerBound THEN [isUpd EXCEPT ![i] = FALSE] ELSE isUpd)
    /\ bit' = (IF LowerBoundAtBegin THEN [bit EXCEPT ![i] = FALSE] ELSE bit)
    /\ Go(i, IF LowerBoundAtBegin THEN "8" ELSE "9")
    /\ UNCHANGED <<seen, wrote, doomed, stamp, ts, marked, commit, medium, world, kept, told>>

LowerBound(i) ==
    /\ pc[i] = "8"
    /\ clock' = clock + 1
    /\ ts' = [ts EXCEPT ![i] = clock + 1]
    /\ stamp' = (IF StampAfterAccesses THEN stamp ELSE [stamp EXCEPT ![i] = clock + 1])
    /\ Go(i, IF ResetBeforeLowerBound THEN "9" ELSE "5")
    /\ UNCHANGED <<id, seen, wrote, doomed, bit, isUpd, marked, commit, medium, memory, history>>

\* Only where ResetBeforeLowerBound is FALSE.
LateReset(i) ==
    /\ pc[i] = "5"
    /\ isUpd' = [isUpd EXCEPT ![i] = FALSE]
    /\ Go(i, "9")
    /\ UNCHANGED <<transaction, ts, bit, marked, commit, medium, world, history>>

\* The transaction reads the words `from` and writes the words `into`.
Run(i, from, into) ==
    /\ pc[i] = "9"
    /\ seen' = [seen EXCEPT ![i] = [x \in Words |-> IF x \in from THEN memory[x] ELSE Unread]]
    /\ wrote' = [wrote EXCEPT ![i] = into]
    /\ doomed' = [j \in Threads |-> doomed[j] \/ (j # i /\ pc[j] \in {"14", "15"}
                    /\ (wrote[j] \cap (from \cup into) # {} \/ Touches(j) \cap into # {}))]
    /\ Go(i, IF StampAfterAccesses THEN "14" ELSE "15")
    /\ UNCHANGED <<id, stamp, commit, shared, medium, world, history>>

Stamp(i) ==
    /\ pc[i] = "14"
    /\ clock' = clock + 1
    /\ stamp' = [stamp EXCEPT ![i] = clock + 1]
    /\ Go(i, "15")
    /\ UNCHANGED <<id, seen, wrote, doomed, commit, shared, medium, memory, history>>

Unit(i) == [stamp |-> stamp[i], id |-> id[i], seen |-> seen[i], words |-> wrote[i], flushed |-> FALSE]

HtmCommit(i) ==
    /\ pc[i] = "15" /\ ~doomed[i]
    /\ memory' = [x \in Words |-> IF x \in wrote[i] THEN id[i] ELSE memory[x]]
    /\ log' = (IF wrote[i] = {} THEN log ELSE log \cup {Unit(i)})
    /\ Go(i, "16")
    /\ UNCHANGED <<transaction, commit, shared, marker, markers, clock, history>>

Abort(i) ==
    /\ pc[i] = "15" /\ doomed[i]
    /\ End(i)
    /\ bit' = (IF AbortSetsBit THEN [bit EXCEPT ![i] = TRUE] ELSE bit)
    /\ UNCHANGED <<ts, isUpd, marked, medium, world, history>>

Externalize(i) ==
    /\ pc[i] = "16"
    /\ ts' = [ts EXCEPT ![i] = stamp[i]]
    /\ bit' = [bit EXCEPT ![i] = FALSE]
    /\ Go(i, IF wrote[i] = {} THEN "18" ELSE IF UpdateBeforeBit THEN "20" ELSE "21")
    /\ UNCHANGED <<transaction, isUpd, marked, commit, medium, world, history>>

ReadOnly(i) ==
    /\ pc[i] = "18"
    /\ bit' = [bit EXCEPT ![i] = TRUE]
    /\ unseen' = [unseen EXCEPT ![i] = IF ReadersWait THEN Threads \ {i} ELSE {}]
    /\ Go(i, "26")
    /\ UNCHANGED <<transaction, ts, isUpd, marked, skip, asked, need, medium, world, history>>

Update(i) ==
    /\ pc[i] = "20"
    /\ isUpd' = [isUpd EXCEPT ![i] = TRUE]
    /\ Go(i, IF UpdateBeforeBit THEN "21" ELSE "26")
    /\ UNCHANGED <<transaction, ts, bit, marked, commit, medium, world, history>>

FlushedBy(i) == {[u EXCEPT !.flushed = @ \/ u.id = id[i]] : u \in log}

Persist(i) ==
    /\ pc[i] = "21"
    /\ log' = (IF FlushBeforeBit THEN FlushedBy(i) ELSE log)
    /\ bit' = [bit EXCEPT ![i] = TRUE]
    /\ unseen' = [unseen EXCEPT ![i] = Threads \ {i}]
    /\ Go(i, IF ~FlushBeforeBit THEN "late 21" ELSE IF UpdateBeforeBit THEN "26" ELSE "20")
    /\ UNCHANGED <<transaction, ts, isUpd, marked, skip, asked, need, marker, markers, world, history>>

\* Only where FlushBeforeBit is FALSE.
LateFlush(i) ==
    /\ pc[i] = "late 21"
    /\ log' = FlushedBy(i)
    /\ Go(i, "26")
    /\ UNCHANGED <<transaction, commit, shared, marker, markers, world, history>>

\* l.27: t may have seen nothing that is not durable, or is later.
Passes(i, t) == ~WaitForPreceding \/ ts[t] >= ts[i] \/ bit[t]

\* A reader asks whether t is an update before it, a writer whether t is one after it.
Concerns(i, t) == IF wrote[i] = {} THEN ts[t] < ts[i] ELSE ts[t] > ts[i]

\* What follows from both loads: t's stamp as it was loaded, and whether t is an update.
Conclude(i, t, its, update) ==
    /\ unseen' = [unseen EXCEPT ![i] = @ \ {t}]
    /\ IF wrote[i] = {}
       THEN /\ need' = [need EXCEPT ![i] = IF update THEN Max({@, its}) ELSE @]
            /\ UNCHANGED skip
       ELSE /\ skip' = [skip EXCEPT ![i] = @ \/ update \/ ~SkipForUpdatesOnly]
            /\ UNCHANGED need

\* The first load: ts[t]. (Where LoadStampBeforeUpdate is FALSE, isUpd[t].)
Load(i, t) ==
    /\ pc[i] = "26" /\ asked[i] = {} /\ t \in unseen[i]
    /\ IF LoadStampBeforeUpdate
       THEN /\ Passes(i, t)
            /\ IF Concerns(i, t)
               THEN asked' = [asked EXCEPT ![i] = {<<t, ts[t], FALSE>>}] /\ UNCHANGED unseen
               ELSE unseen' = [unseen EXCEPT ![i] = @ \ {t}] /\ UNCHANGED asked
       ELSE asked' = [asked EXCEPT ![i] = {<<t, 0, isUpd[t]>>}] /\ UNCHANGED unseen
    /\ UNCHANGED <<pc, transaction, skip, need, shared, medium, world, history>>

\* The second load: isUpd[t]. (Where LoadStampBeforeUpdate is FALSE, ts[t].)
Skip(i) ==
    \E a \in asked[i] :
        /\ IF LoadStampBeforeUpdate
           THEN Conclude(i, a[1], a[2], isUpd[a[1]])
           ELSE /\ Passes(i, a[1])
                /\ IF Concerns(i, a[1])
                   THEN Conclude(i, a[1], ts[a[1]], a[3])
                   ELSE unseen' = [unseen EXCEPT ![i] = @ \ {a[1]}] /\ UNCHANGED <<skip, need>>
        /\ asked' = [asked EXCEPT ![i] = {}]
        /\ UNCHANGED <<pc, transaction, shared, medium, world, history>>

LoopDone(i) == pc[i] = "26" /\ unseen[i] = {}

Mark(i) ==
    /\ LoopDone(i) /\ wrote[i] # {}
    /\ IF marker < ts[i] /\ ~skip[i]
       THEN IF MarkerOnlyGrows
            THEN marker' = ts[i] /\ markers' = markers \cup {ts[i]} /\ Go(i, "38")
            ELSE Go(i, "36") /\ UNCHANGED <<marker, markers>>
       ELSE Go(i, "41") /\ UNCHANGED <<marker, markers>>
    /\ UNCHANGED <<transaction, commit, shared, log, world, history>>

\* Only where MarkerOnlyGrows is FALSE: a store instead of the compare-and-swap.
StoreMarker(i) ==
    /\ pc[i] = "36"
    /\ marker' = ts[i] /\ markers' = markers \cup {ts[i]}
    /\ Go(i, "38")
    /\ UNCHANGED <<transaction, commit, shared, log, world, history>>

FlushMarker(i) ==
    /\ pc[i] = "38"
    /\ markers' = (IF FlushBeforeMarked THEN {marker} ELSE markers)
    /\ marked' = [marked EXCEPT ![i] = ts[i]]
    /\ Go(i, "41")
    /\ UNCHANGED <<transaction, commit, ts, bit, isUpd, marker, log, world, history>>

Covers(s) == s = 0 \/ (IF WaitForFlushedMarker THEN \E t \in Threads : marked[t] >= s ELSE marker >= s)

\* A writer's answer, and a reader's.
Marked(i) ==
    /\ \/ pc[i] = "41" /\ Covers(ts[i])
       \/ LoopDone(i) /\ wrote[i] = {} /\ Covers(need[i])
    /\ End(i)
    /\ kept' = (IF wrote[i] = {} THEN kept ELSE kept \cup {id[i]})
    /\ told' = (IF wrote[i] = {} THEN told \cup {seen[i]} ELSE told)
    /\ UNCHANGED <<shared, medium, world, begun>>

Next ==
    \E i \in Threads :
        \/ Begin(i) \/ LowerBound(i) \/ LateReset(i) \/ Stamp(i) \/ HtmCommit(i) \/ Abort(i) \/ Externalize(i)
        \/ ReadOnly(i) \/ Update(i) \/ Persist(i) \/ LateFlush(i) \/ Skip(i)
        \/ Mark(i) \/ StoreMarker(i) \/ FlushMarker(i) \/ Marked(i)
        \/ Run(i, Words, {})
        \/ \E from, into \in SUBSET Words : into # {} /\ from \cap into = {} /\ Run(i, from, into)
        \/ \E t \in Threads : Load(i, t)

Spec == Init /\ [][Next]_vars

\* Threads and words are alike.
Alike == Permutations(Threads) \cup Permutations(Words)

\* What the units before the stamp s leave in the word x.
Value(units, s, x) ==
    LET writers == {u \in units : u.stamp < s /\ x \in u.words} IN
      IF writers = {} THEN 0 ELSE (CHOOSE u \in writers : \A v \in writers : v.stamp <= u.stamp).id
Matches(what, units, s) == \A x \in Words : what[x] # Unread => what[x] = Value(units, s, x)

Explains(units) ==
    /\ \A u \in units : Matches(u.seen, units, u.stamp)
    /\ \A t \in kept : \E u \in units : u.id = t
    /\ \A what \in told : \E s \in {0} \cup {u.stamp : u \in units} : Matches(what, units, s + 1)

DurablyOpaque ==
    \A lost \in SUBSET {u \in log : ~u.flushed} :
        IF RecoverUpToMarker
        THEN \A m \in markers : Explains({u \in log \ lost : u.stamp <= m})
        ELSE Explains(log \ lost)

Opaque == Explains(log)

Waits(i) ==
    \/ pc[i] = "26" /\ unseen[i] # {} /\ ~(ENABLED Skip(i)) /\ \A t \in unseen[i] : ~(ENABLED Load(i, t))
    \/ pc[i] = "41" /\ ~Covers(ts[i])
    \/ LoopDone(i) /\ wrote[i] = {} /\ ~Covers(need[i])
NobodyStuck == (\A i \in Threads : pc[i] = "idle" \/ Waits(i)) => \A i \in Threads : ~Waits(i)
=============================================================================
