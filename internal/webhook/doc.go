// Package webhook delivers committed events to the HTTP endpoints that asked for them, as the Standard Webhooks
// specification describes.
//
// # How an event travels
//
// The service commits events to a journal, in one transaction with the facts they follow from. On the leader, a
// dispatcher walks the journal from a stored cursor (`meta/webhook-cursor`), makes one delivery record
// (`delivery/{id}`) for every enabled endpoint (`webhook/{id}`) that matches, and commits the deliveries together
// with the cursor's advance in one fenced transaction. A delivery keeps its own copy of the event, so the journal
// only ever waits for the cursor (CursorFloor). One worker per endpoint then makes the attempts that are due; the
// outcome of each is committed, fenced, before the delivery counts as attempted.
//
//	journal ─▶ dispatcher ─▶ delivery/… ─▶ worker of the endpoint ─▶ receiver
//	              cursor ◀┘ one transaction       └▶ attempt recorded, fenced
//
// Every replica keeps an index of endpoints and deliveries (ledger) from the store's watch, so every replica answers
// reads; any replica takes registrations, changes, test sends and manual retries, each guarded by compare-and-set
// on its own record. A retry or test that another replica commits reaches the leader's worker through the watch.
//
// # Invariants
//
//   - No event is lost between journal and delivery, and none is enqueued twice: cursor and deliveries commit together.
//   - The id of a delivery, which is the webhook-id header, derives from event and endpoint: it is the same on every
//     attempt of every leader.
//   - An attempt is started only while this replica's own term holds; its record commits only while it still does.
//   - The body that is signed is the body that is sent, byte for byte, on every attempt.
//   - No endpoint holds another up: every endpoint has a worker and one slot of its own; only its further slots come
//     from a shared pool.
//   - A pending delivery never leaves the log; finished ones are kept up to a limit an endpoint.
//   - No attempt reaches a refused address: the dialler checks what DNS answered, for wrapped IPv4 addresses too.
//
// # Failure behaviour
//
// A crash between an attempt and its record repeats the attempt under the same id. An attempt cut off by stopping or
// by a lost term is recorded as not made and goes to the next leader. While the store cannot be asked, attempts that
// ended wait to be recorded and no new ones start; a lost term drops them. At the queue limit a delivery is stored as
// dead (queue_full), counted, and can be retried by hand. A disabled endpoint gets no new deliveries; its pending ones
// are held until it is enabled again.
//
// Order is best effort: an endpoint's deliveries start in journal order, but several are under way at a time and
// retries come later than their successors. Receivers order by the event's own content.
//
// # What it does not do
//
// It raises no events but webhook.disabled (through EventRaiser), decides nothing about peers, and keeps nothing of a
// receiver's answer beyond the first kilobyte.
package webhook
