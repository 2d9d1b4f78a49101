package consulstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/hashicorp/consul/api"

	"github.com/coordsvc/coordsvc/internal/service"
)

// intent is what a transaction wants of one key.
type intent struct {
	key     string
	checked bool
	// revision is what the check demands; 0 is absence.
	revision uint64
	put      *sealedPut
	delete   bool
}

// Commit implements service.Store. The revision is the index of Consul's log that the transaction has; all it
// writes get that index. ErrUnavailable after the request went out means that the outcome is unknown; it is never
// applied twice.
func (s *Store) Commit(ctx context.Context, txn service.Txn) (uint64, error) {
	revision, err := s.commit(ctx, txn)
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return revision, nil
}

func (s *Store) commit(ctx context.Context, txn service.Txn) (uint64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	id := rand.Text()
	intents, err := gather(txn, id)
	if err != nil {
		return 0, err
	}
	if txn.Fence != nil && txn.Fence.Session == "" {
		// A key that nobody holds has the empty session.
		return 0, fmt.Errorf("%w: the fence names no session", service.ErrFenced)
	}
	moved, err := shrink(intents, id)
	if err != nil {
		return 0, err
	}
	owners, err := s.writeParts(ctx, id, moved)
	if err != nil {
		return 0, err
	}
	return s.apply(ctx, s.plan(txn.Fence, intents, id, owners), id)
}

// gather joins what a transaction says about each key, as it would take effect: the last put wins, a delete
// over a put.
func gather(txn service.Txn, id string) ([]*intent, error) {
	if len(txn.Checks)+len(txn.Puts)+len(txn.Deletes) == 0 {
		return nil, errors.New("the transaction is empty")
	}
	var order []*intent
	byKey := make(map[string]*intent, len(txn.Puts)+len(txn.Deletes))
	of := func(key string) *intent {
		if byKey[key] == nil {
			byKey[key] = &intent{key: key}
			order = append(order, byKey[key])
		}
		return byKey[key]
	}
	for _, c := range txn.Checks {
		in := of(c.Key)
		if in.checked && in.revision != c.Revision {
			return nil, fmt.Errorf("%q cannot be at revisions %d and %d: %w", c.Key, in.revision, c.Revision, service.ErrConflict)
		}
		in.checked, in.revision = true, c.Revision
	}
	for _, p := range txn.Puts {
		of(p.Key).put = &sealedPut{key: p.Key, sealed: seal(dataKey(p.Key), kindValue, id, p.Value)}
	}
	for _, k := range txn.Deletes {
		in := of(k)
		in.put, in.delete = nil, true
	}
	if len(order) > maxKeys {
		return nil, fmt.Errorf("%d keys in one transaction, %d are the most: %w", len(order), maxKeys, service.ErrTooLarge)
	}
	return order, nil
}

// role says what a failed operation means.
type role int

const (
	roleFence role = iota + 1
	roleCheck
	roleParts
	roleWrite
)

// plan is a transaction as Consul gets it: roles has one entry an operation.
type plan struct {
	ops   api.TxnOps
	roles []role
}

func (p *plan) add(r role, op api.KVTxnOp) {
	p.ops = append(p.ops, kvOp(op))
	p.roles = append(p.roles, r)
}

// plan orders the operations: fence, records, parts, change record, head. owners is the index of the key that
// the transaction's parts hang on, 0 without parts.
func (s *Store) plan(fence *service.Fence, intents []*intent, id string, owners uint64) *plan {
	p := &plan{}
	root := s.options.Root
	if fence != nil {
		p.add(roleFence, api.KVTxnOp{Verb: api.KVCheckSession, Key: s.options.LeaderKey, Session: fence.Session})
	}
	var change changeRecord
	for _, in := range intents {
		p.addIntent(root+dataKey(in.key), in)
		switch {
		case in.put != nil:
			change.puts = append(change.puts, *in.put)
		case in.delete:
			change.deletes = append(change.deletes, in.key)
		}
	}
	if owners != 0 {
		p.add(roleParts, api.KVTxnOp{Verb: api.KVCheckIndex, Key: root + ownersKey(id), Index: owners})
	}
	sealed := seal(changesDir+id, kindChange, id, change.encode())
	p.add(roleWrite, api.KVTxnOp{Verb: api.KVCAS, Key: root + changesDir + id, Value: sealed})
	p.add(roleWrite, api.KVTxnOp{Verb: api.KVSet, Key: root + headKey, Value: seal(headKey, kindMark, id, nil)})
	return p
}

// addIntent adds the operations on one record. "cas" with index 0 creates only; "delete-cas" is of no use, because it
// succeeds when the key is gone.
func (p *plan) addIntent(key string, in *intent) {
	switch {
	case in.checked && in.put != nil:
		p.add(roleCheck, api.KVTxnOp{Verb: api.KVCAS, Key: key, Value: in.put.sealed, Index: in.revision})
		return
	case in.checked && in.revision == 0:
		p.add(roleCheck, api.KVTxnOp{Verb: api.KVCheckNotExists, Key: key})
		return
	case in.checked:
		p.add(roleCheck, api.KVTxnOp{Verb: api.KVCheckIndex, Key: key, Index: in.revision})
	case in.put != nil:
		p.add(roleWrite, api.KVTxnOp{Verb: api.KVSet, Key: key, Value: in.put.sealed})
	}
	if in.delete {
		p.add(roleWrite, api.KVTxnOp{Verb: api.KVDelete, Key: key})
	}
}

// apply commits a plan and returns the index that its change record got.
func (s *Store) apply(ctx context.Context, p *plan, id string) (uint64, error) {
	if len(p.ops) > maxConsulOps {
		return 0, fmt.Errorf("%d operations in one transaction, Consul takes %d: %w", len(p.ops), maxConsulOps, service.ErrTooLarge)
	}
	results, failed, err := s.write(ctx, p.ops)
	if err != nil {
		return 0, err
	}
	if len(failed) > 0 {
		return 0, p.verdict(failed)
	}
	key := s.options.Root + changesDir + id
	for _, r := range results {
		if r.KV != nil && r.KV.Key == key {
			return r.KV.ModifyIndex, nil
		}
	}
	return 0, fmt.Errorf("it happened, but its revision is unknown: %w", s.denied("read", ""))
}

// verdict makes one error of those of the operations. Consul tries all operations, so that a lost term is seen although a
// check failed as well.
func (p *plan) verdict(failed api.TxnErrors) error {
	worst := roleWrite + 1
	what := ""
	for _, e := range failed {
		if e.OpIndex < len(p.roles) && p.roles[e.OpIndex] < worst {
			worst, what = p.roles[e.OpIndex], e.What
		}
	}
	switch worst {
	case roleFence:
		return fmt.Errorf("%w: %s", service.ErrFenced, what)
	case roleCheck:
		return fmt.Errorf("%w: %s", service.ErrConflict, what)
	case roleParts:
		return fmt.Errorf("%w: the values' parts were collected before the transaction came, nothing was written: %s", service.ErrUnavailable, what)
	default:
		return fmt.Errorf("%w: Consul refused the transaction: %s", service.ErrUnavailable, what)
	}
}
