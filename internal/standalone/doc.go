// Package standalone is what the service runs on when it has neither Consul nor RabbitMQ: a Store in one
// file, an Elector in memory and a Bus inside the process.
//
// # Store
//
// One bbolt file in a data directory. Every write goes through one goroutine that gathers the transactions
// waiting at that moment, judges each against the state the earlier ones left, writes them as one bbolt
// transaction and answers only after its fsync (group commit). Reads run in bbolt's read transactions, beside
// the writer and beside each other; they never show what is not yet durable.
//
// Invariants:
//   - The revision grows by one a transaction and is stored with it.
//   - A record carries a CRC-32C over its key, revision and value, because bbolt checks only its two meta pages.
//     The store also keeps the number of its records and a digest of their keys and revisions, so that a page that
//     lost records, or that the disk silently never wrote, is found although every record on it is sound.
//   - The whole file is verified before bbolt maps it, with bounds-checked reads: bbolt trusts the pages it walks.
//   - A directory that was initialised never starts empty: the marker file INITIALIZED refuses a database that
//     has gone missing.
//
// Failure behaviour:
//   - In use by another process, damaged, missing: OpenStore fails and says which file and what to do.
//   - A write that fails (disk full) is undone and answered with ErrUnavailable; the next commit tries again.
//   - A failed fsync poisons the store: the kernel may have dropped the pages and would report success next time.
//     Every later commit fails with ErrUnavailable until a restart has verified the file; reads go on.
//   - A record found damaged while running is ErrCorrupt: neither served nor overwritten.
//   - Watch remembers a bounded number of recent transactions, none from before the start; behind that it is ErrGap.
//
// # Elector
//
// Leadership is a slot in a SharedLeaderState. Alone, an elector has a slot of its own and always wins; several
// electors given one shared state compete, the first wins. A term has a session of its own, its epoch comes from
// the EpochSource, and leadership is reported only after that answered. Listeners are called in registration order by
// one goroutine per elector, edges only: a slow listener delays the later callbacks of its elector, never
// an acquisition or a release, and a panic is contained and logged.
//
// # Bus
//
// Buses on one Exchange hear each other, never themselves; alone, publishing goes nowhere. Heartbeats are coalesced,
// newest per peer, wherever they wait; shutdowns and assignments keep their order. Cut and Restore on
// the exchange let tests lose the bus.
//
// The package knows nothing of peers or orphans, replicates nothing between machines, and does no backup.
package standalone
