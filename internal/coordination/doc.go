// Package coordination is the state machine at the heart of the service: who is alive, who is leaving and how many
// seconds are left, which subscriptions nobody serves any more, and who may take each over. It is
// the original protocol's WorkRedistributionCoordinator for many groups at once.
//
// # Shape
//
// A Core has no I/O, no goroutine and no clock: every method takes now. What goes in is one of
//
//   - an observation: Heartbeat, Tick, and what the replica itself missed (Paused, BusDown, BusUp);
//   - a fact from the store, whoever wrote it: ApplyShutdown, ApplyClaim, ApplyAssignment, ApplyPeer, Dismiss, Remove;
//   - a conclusion of the leader from the store: ApplyConclusion, ApplyConflict, ApplyMass, ApplyPast.
//
// What comes out is an Output: events to raise, and the records to write with them. The Plan* methods change nothing;
// they say which fact a request amounts to, to be committed by compare-and-set and then applied.
//
// # Invariants
//
//   - Status is derived, never stored: statusAt is the only place that knows the rule.
//   - Only a leading core concludes: it compares what is so with what was announced (peer.announced) and tells the
//     difference. So a new leader raises exactly what its predecessor did not, under the same ids.
//   - Liveness is judged on arrival, on the monotonic reading of now. Sender's clocks order one peer's heartbeats, no more.
//   - One function per deadline rule: silenceDeadline, drainOver, quietAt, forgetAt, conflictAt.
//   - A heartbeat costs a few map look-ups, whatever the number of peers: alarms are lazy, see timer.go.
//
// # What it does not do
//
// It commits nothing, publishes nothing, reassigns nothing. Redistribution is advisory; only the claim is exclusive, and what
// makes it so is the store's compare-and-set, not this package.
package coordination
