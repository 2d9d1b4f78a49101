package service

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

// The record families of the store. Any replica writes facts, by compare-and-set on the record; only the leader,
// fenced, writes conclusions.
const (
	familyPeer       = "peer/"       // fact: roster
	familyShutdown   = "shutdown/"   // fact
	familyRemoval    = "removal/"    // fact, gone once the leader concluded it
	familyDismissal  = "dismissal/"  // fact, gone once the leader concluded it
	familyClaim      = "claim/"      // fact, moved on by the leader
	familyAssignment = "assignment/" // fact, moved on by the leader
	familyConclusion = "conclusion/" // what was announced about a peer, with its open episode
	familyPast       = "past/"       // episodes that are over
	familyConflict   = "conflict/"
	familyMass       = "mass/"
	familyEvent      = "event/" // the journal, one record a transaction

	keyEpoch = "meta/epoch"
	keyFloor = "meta/floor"
)

// key joins a family and escaped parts: ids may hold slashes.
func key(family string, parts ...string) string {
	var b strings.Builder
	b.WriteString(family)
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// parts undoes key.
func parts(family, k string) []string {
	rest, ok := strings.CutPrefix(k, family)
	if !ok {
		return nil
	}
	out := strings.Split(rest, "/")
	for i, p := range out {
		s, err := url.PathUnescape(p)
		if err != nil {
			return nil
		}
		out[i] = s
	}
	return out
}

func peerKeyOf(family, k string) (coordination.PeerKey, bool) {
	p := parts(family, k)
	if len(p) != 2 {
		return coordination.PeerKey{}, false
	}
	return coordination.PeerKey{Group: p[0], InstanceID: p[1]}, true
}

func peerKey(family string, k coordination.PeerKey) string { return key(family, k.Group, k.InstanceID) }

func subscriptionKey(family string, k coordination.SubscriptionKey) string {
	return key(family, k.Group, k.Subscription)
}

func pastKey(k coordination.EpisodeKey) string {
	return key(familyPast, k.Group, k.InstanceID, strconv.FormatInt(k.Life, 10), strconv.FormatUint(k.Number, 10))
}

func episodeKeyOf(k string) (coordination.EpisodeKey, bool) {
	p := parts(familyPast, k)
	if len(p) != 4 {
		return coordination.EpisodeKey{}, false
	}
	life, err1 := strconv.ParseInt(p[2], 10, 64)
	number, err2 := strconv.ParseUint(p[3], 10, 64)
	return coordination.EpisodeKey{
		PeerKey: coordination.PeerKey{Group: p[0], InstanceID: p[1]}, Life: life, Number: number,
	}, err1 == nil && err2 == nil
}

// eventKey keeps the journal in commit order: the leader counts transactions, fenced.
func eventKey(seq uint64) string {
	s := strconv.FormatUint(seq, 10)
	return familyEvent + strings.Repeat("0", 20-len(s)) + s
}

func eventSeq(k string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(k, familyEvent), 10, 64)
	return n, err == nil
}
