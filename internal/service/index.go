package service

import (
	"cmp"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// index orders what lists page through, so that no request walks all peers. It is guarded by the service's lock.
type index struct {
	groups      btree.Map[string, *groupIndex]
	orphans     *btree.BTreeG[listed]
	unresolved  *btree.BTreeG[listed]
	claims      *btree.BTreeG[listed]
	assignments *btree.BTreeG[listed]
	at          map[string]time.Time // when each listed id came: its place in the order
}

// listed is a place in a list that runs newest first.
type listed struct {
	at time.Time
	id string
}

func newestFirst(a, b listed) bool {
	return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.id, b.id)) < 0
}

type groupIndex struct {
	all    btree.Set[string]
	status map[coordination.Status]*btree.Set[string]
	labels map[string]*btree.Set[string] // "key\x00value"
	of     map[string]map[string]string  // the labels indexed for a peer
}

func newIndex() *index {
	tree := func() *btree.BTreeG[listed] {
		return btree.NewBTreeGOptions(newestFirst, btree.Options{NoLocks: true})
	}
	return &index{orphans: tree(), unresolved: tree(), claims: tree(), assignments: tree(), at: map[string]time.Time{}}
}

func (ix *index) group(name string) *groupIndex {
	if g, ok := ix.groups.Get(name); ok {
		return g
	}
	g := &groupIndex{
		status: map[coordination.Status]*btree.Set[string]{}, labels: map[string]*btree.Set[string]{}, of: map[string]map[string]string{},
	}
	ix.groups.Set(name, g)
	return g
}

// move follows one peer from status to status.
func (ix *index) move(ch coordination.Change) {
	g, id := ix.group(ch.Key.Group), ch.Key.InstanceID
	if ch.From != "" {
		remove(g.status, string(ch.From), id)
	}
	if ch.To == "" {
		g.all.Delete(id)
		ix.label(ch.Key, nil)
		if g.all.Len() == 0 {
			ix.groups.Delete(ch.Key.Group)
		}
		return
	}
	g.all.Insert(id)
	insert(g.status, string(ch.To), id)
}

// label indexes a peer under its labels.
func (ix *index) label(k coordination.PeerKey, labels map[string]string) {
	g, ok := ix.groups.Get(k.Group)
	if !ok {
		return
	}
	for name, value := range g.of[k.InstanceID] {
		remove(g.labels, labelKey(name, value), k.InstanceID)
	}
	if len(labels) == 0 {
		delete(g.of, k.InstanceID)
		return
	}
	g.of[k.InstanceID] = labels
	for name, value := range labels {
		insert(g.labels, labelKey(name, value), k.InstanceID)
	}
}

func labelKey(name, value string) string { return name + "\x00" + value }

func insert[K ~string](sets map[K]*btree.Set[string], name, id string) {
	set := sets[K(name)]
	if set == nil {
		set = &btree.Set[string]{}
		sets[K(name)] = set
	}
	set.Insert(id)
}

func remove[K ~string](sets map[K]*btree.Set[string], name, id string) {
	if set := sets[K(name)]; set != nil {
		set.Delete(id)
		if set.Len() == 0 {
			delete(sets, K(name))
		}
	}
}

// place puts an id into a list, or takes it out when at is zero.
func (ix *index) place(tree *btree.BTreeG[listed], id string, at time.Time) {
	if at.IsZero() {
		tree.Delete(listed{ix.at[id], id})
		return
	}
	ix.at[id] = at
	tree.Set(listed{at, id})
}

func (s *Service) indexOrphan(id string) {
	v, ok := s.core.Orphan(id)
	if !ok {
		s.index.place(s.index.orphans, id, time.Time{})
		s.index.place(s.index.unresolved, id, time.Time{})
		delete(s.index.at, id)
		return
	}
	if _, known := s.index.at[id]; !known {
		s.index.place(s.index.orphans, id, v.OpenedAt)
	}
	if v.State == coordination.OrphanResolved {
		s.index.place(s.index.unresolved, id, time.Time{})
	} else {
		s.index.place(s.index.unresolved, id, s.index.at[id])
	}
}

func (s *Service) indexClaim(id string) {
	if c, ok := s.core.ClaimByID(id); ok {
		s.index.place(s.index.claims, id, c.ClaimedAt)
		return
	}
	s.index.place(s.index.claims, id, time.Time{})
	delete(s.index.at, id)
}

func (s *Service) indexAssignment(id string) {
	if a, ok := s.core.AssignmentRecord(id); ok {
		s.index.place(s.index.assignments, id, a.AssignedAt)
		return
	}
	s.index.place(s.index.assignments, id, time.Time{})
	delete(s.index.at, id)
}

// after lists up to n peers that follow k, by group and id, beginning anew at the end.
func (ix *index) after(k coordination.PeerKey, n int) []coordination.PeerKey {
	var keys []coordination.PeerKey
	ix.groups.Ascend(k.Group, func(name string, g *groupIndex) bool {
		pivot := ""
		if name == k.Group {
			pivot = k.InstanceID
		}
		g.all.Ascend(pivot, func(id string) bool {
			if name != k.Group || id != k.InstanceID {
				keys = append(keys, coordination.PeerKey{Group: name, InstanceID: id})
			}
			return len(keys) < n
		})
		return len(keys) < n
	})
	return keys
}

// chosen are the sets that hold a group's candidates for a query, the smallest possible: those of the
// statuses asked for, or of one label, or all.
func (g *groupIndex) chosen(q *PeerQuery) []*btree.Set[string] {
	for name, value := range q.Labels {
		if set := g.labels[labelKey(name, value)]; set != nil {
			return []*btree.Set[string]{set}
		}
		return nil
	}
	if len(q.Status) == 0 {
		return []*btree.Set[string]{&g.all}
	}
	var sets []*btree.Set[string]
	seen := map[coordination.Status]bool{}
	for _, st := range q.Status {
		if set := g.status[st]; set != nil && !seen[st] {
			sets = append(sets, set)
		}
		seen[st] = true
	}
	return sets
}

// mergeSets walks several sorted sets as one, from pivot on.
func mergeSets(sets []*btree.Set[string], pivot string, visit func(id string) bool) {
	iters := make([]btree.SetIter[string], 0, len(sets))
	for _, set := range sets {
		it := set.Iter()
		if it.Seek(pivot) {
			iters = append(iters, it)
		}
	}
	for len(iters) > 0 {
		least := 0
		for i := range iters {
			if iters[i].Key() < iters[least].Key() {
				least = i
			}
		}
		if !visit(iters[least].Key()) {
			return
		}
		if !iters[least].Next() {
			iters = append(iters[:least], iters[least+1:]...)
		}
	}
}

// indexed reports whether the chosen sets alone answer the query, so that counts need no walk.
func (q *PeerQuery) indexed() bool {
	return q.Q == "" && q.Subscription == "" && (len(q.Labels) == 0 || (len(q.Labels) == 1 && len(q.Status) == 0))
}

func (q *PeerQuery) matchesID(id string) bool {
	return q.Q == "" || strings.Contains(strings.ToLower(id), strings.ToLower(q.Q))
}
