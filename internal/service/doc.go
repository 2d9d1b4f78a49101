// Package service is the coordinator: it owns the core, commits the facts that must last before it
// answers, and hands events on. It declares the three ports it needs: Store, Elector and Bus.
//
// # One way through
//
// A heartbeat comes in by Heartbeat (HTTP) or ReceiveHeartbeat (bus), goes through beat and the pure core under one short
// lock, and is answered from memory. What comes from outside and must last (shutdown, claim, assignment, dismissal,
// removal) is planned by the core, committed by compare-and-set on its own record, and then applied to the core: by any replica.
//
// What the core concludes (events, episodes, conflicts, ends of claims) is collected as pending keys and
// written by one committer, in fenced transactions, while this replica leads: the events go into the journal in the
// same transaction as the records that say they were told. A crash before it leaves both undone, and the next
// leader concludes the same again, under the same event ids.
//
// Everything committed, by whomever, comes back through the store's watch: so replicas follow each other, and the journal
// is fed in commit order on all of them alike.
//
// # Files
//
//	ingest.go      heartbeats and shutdown notifications        committer.go   the writer
//	takeover.go    orphans, claims, assignments                 replica.go     load, watch, apply
//	peers.go       reads of peers, removal, cancel              leadership.go  terms and epochs
//	journal.go     the event stream                             feed.go        invalidations for live pages
//	index.go       what lists page through                      history.go     what has ended, until it may go
//
// # Failure
//
// Store away: heartbeats and reads go on, durable calls fail with ErrUnavailable, the committer retries for ever. Leadership
// lost: uncommitted conclusions never happened; the store's word is read back. Own pause: made up for before any other input,
// see lock. Nothing needs a restart.
//
// # What it does not do
//
// It speaks no HTTP and no AMQP, calls no webhook, and decides no rule about peers: those are the core's.
package service
