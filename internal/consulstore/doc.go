// Package consulstore is the service.Store on Consul's key-value store, for several replicas.
//
// # Layout, all under Options.Root
//
//	data/<key>         one record, its key escaped byte by byte
//	head               written by every transaction; its index is the revision that List returns
//	changes/<id>       what one recent transaction did, values included
//	trimmed            the highest revision whose change record was deleted
//	parts/<id>/keys    whose values lie in the parts of one transaction
//	parts/<id>/<n>     a part of large values
//	probe              written at the start and after a failed write, to learn whether writes work
//
// Every stored value carries a CRC-32C over its key and bytes, and the nonce of its transaction.
//
// # Invariants
//
//   - A Commit is one Consul transaction: fence (check-session on the leader key), checks, puts and deletes, change
//     record and head together or not at all. All it writes has one index of Consul's log, which is the revision.
//   - Reads are consistent reads of one moment: they ask the leader, which makes sure that it still is one. So a Get
//     after a lost race sees the winner, and List's revision and records belong together.
//   - Watch delivers every transaction once, in order, with the values it wrote. Each replica reads the short
//     list of change records by one blocking query on their names, however many watch. Whether a record was missed
//     is decided by trimmed, which moves in the transaction that deletes change records; then, and when Consul went back
//     to an older state or a change record is damaged, Watch says ErrGap.
//   - Values that do not fit into one request (512 KiB, with each value in it twice, in base64) are stored as parts
//     first, the largest ones first; the transaction then writes where they are. Parts without such a record are
//     never seen. They are collected when this replica has seen no record refer to them for PartsGrace. The
//     collection demands that the records are unchanged, the transaction demands that its parts are there: it does not
//     matter how long a writer was paused between the two.
//   - At most MaxInFlight writing requests are in flight, of at most 512 KiB each, so that the session's
//     renewals get their turn during a mass event.
//
// # Failure behaviour
//
//   - Unreachable, silent, without a leader, limiting the rate, denying access: ErrUnavailable with what is wrong, and Health
//     says so within two seconds even if nobody commits. It recovers by itself. No request outlasts Options.Timeout
//     (List: twelve times that).
//   - A Commit whose answer was lost is ErrUnavailable: whether it happened is unknown, and it is not sent again.
//   - ErrFenced wins over ErrConflict when both hold.
//   - A value that fails its checksum is ErrCorrupt and is not served. A put without a check replaces it all the
//     same: Consul has no operation that would look first.
//
// Consul must be 1.14 or later (get-or-empty, 128 operations a transaction) with its default limits or larger ones. The
// token needs key_prefix Root write and the leader key read.
//
// # What a restored snapshot means
//
// Consul's log index goes on growing when a snapshot is restored into the cluster that made it; records go back
// to what they were, with their old revisions. Watchers notice that the head went back and say ErrGap, the service lists again. Fencing
// tokens and epochs are stored integers and go back, too: the service's floor is to be raised after a restore.
// Restored into another cluster, revisions that were given after the snapshot may be given again.
//
// The package knows nothing of peers or leadership, makes no backup, and holds no session.
package consulstore
