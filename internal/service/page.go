package service

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidwall/btree"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (p Page) limit() (int, error) {
	switch {
	case p.Limit == 0:
		return defaultLimit, nil
	case p.Limit < 1 || p.Limit > maxLimit:
		return 0, invalid("/limit", fmt.Sprintf("is %d; it must be from 1 to %d", p.Limit, maxLimit))
	}
	return p.Limit, nil
}

// encodeCursor makes an opaque cursor: the kind of list it belongs to, and where the next page starts.
func encodeCursor(kind string, place ...string) string {
	text, err := json.Marshal(append([]string{kind}, place...))
	if err != nil {
		panic(err) // strings always marshal
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decode reads a cursor of the kind, with at least one part.
func (p Page) decode(kind string) ([]string, error) {
	text, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil {
		return nil, badCursor()
	}
	var place []string
	if json.Unmarshal(text, &place) != nil || len(place) < 2 || place[0] != kind {
		return nil, badCursor()
	}
	return place[1:], nil
}

func badCursor() error {
	return invalid("/cursor", "is not a next_cursor of this list; start without one")
}

func invalid(pointer, detail string) error {
	return &coordination.InvalidError{Fields: []coordination.FieldError{{Pointer: pointer, Detail: detail}}}
}

// newest pages a newest-first list: load copies an item, or says that it does not match.
func newest[T any](p Page, kind string, tree *btree.BTreeG[listed], load func(id string) (T, bool)) (List[T], error) {
	list := List[T]{Items: []T{}}
	limit, err := p.limit()
	if err != nil {
		return list, err
	}
	var from listed
	if p.Cursor != "" {
		place, err := p.decode(kind)
		if err != nil || len(place) != 2 {
			return list, badCursor()
		}
		if from.at, err = time.Parse(time.RFC3339Nano, place[0]); err != nil {
			return list, badCursor()
		}
		from.id = place[1]
	}
	var last listed
	tree.Scan(func(l listed) bool {
		item, ok := load(l.id)
		if !ok {
			return true
		}
		list.Total++
		if p.Cursor != "" && !newestFirst(from, l) {
			return true
		}
		switch {
		case len(list.Items) < limit:
			list.Items = append(list.Items, item)
			last = l
		case list.NextCursor == "":
			list.NextCursor = encodeCursor(kind, last.at.Format(time.RFC3339Nano), last.id)
		}
		return true
	})
	return list, nil
}
