------------------------------ MODULE Combiner ------------------------------
(***************************************************************************)
(* The combiner of durable applications (Mangosteen, Fig. 2): readers run  *)
(* in parallel under their own flags, writers leave their command in a     *)
(* slot, one of them becomes the combiner, waits for the readers, runs     *)
(* every command it collected as one batch. Beyond the figure: batches are *)
(* made durable behind the next one's execution, so answers are gated.     *)
(*                                                                         *)
(*   Mutex    while the combiner runs a batch nobody reads and nobody else *)
(*            runs one (section 5)                                         *)
(*   Gated    no answer tells of a batch that a crash could still undo     *)
(*   Prog     a command that is ready is answered (section 5)              *)
(*   Readers  a reader that begins is answered once writers stop coming    *)
(*                                                                         *)
(* The combiner's look at the readers' flags is not one step: it looks at  *)
(* one flag after another. The constants that are TRUE name one step each; *)
(* without any one of them TLC must find a violation.                      *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Threads,
    CommandsMax,            \* commands in a run, whoever issues them
    AnnounceBeforeLooking,  \* a reader raises its flag before it looks at the writer's
    LowerFlagToWait,        \* a reader that finds a writer lowers its flag before it waits
    WaitForEveryReader,     \* the combiner waits until it has seen every reader's flag down
    OneCombiner,            \* the writer's flag is taken by compare-and-swap, not by a store
    ReleaseAfterBatch,      \* the combiner gives the writer's flag back
    WritesWaitForTheirBatch,\* a write is answered when its batch is durable
    ReadsWaitForWhatTheySaw \* a read is answered when what it saw is durable

VARIABLES
    pc,        \* where each thread stands
    issued,    \* commands begun
    rFlag,     \* rFlag[i]: thread i reads, or is about to
    wrFlag,    \* somebody combines
    status,    \* slot of each thread: "IDLE", "READY", "STARTED", "DONE"
    ready,     \* ready[i]: what combiner i has collected
    unseen,    \* unseen[i]: readers whose flag combiner i has not seen down
    executed,  \* batches executed
    durable,   \* batches durable
    seen,      \* seen[i]: batches that thread i's answer tells of
    answered   \* greatest number of batches that any answer told of

vars == <<pc, issued, rFlag, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

Init ==
    /\ pc = [i \in Threads |-> "idle"]
    /\ issued = 0
    /\ rFlag = [i \in Threads |-> FALSE]
    /\ wrFlag = FALSE
    /\ status = [i \in Threads |-> "IDLE"]
    /\ ready = [i \in Threads |-> {}]
    /\ unseen = [i \in Threads |-> {}]
    /\ executed = 0 /\ durable = 0
    /\ seen = [i \in Threads |-> 0]
    /\ answered = 0

Go(i, to) == pc' = [pc EXCEPT ![i] = to]

\* A thread receives a command, and asks whether it is read-only.
Begin(i) ==
    /\ pc[i] = "idle" /\ issued < CommandsMax
    /\ issued' = issued + 1
    /\ \/ Go(i, IF AnnounceBeforeLooking THEN "announce" ELSE "look")
       \/ Go(i, "advertise")
    /\ UNCHANGED <<rFlag, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

\* Readers (lines 3-11).
Announce(i) ==
    /\ pc[i] = "announce"
    /\ rFlag' = [rFlag EXCEPT ![i] = TRUE]
    /\ Go(i, IF AnnounceBeforeLooking THEN "look" ELSE "read")
    /\ UNCHANGED <<issued, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

Look(i) ==
    /\ pc[i] = "look"
    /\ Go(i, IF wrFlag THEN "retreat" ELSE IF AnnounceBeforeLooking THEN "read" ELSE "announce")
    /\ UNCHANGED <<issued, rFlag, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

Retreat(i) ==
    /\ pc[i] = "retreat"
    /\ rFlag' = (IF LowerFlagToWait THEN [rFlag EXCEPT ![i] = FALSE] ELSE rFlag)
    /\ Go(i, "await")
    /\ UNCHANGED <<issued, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

Await(i) ==
    /\ pc[i] = "await" /\ ~wrFlag
    /\ Go(i, IF AnnounceBeforeLooking THEN "announce" ELSE "look")
    /\ UNCHANGED <<issued, rFlag, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

Read(i) ==
    /\ pc[i] = "read"
    /\ seen' = [seen EXCEPT ![i] = executed]
    /\ Go(i, "leave")
    /\ UNCHANGED <<issued, rFlag, wrFlag, status, ready, unseen, executed, durable, answered>>

Leave(i) ==
    /\ pc[i] = "leave"
    /\ rFlag' = [rFlag EXCEPT ![i] = FALSE]
    /\ Go(i, "answer read")
    /\ UNCHANGED <<issued, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

\* Writers (lines 13-19).
Advertise(i) ==
    /\ pc[i] = "advertise"
    /\ status' = [status EXCEPT ![i] = "READY"]
    /\ Go(i, "try")
    /\ UNCHANGED <<issued, rFlag, wrFlag, ready, unseen, executed, durable, seen, answered>>

Served(i) ==
    /\ pc[i] = "try" /\ status[i] = "DONE"
    /\ status' = [status EXCEPT ![i] = "IDLE"]
    /\ Go(i, "answer write")
    /\ UNCHANGED <<issued, rFlag, wrFlag, ready, unseen, executed, durable, seen, answered>>

\* Line 15-16: a command that is started is somebody else's; the thread only waits. Line 18: look first.
See(i) ==
    /\ pc[i] = "try" /\ status[i] = "READY" /\ ~wrFlag
    /\ Go(i, "swap")
    /\ UNCHANGED <<issued, rFlag, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

Swap(i) ==
    /\ pc[i] = "swap"
    /\ IF wrFlag /\ OneCombiner
       THEN Go(i, "try") /\ UNCHANGED <<wrFlag, unseen, ready>>
       ELSE /\ wrFlag' = TRUE
            /\ unseen' = [unseen EXCEPT ![i] = IF WaitForEveryReader THEN Threads ELSE {}]
            /\ ready' = [ready EXCEPT ![i] = {}]
            /\ Go(i, "collect")
    /\ UNCHANGED <<issued, rFlag, status, executed, durable, seen, answered>>

\* The combiner (lines 20-31).
Collect(i) ==
    /\ pc[i] = "collect"
    /\ LET found == {j \in Threads : status[j] = "READY"} IN
         /\ status' = [j \in Threads |-> IF j \in found THEN "STARTED" ELSE status[j]]
         /\ ready' = [ready EXCEPT ![i] = @ \cup found]
    /\ Go(i, "drain")
    /\ UNCHANGED <<issued, rFlag, wrFlag, unseen, executed, durable, seen, answered>>

SeeReaderGone(i, k) ==
    /\ pc[i] = "drain" /\ k \in unseen[i] /\ ~rFlag[k]
    /\ unseen' = [unseen EXCEPT ![i] = @ \ {k}]
    /\ UNCHANGED <<pc, issued, rFlag, wrFlag, status, ready, executed, durable, seen, answered>>

\* While it waits for readers the combiner takes what has become ready meanwhile.
CollectMore(i) ==
    /\ pc[i] = "drain" /\ unseen[i] # {} /\ \E j \in Threads : status[j] = "READY"
    /\ Go(i, "collect")
    /\ UNCHANGED <<issued, rFlag, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

Drained(i) ==
    /\ pc[i] = "drain" /\ unseen[i] = {}
    /\ Go(i, "run")
    /\ UNCHANGED <<issued, rFlag, wrFlag, status, ready, unseen, executed, durable, seen, answered>>

\* Runs the batch and hands its stores to the log; does not wait for the log.
Run(i) ==
    /\ pc[i] = "run"
    /\ executed' = executed + 1
    /\ seen' = [j \in Threads |-> IF j \in ready[i] THEN executed + 1 ELSE seen[j]]
    /\ Go(i, "finish")
    /\ UNCHANGED <<issued, rFlag, wrFlag, status, ready, unseen, durable, answered>>

Finish(i) ==
    /\ pc[i] = "finish"
    /\ status' = [j \in Threads |-> IF j \in ready[i] THEN "DONE" ELSE status[j]]
    /\ Go(i, "release")
    /\ UNCHANGED <<issued, rFlag, wrFlag, ready, unseen, executed, durable, seen, answered>>

Release(i) ==
    /\ pc[i] = "release"
    /\ wrFlag' = (IF ReleaseAfterBatch THEN FALSE ELSE wrFlag)
    /\ ready' = [ready EXCEPT ![i] = {}]
    /\ Go(i, "try")
    /\ UNCHANGED <<issued, rFlag, status, unseen, executed, durable, seen, answered>>

\* Answers (line 32) wait for what they tell of.
Answer(i) ==
    /\ \/ pc[i] = "answer read" /\ (ReadsWaitForWhatTheySaw => seen[i] <= durable)
       \/ pc[i] = "answer write" /\ (WritesWaitForTheirBatch => seen[i] <= durable)
    /\ answered' = (IF seen[i] > answered THEN seen[i] ELSE answered)
    /\ seen' = [seen EXCEPT ![i] = 0]
    /\ Go(i, "idle")
    /\ UNCHANGED <<issued, rFlag, wrFlag, status, ready, unseen, executed, durable>>

\* The log makes batches durable in their order, several at a time.
Sync ==
    /\ durable < executed
    /\ \E n \in (durable + 1)..executed : durable' = n
    /\ UNCHANGED <<pc, issued, rFlag, wrFlag, status, ready, unseen, executed, seen, answered>>

Step(i) ==
    \/ Announce(i) \/ Look(i) \/ Retreat(i) \/ Await(i) \/ Read(i) \/ Leave(i)
    \/ Advertise(i) \/ Served(i) \/ See(i) \/ Swap(i)
    \/ Collect(i) \/ Drained(i) \/ Run(i) \/ Finish(i) \/ Release(i) \/ Answer(i)
    \/ \E k \in Threads : SeeReaderGone(i, k)

Next == Sync \/ \E i \in Threads : Begin(i) \/ Step(i) \/ CollectMore(i)

\* Each thread that can go on does, and the log is written; nobody is made to issue commands.
Spec == Init /\ [][Next]_vars /\ WF_vars(Sync) /\ \A i \in Threads : WF_vars(Step(i))

TypeOK ==
    /\ durable <= executed
    /\ \A i \in Threads : status[i] \in {"IDLE", "READY", "STARTED", "DONE"}

Mutex ==
    \A i, j \in Threads :
        (i # j /\ pc[i] \in {"run", "finish"}) => pc[j] \notin {"run", "finish", "read", "leave"}

Gated == answered <= durable

Prog == \A i \in Threads : (status[i] = "READY") ~> (pc[i] = "idle")
Readers == \A i \in Threads : (pc[i] = "look") ~> (pc[i] = "idle")
=============================================================================
