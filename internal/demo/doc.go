// Package demo drives a simulated fleet against a service, over HTTP like any other workers, so that a
// newcomer sees within a minute every state that the service knows.
//
// Thirteen workers in three groups beat, roll (drain, finish early, start again under the same id as a new
// incarnation), crash, come back, drain longer than they announced, report one subscription twice, and take
// over what others left: a survivor claims an orphan, waits until its claim reads ready, and then reports the
// subscription. An operator's webhook receiver verifies every signature and tells what it was told.
//
// What happens when is a script, and what is left to chance comes from the seed: two runs do the same things in the
// same order, but for the time that requests take.
//
// Failure behaviour: a worker whose heartbeat fails beats again; a service that is away for long is reported once, and
// the fleet goes on when it is back. Run ends when its context does, with the webhook removed and all
// requests over.
//
// What it does not do: measure anything, or look into the service otherwise than through its API.
package demo
