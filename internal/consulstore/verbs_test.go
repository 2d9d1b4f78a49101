//go:build integration

package consulstore

import (
	"context"
	"testing"

	"github.com/hashicorp/consul/api"
)

// What the store rests on and Consul's documentation leaves open. A Consul that behaves otherwise breaks the store, and
// fails here first.
func TestWhatConsulsVerbsDo(t *testing.T) {
	client := clientOf(t, shared(t).Addr(1), "")
	root := rootOf(t)
	txn := func(t *testing.T, ops ...api.KVTxnOp) (api.TxnResults, api.TxnErrors) {
		t.Helper()
		var all api.TxnOps
		for _, op := range ops {
			op.Key = root + op.Key
			all = append(all, kvOp(op))
		}
		_, response, _, err := client.Txn().Txn(all, (&api.QueryOptions{RequireConsistent: true}).WithContext(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		return response.Results, response.Errors
	}
	set := func(t *testing.T, key, value string) uint64 {
		t.Helper()
		results, errs := txn(t, api.KVTxnOp{Verb: api.KVSet, Key: key, Value: []byte(value)})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return results[0].KV.ModifyIndex
	}
	fails := func(t *testing.T, want bool, op api.KVTxnOp) {
		t.Helper()
		if _, errs := txn(t, op); (len(errs) > 0) != want {
			t.Errorf("%s of %q at %d: errors %v, want some: %t", op.Verb, op.Key, op.Index, errs, want)
		}
	}

	t.Run("all keys of a transaction get one index, which grows", func(t *testing.T) {
		before := set(t, "one/0", "")
		results, _ := txn(t,
			api.KVTxnOp{Verb: api.KVSet, Key: "one/1", Value: []byte("1")},
			api.KVTxnOp{Verb: api.KVDelete, Key: "one/0"},
			api.KVTxnOp{Verb: api.KVCAS, Key: "one/2", Value: []byte("2")})
		if len(results) != 2 || results[0].KV.ModifyIndex != results[1].KV.ModifyIndex || results[0].KV.ModifyIndex <= before {
			t.Errorf("after %d: %+v, want two results of one later index (a delete has none)", before, results)
		}
	})
	t.Run("a write that changes nothing does not move the index", func(t *testing.T) {
		if first, second := set(t, "same", "x"), set(t, "same", "x"); first != second {
			t.Errorf("indexes %d and %d", first, second)
		}
	})
	t.Run("cas with index 0 creates only, another index needs the key", func(t *testing.T) {
		fails(t, true, api.KVTxnOp{Verb: api.KVCAS, Key: "cas", Index: 7})
		fails(t, false, api.KVTxnOp{Verb: api.KVCAS, Key: "cas"})
		fails(t, true, api.KVTxnOp{Verb: api.KVCAS, Key: "cas"})
	})
	t.Run("delete-cas succeeds on a key that is gone, check-index does not", func(t *testing.T) {
		fails(t, false, api.KVTxnOp{Verb: api.KVDeleteCAS, Key: "gone", Index: 7})
		fails(t, true, api.KVTxnOp{Verb: api.KVCheckIndex, Key: "gone", Index: 7})
	})
	t.Run("the empty session holds a free key, no session an absent one", func(t *testing.T) {
		set(t, "free", "x")
		fails(t, false, api.KVTxnOp{Verb: api.KVCheckSession, Key: "free"})
		fails(t, true, api.KVTxnOp{Verb: api.KVCheckSession, Key: "free", Session: "never-held"})
		fails(t, true, api.KVTxnOp{Verb: api.KVCheckSession, Key: "absent"})
	})
	t.Run("all failing operations are told, nothing is written", func(t *testing.T) {
		_, errs := txn(t,
			api.KVTxnOp{Verb: api.KVCheckSession, Key: "absent", Session: "x"},
			api.KVTxnOp{Verb: api.KVSet, Key: "half", Value: []byte("x")},
			api.KVTxnOp{Verb: api.KVCheckIndex, Key: "absent", Index: 1})
		if len(errs) != 2 || errs[0].OpIndex != 0 || errs[1].OpIndex != 2 {
			t.Errorf("errors %v, want those of operations 0 and 2", errs)
		}
		fails(t, true, api.KVTxnOp{Verb: api.KVGet, Key: "half"})
	})
	t.Run("get-or-empty answers for an absent key, with index 0", func(t *testing.T) {
		results, errs := txn(t, api.KVTxnOp{Verb: api.KVGetOrEmpty, Key: "absent"})
		if len(errs) > 0 || len(results) != 1 || results[0].KV.ModifyIndex != 0 || results[0].KV.Value != nil {
			t.Errorf("%+v, %v", results, errs)
		}
	})
	t.Run("128 operations are taken, one more is not", func(t *testing.T) {
		var ops api.TxnOps
		for range maxConsulOps {
			ops = append(ops, kvOp(api.KVTxnOp{Verb: api.KVGetOrEmpty, Key: root + "absent"}))
		}
		if _, _, _, err := client.Txn().Txn(ops, nil); err != nil {
			t.Error(err)
		}
		if _, _, _, err := client.Txn().Txn(append(ops, ops[0]), nil); err == nil || !isTooLarge(err.Error()) {
			t.Errorf("one more: %v", err)
		}
	})
}
