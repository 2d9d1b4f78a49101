package service

import (
	"slices"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

const (
	// maxPast bounds the episodes kept as history, maxEnded the assignments.
	maxPast  = 10_000
	maxEnded = 10_000
)

// queue keeps what has ended in the order in which it did, each once.
type queue[K comparable] struct {
	keys []K
	has  map[K]struct{}
}

func (q *queue[K]) add(k K) {
	if _, ok := q.has[k]; ok {
		return
	}
	if q.has == nil {
		q.has = map[K]struct{}{}
	}
	q.has[k] = struct{}{}
	q.keys = append(q.keys, k)
}

func (q *queue[K]) drop(k K) {
	if _, ok := q.has[k]; !ok {
		return
	}
	delete(q.has, k)
	i := slices.Index(q.keys, k)
	q.keys = slices.Delete(q.keys, i, i+1)
}

// expired names up to limit of the oldest keys that outlived their retention or exceed most.
func (q *queue[K]) expired(most, limit int, outlived func(K) bool) []K {
	n := 0
	for n < len(q.keys) && n < limit && (len(q.keys)-n > most || outlived(q.keys[n])) {
		n++
	}
	return slices.Clone(q.keys[:n])
}

// expiredPast names up to limit of the episodes whose records may go.
func (s *Service) expiredPast(limit int) []coordination.EpisodeKey {
	edge := s.looked.Add(-s.opts.Core.PeerRetention)
	return s.past.expired(maxPast, limit, func(k coordination.EpisodeKey) bool {
		return s.core.PastClosedAt(k).Before(edge)
	})
}

// dropPast forgets an episode whose record went.
func (s *Service) dropPast(storeKey string) {
	k, ok := episodeKeyOf(storeKey)
	if !ok {
		return
	}
	s.past.drop(k)
	s.collect(s.core.ForgetPast(s.looked, k))
}

// noteEnded queues an ended assignment for its own end.
func (s *Service) noteEnded(id string) {
	if rec, ok := s.core.AssignmentRecord(id); ok && !rec.EndedAt.IsZero() {
		s.ended.add(id)
	}
}

// expiredAssignments names ended assignments past their retention, or beyond the bound.
func (s *Service) expiredAssignments(limit int) []string {
	edge := s.looked.Add(-s.opts.Core.PeerRetention)
	return s.ended.expired(maxEnded, limit, func(id string) bool {
		rec, ok := s.core.AssignmentRecord(id)
		return !ok || rec.EndedAt.Before(edge)
	})
}

func (s *Service) dropAssignment(id string) {
	s.core.ForgetAssignment(id)
	s.indexAssignment(id)
	s.ended.drop(id)
}
