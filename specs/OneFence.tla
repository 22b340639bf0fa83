------------------------------ MODULE OneFence ------------------------------
(***************************************************************************)
(* Our commit protocol for persistent memory with volatile caches (ADR):   *)
(* dense numbers and one fence a commit. Transactions lock what they write *)
(* (crates/txn); the protocol is crates/txn/src/sink.rs over               *)
(* crates/shadow: lease.rs (the steps of a commit), handover.rs (numbers,  *)
(* announcements, the watermark), replay.rs, recover.rs.                   *)
(*                                                                         *)
(*   Announce, Draw: a number is drawn while the write locks are held;     *)
(*             numbers are dense. RedoSink::number, Handover::begin        *)
(*   Release   compares what was read with what is there now; if it is     *)
(*             stale the number gets a void unit (RedoSink::void). Then    *)
(*             the unit with its checksum is in the cache, from where any  *)
(*             part of it may reach the medium (LogLease::seal), and       *)
(*             others see what was written, before it is durable. One step *)
(*             here: a crash before the unit is sealed does what a crash   *)
(*             does that loses it                                          *)
(*   Fence     the one flush and fence. LogLease::flush                    *)
(*   Publish   withdraws the announcement. Handover::publish               *)
(*   StartLook, Look, Looked, Answer: a thread looks at the counter, then  *)
(*             at one announcement after the other, and answers when every *)
(*             number up to its own is published, or up to the greatest    *)
(*             that it saw. Handover::watermark, covers; RedoSink::settle  *)
(*   Replay    moves units up to the watermark into the durable copy       *)
(*   Crash     any subset of the unfenced units survives, whole or torn;   *)
(*             recover.rs applies the prefix without a gap, and units of   *)
(*             earlier openings never count again                          *)
(*                                                                         *)
(* Durable opacity, in parts that hold in every state; a crash cuts        *)
(* `serial` to what recovery applied:                                      *)
(*                                                                         *)
(*   Kept         every acknowledged transaction is in `serial`            *)
(*   Whole        the durable copy is what the transactions up to `upto`   *)
(*                leave when they run one by one: all or nothing, no gap   *)
(*   Serial       each transaction read what those before it in `serial`   *)
(*                had written                                              *)
(*   Told         each answered reader saw a state that `serial` has       *)
(*                                                                         *)
(* Not here: the single accesses of a transaction, which here reads and    *)
(* locks all it needs at once (crates/txn tests its executors), the stores *)
(* of one unit, replay and recovery that a crash leaves half done (the     *)
(* crash simulator). Memory has one current value, so the order of real    *)
(* time is kept. The constants that are TRUE name one step each; without   *)
(* any one of them TLC must find a violation.                              *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS
    Threads,
    Words,
    TransactionsMax,          \* transactions in a run, over all openings
    NumberUnderLocks,         \* the number is drawn before the locks are released
    CheckAfterNumber,         \* what was read is checked once the number is drawn
    VoidIsLogged,             \* a number that is not used gets a void unit
    AnnounceBeforeNumber,     \* a thread announces itself before it draws
    FenceBeforePublish,       \* a unit is durable before it is published
    CounterBeforeAnnounced,   \* the counter is read before the announcements
    WritersWaitForSmaller,    \* an update is acknowledged when all smaller numbers are published
    ReadersWaitForWhatTheySaw,\* a read-only transaction is answered when what it saw is durable
    UnitHasChecksum,          \* a torn unit is not taken for a whole one
    ReplayToWatermark,        \* only what is published reaches the durable copy
    RecoveryStopsAtGap,       \* recovery applies nothing behind the first missing number
    OpeningOutdatesUnits      \* units that a recovery dropped never count again

VARIABLES
    pc,        \* where each thread stands
    id,        \* id[i]: the name of thread i's transaction, and the value that it writes
    seen,      \* seen[i][x]: the value that it read, or Unread
    wrote,     \* wrote[i]: the words that it wrote, which are locked
    number,    \* number[i]: its number; for a reader the greatest number that it saw
    announced, \* announced[i]: at most its number, or None
    least,     \* least[i]: the watermark as far as thread i has looked
    unseen,    \* unseen[i]: announcements that it has not looked at
    reached,   \* the watermark that some thread saw last
    memory,    \* the working copy
    next,      \* the next number
    log,       \* units in the logs
    copy,      \* the durable copy
    upto,      \* the number up to which units are in it
    begun,     \* transactions begun
    serial,    \* serial[n]: the transaction with number n
    kept,      \* transactions acknowledged
    told       \* what answered readers saw

volatile == <<pc, id, seen, wrote, number, announced, least, unseen, reached, memory, next>>
durable == <<log, copy, upto>>
history == <<begun, serial, kept, told>>
vars == <<volatile, durable, history>>

None == 0
Unread == TransactionsMax + 1
Nothing == [x \in Words |-> Unread]
Void == [id |-> None, seen |-> Nothing, wrote |-> {}]

Min(a, b) == IF a < b THEN a ELSE b
Max(S) == CHOOSE n \in S : \A m \in S : m <= n

\* What the transactions with numbers up to n leave in the word x, one by one.
Value(n, x) ==
    LET writers == {m \in 1..n : x \in serial[m].wrote} IN
      IF writers = {} THEN 0 ELSE serial[Max(writers)].id

Init ==
    /\ pc = [i \in Threads |-> "idle"]
    /\ id = [i \in Threads |-> 0]
    /\ seen = [i \in Threads |-> Nothing]
    /\ wrote = [i \in Threads |-> {}]
    /\ number = [i \in Threads |-> 0]
    /\ announced = [i \in Threads |-> None]
    /\ least = [i \in Threads |-> 0]
    /\ unseen = [i \in Threads |-> {}]
    /\ reached = 0
    /\ memory = [x \in Words |-> 0]
    /\ next = 1
    /\ log = {}
    /\ copy = [x \in Words |-> 0] /\ upto = 0
    /\ begun = 0 /\ serial = <<>> /\ kept = {} /\ told = {}

Go(i, to) == pc' = [pc EXCEPT ![i] = to]

\* The thread is done with its transaction.
End(i) ==
    /\ Go(i, "idle")
    /\ id' = [id EXCEPT ![i] = 0]
    /\ seen' = [seen EXCEPT ![i] = Nothing]
    /\ wrote' = [wrote EXCEPT ![i] = {}]
    /\ number' = [number EXCEPT ![i] = 0]
    /\ least' = [least EXCEPT ![i] = 0]
    /\ unseen' = [unseen EXCEPT ![i] = {}]

\* The steps of a commit. The locks are held from the beginning to "release".
CommitSteps ==
    IF ~NumberUnderLocks THEN <<"release", "announce", "draw", "fence", "publish">>
    ELSE IF ~CheckAfterNumber THEN <<"check", "announce", "draw", "release", "fence", "publish">>
    ELSE IF ~AnnounceBeforeNumber THEN <<"draw", "announce", "release", "fence", "publish">>
    ELSE IF ~FenceBeforePublish THEN <<"announce", "draw", "release", "publish", "fence">>
    ELSE <<"announce", "draw", "release", "fence", "publish">>
At(step) == CHOOSE n \in 1..Len(CommitSteps) : CommitSteps[n] = step
Following(step) == IF At(step) = Len(CommitSteps) THEN "wait" ELSE CommitSteps[At(step) + 1]
Unreleased == {CommitSteps[n] : n \in 1..At("release")}

Locked(x, i) == \E j \in Threads \ {i} : x \in wrote[j] /\ pc[j] \in Unreleased
Current(i) == \A x \in Words : seen[i][x] # Unread => (seen[i][x] = memory[x] /\ ~Locked(x, i))

NumberOf(t) ==
    LET found == {n \in 1..Len(serial) : serial[n].id = t} IN IF t = 0 \/ found = {} THEN 0 ELSE Max(found)

\* A transaction reads the words `from` and locks the words `into`.
Run(i, from, into) ==
    /\ pc[i] = "idle" /\ begun < TransactionsMax
    /\ \A x \in from \cup into : ~Locked(x, i)
    /\ LET read == [x \in Words |-> IF x \in from THEN memory[x] ELSE Unread] IN
         /\ begun' = begun + 1
         /\ id' = [id EXCEPT ![i] = begun + 1]
         /\ seen' = [seen EXCEPT ![i] = read]
         /\ wrote' = [wrote EXCEPT ![i] = into]
         /\ number' = [number EXCEPT ![i] = IF into = {} THEN Max({NumberOf(read[x]) : x \in from}) ELSE 0]
    /\ Go(i, IF into = {} THEN "wait" ELSE CommitSteps[1])
    /\ UNCHANGED <<announced, least, unseen, reached, memory, next, durable, serial, kept, told>>

Announce(i) ==
    /\ pc[i] = "announce"
    /\ announced' = [announced EXCEPT ![i] = IF AnnounceBeforeNumber THEN next ELSE number[i]]
    /\ Go(i, Following("announce"))
    /\ UNCHANGED <<id, seen, wrote, number, least, unseen, reached, memory, next, durable, history>>

Unit(n, t, words) == [number |-> n, id |-> t, words |-> words, fenced |-> FALSE, old |-> FALSE]
Sealed(i, n) == log \cup {Unit(n, id[i], wrote[i])}

Draw(i) ==
    /\ pc[i] = "draw"
    /\ number' = [number EXCEPT ![i] = next]
    /\ next' = next + 1
    /\ serial' = Append(serial, [id |-> id[i], seen |-> seen[i], wrote |-> wrote[i]])
    /\ log' = (IF NumberUnderLocks THEN log ELSE Sealed(i, next))
    /\ Go(i, Following("draw"))
    /\ UNCHANGED <<id, seen, wrote, announced, least, unseen, reached, memory, copy, upto, begun, kept, told>>

\* Only where CheckAfterNumber is FALSE.
Check(i) ==
    /\ pc[i] = "check"
    /\ IF Current(i)
       THEN Go(i, Following("check")) /\ UNCHANGED <<id, seen, wrote, number, least, unseen>>
       ELSE End(i)
    /\ UNCHANGED <<announced, reached, memory, next, durable, history>>

Release(i) ==
    /\ pc[i] = "release"
    /\ IF CheckAfterNumber => Current(i)
       THEN /\ memory' = [x \in Words |-> IF x \in wrote[i] THEN id[i] ELSE memory[x]]
            /\ log' = (IF NumberUnderLocks THEN Sealed(i, number[i]) ELSE log)
            /\ Go(i, Following("release"))
            /\ UNCHANGED <<id, seen, wrote, number, least, unseen, serial>>
       ELSE IF number[i] = 0
       THEN End(i) /\ UNCHANGED <<memory, log, serial>>
       ELSE /\ serial' = [serial EXCEPT ![number[i]] = Void]
            /\ wrote' = [wrote EXCEPT ![i] = {}]
            /\ seen' = [seen EXCEPT ![i] = Nothing]
            /\ log' = (IF VoidIsLogged THEN log \cup {Unit(number[i], None, {})} ELSE log)
            /\ Go(i, Following("release"))
            /\ UNCHANGED <<id, number, least, unseen, memory>>
    /\ UNCHANGED <<announced, reached, next, copy, upto, begun, kept, told>>

Fence(i) ==
    /\ pc[i] = "fence"
    /\ log' = {[u EXCEPT !.fenced = @ \/ (u.number = number[i] /\ ~u.old)] : u \in log}
    /\ Go(i, Following("fence"))
    /\ UNCHANGED <<id, seen, wrote, number, announced, least, unseen, reached, memory, next, copy, upto, history>>

Publish(i) ==
    /\ pc[i] = "publish"
    /\ announced' = [announced EXCEPT ![i] = None]
    \* Nobody waits for a void unit's sake.
    /\ IF wrote[i] = {} /\ Following("publish") = "wait"
       THEN End(i)
       ELSE Go(i, Following("publish")) /\ UNCHANGED <<id, seen, wrote, number, least, unseen>>
    /\ UNCHANGED <<reached, memory, next, durable, history>>

\* The wait for the watermark.
Waits(i) == (IF wrote[i] = {} THEN ReadersWaitForWhatTheySaw ELSE WritersWaitForSmaller) /\ reached < number[i]

StartLook(i) ==
    /\ pc[i] = "wait" /\ Waits(i)
    /\ least' = [least EXCEPT ![i] = IF CounterBeforeAnnounced THEN next - 1 ELSE TransactionsMax]
    /\ unseen' = [unseen EXCEPT ![i] = Threads \ {i}]
    /\ Go(i, "look")
    /\ UNCHANGED <<id, seen, wrote, number, announced, reached, memory, next, durable, history>>

Look(i, k) ==
    /\ pc[i] = "look" /\ k \in unseen[i]
    /\ unseen' = [unseen EXCEPT ![i] = @ \ {k}]
    /\ least' = [least EXCEPT ![i] = IF announced[k] = None THEN @ ELSE Min(@, announced[k] - 1)]
    /\ UNCHANGED <<pc, id, seen, wrote, number, announced, reached, memory, next, durable, history>>

Looked(i) ==
    /\ pc[i] = "look" /\ unseen[i] = {}
    /\ reached' = (IF CounterBeforeAnnounced THEN least[i] ELSE Min(least[i], next - 1))
    /\ least' = [least EXCEPT ![i] = 0]
    /\ Go(i, "wait")
    /\ UNCHANGED <<id, seen, wrote, number, announced, unseen, memory, next, durable, history>>

Answer(i) ==
    /\ pc[i] = "wait" /\ ~Waits(i)
    /\ End(i)
    /\ kept' = (IF wrote[i] = {} THEN kept ELSE kept \cup {id[i]})
    \* A void transaction has seen nothing that counts.
    /\ told' = (IF wrote[i] = {} /\ seen[i] # Nothing THEN told \cup {seen[i]} ELSE told)
    /\ UNCHANGED <<announced, reached, memory, next, durable, begun, serial>>

\* The medium.
Put(at, u) == [x \in Words |-> IF x \in u.words THEN u.id ELSE at[x]]

\* The replayer goes by the same watermark.
Replay ==
    \E u \in log :
        /\ ~u.old /\ u.number > upto
        /\ IF ReplayToWatermark
           THEN u.number = upto + 1 /\ u.number <= reached
           ELSE \A v \in log : v.old \/ v.number >= u.number
        /\ copy' = Put(copy, u)
        /\ upto' = u.number
        /\ log' = log \ {u}
        /\ UNCHANGED <<volatile, history>>

RECURSIVE Apply(_, _, _, _)
Apply(at, units, from, to) ==
    IF from > to THEN at
    ELSE LET found == {u \in units : u.number = from} IN
           Apply(IF found = {} THEN at ELSE Put(at, CHOOSE u \in found : TRUE), units, from + 1, to)

Crash ==
    \E whole \in SUBSET {u \in log : ~u.fenced} :
    \E torn \in (IF UnitHasChecksum THEN {{}} ELSE SUBSET {u \in log : ~u.fenced /\ u \notin whole}) :
    \E gone \in (IF torn = {} THEN {{}} ELSE {{x} : x \in Words}) :
        LET left == {[u EXCEPT !.fenced = TRUE] : u \in {v \in log : v.fenced} \cup whole}
                    \cup {[u EXCEPT !.fenced = TRUE, !.words = @ \ gone] : u \in torn}
            found == {u \in left : ~u.old /\ u.number > upto}
            numbers == {u.number : u \in found}
            last == IF RecoveryStopsAtGap
                    THEN Max({n \in upto..TransactionsMax : \A m \in (upto + 1)..n : m \in numbers})
                    ELSE Max({upto} \cup numbers)
        IN
          /\ copy' = Apply(copy, found, upto + 1, last)
          /\ upto' = last
          /\ log' = {[u EXCEPT !.old = @ \/ OpeningOutdatesUnits] : u \in {v \in left : v.number > last}}
          /\ next' = last + 1
          /\ memory' = copy'
          /\ reached' = last
          /\ serial' = SubSeq(serial, 1, Min(last, Len(serial)))
    /\ pc' = [i \in Threads |-> "idle"]
    /\ id' = [i \in Threads |-> 0]
    /\ seen' = [i \in Threads |-> Nothing]
    /\ wrote' = [i \in Threads |-> {}]
    /\ number' = [i \in Threads |-> 0]
    /\ announced' = [i \in Threads |-> None]
    /\ least' = [i \in Threads |-> 0]
    /\ unseen' = [i \in Threads |-> {}]
    /\ UNCHANGED <<begun, kept, told>>

Step(i) ==
    \/ Announce(i) \/ Draw(i) \/ Check(i) \/ Release(i) \/ Fence(i) \/ Publish(i)
    \/ StartLook(i) \/ Looked(i) \/ Answer(i)
    \/ Run(i, Words, {})
    \/ \E from, into \in SUBSET Words : into # {} /\ from \cap into = {} /\ Run(i, from, into)
    \/ \E k \in Threads : Look(i, k)

Next == Replay \/ Crash \/ \E i \in Threads : Step(i)

Spec == Init /\ [][Next]_vars

\* Threads and words are alike.
Alike == Permutations(Threads) \cup Permutations(Words)

TypeOK ==
    /\ \A i \in Threads : announced[i] <= next
    /\ upto < next

Kept == \A t \in kept : \E n \in 1..Len(serial) : serial[n].id = t

Whole == upto <= Len(serial) /\ \A x \in Words : copy[x] = Value(upto, x)

Matches(what, n) == \A x \in Words : what[x] # Unread => what[x] = Value(n, x)

\* Until it is released, a transaction may have read what is stale: then it becomes void.
Unchecked(n) == CheckAfterNumber /\ \E i \in Threads : number[i] = n /\ pc[i] \in Unreleased

Serial == \A n \in 1..Len(serial) : Unchecked(n) \/ Matches(serial[n].seen, n - 1)

Told == \A what \in told : \E n \in 0..Len(serial) : Matches(what, n)
=============================================================================
