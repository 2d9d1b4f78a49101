package coordination

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// raise adds an event. Followers raise nothing.
func (c *Core) raise(now time.Time, id string, t EventType, d EventData) {
	if !c.leading {
		return
	}
	d.Epoch = c.epoch
	c.out.Events = append(c.out.Events, Event{ID: id, Type: t, Timestamp: now.UTC(), Data: d})
	c.out.Touched = true
}

// id derives an event id from peer, episode and type, so that the next leader repeats it with the same one. n tells apart
// what can happen more than once in a peer's life.
func (c *Core) id(p *peer, t EventType, n uint64) string {
	return eventID(string(t), p.key.Group, p.key.InstanceID, uint64(p.firstSeen.UnixNano()), n)
}

func (c *Core) idFor(a, b string, t EventType, n uint64) string { return eventID(string(t), a, b, n) }

// LeaderChangedID is the id of the leader.changed event of an epoch.
func LeaderChangedID(epoch uint64) string { return eventID(string(EventLeaderChanged), "", "", epoch) }

func eventID(t, a, b string, n ...uint64) string { return hashID("evt_", []string{t, a, b}, n...) }

func orphanID(e *episode, subscription string) string {
	return hashID("orp_", []string{e.Group, e.InstanceID, subscription}, uint64(e.Life), e.Number)
}

func claimID(k SubscriptionKey, token uint64) string {
	return hashID("clm_", []string{k.Group, k.Subscription}, token)
}

// idAlphabet is Crockford's base 32 in lower case: nothing in it is mistaken for something else.
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// hashID is a short stable name: 100 bits of SHA-256 over length-prefixed parts.
func hashID(prefix string, parts []string, numbers ...uint64) string {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	for _, x := range numbers {
		binary.BigEndian.PutUint64(n[:], x)
		h.Write(n[:])
	}
	var b strings.Builder
	b.WriteString(prefix)
	b.WriteString(base32.NewEncoding(idAlphabet).EncodeToString(h.Sum(nil))[:20])
	return b.String()
}

// optional drops the zero time.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
