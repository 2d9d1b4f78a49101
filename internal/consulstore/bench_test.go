//go:build integration

package consulstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/coordsvc/coordsvc/internal/service"
)

// peerSized is about what the record of a peer with a few subscriptions takes.
const peerSized = 700

func peerPuts(first, count int) service.Txn {
	value := []byte(strings.Repeat("x", peerSized))
	var txn service.Txn
	for n := first; n < first+count; n++ {
		txn.Puts = append(txn.Puts, service.Put{Key: fmt.Sprintf("peer/default/worker-%06d", n), Value: value})
	}
	return txn
}

// BenchmarkCommit is transactions of as many peers as fit, from several writers, while the replica follows its own changes.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 4} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := start(b, Options{})
			txns := make(chan int)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					txn := peerPuts(w*s.MaxOperations(), s.MaxOperations())
					for range txns {
						if _, err := s.Commit(b.Context(), txn); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for b.Loop() {
				txns <- 1
			}
			close(txns)
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			b.ReportMetric(float64(b.N*s.MaxOperations())/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkList reads all records, as a replica does at its start and after a gap.
func BenchmarkList(b *testing.B) {
	for _, peers := range []int{10_000, 50_000} {
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) {
			s := start(b, Options{})
			firsts := make(chan int)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for first := range firsts {
						if _, err := s.Commit(b.Context(), peerPuts(first, min(s.MaxOperations(), peers-first))); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for first := 0; first < peers; first += s.MaxOperations() {
				firsts <- first
			}
			close(firsts)
			wg.Wait()
			for b.Loop() {
				if records, _, err := s.List(b.Context(), ""); err != nil || len(records) != peers {
					b.Fatalf("%d records, %v", len(records), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/list")
		})
	}
}
