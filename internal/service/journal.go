package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// journal is the committed event stream as this replica knows it. It is fed only from the store, in commit
// order, so that every replica streams the same events in the same order.
type journal struct {
	limit int

	mu      sync.Mutex
	entries []JournalEntry
	records []journalRecord
	// gone is the newest position that left the journal.
	gone   Position
	wakeup chan struct{} // closed and replaced at every append
}

type journalRecord struct {
	seq, revision uint64
	events        int
}

func newJournal(limit int) *journal { return &journal{limit: limit, wakeup: make(chan struct{})} }

// Before orders positions.
func (p Position) Before(q Position) bool {
	if p.Revision != q.Revision {
		return p.Revision < q.Revision
	}
	return p.Index < q.Index
}

// String is the resume position as it stands in an SSE id and a cursor.
func (p Position) String() string { return fmt.Sprintf("%d-%d", p.Revision, p.Index) }

// ParsePosition reads what String wrote.
func ParsePosition(text string) (Position, error) {
	var p Position
	var rest string
	n, _ := fmt.Sscanf(text+" ", "%d-%d%s", &p.Revision, &p.Index, &rest)
	if n != 2 || p.Index < 0 || p.String() != text {
		return Position{}, fmt.Errorf("position %q is not of the form <revision>-<index>", text)
	}
	return p, nil
}

// append takes one journal record of the store in; a repeated one changes nothing.
func (j *journal) append(rec Record) ([]coordination.Event, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(rec.Value, &raw); err != nil {
		return nil, fmt.Errorf("read journal record %s: %w", rec.Key, err)
	}
	seq, ok := eventSeq(rec.Key)
	if !ok {
		return nil, fmt.Errorf("read journal record %s: key has no number", rec.Key)
	}
	events := make([]coordination.Event, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &events[i]); err != nil {
			return nil, fmt.Errorf("read event %d of %s: %w", i, rec.Key, err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.records); n > 0 && j.records[n-1].seq >= seq {
		return nil, nil
	}
	for i := range events {
		j.entries = append(j.entries, JournalEntry{Position{rec.Revision, i}, events[i], raw[i]})
	}
	j.records = append(j.records, journalRecord{seq, rec.Revision, len(events)})
	close(j.wakeup)
	j.wakeup = make(chan struct{})
	return events, nil
}

// drop forgets a record that left the store.
func (j *journal) drop(seq uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.records) > 0 && j.records[0].seq <= seq {
		n := j.records[0].events
		if n > 0 {
			j.gone = j.entries[n-1].Position
		}
		j.entries = j.entries[n:]
		j.records = j.records[1:]
	}
}

// overflow lists the records that may leave: the oldest above the limit, none past floor.
func (j *journal) overflow(floor Position, most int) []uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var seqs []uint64
	excess := len(j.entries) - j.limit
	for _, r := range j.records {
		excess -= r.events
		if excess < 0 || len(seqs) == most || floor.Before(Position{r.revision, r.events - 1}) {
			break
		}
		seqs = append(seqs, r.seq)
	}
	return seqs
}

func (j *journal) lastSeq() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.records) == 0 {
		return 0
	}
	return j.records[len(j.records)-1].seq
}

// after copies up to limit entries past pos, and a channel that closes when there are more.
func (j *journal) after(pos Position, limit int) ([]JournalEntry, <-chan struct{}, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if pos != (Position{}) && pos.Before(j.gone) {
		return nil, nil, ErrGap
	}
	i, found := slices.BinarySearchFunc(j.entries, pos, func(e JournalEntry, p Position) int {
		switch {
		case e.Before(p):
			return -1
		case p.Before(e.Position):
			return 1
		}
		return 0
	})
	if found {
		i++
	}
	rest := j.entries[i:]
	if len(rest) > limit {
		rest = rest[:limit]
	}
	return slices.Clone(rest), j.wakeup, nil
}

// After returns up to limit events after pos, waiting for the first one until ctx ends.
func (s *Service) After(ctx context.Context, pos Position, limit int) ([]JournalEntry, error) {
	if s.Head().Before(pos) {
		if err := s.awaitHead(ctx, pos); err != nil {
			return nil, err
		}
	}
	for {
		entries, more, err := s.journal.after(pos, limit)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-more:
		}
	}
}

// replicaLag is how far behind another replica this one may be while all is well, with a margin.
const replicaLag = 2 * time.Second

// awaitHead waits until the journal reaches a position that a reader brought from another replica. One that is not reached
// is from another life of the store: what came after it is not known, ErrGap.
func (s *Service) awaitHead(ctx context.Context, pos Position) error {
	late := time.NewTimer(replicaLag)
	defer late.Stop()
	for {
		_, more, err := s.journal.after(pos, 1)
		switch {
		case err != nil:
			return err
		case !s.Head().Before(pos):
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return ErrGap
		case <-more:
		}
	}
}

// Head is the position of the newest event.
func (s *Service) Head() Position {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	if n := len(s.journal.entries); n > 0 {
		return s.journal.entries[n-1].Position
	}
	return s.journal.gone
}

// Events pages the journal, newest first unless asked otherwise.
func (s *Service) Events(q EventQuery) (List[JournalEntry], error) {
	limit, err := q.limit()
	if err != nil {
		return List[JournalEntry]{}, err
	}
	var from Position
	if q.Cursor != "" {
		text, err := q.decode("e")
		if err != nil {
			return List[JournalEntry]{}, err
		}
		if from, err = ParsePosition(text[0]); err != nil {
			return List[JournalEntry]{}, badCursor()
		}
	}
	s.journal.mu.Lock()
	entries := s.journal.entries[:len(s.journal.entries):len(s.journal.entries)]
	s.journal.mu.Unlock()
	list := List[JournalEntry]{Items: []JournalEntry{}}
	for i := range entries {
		e := &entries[len(entries)-1-i]
		if q.OldestFirst {
			e = &entries[i]
		}
		if !q.Matches(&e.Event) {
			continue
		}
		list.Total++
		if q.Cursor != "" && (e.Position == from || e.Before(from) == q.OldestFirst) {
			continue
		}
		switch {
		case len(list.Items) < limit:
			list.Items = append(list.Items, *e)
		case list.NextCursor == "":
			list.NextCursor = encodeCursor("e", list.Items[limit-1].String())
		}
	}
	return list, nil
}
